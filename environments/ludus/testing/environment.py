"""An environment under test and its episodes, for tests with `async def`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ludus.client import Client, Episode, Policy, RemoteEnvironment, rollout_all
from ludus.protocol.actions import Answer
from ludus.protocol.content import text_of
from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import EpisodeFailed
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Trajectory
from ludus.server.tasks.catalog import Published


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one tool call."""

    result: StepResult

    @property
    def text(self) -> str:
        """The text that the agent reads; of an error, its message."""
        return text_of(self.result.content)

    @property
    def reward(self) -> float | None:
        """The reward of this step; None if it gave none or is unscored."""
        return self.result.reward.value if self.result.reward is not None else None

    @property
    def error(self) -> str | None:
        """The kind of the agent's mistake (`unknown_tool`, `invalid_arguments`, `refused`); None if there is none."""
        return self.result.error.code if self.result.error is not None else None

    @property
    def ended(self) -> bool:
        """Whether the episode ended with this step."""
        return self.result.ended


class EpisodeState:
    """What is known about an episode under test.

    Attributes:
        remote: the client's asynchronous episode, for everything that this class does not offer.
        task: the task, with its private fields.
        steps: the outcomes of the tool calls so far.
        total: the reward until now, with its components; after the end the total.
        end_reason: why the episode ended; None while it runs.
    """

    def __init__(self, remote: Episode, task: Any) -> None:
        self.remote = remote
        self.task: Any = task
        self.steps: list[Step] = []
        self.total: Reward | None = None
        self.end_reason: EndReason | None = None

    @property
    def prompt(self) -> str:
        """The text of the prompt."""
        return "\n".join(text_of(message.content) for message in self.remote.prompt)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tool.name for tool in self.remote.tools)

    @property
    def ended(self) -> bool:
        """Whether the episode has ended."""
        return self.end_reason is not None

    @property
    def reward(self) -> float | None:
        """The value of `total`; None if the episode is unscored."""
        return self.total.value if self.total is not None else None

    @property
    def components(self) -> dict[str, float]:
        """The unweighted values of the reward's components, by name."""
        return {name: part.value for name, part in self.total.components.items()} if self.total is not None else {}

    def _require_tool(self, name: str) -> None:
        """Raise an `AttributeError` that lists the tools if there is none with this name."""
        if name.startswith("_") or name not in self.tools:
            raise AttributeError(f"the episode has neither an attribute nor a tool {name!r}; its tools: {self.tools}")


class LocalEpisode(EpisodeState):
    """An episode under test. Call a tool as a method, `await episode.guess(number=50)`, or by name with `call`."""

    def __init__(self, remote: Episode, task: Any, failures: Failures) -> None:
        super().__init__(remote, task)
        self._failures = failures

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Step]]:
        self._require_tool(name)
        return partial(self.call, name)

    async def call(self, tool: str, /, **arguments: Any) -> Step:
        """Call a tool and return the outcome. A mistake of the agent raises nothing; see `Step.error`.

        Raises:
            EpisodeFailed: the environment's code raised; its exception is the cause of this one.
            EpisodeEnded: the episode had already ended.
        """
        with self._failures.as_cause():
            step = Step(await self.remote.call(tool, **arguments))
        self.steps.append(step)
        await self.refresh()
        return step

    async def answer(self, text: str) -> Reward | None:
        """Submit the agent's final message, which ends the episode, and return its grade; None if it has none.

        Raises:
            EpisodeFailed: the environment's code raised; its exception is the cause of this one.
            EpisodeEnded: the episode had already ended.
        """
        with self._failures.as_cause():
            result = await self.remote.grade(text)
        await self.refresh()
        return result.reward

    async def close(self) -> Reward | None:
        """End the episode as a trainer does that stops early, and return the reward that it has earned."""
        with self._failures.as_cause():
            await self.remote.close()
        await self.refresh()
        return self.total

    async def refresh(self) -> None:
        """Read `total` and `end_reason` from the server again."""
        rewards = await self.remote.rewards()
        self.total, self.end_reason = rewards.total, rewards.end_reason


