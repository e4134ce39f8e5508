"""Runs the steps of episodes: once per key, one at a time unless their tools are concurrent, each with a deadline.

How this works:

    accept()            return the earlier record for a repeated key; otherwise check the number, the turn and the
      │                 memory limits, and create a record
      └─ _launch()      start the record, or queue it behind calls that it must not overlap
           └─ _begin()  start a watchdog timer for the deadline, and a task for `_run`:
                ├─ _outcome()      `_execute` or `_grade`, with every exception turned into a result or an error:
                │                  noise, arguments, the author's code (in a thread if it may block), step rewards
                ├─ _judge_turns()  rewards for the turns that end with the step
                └─ settle()        limits, reward log, end of the episode, waking the waiters, next in the queue

A record is settled exactly once, by the first of three: its own task; the watchdog, when the deadline passes
(`_overdue`); or `drain`, when the episode ends for another reason. The task of a record that is settled from outside
is canceled. While a call waits for a thread, its `Clock` stops the watchdog and moves the deadline (`_arm`).

A step runs in a task of its own, so a client that disconnects or cancels its wait does not affect it. A step can end
the episode: `settle` then calls `on_end`, which is the host's, and the host calls `drain`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ludus.protocol.bounds import digest_of, same_json
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import NoiseKind, StepError, StepErrorCode, StepResult, TurnMark
from ludus.protocol.errors import EpisodeFailed, InvalidParams, KeyConflict, LudusError, StepConflict
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry, total
from ludus.protocol.text import replace_surrogates
from ludus.server.authoring.noise import Noise, NoiseEvent
from ludus.server.authoring.results import ToolError, ToolOutcome, cut, read, read_reward
from ludus.server.authoring.tools import InvalidArguments, StepContext, Tool
from ludus.server.runtime import scoring, turns, user_code
from ludus.server.runtime.clock import CLOCK, Clock
from ludus.server.runtime.episode import Episode, StepRecord
from ludus.server.runtime.journal import Asked, Journal, Settled
from ludus.server.runtime.limits import ServerLimits
from ludus.server.runtime.memory import TOOL_NAME_CHARS, Holding
from ludus.server.runtime.threads import Share, Threads, Workers


class OnEnd(Protocol):
    """The callback that ends an episode."""

    def __call__(
        self, episode: Episode, reason: EndReason, failure: EpisodeFailed | None, last: StepRecord | None = None
    ) -> None:
        """End the episode; `last` is the record that ended it."""
        ...


@dataclass(slots=True)
class StepCounts:
    """Counts of what the runner has done since the host started."""

    settled: int = 0
    tool_errors: int = 0
    noise: Counter[NoiseKind] = field(default_factory=Counter)
    """Steps that noise changed, by kind."""
    seconds: float = 0.0
    """Time spent in steps, without queueing."""


class StepRunner:
    """Runs steps in tasks of its own, so that a step goes on when the request that waits for it is canceled."""

    def __init__(self, workers: Workers, journal: Journal | None, on_end: OnEnd, limits: ServerLimits) -> None:
        self._workers = workers
        self._holding = Holding(limits)
        self._journal = journal
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.counts = StepCounts()
        self.observe: Callable[[str, float], None] | None = None
        """Called with the environment's name and the seconds of each step that finished by itself; optional."""

    # ── accepting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def accept(
        self, episode: Episode, number: int | None, key: str, tool: str | None, arguments: dict[str, Any],
        turn: TurnMark | None = None, *, refused: StepError | None = None,
    ) -> StepRecord:  # fmt: skip
        """Return the record of a call: the earlier one for a repeated key, otherwise a new one, started or queued.

        Args:
            episode: the episode to step.
            number: the step's number; None lets the host number it.
            key: the call's idempotency key.
            tool: the tool's name; None for the grade.
            arguments: the tool's arguments; `{"answer": …}` for the grade.
            turn: the turn that the call belongs to, if the client marks turns.
            refused: an error to refuse the call with, without running the tool; used when steps are replayed.

        Raises:
            CapacityError: too many calls of the episode run or wait.
            KeyConflict: the key was used for another call.
            StepConflict: the number is not the next one.
            InvalidParams: the turn has already ended.
            EpisodeEnded: the episode has ended.
        """
        if tool is not None and len(tool) > TOOL_NAME_CHARS:
            tool = tool[:TOOL_NAME_CHARS]
        earlier = episode.keys.get(key) if episode.keys is not None else None
        if earlier is not None:
            _check_same(earlier, number, tool, arguments, turn)
            if earlier.outcome is None:
                self._holding.await_repeat(episode, earlier, arguments)
            return earlier
        if episode.end_reason is not None:
            raise episode.ended_error()
        grade = tool is None
        due = episode.asked if grade else episode.asked + 1
        if number is not None and number != due:
            raise StepConflict(
                f"episode {episode.id} expects step {due}, not {number}: steps are numbered from 1 without gaps, and a "
                "repeated step must carry the key it had",
                episode=episode.id,
                expected=due,
            )
        if turn is not None:
            _check_turn(episode, turn)
        size, too_large = self._holding.admit(episode, arguments, turn.text if turn is not None else "", final=grade)
        record = StepRecord(due, key, tool, arguments, turn)
        record.size, record.refused = size, refused or too_large
        if record.refused is not None:
            record.digest, record.arguments = digest_of(arguments), {}
        episode.asked = due
        if episode.keys is None or episode.records is None:
            episode.keys, episode.records = {}, []
        episode.keys[key] = record
        if grade:
            episode.graded = record
        else:
            episode.records.append(record)
        if self._journal is not None:
            self._journal.append(Asked(episode.id, due, key, tool, record.arguments, turn))
        if episode.published.judges_turns:
            turns.asked(episode, record)
        self._launch(episode, record)
        return record

    def _launch(self, episode: Episode, record: StepRecord) -> None:
        tool = episode.tools.get(record.tool) if record.tool is not None else None
        shared = tool is not None and tool.concurrent
        if episode.queue or (episode.active and not (shared and episode.sharing)):
            if episode.queue is None:
                episode.queue = deque()
            episode.queue.append(record)
            return
        self._begin(episode, record, tool, shared)

    def _begin(self, episode: Episode, record: StepRecord, tool: Tool | None, shared: bool) -> None:
        now = self._loop.time()
        allowed = episode.limits.tool_seconds or 0.0
        if (end := episode.deadline) is not None:
            allowed = min(allowed, max(0.0, end - now))
        episode.sharing = shared
        if episode.active is None:
            episode.active = [record]
        else:
            episode.active.append(record)
        record.watchdog = self._loop.call_later(allowed, self._overdue, episode, record)
        clock = Clock(now + allowed, partial(self._arm, episode, record))
        record.task = self._loop.create_task(self._run(episode, record, tool, now, clock))

    def _arm(self, episode: Episode, record: StepRecord, deadline: float | None, waited: float) -> None:
        """Reset a record's watchdog. The time that a call waited for a thread does not count for the episode either."""
        if record.watchdog is not None:
            record.watchdog.cancel()
            record.watchdog = None
        if record.outcome is None:
            episode.began += waited
            if deadline is not None:
                record.watchdog = self._loop.call_at(deadline, self._overdue, episode, record)

    # ── running ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, episode: Episode, record: StepRecord, tool: Tool | None, began: float, clock: Clock) -> None:
        CLOCK.set(clock)
        try:
            outcome = await self._outcome(episode, record, tool, clock)
            if episode.published.judges_turns and record.outcome is None and isinstance(outcome, StepResult):
                outcome = await self._judge_turns(episode, record, outcome)
            if record.outcome is None:
                took = self._loop.time() - began
                self.counts.seconds += took
                if self.observe is not None:
                    self.observe(episode.published.name, took)
                record.task = None  # the task ends by itself, so `settle` need not look up the current task
                self.settle(episode, record, outcome)
        finally:
            # The record outlives the episode, and the traceback of a canceled task would keep the environment alive.
            record.task = None

    async def _outcome(
        self, episode: Episode, record: StepRecord, tool: Tool | None, clock: Clock
    ) -> StepResult | LudusError:
        own = record.task
        try:
            return await self._execute(episode, record, tool, clock)
        except ToolError as error:
            return self._refusal(record, "refused", user_code.message_of(error, "the tool refused"))
        except InvalidArguments as error:
            return self._refusal(record, "invalid_arguments", f"Wrong arguments for {record.tool}: {error}")
        except BaseException as error:
            if user_code.from_host(error, own):
                raise
            return user_code.failure(_what(record), episode.id, episode.published.name, error)

    async def _judge_turns(self, episode: Episode, record: StepRecord, outcome: StepResult) -> StepResult | LudusError:
        own = asyncio.current_task()
        try:
            record.turn_rewards = await scoring.judge_turns(self._threads(episode), episode, record, outcome)
        except BaseException as error:
            if user_code.from_host(error, own):
                raise
            return user_code.failure("judging a turn", episode.id, episode.published.name, error)
        return outcome

    async def _execute(
        self, episode: Episode, record: StepRecord, tool: Tool | None, clock: Clock
    ) -> StepResult | LudusError:
        instance = episode.instance
        if record.refused is not None:
            return self._refusal(record, record.refused.code, record.refused.message)
        if record.tool is None:
            return await self._grade(episode, record)
        if tool is None:
            have = ", ".join(episode.tools)
            return self._refusal(record, "unknown_tool", f"There is no tool {record.tool!r}. Tools: {have}.")
        hit = None if (noise := episode.published.cls.noise) is None else _hit(noise, episode, record)
        if hit is not None and hit.kind == "delay":
            await self._delay(episode, record, hit.seconds(), clock)

        def context() -> StepContext:
            return StepContext(step=record.number, deadline=clock.deadline, rng=instance.rng)

        arguments = tool.arguments(record.arguments, context)
        if hit is not None and hit.kind == "tool_error":
            record.noise = hit.kind
            return hit.instead(record.number)
        target = instance if tool.owner is None else episode.toolsets[tool.owner]
        method = tool.function if tool.function is not None else getattr(target, tool.attribute)
        threads: Threads | None = None
        if tool.offload:
            share = self._threads(episode)
            place = share.enter_at_once()
            if place is None:
                place = await share.enter()
                tool.renew(arguments, context)
            threads = place
        reading = read(await user_code.run_in(record.task, threads, method, (), arguments))
        finished = reading.finished or tool.ends
        if episode.published.cls._binding is not None:
            reading = await scoring.judge_step(self._threads(episode), episode, record, reading, finished=finished)
        result = self._result(episode, record, reading, finished=finished)
        if hit is None or result.ended or (noisy := hit.after(result)) is result:
            return result
        record.noise, record.original_result = hit.kind, result
        return noisy

    async def _delay(self, episode: Episode, record: StepRecord, seconds: float, clock: Clock) -> None:
        """Wait before a call, and move its deadline by as much, but not past the episode's deadline."""
        record.noise = "delay"
        later = clock.deadline + seconds
        clock.move(later if episode.deadline is None else min(later, episode.deadline))
        await asyncio.sleep(seconds)

    def _threads(self, episode: Episode) -> Share:
        return self._workers.share(episode.published.name)

    async def _grade(self, episode: Episode, record: StepRecord) -> StepResult:
        reading = ToolOutcome((TextBlock(text="Your answer was handed in. The episode is over."),))
        if episode.published.gradable:
            cls = episode.published.cls
            offload = cls.blocking and not inspect.iscoroutinefunction(cls.grade)
            if cls._binding is not None:
                scoring.prepare(self._threads(episode), episode)
            value = await user_code.run(
                self._threads(episode), offload, episode.instance.grade, record.arguments["answer"]
            )
            if value is None and not scoring.may_grade_nothing(episode):
                raise TypeError("grade returned None; return a number or a Reward, 0.0 for an answer worth nothing")
            reading = ToolOutcome(reading.content, read_reward(value))
        return self._result(episode, record, reading, finished=True)

    def _refusal(self, record: StepRecord, code: StepErrorCode, message: str) -> StepResult:
        self.counts.tool_errors += 1
        message = replace_surrogates(message)
        return StepResult(
            step=record.number, content=(TextBlock(text=message),), error=StepError(code=code, message=message)
        )

    def _result(self, episode: Episode, record: StepRecord, reading: ToolOutcome, *, finished: bool) -> StepResult:
        if not (finished or reading.truncated or reading.metadata or reading.reward is not None):
            return StepResult(step=record.number, content=reading.content)
        reason = None
        if finished:
            reason = EndReason.SUBMITTED if record.tool is None else EndReason.COMPLETED
        elif reading.truncated:
            reason = EndReason.TRUNCATED
        return StepResult(
            step=record.number, content=reading.content, reward=reading.reward, metadata=dict(reading.metadata),
            end_reason=reason,
        )  # fmt: skip

    def _overdue(self, episode: Episode, record: StepRecord) -> None:
        if record.outcome is not None:
            return
        end = episode.deadline
        outcome: StepResult | LudusError
        if end is not None and self._loop.time() >= end - 1e-3:
            text = TextBlock(text=f"The episode's time limit of {episode.limits.seconds:g} s has passed.")
            outcome = StepResult(step=record.number, content=(text,), end_reason=EndReason.TIME_LIMIT)
        else:
            why = f"it took longer than {episode.limits.tool_seconds:g} s"
            outcome = user_code.failure(_what(record), episode.id, episode.published.name, why)
        self.settle(episode, record, outcome)

    # ── settling ───────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, episode: Episode, record: StepRecord, outcome: StepResult | LudusError) -> None:
        """Set a record's outcome and act on it: apply limits, log rewards, end the episode, start queued calls."""
        reason: EndReason | None = None
        failure: EpisodeFailed | None = None
        if isinstance(outcome, StepResult):
            outcome, reason = self._limited(episode, record, outcome)
            if record.noise is not None:
                self.counts.noise[record.noise] += 1
                outcome = outcome.model_copy(update={"noise": record.noise})
            if outcome.reward is not None or record.turn_rewards:
                outcome = _entered(episode, record, outcome)
        elif isinstance(outcome, EpisodeFailed):
            failure, reason = outcome, EndReason(outcome.data["endReason"])
        self.counts.settled += 1
        self._holding.settle(episode, record, outcome)
        episode.used = self._loop.time()
        if episode.active is not None and record in episode.active:
            episode.active.remove(record)
            if not episode.active:
                episode.active = None
        if reason is not None:
            self._on_end(episode, reason, failure, record)
            if isinstance(outcome, StepResult):
                outcome = outcome.model_copy(update={"status": episode.status, "end_reason": reason})
        record.settle(outcome)
        if self._journal is not None:
            self._journal.append(Settled(episode.id, record.key, outcome))
        if record.task is not None and not record.task.done() and record.task is not asyncio.current_task():
            record.task.cancel()
        self._advance(episode)

    def drain(self, episode: Episode) -> None:
        """Settle all records that run or wait with the error that the episode has ended."""
        waiting = [*(episode.active or ()), *(episode.queue or ())]
        episode.active = episode.queue = None
        for record in waiting:
            if record.outcome is None:
                error = episode.ended_error()
                self._holding.settle(episode, record, error)
                self._holding.drop(record)
                record.settle(error)
                if self._journal is not None:
                    self._journal.append(Settled(episode.id, record.key, record.outcome))
                if record.task is not None and record.task is not asyncio.current_task():
                    record.task.cancel()

    def _advance(self, episode: Episode) -> None:
        while episode.queue:
            record = episode.queue[0]
            tool = episode.tools.get(record.tool) if record.tool is not None else None
            shared = tool is not None and tool.concurrent
            if episode.active and not (shared and episode.sharing):
                return
            episode.queue.popleft()
            self._begin(episode, record, tool, shared)

    def _limited(self, episode: Episode, record: StepRecord, result: StepResult) -> tuple[StepResult, EndReason | None]:
        limits = episode.limits
        content, chars = cut(result.content, limits.observation_chars)
        episode.shown_chars += chars
        if content is not result.content:
            result = result.model_copy(update={"content": content})
        reason = result.end_reason
        if reason is None and record.tool is not None:
            allowed = limits.total_observation_chars
            if limits.max_steps is not None and record.number >= limits.max_steps:
                reason = EndReason.STEP_LIMIT
            elif self._holding.is_full(episode) or (allowed is not None and episode.shown_chars >= allowed):
                reason = EndReason.OBSERVATION_LIMIT
        return result, reason


