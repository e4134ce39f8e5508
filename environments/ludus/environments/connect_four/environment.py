"""Connect Four for two seats: each agent plays another one, or a scripted opponent."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from ludus.environments.connect_four.board import (
    HEIGHT,
    WIDTH,
    Position,
    choose,
    forced_win,
    position_after,
    winning_columns,
)
from ludus.environments.connect_four.openings import COUNTS, opening_at
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult, text_of
from ludus.server import Difficulty, Match, ProceduralEnvironment, SeatedEnvironment, Task, TaskDraw, ToolError, tool
from ludus.server.authoring.partition import SplitType

STONES: Final[Mapping[str, str]] = {"first": "X", "second": "O"}


class Level(NamedTuple):
    """The parameters of a difficulty."""

    opponent: str
    """The scripted opponent, unless a start names another."""
    plies: int
    """The moves of both sides to the first seat's win, if it makes no mistake."""


LEVELS: Final[Mapping[Difficulty, Level]] = {
    "easy": Level("random", 3),
    "medium": Level("greedy", 5),
    "hard": Level("minimax-4", 7),
}


class ConnectFourTask(Task):
    """An opening, from which the first seat can force a win."""

    opening: str
    """The moves so far, each a column from 1."""
    opponent: str
    """The scripted opponent."""
    win_in: int
    """The moves of both sides to the win."""
    difficulty: Difficulty


class ConnectFourMatch(Match[ConnectFourTask]):
    """The board, and whose move it is."""

    seats = ("first", "second")
    opponents = ("random", "greedy", "minimax-4")

    def setup(self) -> None:
        """Set up the opening; its number of moves is even, so the first seat moves next."""
        self.position = position_after(self.task.opening)
        self.drops: list[tuple[str, int]] = []
        self.winner: str | None = None
        self.pass_to("first")

    def default_opponent(self) -> str:
        """Return the task's own opponent."""
        return self.task.opponent

    def drop(self, seat: str, column: int) -> None:
        """Drop a stone of the seat whose move it is into a column with room, from 0."""
        won = self.position.wins(column)
        self.position = self.position.drop(column)
        self.drops.append((seat, column))
        other = _other(seat)
        if won:
            self.winner = seat
            self.finish(self._rewards(seat))
        elif self.position.full:
            self.finish(self._rewards(None))
        else:
            self.pass_to(other)

    def act(self, seat: str, opponent: str) -> None:
        """Move for a seat that no agent plays."""
        self.drop(seat, choose(self.position, opponent, self.rng))

    def left(self, seat: str) -> Mapping[str, Reward]:
        """A seat that leaves gives the game up."""
        rewards = self._rewards(_other(seat))
        return {name: reward.model_copy(update={"reason": f"{seat} gave up"}) for name, reward in rewards.items()}

    def _rewards(self, winner: str | None) -> dict[str, Reward]:
        return {seat: _reward(won=seat == winner, drawn=winner is None) for seat in self.seats}


