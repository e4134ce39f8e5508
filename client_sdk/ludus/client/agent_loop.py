"""The agent loop: run one episode with a policy, from the prompt to the end, and record it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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
from ludus.protocol import errors as e
from ludus.protocol.actions import Call
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import TURN_TEXT_CHARS, EpisodeInfo, GradeResult, StepError, StepResult, TurnMark
from ludus.protocol.items import CallItem, Item, MalformedCall, OutputItem, checked, to_json
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, Event
from ludus.protocol.rewards import Reward, total
from ludus.protocol.text import replace_surrogates
from ludus.protocol.trajectory import Failure, FailureKind, Stop, Trajectory, tool_records

EPISODE_LOST_ERRORS: Final = (e.EpisodeNotFound, e.EpisodeEnded, e.StepConflict, e.KeyConflict, e.GroupNotFound)
"""Request errors that mean that the episode was lost, not that the request was wrong."""

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


class PolicyFailed(Exception):
    """A policy raised an exception that is not a `LudusError`; it is in `__cause__`."""


async def run_episode(
    episode: Episode,
    policy: Policy,
    *,
    harness: Harness | None = None,
    gradable: bool = True,
    sample: int = 0,
    version: str = "",
) -> Trajectory:
    """Run a policy through a started episode, close the episode, and return its trajectory.

    Args:
        episode: a started episode without steps.
        policy: see `ludus.client.policies`.
        harness: limits; `Harness()` when None.
        gradable: whether the environment grades a final message.
        sample: the number of this episode among several of the same task.
        version: the environment's version, for the trajectory.

    Returns:
        The trajectory. If something broke, `failure` is set and the trajectory holds everything up to that point.

    Raises:
        RequestError: the request or the policy's endpoint is set up wrongly, so every episode would fail.
    """
    run = _Run(episode, policy, harness or Harness(), gradable, sample, version)
    try:
        return await run.run()
    except BaseException as error:
        await episode.__aexit__(type(error), error, None)
        raise


@dataclass(slots=True)
class _Run:
    episode: Episode
    policy: Policy
    harness: Harness
    gradable: bool
    sample: int
    version: str
    items: list[Item] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    """The fields of `StepRecord`s; the trajectory validates all of them at once, which is faster than one by one."""
    turns: list[dict[str, Any]] = field(default_factory=list)
    """The fields of `TurnRecord`s."""
    ids: CallIds = field(default_factory=CallIds)
    call_ids: set[str] = field(default_factory=set)
    results: tuple[StepResult, ...] = ()
    end: StepResult | EpisodeInfo | None = None
    graded: GradeResult | None = None
    stopped: Stop | None = None

    async def run(self) -> Trajectory:
        started_at, clock = time.time(), time.perf_counter()
        self.items += self.episode.prompt
        failure: Failure | None = None
        reward: Reward | None = None
        try:
            await self._play()
            reward = await self._settle()
            failure = self._failure_of_end()
        except e.LudusError as error:
            if isinstance(error, e.RequestError) and not isinstance(error, EPISODE_LOST_ERRORS):
                raise
            failure = failure_of(error, self.episode.id)
            await self._abandon(error)
        except PolicyFailed as error:
            failure = failure_of(error.__cause__ or error, self.episode.id, "policy")
            await self._abandon(error)
        return self._trajectory(started_at, time.perf_counter() - clock, reward, failure)

    def _trajectory(
        self, started_at: float, seconds: float, reward: Reward | None, failure: Failure | None
    ) -> Trajectory:
        fields = {
            "environment": self.episode.environment,
            "environment_version": self.version,
            "split": self.episode.task.split,
            "task": self.episode.task,
            "sample": self.sample,
            "policy": policy_name(self.policy),
            "seed": self.episode.seed,
            "episode": self.episode.id,
            "group": self.episode.group,
            "status": self.end.status if self.end else None,
            "end_reason": self.end.end_reason if self.end else None,
            "stopped": self.stopped,
            "reward": None if failure else reward,
            "grade": self.graded.reward if self.graded else None,
            "items": to_json(self.items),
            "tools": tool_records(self.episode.tools),
            "steps": self.steps,
            "turns": self.turns,
            "started_at": started_at,
            "seconds": seconds,
            "failure": failure,
        }
        return Trajectory.model_validate(fields)

    async def _abandon(self, error: Exception) -> None:
        """Close an episode that failed, and ask the server how it ended if the server can still say."""
        await self.episode.__aexit__(type(error), error, None)
        if isinstance(error, e.EpisodeFailed | e.EpisodeEnded) and self.end is None:
            try:
                self.end = await self.episode.info()
            except e.LudusError:
                return

    async def _play(self) -> None:
        """Take turns until the last one, or until the time or the number of turns is used up."""
        limit: asyncio.Timeout | None = None
        try:
            async with self.harness.limit(self.harness.episode_seconds) as limit:
                choose = self._begin()
                try:
                    for turn in range(1, self.harness.max_turns + 1):
                        if await self._turn(choose, turn):
                            return
                    self.stopped = "turn_limit"
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
            return begin(self._conversation(1))
        except e.LudusError:
            raise
        except Exception as error:
            raise PolicyFailed from error

    async def _turn(self, choose: EpisodePolicy, number: int) -> bool:
        """Run one turn, and return whether it was the last one."""
        before = time.perf_counter()
        turn = await self._choose(choose, self._conversation(number))
        chosen = time.perf_counter()
        last = await self._act(turn, number)
        now = time.perf_counter()
        self.turns.append(
            {
                "items": len(self.items),
                "policy_seconds": chosen - before,
                "environment_seconds": now - chosen,
                "usage": turn.usage,
            }
        )
        return last

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
            raise PolicyFailed from error
        except Exception as error:
            if isinstance(error, TimeoutError) and limit is not None and limit.expired():
                if self.harness.slow_turn == "truncate":
                    return Turn((), stopped="time_limit")
                raise e.DeadlineExceeded(
                    f"the policy took longer than {self.harness.turn_seconds:g} s for turn {conversation.turn}"
                ) from None
            raise PolicyFailed from error

    async def _act(self, turn: Turn, number: int) -> bool:
        if turn.stopped is not None:
            self.stopped = turn.stopped
            return True
        items = [self._recordable(item) if isinstance(item, CallItem) else item for item in turn.items]
        self.items += items
        calls = [item for item in items if isinstance(item, CallItem)]
        if calls:
            await self._call_all(calls, self._marks(calls, number, turn))
            return self.end is not None
        if not self.gradable:
            self.stopped = "final_message"
            return True
        try:
            self.graded = await self.episode.grade(turn.text)
            self.end = self.graded.info
        except e.EpisodeEnded:
            self.end = await self.episode.info()
        return True

    def _recordable(self, item: CallItem) -> CallItem:
        """Return a call in a form that can be recorded: with a unique id and with arguments that JSON can hold.

        Ids can repeat because some endpoints restart the numbering of calls in each turn.
        """
        call_id = item.call_id
        while call_id in self.call_ids:
            call_id = self.ids.next()
        self.call_ids.add(call_id)
        call = checked(item.call) if isinstance(item.call, Call) else item.call
        return item if call is item.call and call_id == item.call_id else CallItem(call_id, call)

    def _marks(self, calls: Sequence[CallItem], number: int, turn: Turn) -> list[TurnMark | None]:
        """Return the turn mark of each call; None for all of them if the environment does not judge turns."""
        if not self.episode.judges_turns:
            return [None] * len(calls)
        sent = [at for at, item in enumerate(calls) if isinstance(item.call, Call)]
        if not sent:
            return [None] * len(calls)
        text = replace_surrogates(turn.text[:TURN_TEXT_CHARS])
        return [TurnMark(number=number, last=at == sent[-1], text=text * (at == sent[0])) for at in range(len(calls))]

    async def _call_all(self, calls: Sequence[CallItem], marks: Sequence[TurnMark | None]) -> None:
        """Make the calls, several of them concurrently, and record their outcomes in the order of the calls."""
        if len(calls) == 1:
            outcomes: list[_Outcome | BaseException] = [await self._call(calls[0], marks[0])]
        else:
            outcomes = list(await asyncio.gather(*map(self._call, calls, marks), return_exceptions=True))
        results: list[StepResult] = []
        broken: BaseException | None = None
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                broken = broken or outcome
                continue
            if outcome is None:
                refusal = TextBlock(text="not run: the episode had ended")
                self.items.append(OutputItem(call.call_id, (refusal,), error=True))
                continue
            result, seconds = outcome
            self._note(call, result, seconds)
            results.append(result)
        if broken is not None:
            raise broken
        self.results = tuple(results)
        if self.end is None and len(results) < len(calls):
            self.end = await self.episode.info()

    async def _call(self, item: CallItem, mark: TurnMark | None) -> _Outcome:
        """Return the result of a call and its seconds; None if the episode had already ended, such as by a limit."""
        before = time.perf_counter()
        if isinstance(item.call, MalformedCall):
            return _policy_error(item.call.problem), 0.0
        try:
            call = self.episode.call(item.call) if mark is None else self.episode.call_in_turn(mark, item.call)
            result = await call
        except (e.InvalidParams, e.PayloadTooLarge) as error:
            # Arguments that the wire refuses, such as megabytes of text, are a mistake of the policy.
            return _policy_error(error.message), 0.0
        except e.EpisodeEnded:
            return None
        return result, time.perf_counter() - before

    def _note(self, call: CallItem, result: StepResult, seconds: float) -> None:
        self.items.append(OutputItem(call.call_id, result.content, error=result.error is not None))
        self.steps.append(
            {
                "step": result.step,
                "call_id": call.call_id,
                "error": result.error.code if result.error else None,
                "noise": result.noise,
                "reward": result.reward,
                "metadata": result.metadata,
                "seconds": seconds,
            }
        )
        if result.end_reason is not None:
            self.end = result

    def _conversation(self, turn: int) -> Conversation:
        results = self.results
        if results and not getattr(self.policy, "sees_rewards", False):
            results = tuple(map(_redacted, results))
        return Conversation(
            environment=self.episode.environment,
            task=self.episode.task,
            seed=self.episode.seed,
            sample=self.sample,
            turn=turn,
            items=tuple(self.items),
            tools=self.episode.tools,
            gradable=self.gradable,
            results=results,
        )

    async def _settle(self) -> Reward | None:
        """Close the episode and return its total reward."""
        try:
            self.end = info = await self.episode.close()
        except (e.Unsupported, e.Forbidden, e.MethodNotFound, e.NotFound):
            # The wire or the token does not allow the request, or the episode is gone.
            return self._own_total()
        return info.reward if info.reward is not None else self._own_total()

    def _own_total(self) -> Reward | None:
        rewards = [step["reward"] for step in self.steps if step["reward"] is not None]
        if self.graded is not None and self.graded.reward is not None:
            rewards.append(self.graded.reward)
        return total(rewards) if rewards else None

    def _failure_of_end(self) -> Failure | None:
        reason = self.end.end_reason if self.end is not None else None
        if reason is None or self.stopped is not None:
            return None
        incident = self.end.incident if isinstance(self.end, EpisodeInfo) else None
        if EVENT_OF_REASON[reason] is Event.FAIL:
            kind: FailureKind = "environment" if reason is EndReason.ENVIRONMENT_ERROR else "infrastructure"
        elif EVENT_OF_REASON[reason] is Event.CLOSE:
            kind = "infrastructure"
        else:
            return None
        return Failure(
            kind=kind,
            error="EpisodeFailed",
            message=f"the episode ended with {reason}",
            incident=incident,
            attempt=1,
            episode=self.episode.id,
        )


_Outcome = tuple[StepResult, float] | None


def failure_of(error: BaseException, episode: str | None = None, kind: FailureKind | None = None) -> Failure:
    """Return the `Failure` that a trajectory records for an error."""
    if kind is None:
        kind = "environment" if isinstance(error, e.EnvironmentFailed) else "infrastructure"
    message, incident = str(error), None
    if isinstance(error, e.LudusError):
        message, incident = error.message, error.incident
    elif isinstance(error, ModuleNotFoundError) and error.name:
        message = f"{error}; install it with: pip install {error.name.partition('.')[0]}"
    return Failure(
        kind=kind,
        error=type(error).__name__,
        message=message,
        incident=incident,
        attempt=1,
        episode=episode,
    )


def _redacted(result: StepResult) -> StepResult:
    """Return the result without the fields that policies do not see."""
    if result.reward is None and not result.metadata and result.noise is None:
        return result
    return result.model_copy(update=REDACTED_FIELDS)


def _policy_error(problem: str) -> StepResult:
    """Return the observation for a call that cannot be made. It does not count as a step of the episode."""
    error = StepError(code="invalid_arguments", message=problem)
    return StepResult(step=0, content=(TextBlock(text=f"Error: {problem}"),), error=error)
