"""Runs the steps of episodes: once per key, one at a time unless their tools are concurrent, each with a deadline.

How this works. A step passes four stages, in the order of this file:

    accept()     return the earlier record for a repeated key; otherwise check the number, the turn and the memory,
      │          and create a record
    queue()      start the record, or let it wait for calls that it must not overlap
      │
    call()       in a task and under a deadline: the environment's handler, made once by `_compose`
      │
    settle()     reward log, end of the episode, waking the waiters, next in the queue

A handler is one function around the author's code, `_tool_call` or `scoring.grade_call`, inside wrappers. Each wrapper
takes a `Call` and returns a `Call`, and an environment has only those that it needs. From the outside in:

    traced                        a span, if tracing is on
    seats.in_match                one call of a match at a time                      (if the class has seats)
    _timed                        time spent, by environment
    _written_ahead                waits for the journal                              (if the class acts on the outside)
    snapshots.saving              a snapshot of the state                            (if the class is durable by them)
    WorldStates.leaving_state     the next version of the world, at the end          (if the class has worlds)
    step_limits.limited           cut the observation; steps, observations and memory that end the episode
    scoring.judging_turns         rewards of turns that end with the step            (if the class judges turns)
    _refusing                     the agent's mistakes become results
    noise.disturbed               noise                                              (if the class has noise)
    scoring.judging_steps         `@reward(when="step")`, and the rubric at the end   (if the class declares rewards)
    seats.in_turn                 no moves out of turn; the end with the match       (if the class has seats)
    _tool_call                    validated arguments → the author's method → a result

An exception that leaves the handler is the environment's failure. A record is settled exactly once, by the first of
three: its own task; the watchdog, when the deadline passes (`_overdue`); or `drain`, when the episode ends for another
reason. The task of a record that is settled from outside is canceled. While a call waits for a thread, its `Clock`
stops the watchdog and moves the deadline (`_move_deadline`).

A step runs in a task of its own, so a client that disconnects or cancels its wait does not affect it. A step can end
the episode: `settle` then calls `on_end`, which is the host's, and the host calls `drain`.
"""

from __future__ import annotations

import asyncio
import inspect
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from types import CoroutineType
from typing import Any, Final, NamedTuple, Protocol

from ludus.protocol.bounds import digest_of, same_json
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import NoiseKind, StepError, StepErrorCode, StepResult, TurnMark
from ludus.protocol.errors import EpisodeFailed, KeyConflict, LudusError, ShuttingDown, StepConflict
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, EpisodeStatus, advance
from ludus.protocol.rewards import RewardEntry, total
from ludus.protocol.text import replace_surrogates
from ludus.sandbox.core.errors import CAUSED_INSIDE
from ludus.server.authoring.results import read_result
from ludus.server.authoring.tools import InvalidArguments, StepContext
from ludus.server.durability.journal import Asked, CallNotWritten, Journal, Settled, check_writable, committed
from ludus.server.execution import user_code
from ludus.server.execution.clock import CLOCK, Clock
from ludus.server.execution.errors import ToolError
from ludus.server.execution.threads import Share, Workers
from ludus.server.runtime import scoring, turns
from ludus.server.runtime.episode import Call, Episode, StepRecord
from ludus.server.runtime.limits import ServerLimits
from ludus.server.runtime.noise import disturbed
from ludus.server.runtime.seats import in_match, in_turn
from ludus.server.runtime.snapshots import Snapshots, saving
from ludus.server.runtime.step_limits import NOT_RECEIVED, TOOL_NAME_CHARS, StepLimits
from ludus.server.runtime.traced import traced
from ludus.server.runtime.world_states import WorldStates
from ludus.server.tasks.catalog import Published

STEP_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of step times, in seconds: from an inline tool to the default deadline."""


class OnEnd(Protocol):
    """The callback that ends an episode."""

    def __call__(
        self, episode: Episode, reason: EndReason, failure: EpisodeFailed | None, ended_by: StepRecord | None = None
    ) -> None:
        """End the episode; `ended_by` is the record that ended it."""


@dataclass(slots=True)
class StepTimes:
    """How long the steps of one environment took, without queueing; steps that were settled from outside left out."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_SECONDS) + 1))
    """Steps by the first bound of `STEP_SECONDS` that they do not exceed; the last place counts those beyond all."""
    seconds: float = 0.0


