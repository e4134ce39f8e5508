"""Who has won a match: decided from how the episodes of its seats have ended.

A seat that left loses: its player said that it is done before the end, made no call or no move for too long, or its
episode was closed or expired. Otherwise the higher reward wins. If the infrastructure or the environment broke, or a
seat has no valid reward, nothing is decided: the match is void, and only a bounded number of matches are played again.
So breaking matches on purpose is no way out of losing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ludus.hub.results.matches.store import SeatOutcome
from ludus.protocol.episodes import EpisodeInfo
from ludus.protocol.evaluation import Interval
from ludus.protocol.lifecycle import EndReason
from ludus.registry.types.matches import Result, result_between
from ludus.registry.types.results import EARNED

FORFEIT: Final = "forfeit"
"""The end of a seat whose player has left."""

UNSCORED: Final = frozenset({EndReason.INFRASTRUCTURE_ERROR, EndReason.SERVER_STOPPED, EndReason.ENVIRONMENT_ERROR})
"""Ends that say nothing about any player. The server ends all seats with them, whichever seat's call it was."""

SCORES: Final[Mapping[Result, float]] = {"win": 1.0, "draw": 0.5, "loss": 0.0}
"""The score of a seat by its result."""


class Decision(NamedTuple):
    """How a match ended."""

    score: float
    """The first seat's result: 1 for a win, 0.5 for a draw, 0 for a loss."""
    first: SeatOutcome
    second: SeatOutcome


def decide_match(
    infos: Mapping[int, EpisodeInfo], reward_range: Interval | None, left: int | None = None
) -> Decision | None:
    """Return how a match ended; None if it is void.

    Args:
        infos: its ended episodes by the numbers of their seats; one if a script has the other seat.
        reward_range: the rewards that the environment declares.
        left: which seat left the match while it ran; None if neither.
    """
    if len(infos) == 2:
        return decide(infos[0], infos[1], left)
    ((seat, own),) = infos.items()
    assert reward_range is not None
    return decide_alone(own, reward_range, seat, has_left=left == seat)


def decide(first: EpisodeInfo, second: EpisodeInfo, left: int | None = None) -> Decision | None:
    """Return how a match of two ended episodes ended; None if it is void.

    Args:
        first: the episode of the first seat.
        second: that of the second one.
        left: which of them, 0 or 1, left the match while it ran; None if neither.
    """
    infos = (first, second)
    ends = [_end_of(info, has_left=left == place) for place, info in enumerate(infos)]
    if left is None:
        if any(info.end_reason in UNSCORED for info in infos):
            return None
        gone = [info.end_reason not in EARNED for info in infos]
        if gone[0] != gone[1]:
            left = gone.index(True)
    if left is not None:
        return Decision(float(left), ends[0], ends[1])
    if ends[0].reward is None or ends[1].reward is None:
        return None
    return Decision(SCORES[result_between(ends[0].reward, ends[1].reward)], ends[0], ends[1])


def decide_alone(own: EpisodeInfo, reward_range: Interval, seat: int, *, has_left: bool = False) -> Decision | None:
    """Return how a match against a scripted opponent ended; None if it is void.

    Only the seat of the player has an episode. Its reward is compared with the middle of the range.

    Args:
        own: the player's episode.
        reward_range: the rewards that the environment declares.
        seat: the player's seat, 0 or 1.
        has_left: whether the player left the match while it ran.
    """
    end = _end_of(own, has_left=has_left)
    if not has_left and own.end_reason in UNSCORED:
        return None
    if has_left or own.end_reason not in EARNED:
        score = 0.0
    elif end.reward is None:
        return None
    else:
        score = SCORES[result_between(end.reward, (reward_range[0] + reward_range[1]) / 2)]
    script = SeatOutcome(None, str(EndReason.COMPLETED))
    return Decision(score, end, script) if seat == 0 else Decision(1.0 - score, script, end)


def _end_of(info: EpisodeInfo, *, has_left: bool) -> SeatOutcome:
    assert info.end_reason is not None
    reward = info.reward.value if info.reward is not None else None
    return SeatOutcome(reward, FORFEIT if has_left else str(info.end_reason))
