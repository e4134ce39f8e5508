"""An environment under test and its episodes, for tests with a plain `def`."""

from __future__ import annotations

from asyncio import Runner
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from ludus.client import Policy
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Trajectory
from ludus.testing.environment import EpisodeState, LocalEnvironment, LocalEpisode, Step

T = TypeVar("T")


class BlockingEpisode(EpisodeState):
    """A `LocalEpisode` whose methods return when they are done: `step = episode.guess(number=50)`."""

    def __init__(self, runner: Runner, episode: LocalEpisode) -> None:
        super().__init__(episode.remote, episode.task)
        self._runner = runner
        self._episode = episode
        self._copy_state()

    def _copy_state(self) -> None:
        self.steps, self.total, self.end_reason = self._episode.steps, self._episode.total, self._episode.end_reason

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        finally:
            self._copy_state()

    def __getattr__(self, name: str) -> Callable[..., Step]:
        self._require_tool(name)
        return partial(self.call, name)

    def call(self, tool: str, /, **arguments: Any) -> Step:
        """Call a tool; see `LocalEpisode.call`."""
        return self._run(self._episode.call(tool, **arguments))

    def answer(self, text: str) -> Reward | None:
        """Submit the agent's final message; see `LocalEpisode.answer`."""
        return self._run(self._episode.answer(text))

    def close(self) -> Reward | None:
        """End the episode; see `LocalEpisode.close`."""
        return self._run(self._episode.close())


class BlockingEnvironment:
    """A `LocalEnvironment` whose methods return when they are done."""

    def __init__(self, runner: Runner, environment: LocalEnvironment) -> None:
        self._runner = runner
        self._environment = environment
        self.name = environment.name
        self.url = environment.url

    def start(
        self, task: str | None = None, *, index: int | None = None, split: str | None = None, seed: int | None = 0
    ) -> BlockingEpisode:
        """Start an episode; see `LocalEnvironment.start`."""
        started = self._runner.run(self._environment.start(task, index=index, split=split, seed=seed))
        return BlockingEpisode(self._runner, started)

    def oracle(
        self, task: str | None = None, *, index: int | None = None, split: str | None = None, seed: int | None = 0
    ) -> BlockingEpisode:
        """Play the environment's oracle; see `LocalEnvironment.oracle`."""
        played = self._runner.run(self._environment.oracle(task, index=index, split=split, seed=seed))
        return BlockingEpisode(self._runner, played)

    def rollout(
        self, policy: Policy, n: int | None = None, *, split: str | None = None, seed: int = 0, samples: int = 1
    ) -> list[Trajectory]:
        """Play tasks with a policy; see `LocalEnvironment.rollout`."""
        return self._runner.run(self._environment.rollout(policy, n, split=split, seed=seed, samples=samples))