@dataclass(slots=True)
class StepCounts:
    """Counts of what the runner has done since the host started."""

    settled: int = 0
    tool_errors: int = 0
    noise: Counter[NoiseKind] = field(default_factory=Counter)
    """Steps that noise changed, by kind."""
    times: dict[str, StepTimes] = field(default_factory=dict)
    """By environment, those included that have had no step yet."""


class Handlers(NamedTuple):
    """What runs the calls of an environment's episodes."""

    call: Call
    grade: Call


class StepRunner:
    """Runs steps in tasks of its own, so that a step goes on when the request that waits for it is canceled."""

    def __init__(
        self, environments: Iterable[Published], workers: Workers, journal: Journal | None, snapshots: Snapshots,
        on_end: OnEnd, limits: ServerLimits,
    ) -> None:  # fmt: skip
        self._limits = StepLimits(limits)
        self._journal = journal
        self._snapshots = snapshots
        self._on_end = on_end
        self._worlds = WorldStates(workers, snapshots, limits.world_bytes)
        self._loop = asyncio.get_running_loop()
        self._tracing = workers.tracing
        self.counts = StepCounts()
        self._handlers = {
            environment.name: self._compose(environment, workers.share(environment.name))
            for environment in environments
        }

    # ── accept ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def accept(
        self, episode: Episode, number: int | None, key: str, tool: str | None, arguments: dict[str, Any],
        turn: TurnMark | None = None,
    ) -> StepRecord:  # fmt: skip
        """Return the record of a call: the earlier one for a repeated key, otherwise a new one, started or queued.

        Args:
            episode: the episode to step.
            number: the step's number; None lets the host number it.
            key: the call's idempotency key.
            tool: the tool's name; None for the grade.
            arguments: the tool's arguments; `{"answer": …}` for the grade.
            turn: the turn that the call belongs to, if the client marks turns.

        Raises:
            CapacityError: too many calls of the episode run or wait, or its owner takes too many steps.
            KeyConflict: the key was used for another call.
            StepConflict: the number is not the next one.
            InvalidParams: the turn has already ended.
            EpisodeEnded: the episode has ended.
            ShuttingDown: the journal cannot be written, so nothing runs.
        """
        if episode.recovering is not None:
            check_writable(self._journal)
            return self._accept_later(episode, episode.recovering, number, key, tool, arguments, turn)
        if tool is not None and len(tool) > TOOL_NAME_CHARS:
            tool = tool[:TOOL_NAME_CHARS]
        earlier = episode.keys.get(key) if episode.keys is not None else None
        if earlier is not None:
            _check_same(earlier, number, tool, arguments, turn)
            if earlier.outcome is None:
                self._limits.await_repeat(episode, earlier, arguments)
            elif earlier.withheld is not None and self._journal is not None:
                earlier.ask_again(self._journal.when_durable)
            return earlier
        if episode.end_reason is not None:
            raise episode.ended_error()
        # From here to `_enter` nothing may await: between a lookup that finds no record of the key and the new record,
        # a repeat of the request would start the call a second time.
        due = episode.asked if tool is None else episode.asked + 1
        if number is not None and number != due:
            raise StepConflict(
                f"episode {episode.id} expects step {due}, not {number}: steps are numbered from 1 without gaps, and a "
                "repeated step must carry the key it had",
                episode=episode.id,
                expected=due,
            )
        if turn is not None:
            turns.check(episode, turn)
        if (journal := episode.journal) is not None and journal.refusal is not None:
            check_writable(journal)
        if tool is not None and (account := episode.account) is not None and account.counts_steps:
            # After the checks above: a call that they refuse must not count against its owner's rate.
            account.take_step()
        record = StepRecord(due, key, tool, arguments, turn)
        record.trace = self._tracing.current() if self._tracing is not None else None
        self._enter(episode, record)
        if episode.active or episode.queue:
            self.queue(episode, record)
        else:
            self._start(episode, record)
        return record

    def enter_again(self, episode: Episode, past: StepRecord, key: str) -> StepRecord:
        """Accept an earlier call again under a key, and return its record, which `queue` starts.

        Raises:
            CapacityError: too many calls of the episode run or wait.
        """
        record = StepRecord(past.number, key, past.tool, past.arguments, past.turn)
        record.past, record.refused, record.digest = past, past.refused, past.digest
        # A call that no tool received is refused again as is, because its arguments may be kept otherwise: a digest of
        # large ones, a replacement of half a surrogate pair.
        error = past.outcome.error if isinstance(past.outcome, StepResult) else None
        if record.refused is None and error is not None and error.code in NOT_RECEIVED:
            record.refused, record.noise = error, past.noise
        self._enter(episode, record)
        return record

    def install(self, episode: Episode, past: StepRecord, key: str) -> None:
        """Add an earlier call, with its outcome, to an episode whose state already has it."""
        assert past.outcome is not None
        record = StepRecord(past.number, key, past.tool, past.arguments, past.turn)
        record.digest, record.refused, record.noise = past.digest, past.refused, past.noise
        record.original_result, record.logged = past.original_result, past.logged
        self._enter(episode, record, settled=True)
        if episode.published.judges_turns:
            scoring.pass_turns(episode, record, past.outcome)
        self._limits.restore(episode, record, past.outcome)
        if past.logged:
            episode.log(past.logged)
        self.counts.settled += 1
        record.order = self.counts.settled
        record.settle(past.outcome)

    def count_held(self, episode: Episode) -> None:
        """Count the calls of an episode that ended in an earlier process as held."""
        for record in (*(episode.records or ()), *((episode.graded,) if episode.graded is not None else ())):
            self._limits.restore(episode, record, record.outcome)

    def _accept_later(
        self, episode: Episode, recovering: asyncio.Future[None], number: int | None, key: str, tool: str | None,
        arguments: dict[str, Any], turn: TurnMark | None,
    ) -> StepRecord:  # fmt: skip
        """Return a record for a call that is accepted when the episode has its state again; see `accept`."""
        size = self._limits.await_recovery(episode, arguments)
        stand_in = StepRecord(number or 0, key, tool, arguments, turn)

        def accept(_: asyncio.Future[None]) -> None:
            self._limits.release(episode, size)
            try:
                record = self.accept(episode, number, key, tool, arguments, turn)
            except LudusError as error:
                stand_in.settle(error)
            else:
                record.when_settled(partial(_take_over, stand_in, record))

        recovering.add_done_callback(accept)
        return stand_in

    def _enter(self, episode: Episode, record: StepRecord, *, settled: bool = False) -> None:
        """Add an accepted call to its episode and the journal; count it as pending, unless it has an outcome."""
        turn, grade = record.turn, record.tool is None
        if not settled:
            text = turn.text if turn is not None else ""
            # First, because it may raise: until here nothing of the episode has changed.
            record.size, too_large = self._limits.admit(episode, record.arguments, text, final=grade)
            record.refused = record.refused or too_large
            if record.refused is not None and record.digest is None:
                record.digest, record.arguments = digest_of(record.arguments), {}
        episode.asked = record.number
        if episode.keys is None or episode.records is None:
            episode.keys, episode.records = {}, []
        episode.keys[record.key] = record
        if grade:
            episode.graded = record
        else:
            episode.records.append(record)
        journal = episode.journal
        if journal is not None and (journal.wants_asked or episode.published.written_ahead):
            journal.append(asked_of(episode, record))
        if episode.published.judges_turns:
            turns.asked(episode, record)

    # ── queue ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue(self, episode: Episode, record: StepRecord) -> None:
        """Start a record, or let it wait for the calls before it, unless all of them and it may overlap."""
        if episode.queue or (episode.active and not _may_overlap(episode, record, episode.active)):
            if episode.queue is None:
                episode.queue = deque()
            # A queue that is not empty keeps the order: a concurrent call must not overtake one that waits.
            episode.queue.append(record)
        else:
            self._start(episode, record)

    def hold(self, episode: Episode, records: Iterable[StepRecord]) -> None:
        """Let accepted records wait, for an episode that ends before they can start."""
        episode.queue = deque([*(episode.queue or ()), *records])

    def _start(self, episode: Episode, record: StepRecord) -> None:
        now = self._loop.time()
        seconds = episode.limits.tool_seconds or 0.0
        if episode.limits.seconds is not None:
            seconds = min(seconds, max(0.0, episode.began + episode.limits.seconds - now))
        if episode.active is None:
            episode.active = [record]
        else:
            episode.active.append(record)
        record.deadline = now + seconds
        record.watchdog = self._loop.call_at(record.deadline, self._overdue, episode, record)
        record.task = self._loop.create_task(self.call(episode, record))

    def _start_waiting(self, episode: Episode) -> None:
        while episode.queue:
            record = episode.queue[0]
            if episode.active and not _may_overlap(episode, record, episode.active):
                return
            episode.queue.popleft()
            self._start(episode, record)

    # ── call ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, episode: Episode, record: StepRecord) -> None:
        """Run a record's call, as its own task, and settle the record unless that has happened meanwhile."""
        own_task = record.task
        handlers = self._handlers[episode.published.name]
        outcome: StepResult | LudusError
        CLOCK.set(partial(self._clock, episode, record))
        try:
            try:
                outcome = await (handlers.call if record.tool is not None else handlers.grade)(episode, record)
                if episode.sandboxes is not None:
                    episode.sandboxes.check_cassettes()
            except BaseException as error:
                if user_code.from_host(error, own_task):
                    raise
                outcome = user_code.failure(_what(record), episode.id, episode.published.name, error)
            if record.outcome is None:
                record.task = None  # the task ends by itself, so `settle` need not look up the current task
                self.settle(episode, record, outcome)
        finally:
            # The record outlives the episode, and the traceback of a canceled task would keep the environment alive.
            record.task = None

    def _compose(self, published: Published, share: Share) -> Handlers:
        """Return the handlers of an environment's calls; the module's docstring shows the order of the wrappers."""
        cls = published.cls
        call, grade = _tool_call(share), scoring.grade_call(published, share)
        if published.seats:
            call = in_turn(call)
        if cls._binding is not None:
            call = scoring.judging_steps(call, cls._binding, share)
        if cls.noise is not None:
            call = disturbed(call, cls.noise, self.counts.noise)
        call, grade = self._refusing(call), self._refusing(grade)
        if cls._binding is not None and (rubric := cls._binding.turn) is not None:
            call, grade = scoring.judging_turns(call, rubric, share), scoring.judging_turns(grade, rubric, share)
        call, grade = self._limits.limited(call), self._limits.limited(grade)
        if published.worlds is not None:
            call, grade = self._worlds.leaving_state(call), self._worlds.leaving_state(grade)
        if self._snapshots.enabled_for(published):
            call = saving(call, self._snapshots, cls.snapshot_every)
        if cls.outside_effects and self._journal is not None:
            call, grade = _written_ahead(call, self._journal), _written_ahead(grade, self._journal)
        times = self.counts.times[published.name] = StepTimes()
        call, grade = _timed(call, times), _timed(grade, times)
        if published.seats:
            call, grade = in_match(call), in_match(grade)
        return Handlers(traced(call, self._tracing), traced(grade, self._tracing))

    def _refusing(self, call: Call) -> Call:
        """Wrap a call: give the agent's mistakes a result, with the error as its observation."""

        async def refuse(episode: Episode, record: StepRecord) -> StepResult:
            if record.refused is not None:
                return self._refusal(record, record.refused.code, record.refused.message)
            if record.tool is not None and record.tool not in episode.tools:
                have = ", ".join(episode.tools)
                return self._refusal(record, "unknown_tool", f"There is no tool {record.tool!r}. Tools: {have}.")
            try:
                return await call(episode, record)
            except InvalidArguments as error:
                return self._refusal(record, "invalid_arguments", f"Wrong arguments for {record.tool}: {error}")
            except (ToolError, *CAUSED_INSIDE) as error:
                return self._refusal(record, "refused", user_code.message_of(error, "the tool refused"))

        return refuse

    def _refusal(self, record: StepRecord, code: StepErrorCode, message: str) -> StepResult:
        self.counts.tool_errors += 1
        message = replace_surrogates(message)
        error = StepError(code=code, message=message)
        return StepResult(step=record.number, content=(TextBlock(text=message),), error=error, noise=record.noise)

    def _clock(self, episode: Episode, record: StepRecord) -> Clock:
        """Return the clock of a record's call, made when something first needs it."""
        if record.clock is not None:
            return record.clock
        clock = Clock(record.deadline, partial(self._move_deadline, episode, record))
        if record.outcome is None:
            record.clock = clock  # `record.settle` drops it, because it refers to the episode
        return clock

    def _move_deadline(self, episode: Episode, record: StepRecord, deadline: float | None, waited: float) -> None:
        """Reset a record's watchdog. The time that a call waited for a thread does not count for the episode either."""
        if record.watchdog is not None:
            record.watchdog.cancel()
            record.watchdog = None
        if record.outcome is None:
            episode.began += waited
            if deadline is not None:
                record.deadline = deadline
                record.watchdog = self._loop.call_at(deadline, self._overdue, episode, record)

    def _overdue(self, episode: Episode, record: StepRecord) -> None:
        if record.outcome is not None:
            return
        end = episode.deadline
        outcome: StepResult | LudusError
        # asyncio may run a timer up to a clock tick before its time, and this one was set for the end itself.
        if end is not None and self._loop.time() >= end - 1e-3:
            text = TextBlock(text=f"The episode's time limit of {episode.limits.seconds:g} s has passed.")
            outcome = StepResult(
                step=record.number, content=(text,), noise=record.noise, end_reason=EndReason.TIME_LIMIT
            )
        else:
            cause = f"it took longer than {episode.limits.tool_seconds:g} s"
            outcome = user_code.failure(_what(record), episode.id, episode.published.name, cause)
        self.settle(episode, record, outcome)

    # ── settle ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, episode: Episode, record: StepRecord, outcome: StepResult | LudusError) -> None:
        """Set a record's outcome and act on it: log rewards, end the episode, wake the waiters, start queued calls."""
        reason: EndReason | None = None
        failure: EpisodeFailed | None = None
        entries: tuple[RewardEntry, ...] = ()
        if isinstance(outcome, StepResult):
            reason = outcome.end_reason
            if outcome.reward is not None or record.turn_rewards:
                outcome, entries = _log_rewards(episode, record, outcome)
            if reason is not None:
                outcome = outcome.model_copy(update={"status": advance(EpisodeStatus.RUNNING, EVENT_OF_REASON[reason])})
        elif isinstance(outcome, EpisodeFailed):
            failure, reason = outcome, EndReason(outcome.data["endReason"])
        record.logged = entries
        self.counts.settled += 1
        record.order = self.counts.settled
        self._limits.settle(episode, record, outcome)
        episode.used = self._loop.time()
        if episode.active is not None and record in episode.active:
            episode.active.remove(record)
            episode.active = episode.active or None
        journal = episode.journal
        if journal is not None:
            self._write(journal, episode, record, outcome)
        # After the call's own entry: a journal that ends between the two must not hold a state whose call it lacks.
        if record.saved is not None:
            self._snapshots.keep(episode, record.saved)
        if reason is not None:
            # Before the record is settled: `when_durable` then waits for the entry of the end as well, and the waiters
            # find the episode ended.
            self._on_end(episode, reason, failure, record)
        record.settle(outcome, journal.when_durable if journal is not None else None)
        # Only a refusal withholds an outcome at once. The call has run meanwhile, so its episode must be taken back.
        if record.withheld is not None and journal is not None:
            journal.undo()
        if record.task is not None and not record.task.done() and record.task is not asyncio.current_task():
            record.task.cancel()
        # After the end: an episode that has ended has no queue any more.
        if episode.queue:
            self._start_waiting(episode)

    def _write(self, journal: Journal, episode: Episode, record: StepRecord, outcome: StepResult | LudusError) -> None:
        if episode.published.written_ahead:
            journal.append(Settled(episode.id, record.key, outcome, record.logged, record.original_result))
        else:
            record.sent = journal.append_call(episode.id, record, outcome)

    def abandon(self, episode: Episode) -> list[asyncio.Task[None]]:
        """Stop the calls of an episode that goes on in the next process, without an answer; return their tasks."""
        waiting = [*(episode.active or ()), *(episode.queue or ())]
        episode.active = episode.queue = None
        for record in waiting:
            if record.watchdog is not None:
                record.watchdog.cancel()
                record.watchdog = None
            if record.task is not None:
                record.task.cancel()
        return [record.task for record in waiting if record.task is not None]

    def withdraw(self, episode: Episode, refusal: LudusError) -> list[asyncio.Task[None]]:
        """Refuse the calls of an episode that run or wait, without a trace; return their tasks."""
        waiting = [*(episode.active or ()), *(episode.queue or ())]
        tasks = self.abandon(episode)
        for record in waiting:
            record.settle(refusal)
        return tasks

    def drain(self, episode: Episode) -> None:
        """Settle all records that run or wait with the error that the episode has ended."""
        # Cleared first: `settle`, which may have led here, then starts no queued call.
        waiting = [*(episode.active or ()), *(episode.queue or ())]
        episode.active = episode.queue = None
        for record in waiting:
            if record.outcome is None:
                error = episode.ended_error()
                self._limits.settle(episode, record, error)
                self._limits.drop(record)
                if episode.journal is None:
                    record.settle(error)
                else:
                    self._write(episode.journal, episode, record, error)
                    record.settle(error, episode.journal.when_durable)
                if record.task is not None and record.task is not asyncio.current_task():
                    record.task.cancel()


