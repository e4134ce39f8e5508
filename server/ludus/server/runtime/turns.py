"""Open turns: which calls belong to a turn, and when it ends.

A turn ends with the call that its client marked as the last, with the first call of another turn, or with the end of
the task, whichever comes first. It is judged as soon as it has ended and all of its calls have finished.
"""

from __future__ import annotations

from ludus.protocol.episodes import TurnMark
from ludus.protocol.errors import InvalidParams
from ludus.server.rewards.attempt import TakenStep
from ludus.server.runtime.episode import Episode, OpenTurn, StepRecord


def check(episode: Episode, turn: TurnMark) -> None:
    """Raise `InvalidParams` if the turn has already ended."""
    records = episode.records or ()
    before = records[-1].turn if records else None
    if before is not None and before.number == turn.number and not before.last:
        return
    over = next((record.turn.number for record in reversed(records) if record.turn is not None), 0)
    if turn.number <= over:
        raise InvalidParams(
            f"turn {turn.number} of episode {episode.id} has ended; the next call belongs to a turn after {over}"
        )


def asked(episode: Episode, record: StepRecord) -> None:
    """Assign an accepted call, or the grade, to its turn."""
    turn_mark, waiting = record.turn, episode.turns
    goes_on = turn_mark is not None and bool(waiting) and waiting[-1].number == turn_mark.number
    if not goes_on:
        for turn in waiting:
            turn.over = True
        if record.tool is None:
            return
        turn = OpenTurn(turn_mark.number if turn_mark is not None else None, record.number, record.number)
        episode.turns = [*waiting, turn]
    turn = episode.turns[-1]
    turn.last = record.number
    turn.running += 1
    turn.over = turn_mark is None or turn_mark.last
    turn.text = turn.text or (turn_mark.text if turn_mark is not None else "")


def done(episode: Episode, record: StepRecord, step: TakenStep | None, *, ended: bool) -> list[OpenTurn]:
    """Note that a call has finished, and return the turns that are to be judged now.

    Args:
        episode: the episode of the call.
        record: the call, or the grade.
        step: what checks see of the call; None if it is not a step for them.
        ended: whether the task ends with the call.
    """
    own_turn = None
    if record.tool is not None:
        own_turn = next(turn for turn in episode.turns if turn.first <= record.number <= turn.last)
        own_turn.running -= 1
        own_turn.steps += [] if step is None else [step]
    due = [turn for turn in episode.turns if (turn.over and not turn.running) or (ended and turn is own_turn)]
    episode.turns = [turn for turn in episode.turns if turn not in due]
    return [turn for turn in due if turn.steps]
