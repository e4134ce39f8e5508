"""A policy that describes the board of Connect Four before it moves, to record demonstrations before self-play.

    ludus run connect_four-easy --policy examples/connect_four_students.py:student -n 100

Before each move, a student writes down what it sees of each column, from left to right, and the column that it finds
best, such as `21 00 14 … > 3`. The two digits are the lengths of the longest lines, at most 4, that one more stone in
the column would make: one of X, and one of O. A full column has 00. The best column completes a line of its own, or
else blocks one of the other side, or else has the highest sum. Then, four times out of five, the student drops a stone
into any column with room, whatever it has written.

A model that imitates students reads the board, and plays little better than chance. That taking the column which it
has named wins more often, it must find out by playing. `connect_four_practice.py` records matches of students.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from ludus.client import Call, CallItem, Conversation, Turn
from ludus.client.seeds import derive_seed
from ludus.environments.connect_four.board import HEIGHT, WIDTH
from ludus.protocol import text_of
from ludus.protocol.items import OutputItem, text_message

TAKES_BEST = 0.2
"""How often a student takes the column that it has named."""
TRIES_FULL_COLUMN = 0.1
"""How often a full column counts as one with room. The student then describes the same board once more."""
BOARD = re.compile(rf"(?:^[.XO](?: [.XO]){{{WIDTH - 1}}}\n){{{HEIGHT}}}", re.MULTILINE)

Board = Sequence[str]
"""The columns from left to right, each the stones in it from the bottom, such as `XXO`."""


async def student(conversation: Conversation) -> Turn | Call:
    """Describe the board, name a column and drop a stone, or wait if it is not the seat's move."""
    texts = [text_of(item.content) for item in conversation.items if not isinstance(item, CallItem)]
    boards = [read_board(text) for text in texts]
    last = conversation.items[-1]
    if isinstance(last, OutputItem) and last.error:
        board = [board for board in boards if board is not None][-1]
    elif boards[-1] is None:
        return Call("wait")
    else:
        board = boards[-1]
    rng = random.Random(derive_seed(conversation.seed, "student", conversation.sample, conversation.turn))
    seen = [describe_column(board, column) for column in range(WIDTH)]
    best = rng.choice(best_columns(seen, "X" if "Your stones are X" in texts[0] else "O"))
    column = best
    if rng.random() >= TAKES_BEST:
        column = rng.choice([c for c in range(WIDTH) if len(board[c]) < HEIGHT or rng.random() < TRIES_FULL_COLUMN])
    call = CallItem(f"call_{conversation.turn}", Call("drop", {"column": column + 1}))
    return Turn((text_message("assistant", f"{' '.join(seen)} > {best + 1}"), call))


def read_board(text: str) -> Board | None:
    """Return the board that an observation shows, or None if it shows none."""
    found = BOARD.search(text)
    if found is None:
        return None
    rows = [row.split() for row in reversed(found[0].splitlines())]
    return ["".join(row[column] for row in rows).rstrip(".") for column in range(WIDTH)]


def describe_column(board: Board, column: int) -> str:
    """Return the two digits of a column."""
    row = len(board[column])
    return "".join(str(longest_line(board, stone, column, row)) if row < HEIGHT else "0" for stone in "XO")


def longest_line(board: Board, stone: str, column: int, row: int) -> int:
    """Return the length of the longest line through a cell if that stone were in it; 4 for longer ones."""

    def run(right: int, up: int) -> int:
        """Return how many stones of that kind follow the cell in a direction."""
        x, y, length = column + right, row + up, 0
        while 0 <= x < WIDTH and y >= 0 and board[x][y : y + 1] == stone:
            x, y, length = x + right, y + up, length + 1
        return length

    return min(4, 1 + max(run(x, y) + run(-x, -y) for x, y in ((1, 0), (0, 1), (1, 1), (1, -1))))


def best_columns(seen: Sequence[str], own: str) -> list[int]:
    """Return the columns, from 0, that are best for the stones `own`, by the digits of all columns."""

    def worth(digits: str) -> int:
        mine, other = (int(digit) for digit in (digits if own == "X" else reversed(digits)))
        return 100 if mine == 4 else 50 if other == 4 else mine + other

    best = max(map(worth, seen))
    return [column for column, digits in enumerate(seen) if worth(digits) == best]