# ── the author's code, and the time it takes ───────────────────────────────────────────────────────────────────────


def _tool_call(share: Share) -> Call:
    """Return the innermost call of a tool: validated arguments, the author's method, its result."""

    async def call(episode: Episode, record: StepRecord) -> StepResult:
        assert record.tool is not None
        tool = episode.tools[record.tool]
        # Before a slot is taken: a call with wrong arguments must not wait for a thread.
        arguments = tool.arguments(record.arguments)
        target = episode.instance if tool.owner is None else episode.toolsets[tool.owner]
        method = tool.function if tool.function is not None else getattr(target, tool.attribute)
        rng = episode.instance.rng if tool.context is not None else None
        home = None if tool.concurrent else episode.home
        slot = (share.enter_at_once(home) or await share.enter(home)) if tool.offload else None
        if tool.context is not None and rng is not None:
            arguments[tool.context] = StepContext(step=record.number, deadline=record.deadline, rng=rng)
        try:
            value = method(**arguments) if slot is None else await slot.run(method, **arguments)
            if type(value) is CoroutineType or inspect.isawaitable(value):
                value = await value
        except InvalidArguments as error:  # only our own one, above, is the agent's mistake
            raise user_code.UserCodeError(error) from error
        return read_result(value, record.number, ends=tool.ends, values=tool.values)

    return call