def _hit(noise: Noise, episode: Episode, record: StepRecord) -> NoiseEvent | None:
    """Return the noise that applies to a call; None on the last step that the limit allows, as no retry can follow."""
    last = episode.limits.max_steps
    return None if last is not None and record.number >= last else noise.draw(episode.noise_key, record.number)


def _entered(episode: Episode, record: StepRecord, result: StepResult) -> StepResult:
    """Log the rewards of a step and of the turns that ended with it; return the result with their total."""
    entries = list(record.turn_rewards)
    if result.reward is not None:
        source = "grade" if record.tool is None else "step"
        entries.insert(0, RewardEntry(step=record.number, source=source, reward=result.reward))
    episode.entries = entries if episode.entries is None else [*episode.entries, *entries]
    if not record.turn_rewards:
        return result
    return result.model_copy(update={"reward": total(entry.reward for entry in entries)})


def _check_turn(episode: Episode, turn: TurnMark) -> None:
    """Raise `InvalidParams` if the turn has already ended."""
    records = episode.records or ()
    before = records[-1].turn if records else None
    if before is not None and before.number == turn.number and not before.last:
        return
    over = next((record.turn.number for record in reversed(records) if record.turn is not None), 0)
    if turn.number <= over:
        raise InvalidParams(
            f"turn {turn.number} of episode {episode.id} is over; the next call belongs to a turn after {over}"
        )


def _check_same(
    earlier: StepRecord, number: int | None, tool: str | None, arguments: dict[str, Any], turn: TurnMark | None
) -> None:
    """Raise `KeyConflict` if the key belongs to another call. Argument types are compared too: `true` is not `1`."""
    if earlier.tool == tool and earlier.turn == turn and number in (None, earlier.number):
        if earlier.digest is not None:
            same = earlier.digest == digest_of(arguments)
        else:
            same = same_json(earlier.arguments, arguments)
        if same:
            return
    asked = "a grade" if earlier.tool is None else f"step {earlier.number} ({earlier.tool})"
    raise KeyConflict(
        f"the key {earlier.key!r} already stands for {asked} with other content; use a new key for a new request",
        key=earlier.key,
    )


def _what(record: StepRecord) -> str:
    return "grading" if record.tool is None else f"tool {record.tool!r}"