class LocalEnvironment:
    """An environment under test.

    Attributes:
        name: the name under which it is published.
        url: the address of its server.
        client: a client of the server, with the trainer's rights.
        remote: the client's environment, for everything that this class does not offer.
    """

    def __init__(
        self,
        client: Client,
        published: Published,
        stack: AsyncExitStack,
        failures: Failures,
        secrets: Mapping[str, str],
    ) -> None:
        self.name = published.name
        self.url = client.url
        self.client = client
        self.remote: RemoteEnvironment = client.environment(published.name)
        self._published = published
        self._stack = stack
        self._failures = failures
        self._secrets = dict(secrets)

    async def start(
        self, task: str | None = None, *, index: int | None = None, split: str | None = None, seed: int | None = 0
    ) -> LocalEpisode:
        """Start an episode, which ends with the environment at the latest.

        Args:
            task: the id of the task.
            index: the index of the task; 0 without `task` and `index`.
            split: the name of the split; the first one by default.
            seed: the seed of the episode; None lets the server draw one.

        Raises:
            TaskNotFound, SplitNotFound: there is no such task or split.
            EpisodeFailed: the environment's `setup` or `prompt` raised; its exception is the cause of this one.
        """
        split = split if split is not None else next(iter(self._published.splits))
        index = 0 if task is None and index is None else index
        seed = seed if self._published.cls.seedable else None
        with self._failures.as_cause():
            remote = await self.remote.start(split=split, task=task, index=index, seed=seed, secrets=self._secrets)
        await self._stack.enter_async_context(remote)
        episode = LocalEpisode(remote, self._published.split(split).get(remote.task.index), self._failures)
        await episode.refresh()
        return episode

    async def oracle(
        self, task: str | None = None, *, index: int | None = None, split: str | None = None, seed: int | None = 0
    ) -> LocalEpisode:
        """Start an episode, play the environment's `oracle` to its end, and return the episode. Arguments as `start`.

        Raises:
            NotImplementedError: the environment has no oracle.
        """
        episode = await self.start(task, index=index, split=split, seed=seed)
        moves = self._published.cls.oracle(episode.task)
        try:
            move = next(moves)
            while not episode.ended:
                if isinstance(move, Answer):
                    await episode.answer(move.text)
                    break
                step = await episode.call(move.tool, **move.arguments)
                move = moves.send(step.result)
        except StopIteration:
            if not episode.ended:
                await episode.answer("")
        finally:
            moves.close()
        return episode

    async def rollout(
        self, policy: Policy, n: int | None = None, *, split: str | None = None, seed: int = 0, samples: int = 1
    ) -> list[Trajectory]:
        """Play tasks with a policy, such as `ludus.client.RandomPolicy()`, and return what was recorded.

        Args:
            policy: the policy.
            n: the number of tasks; all by default.
            split: the name of the split; the first one by default.
            seed: the seed of the episodes.
            samples: the episodes per task.
        """
        split = split if split is not None else next(iter(self._published.splits))
        return await rollout_all(
            self.remote, policy, split=split, n=n, seed=seed, samples=samples, retries=0, secrets=self._secrets
        )


class Failures(logging.Handler):
    """Remembers the exceptions that the environment's code raises, and makes them the cause of the client's error.

    The wire carries only the type of such an exception and an incident id, because its text may hold private fields.
    """

    def __init__(self) -> None:
        super().__init__()
        self._causes: dict[str, BaseException] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the exception of a log record that has an incident id."""
        incident = getattr(record, "incident", None)
        if incident is not None and record.exc_info and record.exc_info[1] is not None:
            self._causes[str(incident)] = record.exc_info[1]

    @contextmanager
    def as_cause(self) -> Iterator[None]:
        """Give an `EpisodeFailed` from within the block its exception as the cause."""
        try:
            yield
        except EpisodeFailed as error:
            if (cause := self._causes.get(error.incident or "")) is None:
                raise
            raise error from cause
