"""Play an environment step by step from blocking code, for systems whose interface is `reset`, `step` and `close`.

How this works:

* A `SteppedEnvironment` holds one client, in the event loop of the blocking client, and at most one open episode.
* `call` and `answer` take one step and return what the agent sees, the reward and the end. The rewards of an episode
  add up to its total: the last step carries what the total has in addition to the rewards before it, such as a grade.
* An unscored episode has no reward that could be returned, so it raises its failure and is counted in `UNSCORED`.
* The client is closed by `close`, when the object is collected, and when the interpreter exits.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ludus.client import (
    CallItem,
    Client,
    Driver,
    EnvironmentInfo,
    EpisodeLimits,
    EpisodeOutcome,
    OutputItem,
    ServerAddress,
    ToolSpec,
    Turn,
    connect,
    text_of,
)
from ludus.client.portal import portal
from ludus.client.sync import run_sync
from ludus.integrations.unscored import count
from ludus.protocol.episodes import StepResult, TaskRow
from ludus.protocol.errors import EpisodeFailed, InvalidParams, LudusError, Unsupported
from ludus.protocol.items import parse_arguments, text_message
from ludus.protocol.lifecycle import EndReason, is_terminated, is_truncated
from ludus.protocol.modules import Module

ENDLESS_TASKS: Final = 2**31
"""The number of tasks to draw from in an endless split of an environment that is not seedable."""


class Step(NamedTuple):
    """What a step returned."""

    text: str
    """The observation as text; empty after an answer."""
    reward: float | None
    """What the step earned; None if it earned nothing, which is worth 0."""
    end_reason: EndReason | None
    """Why the episode has ended; None while it goes on."""
    error: str | None
    """The code of the agent's mistake, such as `invalid_arguments`; None without one."""
    components: Mapping[str, float]
    """The components of the step's reward; after the end, those of the episode's. For the trainer only."""
    metadata: Mapping[str, Any]
    """The author's remarks. For the trainer only."""

    @property
    def terminated(self) -> bool:
        """Whether the task itself has ended."""
        return is_terminated(self.end_reason)

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut short, and what it earned stands."""
        return is_truncated(self.end_reason)


class SteppedEnvironment:
    """One environment of a server, of which one episode is open at a time.

    Args:
        server: the server's address.
        environment: the environment's name; it may be left out if the server has one only.
        adapter: the name under which unscored episodes are counted.
        observation_chars: the characters after which observations are cut, by the server if it offers the module
            `limits`, and else here; no further limit than the environment's own when None.
        reconnect_seconds: how long a lost connection is tried again.
        token: the trainer token; that in the address's variable when None.

    Raises:
        LudusError: the server cannot be reached, refuses the token, or has no such environment.
        InvalidParams: no name was given, and the server has several environments.
        ValueError: the address is none.
    """

    def __init__(
        self,
        server: ServerAddress,
        environment: str | None = None,
        *,
        adapter: str,
        observation_chars: int | None = None,
        reconnect_seconds: float = 30.0,
        token: str | None = None,
    ) -> None:
        self._adapter, self._observation_chars = adapter, observation_chars
        self._cut_at: int | None = None
        """The characters after which observations are cut here, on a server without the module `limits`."""
        client = connect(
            server.url,
            token=os.environ.get(server.token_variable) if token is None else token,
            wire=server.wire,
            reconnect_seconds=reconnect_seconds,
        )
        self._client: Final = portal().keep(client)
        self._driver: Driver | None = None
        self._earned: list[float] = []
        self._release: Final = weakref.finalize(self, run_sync(_closer(client)))
        self._release.atexit = False  # the portal closes what it keeps
        try:
            self.info: Final[EnvironmentInfo] = run_sync(_info(client, environment))
        except BaseException:
            self.close()
            raise
        self._remote = client.environment(self.info.name)

    @property
    def is_open(self) -> bool:
        """Whether an episode is open that has not ended."""
        return self._driver is not None

    def start(
        self, *, split: str | None = None, task: str | None = None, index: int | None = None, seed: int | None = None
    ) -> Started:
        """End the open episode, if there is one, and start another.

        Args:
            split: the first one when None.
            task: the task's id.
            index: the task's index. With neither id nor index, the seed draws the task.
            seed: the seed of the episode. For an environment that is not seedable, it draws the task only.

        Raises:
            LudusError: the episode could not be started.
        """
        self.end()
        info = self.info
        name = split if split is not None else info.splits[0].name
        if not info.seedable:
            if task is None and index is None and seed is not None:
                tasks = {one.name: one.count for one in info.splits}.get(name) or ENDLESS_TASKS
                index = random.Random(seed).randrange(tasks)
            seed = None
        self._driver = driver = run_sync(self._start(name, task, index, seed))
        self._earned = []
        episode = driver.episode
        prompt = "\n\n".join(text_of(message.content) for message in episode.prompt)
        return Started(prompt, episode.task, episode.seed, episode.tools)

    async def _start(self, split: str, task: str | None, index: int | None, seed: int | None) -> Driver:
        remote, limits = self._remote, None
        if self._observation_chars is not None and self._cut_at is None:
            limits = EpisodeLimits(observation_chars=self._observation_chars)
        try:
            episode = await remote.start(split=split, task=task, index=index, seed=seed, limits=limits)
        except Unsupported as error:
            if limits is None or error.data.get("module") != Module.LIMITS:
                raise
            self._cut_at = self._observation_chars
            episode = await remote.start(split=split, task=task, index=index, seed=seed)
        return Driver(episode)

    def call(self, tool: str, arguments: Mapping[str, Any] | str) -> Step:
        """Call a tool. A mistake of the agent is an observation.

        Args:
            tool: the tool's name.
            arguments: the arguments as a mapping, or as JSON text.

        Raises:
            InvalidParams: there is no open episode.
            LudusError: the episode is unscored.
        """
        return self._take(Turn((CallItem("call", parse_arguments(tool, arguments)),)))

    def answer(self, text: str) -> Step:
        """Submit the agent's final message, which ends the episode.

        Raises:
            InvalidParams: there is no open episode.
            LudusError: the episode is unscored.
        """
        return self._take(Turn((text_message("assistant", text),)))

    def _take(self, turn: Turn) -> Step:
        driver = self._driver
        if driver is None:
            raise InvalidParams("there is no open episode: reset the environment first")
        before = len(driver.items)
        try:
            outcome = run_sync(_take(driver, turn))
        except BaseException:
            self.end()
            raise
        result = driver.results[0] if turn.calls and driver.results else None
        own = result.reward if result is not None else None
        earned = own.value if own is not None else None
        if outcome is None and own is not None and earned is None:  # then the total is unscored, too
            self.end()
            outcome = EpisodeOutcome(None, own.reason or "", {}, end_reason=None, stopped=None, failure=None)
        if outcome is not None:
            self._driver = None
            if outcome.value is None:
                _raise(count(outcome, self._adapter))
        outputs = [item for item in driver.items[before:] if isinstance(item, OutputItem)]
        return Step(
            text=_cut("\n".join(text_of(item.content) for item in outputs), self._cut_at),
            reward=self._reward(earned if turn.calls or not driver.episode.gradable else 0.0, outcome),
            end_reason=outcome.end_reason if outcome is not None else None,
            error=result.error.code if result is not None and result.error is not None else None,
            components=outcome.components if outcome is not None else _components(result),
            metadata=result.metadata if result is not None else {},
        )

    def _reward(self, own: float | None, outcome: EpisodeOutcome | None) -> float | None:
        """Return what a step earned, with what the total has in addition to all steps if it is the last one."""
        if own is not None:
            self._earned.append(own)
        if outcome is None or outcome.value is None:
            return own
        rest = outcome.value - math.fsum(self._earned)
        return own if math.isclose(rest, 0.0, abs_tol=1e-9) else (own or 0.0) + rest

    def tasks(self, split: str, indices: Iterable[int]) -> list[TaskRow]:
        """Return tasks by their indices, without starting an episode.

        Raises:
            NotFound: there is no such split or task.
        """

        async def found() -> list[TaskRow]:
            return list(await asyncio.gather(*(self._remote.task(split, index=index) for index in indices)))

        return run_sync(found())

    def end(self) -> None:
        """Close the open episode, if there is one. It keeps what it has earned; errors of the server are ignored."""
        driver, self._driver = self._driver, None
        if driver is not None:
            with suppress(LudusError):
                run_sync(driver.episode.close())

    def close(self) -> None:
        """Close the open episode and the connection. Closing twice is no error."""
        self.end()
        if self._release.detach():
            run_sync(self._client.close())


class Started(NamedTuple):
    """How an episode began."""

    text: str
    """The prompt."""
    task: TaskRow
    seed: int
    tools: tuple[ToolSpec, ...]
    """The episode's tools."""


