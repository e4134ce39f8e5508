"""The board of Connect Four, its rules, and search.

A position is two whole numbers whose bits are cells: bit `7 * column + row`, with row 0 at the bottom and an empty bit
above each column, so that lines never run from one column's top into the next one's bottom.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

WIDTH: Final = 7
HEIGHT: Final = 6
_STRIDE: Final = HEIGHT + 1
_BOTTOM: Final = tuple(1 << (_STRIDE * column) for column in range(WIDTH))
_COLUMN: Final = tuple(((1 << HEIGHT) - 1) << (_STRIDE * column) for column in range(WIDTH))
_FULL: Final = sum(_COLUMN)
_DIRECTIONS: Final = (1, _STRIDE, _STRIDE - 1, _STRIDE + 1)
CENTER_FIRST: Final = (3, 2, 4, 1, 5, 0, 6)
"""The columns, those first that are best on average, which makes searches shorter."""

_WIN: Final = 100


class Position(NamedTuple):
    """The stones on the board, seen by the side that moves next."""

    own: int = 0
    """The stones of the side that moves next."""
    mask: int = 0
    """The stones of both sides."""

    @property
    def full(self) -> bool:
        """Whether no stone can be dropped any more."""
        return self.mask == _FULL

    def columns(self) -> list[int]:
        """Return the columns that have room, from 0, the best on average first."""
        return [column for column in CENTER_FIRST if self.can_drop(column)]

    def can_drop(self, column: int) -> bool:
        """Return whether a column has room."""
        return self.mask & _COLUMN[column] != _COLUMN[column]

    def wins(self, column: int) -> bool:
        """Return whether dropping into a column makes a line of four; the column must have room."""
        return _has_line(self.own | ((self.mask + _BOTTOM[column]) & _COLUMN[column]))

    def drop(self, column: int) -> Position:
        """Return the position after the side to move drops into a column with room; the other side moves next."""
        return Position(self.own ^ self.mask, self.mask | (self.mask + _BOTTOM[column]))

    def rows(self, own: str, other: str, empty: str = ".") -> list[str]:
        """Return the rows from the top, a character for each cell."""
        lines = []
        for row in reversed(range(HEIGHT)):
            bits = [1 << (_STRIDE * column + row) for column in range(WIDTH)]
            lines.append(" ".join(own if bit & self.own else other if bit & self.mask else empty for bit in bits))
        return lines


def position_after(moves: str) -> Position:
    """Return the position after moves from an empty board, each a column from 1."""
    position = Position()
    for move in moves:
        position = position.drop(int(move) - 1)
    return position


def canonical(moves: str) -> str:
    """Return a text that is equal for two openings exactly if they lead to the same board, or to its mirror image."""
    mirrored = "".join(str(WIDTH + 1 - int(move)) for move in moves)
    first, second = sorted([position_after(moves), position_after(mirrored)])
    return f"{first.own:x}.{first.mask:x}" if first <= second else f"{second.own:x}.{second.mask:x}"


def forced_win(position: Position, plies: int) -> int | None:
    """Return a column with which the side to move wins within some plies whatever the other does; None if none does.

    Args:
        position: the position.
        plies: how many moves of both sides to look ahead: 1 for a line at once, 3 for one after a reply, and so on.
    """
    return _forced_win(position, plies, {})


def winning_columns(position: Position, plies: int) -> list[int]:
    """Return all columns with which the side to move wins within some plies, in the order opposite to `forced_win`."""
    known: dict[tuple[Position, int], int | None] = {}
    wins = (
        column
        for column in position.columns()
        if position.wins(column) or (plies >= 3 and _always_wins(position.drop(column), plies - 1, known))
    )
    return list(wins)[::-1]


def best_columns(position: Position, depth: int) -> list[int]:
    """Return the columns that are best for the side to move, looking some plies ahead; only lines of four count."""
    values = {column: _value_of(position, column, depth) for column in position.columns()}
    best = max(values.values())
    return [column for column, value in values.items() if value == best]


def choose(position: Position, opponent: str, rng: random.Random) -> int:
    """Return the column of a scripted opponent: `random`, `greedy`, or `minimax-N`, which looks N plies ahead."""
    columns = position.columns()
    if opponent == "random":
        return rng.choice(columns)
    if opponent.startswith("minimax-"):
        return rng.choice(best_columns(position, int(opponent.removeprefix("minimax-"))))
    winning = [column for column in columns if position.wins(column)]
    return rng.choice(winning or _threats(position) or columns)


def _threats(position: Position) -> list[int]:
    """Return the columns with which the other side would win if it were to move."""
    other = Position(position.own ^ position.mask, position.mask)
    return [column for column in other.columns() if other.wins(column)]


def _forced_win(position: Position, plies: int, known: dict[tuple[Position, int], int | None]) -> int | None:
    columns = position.columns()
    for column in columns:
        if position.wins(column):
            return column
    if plies < 3:
        return None
    if (position, plies) in known:
        return known[position, plies]
    threats = _threats(position)
    found = None
    if len(threats) < 2:
        candidates = threats or columns
        found = next(
            (candidate for candidate in candidates if _always_wins(position.drop(candidate), plies - 1, known)), None
        )
    known[position, plies] = found
    return found


def _always_wins(position: Position, plies: int, known: dict[tuple[Position, int], int | None]) -> bool:
    """Return whether the other side than the one to move wins after every move."""
    columns = position.columns()
    if not columns or any(position.wins(column) for column in columns):
        return False
    replies = _threats(position) or columns
    return all(_forced_win(position.drop(column), plies - 1, known) is not None for column in replies)


def _value_of(position: Position, column: int, depth: int, low: int = -_WIN, high: int = _WIN) -> int:
    """Return what a move is worth to the side that makes it: more than 0 if it wins, the sooner the more."""
    if position.wins(column):
        return _WIN
    after = position.drop(column)
    if depth <= 1 or after.full:
        return 0
    value = -_WIN
    for reply in after.columns():
        # Values move by 1 towards 0 with each ply, so a window of one more on both sides loses none.
        value = max(value, _value_of(after, reply, depth - 1, max(-high - 1, value - 1), 1 - low))
        if value > -low:
            break
    return -(value - 1 if value > 0 else value + 1 if value < 0 else 0)


def _has_line(stones: int) -> bool:
    for step in _DIRECTIONS:
        pairs = stones & (stones >> step)
        if pairs & (pairs >> (2 * step)):
            return True
    return False
