"""Repeats the calls of an episode, to bring a new instance of its environment to the state that it had.

Recovery does this after a restart, and a fork for its origin. How it works:

* Calls run again one at a time, in the order in which they settled, because that is the nearest to what happened: calls
  of `concurrent` tools may have overlapped. They are accepted in the order of their numbers.
* Each must give what it gave before: the same observation, reward, error and end.
* What rubrics and judges said is taken over from the earlier call and never asked again: a judge may say something else
  the second time, and costs money.
* A call without an outcome runs last. Its effect may be a part of the state, and it was never answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import LudusError
from ludus.server.durability.journal import Journal, Saved, Settled, Started
from ludus.server.runtime.episode import Episode, StepRecord
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.steps import StepRunner, asked_of

log = logging.getLogger("ludus.server.recovery.repeating")

COMPARED: Final = ("content", "reward", "error", "end_reason")
"""The fields of a result that a repeated call must give again."""


Outcome = StepResult | LudusError
"""What a call gave."""


class Departed(Exception):
    """An episode cannot be brought to the state that it had; the message says why.

    Args:
        cause: the reason.
        step: the number of the step that gave something else; None if it is not a step.
        before: what it gave before.
        now: what it gives now.
    """

    def __init__(self, cause: str, step: int | None = None, before: Any = None, now: Any = None) -> None:
        super().__init__(cause)
        self.step = step
        self.before = before
        self.now = now


KeyOf = Callable[[StepRecord], str]
"""Gives a repeated call its key."""


def _own_key(past: StepRecord) -> str:
    return past.key


async def rebuild(
    runner: StepRunner, snapshots: Snapshots, episode: Episode, calls: Sequence[StepRecord], saved: Saved | None,
    key_of: KeyOf = _own_key,
) -> None:  # fmt: skip
    """Bring an episode that has just been set up to the state after some calls.

    Args:
        runner: runs calls, or adds those that the snapshot has.
        snapshots: restores the snapshot.
        episode: the episode.
        calls: all calls that lead to the state, in the order in which they were accepted.
        saved: a snapshot of a state on the way; None to repeat all calls.
        key_of: gives each call its key.

    Raises:
        Departed: a call gave something else.
        LudusError: the snapshot cannot be restored, or a call was not accepted.
    """
    if saved is not None:
        await snapshots.restore(episode, saved)
        for past in sorted(calls[: saved.step], key=lambda call: call.number):
            runner.install(episode, past, key_of(past))
        calls = calls[saved.step :]
    await repeat(runner, episode, calls, key_of)


def write_whole(journal: Journal, episode: Episode, started: Started) -> None:
    """Write an episode with all that it has so far, at once: a part of it would be another episode after a restart."""
    journal.append(started)
    if episode.published.cls.durable == "none":
        return
    episode.journal = journal
    for record in episode.records or ():
        if record.outcome is not None:
            journal.append(asked_of(episode, record))
            journal.append(Settled(episode.id, record.key, record.outcome, record.logged, record.original_result))
    for saved in (episode.saved or {}).values():
        journal.append(saved)


async def repeat(runner: StepRunner, episode: Episode, calls: Sequence[StepRecord], key_of: KeyOf = _own_key) -> None:
    """Run earlier calls again in an episode.

    Args:
        runner: runs them.
        episode: the episode, in the state in which the first of the calls was accepted.
        calls: the earlier calls, in the order in which they were accepted.
        key_of: gives a repeated call its key.

    Raises:
        Departed: a call gave something else.
        LudusError: a call was not accepted.
    """
    order = sorted(range(len(calls)), key=lambda index: (calls[index].outcome is None, calls[index].order))
    entered: dict[int, StepRecord] = {}
    due = 0
    try:
        for index in order:
            while due <= index:
                entered[due] = runner.enter_again(episode, calls[due], key_of(calls[due]))
                due += 1
            record = entered.pop(index)
            runner.queue(episode, record)
            try:
                await record.wait()
            except LudusError as error:
                log.debug("step %d of episode %s failed while it was repeated: %s", record.number, episode.id, error)
            assert record.outcome is not None
            _compare(calls[index], record.outcome)
    except BaseException:
        runner.hold(episode, entered.values())
        raise


def differences(before: Outcome | None, now: Outcome) -> list[tuple[str, Any, Any]]:
    """Return what a repeated call gave otherwise: the field, its earlier value and the present one.

    The field is `outcome` if one of the two is an error that has no result. An unknown outcome differs from nothing.
    """
    if isinstance(before, StepResult) and isinstance(now, StepResult):
        pairs = [(name, getattr(before, name), getattr(now, name)) for name in COMPARED]
        return [pair for pair in pairs if pair[1] != pair[2]]
    return [] if before is None or type(before) is type(now) else [("outcome", before, now)]


def _compare(past: StepRecord, now: Outcome) -> None:
    """Raise `Departed` if a repeated call's outcome differs from the earlier one, if there is one."""
    for name, before, after in differences(past.outcome, now):
        gave = f"another {name.replace('_', ' ')}"
        if name == "outcome":
            gave = f"{type(after).__name__} in place of {type(before).__name__}"
        raise Departed(f"repeating step {past.number} gave {gave}", past.number, before, after)