def _timed(call: Call, times: StepTimes) -> Call:
    """Wrap a call: measure how long it takes, unless its record is settled from outside."""
    clock = asyncio.get_running_loop().time

    async def measure(episode: Episode, record: StepRecord) -> StepResult:
        began = clock()
        try:
            return await call(episode, record)
        finally:
            if record.outcome is None:
                seconds = clock() - began
                times.seconds += seconds
                times.counts[bisect_left(STEP_SECONDS, seconds)] += 1

    return measure


def _written_ahead(call: Call, journal: Journal) -> Call:
    """Wrap a call: begin only when its entry in the journal is durable, because it acts on the outside."""

    async def write(episode: Episode, record: StepRecord) -> StepResult:
        try:
            await committed(journal, None)
        except ShuttingDown as error:
            raise CallNotWritten(f"it did not run, because it must be written before: {error.message}") from None
        return await call(episode, record)

    return write


def _may_overlap(episode: Episode, record: StepRecord, active: Iterable[StepRecord]) -> bool:
    """Return whether the tools of a record and of those that run are all `concurrent`, and none is being saved."""
    if any(running.alone for running in active):
        return False
    tools = [episode.tools.get(call.tool) if call.tool is not None else None for call in (record, *active)]
    return all(tool is not None and tool.concurrent for tool in tools)


