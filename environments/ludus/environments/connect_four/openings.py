"""The openings of the tasks: positions in which the first player can force a win.

They are found by random play and search, which takes minutes, so `openings.txt` holds them: a line for each, with the
number of plies to the win and the moves, each a column from 1. To write the file again:

    python -m ludus.environments.connect_four.openings > openings.txt
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final

from ludus.environments.connect_four.board import Position, canonical, forced_win, position_after
from ludus.server.authoring.partition import SplitType, digest, split_of

PLIES: Final = (3, 5, 7)
"""The plies to the forced win, by difficulty."""
COUNTS: Final[Mapping[SplitType, int]] = {"train": 400, "validation": 50, "test": 50}
"""The openings of each split and number of plies."""
_LENGTHS: Final = (8, 10, 12, 14)
"""The moves before a task begins: even, so that the first player moves next."""


@cache
def openings(split: SplitType, plies: int) -> tuple[str, ...]:
    """Return the moves of a split's openings with a win in so many plies. No position is in two splits."""
    text = (resources.files("ludus.environments.connect_four") / "openings.txt").read_text("ascii")
    lines = [line.split() for line in text.splitlines()]
    return tuple(moves for number, moves in lines if int(number) == plies and split_of_moves(moves) == split)


def opening_at(split: SplitType, plies: int, place: int, secret: str = "") -> str:
    """Return the moves of an opening.

    Args:
        split: the split.
        plies: the plies to the win.
        place: which of these openings.
        secret: what fresh tests are drawn from; empty for the openings that everybody can read. Each fresh hard one
            takes a fifth of a second of search, when it is first asked for.
    """
    return _fresh_openings(secret, plies)(place) if secret else openings(split, plies)[place]


@cache
def _fresh_openings(secret: str, plies: int) -> Callable[[int], str]:
    """Return a function from a place to the opening there, which draws only as many as are asked for."""
    rng = random.Random(digest(f"connect_four:{plies}:{secret}"))
    seen = {canonical(moves) for moves in openings("test", plies)}
    found: list[str] = []

    def at(place: int) -> str:
        while len(found) <= place:
            moves = _random_moves(rng)
            if moves is None or split_of_moves(moves) != "test" or canonical(moves) in seen:
                continue
            seen.add(canonical(moves))
            if plies_to_win(moves, plies) == plies:
                found.append(moves)
        return found[place]

    return at


def plies_to_win(moves: str, most: int) -> int:
    """Return after how many plies the first player wins, if it is one of 1 and `PLIES` up to `most`; 0 otherwise."""
    position = position_after(moves)
    return next((one for one in (1, *PLIES) if one <= most and forced_win(position, one) is not None), 0)


def find_openings(seed: int = 1) -> Iterator[tuple[int, str]]:
    """Yield plies and moves of new openings until each split has as many as `COUNTS` says."""
    rng = random.Random(seed)
    missing = {(split, plies): count for split, count in COUNTS.items() for plies in PLIES}
    seen: set[str] = set()
    while missing:
        moves = _random_moves(rng)
        if moves is None or (position := canonical(moves)) in seen:
            continue
        seen.add(position)
        plies = plies_to_win(moves, PLIES[-1])
        place = (split_of_moves(moves), plies)
        if place in missing:
            missing[place] -= 1
            if not missing[place]:
                del missing[place]
            yield plies, moves


def _random_moves(rng: random.Random) -> str | None:
    """Return moves of random play in which no side could have won at once; None if there was no other move."""
    position, moves = Position(), ""
    for _ in range(rng.choice(_LENGTHS)):
        columns = [column for column in position.columns() if not position.wins(column)]
        if not columns:
            return None
        column = rng.choice(columns)
        position, moves = position.drop(column), moves + str(column + 1)
    return moves


def split_of_moves(moves: str) -> SplitType:
    """Return the split to which the position after moves belongs, and its mirror image."""
    return split_of(f"connect_four:{canonical(moves)}")


if __name__ == "__main__":
    for found_plies, found_moves in find_openings():
        sys.stdout.write(f"{found_plies} {found_moves}\n")