def _cut(text: str, chars: int | None) -> str:
    """Return a text with at most that many characters, and a remark in place of the rest."""
    if chars is None or len(text) <= chars:
        return text
    remark = f"\n[observation cut: it has {len(text)} characters]"
    return text[: max(0, chars - len(remark))] + remark


async def _closer(client: Client) -> Callable[[], None]:
    """Return a function that closes a client soon, from any thread and without waiting: garbage collection calls it."""
    loop, owner = asyncio.get_running_loop(), os.getpid()
    closing: set[asyncio.Task[None]] = set()

    def close() -> None:
        task = loop.create_task(client.close())
        closing.add(task)
        task.add_done_callback(closing.discard)

    def close_soon() -> None:
        if os.getpid() == owner:  # not in a forked child, which shares the connection with this process
            with suppress(RuntimeError):  # the loop has ended, and the portal has closed the client
                loop.call_soon_threadsafe(close)

    return close_soon


async def _info(client: Client, name: str | None) -> EnvironmentInfo:
    if name is not None:
        return await client.environment(name).info()
    found = await client.environments()
    if len(found) != 1:
        names = ", ".join(info.name for info in found) or "none"
        raise InvalidParams(f"the server {client.url} has several environments, name one of them: {names}")
    return found[0]


async def _take(driver: Driver, turn: Turn) -> EpisodeOutcome | None:
    """Take a turn, and return the outcome if the episode has ended."""
    await driver.take(turn)
    return await driver.finish() if driver.done else None


def _components(result: StepResult | None) -> dict[str, float]:
    if result is None or result.reward is None:
        return {}
    return {name: part.value for name, part in result.reward.components.items()}


def _raise(outcome: EpisodeOutcome) -> None:
    """Raise the failure of an unscored episode."""
    outcome.raise_for_failure()
    raise EpisodeFailed(f"the episode is unscored: {outcome.reason}")
