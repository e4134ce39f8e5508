"""Record matches of students of Connect Four, as demonstrations before self-play.

    python examples/connect_four_students.py -n 16000 --out runs/games.jsonl

Before each move, a student writes down what it sees of each column, from left to right, such as `21 00 14 …`. The two
digits are the lengths of the longest lines, at most 4, that one more stone in the column would make: one of X, and one
of O. A full column has 00. Then the student drops a stone into any column with room.

A model that imitates students reads the board, and plays no better than chance. That it wins where its own stone has a
4, that a 4 of the other stone must be blocked, and that longer lines are better, it must find out by playing.

They begin at any position that random moves lead to, because the few openings of the tasks could be learned by heart.
In every other match, students play both seats, and in the rest one of them plays against random moves.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ludus.client import Call, CallItem, Conversation, RemoteEnvironment, TrajectoryWriter, Turn, connect, run_episode
from ludus.client.seeds import derive_seed
from ludus.environments.connect_four.board import HEIGHT, WIDTH, Position
from ludus.environments.connect_four.environment import ConnectFour, ConnectFourTask
from ludus.environments.connect_four.openings import split_of_moves
from ludus.integrations.local_server import LocalServer
from ludus.protocol import text_of
from ludus.protocol.items import text_message
from ludus.server import Split

CONCURRENCY = 16
BOARD = re.compile(rf"(?:^[.XO](?: [.XO]){{{WIDTH - 1}}}\n){{{HEIGHT}}}", re.MULTILINE)

Board = Sequence[str]
"""The columns from left to right, each the stones in it from the bottom, such as `XXO`."""


def read_board(text: str) -> Board | None:
    """Return the board that an observation shows, or None if it shows none."""
    found = BOARD.search(text)
    if found is None:
        return None
    rows = [row.split() for row in reversed(found[0].splitlines())]
    return ["".join(row[column] for row in rows).rstrip(".") for column in range(WIDTH)]


def longest_line(board: Board, stone: str, column: int, row: int) -> int:
    """Return the length of the longest line through a cell if that stone were in it; 4 for longer ones."""

    def run(right: int, up: int) -> int:
        """Return how many stones of that kind follow the cell in a direction."""
        x, y, length = column + right, row + up, 0
        while 0 <= x < WIDTH and y >= 0 and board[x][y : y + 1] == stone:
            x, y, length = x + right, y + up, length + 1
        return length

    return min(4, 1 + max(run(x, y) + run(-x, -y) for x, y in ((1, 0), (0, 1), (1, 1), (1, -1))))


def describe_column(board: Board, column: int) -> str:
    """Return the two digits of a column."""
    row = len(board[column])
    return "".join(str(longest_line(board, stone, column, row)) if row < HEIGHT else "0" for stone in "XO")


def any_opening(index: int) -> ConnectFourTask:
    """Return a task that begins after up to 20 random moves, none of which ends the game."""
    rng = random.Random(derive_seed(0, "openings", index))
    position, moves = Position(), ""
    for _ in range(rng.randrange(0, 22, 2)):
        columns = [column for column in position.columns() if not position.wins(column)]
        if not columns:
            return any_opening(index + 1_000_000)
        column = rng.choice(columns)
        position, moves = position.drop(column), moves + str(column + 1)
    if split_of_moves(moves) != "train":
        return any_opening(index + 1_000_000)
    return ConnectFourTask(id=f"any-{index}", opening=moves, opponent="random", win_in=0, difficulty="easy")


class Practice(ConnectFour):
    """`connect_four`, from any position."""

    name = "connect_four"
    splits = {"train": Split.generated(any_opening)}
    variants = {"easy": {}}


class Student:
    """A policy for one seat."""

    name = "student"

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    async def __call__(self, conversation: Conversation) -> Turn | Call:
        """Describe the board and drop a stone, or wait if it is not the seat's move."""
        last = conversation.items[-1]
        assert not isinstance(last, CallItem)
        board = read_board(text_of(last.content))
        if board is None:
            return Call("wait")
        seen = " ".join(describe_column(board, column) for column in range(WIDTH))
        column = self._rng.choice([column for column in range(WIDTH) if len(board[column]) < HEIGHT])
        call = CallItem(f"call_{conversation.turn}", Call("drop", {"column": column + 1}))
        return Turn((text_message("assistant", seen), call))


async def play(environment: RemoteEnvironment, number: int, writer: TrajectoryWriter) -> None:
    """Play a match of two students, or of one against random moves, and write down what the students did."""
    seed = derive_seed(0, "students", number)
    seats = (("first", "second"), ("first",), ("first", "second"), ("second",))[number % 4]
    opponent = "random" if len(seats) == 1 else None
    async with await environment.start_match(index=number, seed=seed, seats=seats, opponent=opponent) as match:
        students = {seat: Student(derive_seed(seed, seat)) for seat in match.seats}
        playing = (run_episode(match[seat], students[seat], sample=k) for k, seat in enumerate(match.seats))
        for trajectory in await asyncio.gather(*playing):
            writer.write(trajectory)


async def main(count: int, out: Path) -> None:
    """Play all matches, some at the same time."""
    free = asyncio.Semaphore(CONCURRENCY)
    out.parent.mkdir(parents=True, exist_ok=True)
    with closing(LocalServer([f"{__file__}:Practice"])) as server, TrajectoryWriter(out) as writer:
        async with connect(server.url) as client, asyncio.TaskGroup() as tasks:
            environment = client.environment("connect_four-easy")

            async def one(number: int) -> None:
                async with free:
                    await play(environment, number, writer)

            for number in range(count):
                tasks.create_task(one(number))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=16_000, help="the number of matches")
    parser.add_argument("--out", type=Path, default=Path("runs/games.jsonl"))
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists; delete it, or name another file with --out")
    asyncio.run(main(arguments.n, arguments.out))
