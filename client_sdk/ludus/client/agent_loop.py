"""The agent loop: run one episode with a policy, from the prompt to the end, and record it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ludus.client.driver import Driver
from ludus.client.episode import Episode
from ludus.client.policies.base import (
    CallIds,
    Conversation,
    EpisodePolicy,
    Policy,
    Turn,
    as_turn,
    policy_name,
)
from ludus.client.tracing import in_trace
from ludus.protocol import errors as e
from ludus.protocol.episodes import StepResult
from ludus.protocol.trajectory import Stop, Trajectory

__all__ = ["Harness", "run_episode"]


REDACTED_FIELDS: Final[Mapping[str, Any]] = {"reward": None, "metadata": {}, "noise": None}
"""Fields of a step's result that policies do not see, with the values that replace them."""


@dataclass(frozen=True, slots=True)
class Harness:
    """The limits of the agent loop."""

    max_turns: int = 200
    """The most turns of the policy. An environment's own step limit usually ends an episode earlier."""
    turn_seconds: float | None = None
    """Seconds for one turn of the policy; `slow_turn` says what happens to a longer one."""
    episode_seconds: float | None = None
    """Seconds for the whole episode; after them it is stopped and keeps what it has earned."""
    slow_turn: Literal["fail", "truncate"] = "fail"
    """What a turn longer than `turn_seconds` causes. `fail` records an infrastructure failure. `truncate` stops the
    episode, which keeps what it has earned: use it if the policy itself is slow and not an endpoint."""
    limit: Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]] = asyncio.timeout
    """The function that makes the time limits: of the whole episode first, even if it is None, then of each turn that
    has one. A trainer sets one that does not count the pauses of its engine."""


BeforeTurn = Callable[[Driver, EpisodePolicy], Awaitable[None]]
"""A function that is awaited before each turn, with the conversation so far and what chooses the next turn."""


class _PolicyRaised(Exception):
    """A policy raised an exception that is not a `LudusError`; it is in `__cause__`."""


async def run_episode(
    episode: Episode | Driver,
    policy: Policy,
    *,
    harness: Harness | None = None,
    sample: int = 0,
    version: str = "",
    before_turn: BeforeTurn | None = None,
) -> Trajectory:
    """Run a policy through a started episode, close the episode, and return its trajectory.

    Args:
        episode: a started episode without steps; or a driver, whose conversation goes on.
        policy: see `ludus.client.policies`.
        harness: limits; `Harness()` when None. Turns before a branch count.
        sample: the number of this episode among several of the same task.
        version: the environment's version, for the trajectory.
        before_turn: awaited before each turn; its time counts for the limit of the whole episode.

    Returns:
        The trajectory. If something broke, `failure` is set and the trajectory holds everything up to that point.

    Raises:
        RequestError: the request or the policy's endpoint is set up wrongly, so every episode would fail.
    """
    driver = episode if isinstance(episode, Driver) else Driver(episode)
    try:
        with in_trace(driver.episode):
            await _Run(driver, policy, harness or Harness(), sample, before_turn).run()
    except BaseException as error:
        await driver.episode.__aexit__(type(error), error, None)
        raise
    return driver.trajectory(policy_name(policy), sample=sample, version=version)


@dataclass(slots=True)
class _Run:
    driver: Driver
    policy: Policy
    harness: Harness
    sample: int
    before_turn: BeforeTurn | None = None
    ids: CallIds = field(default_factory=CallIds)
    stopped: Stop = "turn_limit"
    """Why the episode stops if it is not done after its turns."""

    async def run(self) -> None:
        try:
            await self._play()
        except _PolicyRaised as error:
            await self.driver.fail(error.__cause__ or error, "policy")
        except e.LudusError as error:
            await self.driver.fail(error)
        await self.driver.finish(self.stopped)

    async def _play(self) -> None:
        """Take turns until the last one, or until the time or the number of turns is used up."""
        limit: asyncio.Timeout | None = None
        try:
            async with self.harness.limit(self.harness.episode_seconds) as limit:
                choose = self._begin()
                try:
                    for turn in range(self.driver.turns + 1, self.harness.max_turns + 1):
                        if self.before_turn is not None:
                            await self.before_turn(self.driver, choose)
                        before = time.perf_counter()
                        chosen = await self._choose(choose, self._conversation(turn))
                        await self.driver.take(chosen, time.perf_counter() - before)
                        if self.driver.done:
                            return
                finally:
                    aclose = getattr(choose, "aclose", None)
                    if aclose is not None and choose is not self.policy:
                        await aclose()
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            self.stopped = "time_limit"

    def _begin(self) -> EpisodePolicy:
        # The same check as `isinstance(self.policy, StatefulPolicy)`, which takes 20 times as long.
        policy: Any = self.policy
        begin: Callable[[Conversation], EpisodePolicy] | None = getattr(policy, "begin", None)
        if begin is None:
            return policy  # type: ignore[no-any-return]
        try:
            return begin(self._conversation(self.driver.turns + 1))
        except e.LudusError:
            raise
        except Exception as error:
            raise _PolicyRaised from error

    async def _choose(self, choose: EpisodePolicy, conversation: Conversation) -> Turn:
        limit: asyncio.Timeout | None = None
        try:
            if self.harness.turn_seconds is None:
                result = await choose(conversation)
            else:
                async with self.harness.limit(self.harness.turn_seconds) as limit:
                    result = await choose(conversation)
            return as_turn(result, self.ids)
        except e.LudusError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # This task was not canceled: the policy raised the error, perhaps from a task of its own.
            raise _PolicyRaised from error
        except Exception as error:
            if isinstance(error, TimeoutError) and limit is not None and limit.expired():
                if self.harness.slow_turn == "truncate":
                    return Turn((), stopped="time_limit")
                raise e.DeadlineExceeded(
                    f"the policy took longer than {self.harness.turn_seconds:g} s for turn {conversation.turn}"
                ) from None
            raise _PolicyRaised from error

    def _conversation(self, turn: int) -> Conversation:
        driver, episode = self.driver, self.driver.episode
        results = driver.results
        if results and not getattr(self.policy, "sees_rewards", False):
            results = tuple(map(_redacted, results))
        return Conversation(
            environment=episode.environment,
            task=episode.task,
            seed=episode.seed,
            sample=self.sample,
            turn=turn,
            items=tuple(driver.items),
            tools=episode.tools,
            gradable=episode.gradable,
            results=results,
            place=driver.place,
        )


def _redacted(result: StepResult) -> StepResult:
    """Return the result without the fields that policies do not see."""
    if result.reward is None and not result.metadata and result.noise is None:
        return result
    return result.model_copy(update=REDACTED_FIELDS)