class ConnectFour(ProceduralEnvironment[ConnectFourTask], SeatedEnvironment[ConnectFourTask, ConnectFourMatch]):
    """Play Connect Four from an opening, against another agent or a scripted opponent."""

    version = "0.2.0"
    match_class = ConnectFourMatch
    counts = COUNTS
    variants = {"easy": {"random_baseline": 0.66}, "hard": {"random_baseline": 0.05}}
    reward_range = (0.0, 1.0)
    random_baseline = 0.27  # the average reward of random columns with room
    limits = EpisodeLimits(max_steps=100)

    @classmethod
    def count_tasks(cls, split: SplitType, difficulties: Sequence[Difficulty]) -> int:
        """Return how many openings a split has; each difficulty has as many."""
        return len(difficulties) * cls.counts[split]

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> ConnectFourTask:
        """Return an opening."""
        level = LEVELS[draw.difficulty]
        opening = opening_at(draw.split, level.plies, draw.place, draw.secret)
        return ConnectFourTask(
            id=draw.id, opening=opening, opponent=level.opponent, win_in=level.plies, difficulty=draw.difficulty
        )

    def setup(self) -> None:
        """Note which moves the seat has seen."""
        self._seen = 0

    def prompt(self) -> str:
        """Return the rules and the opening."""
        mine, other = STONES[self.seat], STONES[_other(self.seat)]
        alone = len(self.match.played) == 1
        waiting = "" if alone else " Your opponent takes its time: when it is its move, call `wait` to see its answer."
        return (
            f"You play Connect Four. Your stones are {mine}, your opponent's are {other}.\n"
            f"The board has {WIDTH} columns, numbered 1 to {WIDTH} from left to right, and {HEIGHT} rows. A stone "
            "falls to the lowest free cell of its column. The first to have four stones in a row wins: horizontally, "
            "vertically or diagonally. If the board is full before that, the game is a draw.\n"
            f"When it is your move, call `drop` with the number of a column.{waiting}\n\n{self.observe()}"
        )

    def observe(self) -> str:
        """Return the moves since the seat last looked, the board, and what comes next.

        While the opponent is to move, only that: the board comes with its answer. So a seat decides on the same text
        whether an agent plays the other seat or a script, and self-play trains a policy on what it is measured on.
        """
        match = self.match
        if match.rewards is None and match.to_move != self.seat:
            return self._state()
        lines = [self._told(seat, column) for seat, column in match.drops[self._seen :]]
        self._seen = len(match.drops)
        first, second = STONES.values()
        own, other = (first, second) if len(match.drops) % 2 == 0 else (second, first)
        lines += [" ".join(str(column + 1) for column in range(WIDTH)), *match.position.rows(own, other)]
        return "\n".join([*lines, self._state()])

    def _told(self, seat: str, column: int) -> str:
        return f"{STONES[seat]} dropped into column {column + 1}."

    def _state(self) -> str:
        match = self.match
        if match.rewards is not None:
            value = match.rewards[self.seat].value
            return {1.0: "You win.", 0.0: "You lose."}.get(value or 0.0, "The game is a draw.")
        return "It is your move." if match.to_move == self.seat else "It is your opponent's move."

    @tool(move=True)
    def drop(self, column: Annotated[int, Field(ge=1, le=WIDTH)]) -> str:
        """Drop a stone into a column.

        Args:
            column: the number of the column, from 1 to 7.
        """
        if not self.match.position.can_drop(column - 1):
            raise ToolError(f"Column {column} is full. Choose another one.")
        self.match.drop(self.seat, column - 1)
        return self.observe()

    @classmethod
    def oracle(cls, task: ConnectFourTask) -> Generator[Call | Answer, StepResult, None]:
        """Play the forced win of the first seat, which a search finds after each answer."""
        yield from _win(task, forced_win)

    @classmethod
    def equivalents(cls, task: ConnectFourTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return another forced win, where there are several, and a win after a move that is refused."""

        def try_an_outside_column() -> Generator[Call | Answer, StepResult, None]:
            yield Call("drop", {"column": WIDTH + 1})
            yield from _win(task, forced_win)

        return {
            "other columns": _win(task, lambda position, plies: winning_columns(position, plies)[0]),
            "a refused column first": try_an_outside_column(),
        }


def _win(
    task: ConnectFourTask, choose_column: Callable[[Position, int], int | None]
) -> Generator[Call | Answer, StepResult, None]:
    """Play a forced win of the first seat by a function that chooses a column in a position that wins in some plies."""
    position, plies = position_after(task.opening), task.win_in
    while True:
        column = choose_column(position, plies)
        assert column is not None
        result = yield Call("drop", {"column": column + 1})
        if result.ended:
            return
        answer = re.search(r"O dropped into column (\d)", text_of(result.content))
        assert answer is not None
        position = position.drop(column).drop(int(answer[1]) - 1)
        plies -= 2


def _other(seat: str) -> str:
    return "second" if seat == "first" else "first"


def _reward(*, won: bool, drawn: bool) -> Reward:
    components = {
        "win": Component(value=float(won), weight=1.0),
        "draw": Component(value=float(drawn), weight=0.5),
    }
    return Reward.of(1.0 if won else 0.5 if drawn else 0.0, components)
