"""Rebuilds matches from the histories of their seats.

The calls of all seats run again one at a time, in the order in which they had their outcomes. That order decides what
each of them shows, because the calls of a match never run at the same time (`matches.py`). A call that waited for other
seats does not wait again: the calls that ended its wait have run before it, or it had waited in vain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ludus.server.matches.running_match import RunningMatch
from ludus.server.recovery.histories import History
from ludus.server.recovery.repeating import Departed, repeat
from ludus.server.runtime.episode import Episode
from ludus.server.runtime.steps import StepRunner

Seats = Sequence[tuple[Episode, History]]
"""The episodes of a match that had not ended, with what the journal holds of them."""


def join_match(matches: dict[str, RunningMatch[Episode]], episode: Episode, history: History) -> None:
    """Give an episode of a journal its seat, in a match of its own or one that another seat has made."""
    started = history.started
    if started.match is None or started.seat is None:
        return
    episode.match_id, episode.seat = started.match, started.seat
    if history.ended is None:
        match = matches.setdefault(started.match, RunningMatch[Episode](started.match, started.opponent))
        episode.join(match, started.seat)


async def rebuild_match(
    runner: StepRunner, seats: Seats, set_up: Callable[[Episode, History], Awaitable[None]]
) -> None:
    """Bring the seats of a match to the state that they had.

    Args:
        runner: repeats their calls.
        seats: the seats, in their order.
        set_up: sets an episode up, without calls.

    Raises:
        Departed: the journal lacks a seat, or a call gave something else.
        LudusError: a seat could not be set up, or a call was not accepted.
    """
    match = seats[0][0].match
    assert match is not None
    if set(seats[0][1].started.played) != match.episodes.keys():
        raise Departed("the journal does not hold all the seats of its match")
    for episode, history in seats:
        await set_up(episode, history)
    calls = [(history.places[call.key], episode, call) for episode, history in seats for call in history.calls()]
    match.repeating = True
    try:
        for _, episode, past in sorted(calls, key=lambda call: call[0]):
            await repeat(runner, episode, [past])
    finally:
        match.repeating = False