def asked_of(episode: Episode, record: StepRecord) -> Asked:
    """Return the journal's entry of an accepted call."""
    return Asked(
        episode.id, record.number, record.key, record.tool, record.arguments, record.turn, record.digest,
        record.refused, episode.published.written_ahead,
    )  # fmt: skip


def _take_over(stand_in: StepRecord, record: StepRecord) -> None:
    assert record.answer is not None
    stand_in.settle(record.answer)


def _log_rewards(
    episode: Episode, record: StepRecord, result: StepResult
) -> tuple[StepResult, tuple[RewardEntry, ...]]:
    """Log the rewards of a step and of the turns that ended with it; return the result with their total, and them."""
    entries = list(record.turn_rewards)
    if result.reward is not None:
        source = "grade" if record.tool is None else "step"
        entries.insert(0, RewardEntry(step=record.number, source=source, reward=result.reward))
    if episode.entries is None:
        episode.entries = []
    episode.entries += entries
    if not record.turn_rewards:
        return result, tuple(entries)
    return result.model_copy(update={"reward": total(entry.reward for entry in entries)}), tuple(entries)


def _check_same(
    earlier: StepRecord, number: int | None, tool: str | None, arguments: dict[str, Any], turn: TurnMark | None
) -> None:
    """Raise `KeyConflict` if the key belongs to another call. Argument types are compared too: `true` is not `1`."""
    if earlier.tool == tool and earlier.turn == turn and number in (None, earlier.number):
        if earlier.digest is not None:
            matches = earlier.digest == digest_of(arguments)
        else:
            matches = same_json(earlier.arguments, arguments)
        if matches:
            return
    earlier_call = "a grade" if earlier.tool is None else f"step {earlier.number} ({earlier.tool})"
    raise KeyConflict(
        f"the key {earlier.key!r} was used for {earlier_call} with other content; use a new key for a new request",
        key=earlier.key,
    )


def _what(record: StepRecord) -> str:
    return "grading" if record.tool is None else f"tool {record.tool!r}"
