"""An environment with two seats for tests: players take counters from a pile, and who takes the last one wins."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import ClassVar

from ludus.server import Match, Private, Result, SeatedEnvironment, Split, Task, ToolError, tool


class Pile(Task):
    """A pile of counters, and a word for each seat that the other must not see."""

    counters: int
    words: Private[dict[str, str]]


class Nim(Match[Pile]):
    """The pile, and whose move it is."""

    seats: ClassVar[Sequence[str]] = ("first", "second")
    opponents: ClassVar[Sequence[str]] = ("random", "perfect")

    def setup(self) -> None:
        self.left_over = self.task.counters
        self.moves: list[str] = []
        self.pass_to("first")

    def take(self, seat: str, count: int) -> None:
        self.left_over -= count
        self.moves.append(f"{seat} took {count}")
        if self.left_over == 0:
            self.finish({name: float(name == seat) for name in self.seats})
        else:
            self.pass_to("second" if seat == "first" else "first")

    def act(self, seat: str, opponent: str) -> None:
        most = min(3, self.left_over)
        best = self.left_over % 4 if opponent == "perfect" else 0
        self.take(seat, best or self.rng.randint(1, most))


class Piles(SeatedEnvironment[Pile, Nim]):
    """Take counters from a pile, in turn with another player."""

    match_class = Nim
    splits = {
        "train": Split(
            [Pile(id=f"p{n}", counters=n + 3, words={"first": f"apple{n}", "second": f"pear{n}"}) for n in range(10)]
        )
    }
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"You are {self.seat}. Your word is {self.task.words[self.seat]}. {self.observe()}"

    def observe(self) -> str:
        match = self.match
        done = "; ".join(match.moves) or "no moves yet"
        if match.rewards is not None:
            return f"{done}. The match is over: you {'won' if match.rewards[self.seat].value else 'lost'}."
        return f"{done}. {match.left_over} left. It is the move of {match.to_move}."

    @tool(move=True)
    def take(self, count: int) -> str:
        """Take 1 to 3 counters.

        Args:
            count: how many.
        """
        if not 1 <= count <= min(3, self.match.left_over):
            raise ToolError(f"you cannot take {count}")
        self.match.take(self.seat, count)
        return self.observe()

    @tool
    def recall(self) -> str:
        """Say the word of this seat."""
        return self.task.words[self.seat]

    @tool(seats=("second",))
    def bonus(self) -> Result:
        """Earn a little, as only this seat can."""
        return Result("a bonus", reward=0.25)


class Duel(Nim):
    """A match without scripted opponents."""

    opponents = ()


class Duels(Piles):
    """The same game, between agents only."""

    match_class = Duel


class Drifts(Piles):
    """A game with a tool that never gives the same twice, and one that breaks it."""

    @tool
    def crash(self) -> str:
        """Break the environment."""
        raise RuntimeError("planted")

    @tool
    def drift(self) -> str:
        """Return something new."""
        return secrets.token_hex(8)
