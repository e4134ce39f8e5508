"""Which waiting entrants meet.

The entrant that has waited longest gets one of its three best opponents, by lot: those of other accounts whose account
it has met least, and of these the nearest in rating. Entrants of one account never meet. Two accounts meet a bounded
number of times on a board, so that a friend who loses on purpose cannot do so without end.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from ludus.hub.results.matches.store import Standing

BEST: Final = 3
"""From how many of its best opponents one is drawn."""


def choose_pair(
    waiting: Sequence[Standing], meetings: Mapping[frozenset[str], int], most: int, luck: random.Random
) -> tuple[Standing, Standing] | None:
    """Return two entrants to meet; None if no two of them may.

    Args:
        waiting: the entrants, the one that has waited longest first.
        meetings: the matches of each two accounts.
        most: the most matches of two accounts.
        luck: draws among the best opponents.
    """

    def met(one: Standing, other: Standing) -> int:
        return meetings.get(frozenset((one.principal, other.principal)), 0)

    able = [one for one in waiting if one.is_open and one.left]
    for one in able:
        others = [other for other in able if other.principal != one.principal and met(one, other) < most]
        if others:
            best = sorted(others, key=lambda other: (met(one, other), abs(one.rating - other.rating)))
            return one, luck.choice(best[:BEST])
    return None
