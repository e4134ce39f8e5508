"""An environment under test and its episodes, for tests with a plain `def`."""

from __future__ import annotations

from asyncio import Runner
from collections.abc import Callable
from functools import partial
from typing import Any

from ludus.client import Policy
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Trajectory
from ludus.testing.environment import LocalEnvironment, LocalEpisode, Step


class BlockingEpisode:
    """A `LocalEpisode` whose methods return when they are done: `step = episode.guess(number=50)`."""

    def __init__(self, runner: Runner, episode: LocalEpisode) -> None:
        self._runner = runner
        self._episode = episode

    @property
    def task(self) -> Any:
        """The task, with its private fields."""
        return self._episode.task

    @property
    def prompt(self) -> str:
        """The text of the prompt."""
        return self._episode.prompt

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools."""
        return self._episode.tools

    @property
    def steps(self) -> list[Step]:
        """The outcomes of the tool calls so far."""
        return self._episode.steps

    @property
    def ended(self) -> bool:
        """Whether the episode has ended."""
        return self._episode.ended

    @property
    def end_reason(self) -> EndReason | None:
        """Why the episode ended; None while it runs."""
        return self._episode.end_reason

    @property
    def total(self) -> Reward | None:
        """The reward until now, with its components; after the end the total."""
        return self._episode.total

    @property
    def reward(self) -> float | None:
        """The value of `total`; None if the episode is unscored."""
        return self._episode.reward

    @property
    def components(self) -> dict[str, float]:
        """The unweighted values of the reward's components, by name."""
        return self._episode.components

    def __getattr__(self, name: str) -> Callable[..., Step]:
        getattr(self._episode, name)  # raises an AttributeError that lists the tools
        return partial(self.call, name)

    def call(self, tool: str, /, **arguments: Any) -> Step:
        """Call a tool; see `LocalEpisode.call`."""
        return self._runner.run(self._episode.call(tool, **arguments))

    def answer(self, text: str) -> Reward | None:
        """Submit the agent's final message; see `LocalEpisode.answer`."""
        return self._runner.run(self._episode.answer(text))

    def close(self) -> Reward | None:
        """End the episode; see `LocalEpisode.close`."""
        return self._runner.run(self._episode.close())


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
