"""Record matches of students of Connect Four from any position, as demonstrations before self-play.

    python examples/connect_four_practice.py -n 120000 --out runs/games.jsonl

`Practice` is the built-in environment with other tasks: they begin at any position that random moves lead to, because
the few openings of the built-in tasks could be learned by heart. Validation and test are those of the built-in one. In
one match of 16, [students](connect_four_students.py) play both seats to the end, and in another one plays against
random moves. In the rest, one of them makes one or two moves: boards of many matches teach more than as many boards of
the same match.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from contextlib import closing
from pathlib import Path

from connect_four_students import student

from ludus.client import Harness, RemoteEnvironment, TrajectoryWriter, connect, run_episode
from ludus.client.local_server import LocalServer
from ludus.client.seeds import derive_seed
from ludus.environments.connect_four.board import WIDTH, Position
from ludus.environments.connect_four.environment import ConnectFour, ConnectFourTask
from ludus.environments.connect_four.openings import split_of_moves
from ludus.server import Split

CONCURRENCY = 16


def any_opening(index: int) -> ConnectFourTask:
    """Return a task of training that begins after at most 26 random moves, none of which ends the game."""
    rng = random.Random(derive_seed(0, "openings", index))
    while True:
        position, moves = Position(), ""
        for column in rng.choices(range(WIDTH), k=rng.randrange(4, 27)):
            if position.can_drop(column) and not position.wins(column):
                position, moves = position.drop(column), moves + str(column + 1)
        if len(moves) % 2 == 0 and split_of_moves(moves) == "train":
            return ConnectFourTask(id=f"any-{index}", opening=moves, opponent="random", win_in=0, difficulty="easy")


class Practice(ConnectFour):
    """`connect_four-easy`, whose training tasks begin at any position."""

    name = "connect_four"
    splits = {**ConnectFour.splits_of(["easy"]), "train": Split.generated(any_opening)}
    variants = {"easy": {}}


async def play(environment: RemoteEnvironment, number: int, writer: TrajectoryWriter) -> None:
    """Play a match of two students, or some moves of one against random ones, and write down what they did."""
    rng = random.Random(derive_seed(0, "students", number))
    both, whole = number % 16 == 0, number % 16 < 2
    seats = ("first", "second") if both else (rng.choice(("first", "second")),)
    harness = Harness(max_turns=60 if whole else rng.choice((1, 2)))
    opponent = None if both else "random"
    async with await environment.start_match(index=number, seed=number, seats=seats, opponent=opponent) as match:
        playing = (run_episode(match[seat], student, harness=harness, sample=k) for k, seat in enumerate(match.seats))
        for trajectory in await asyncio.gather(*playing):
            writer.write(trajectory)


async def main(count: int, out: Path) -> None:
    """Play all matches, some at the same time."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with closing(LocalServer([f"{__file__}:Practice"])) as server, TrajectoryWriter(out) as writer:
        async with connect(server.url) as client, asyncio.TaskGroup() as tasks:
            environment = client.environment("connect_four-easy")
            free = asyncio.Semaphore(CONCURRENCY)

            async def one(number: int) -> None:
                async with free:
                    await play(environment, number, writer)

            for number in range(count):
                tasks.create_task(one(number))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=120_000, help="the number of matches")
    parser.add_argument("--out", type=Path, default=Path("runs/games.jsonl"))
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists; delete it, or name another file with --out")
    asyncio.run(main(arguments.n, arguments.out))
