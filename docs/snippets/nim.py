"""Take stones from a heap in turn; the seat that takes the last one wins."""

from typing import Annotated

from pydantic import Field

from ludus.server import Match, SeatedEnvironment, Task, ToolError, tool


class Heap(Task):
    stones: int


class Nim(Match[Heap]):
    """What the seats share."""

    seats = ("first", "second")
    opponents = ("random", "perfect")

    def setup(self) -> None:
        self.left_over = self.task.stones
        self.moves: list[str] = []
        self.pass_to("first")

    def take(self, seat: str, count: int) -> None:
        self.left_over -= count
        self.moves.append(f"{seat} took {count}.")
        if self.left_over == 0:
            self.finish({name: float(name == seat) for name in self.seats})
        else:
            self.pass_to("second" if seat == "first" else "first")

    def act(self, seat: str, opponent: str) -> None:
        best = self.left_over % 4 if opponent == "perfect" else 0
        self.take(seat, best or self.rng.randint(1, min(3, self.left_over)))


class NimSeat(SeatedEnvironment[Heap, Nim]):
    """Take the last stone of a heap."""

    name = "nim"
    match_class = Nim
    splits = {"train": [Heap(id=f"heap-{n}", stones=n) for n in range(5, 25) if n % 4]}

    def prompt(self) -> str:
        return f"You are {self.seat}. Take 1 to 3 stones when it is your move; the last one wins. {self.observe()}"

    def observe(self) -> str:
        history = " ".join(self.match.moves[-2:])
        return f"{history} {self.match.left_over} left. The move is {self.match.to_move}'s."

    @tool(move=True)
    def take(self, count: Annotated[int, Field(ge=1, le=3)]) -> str:
        """Take stones."""
        if count > self.match.left_over:
            raise ToolError(f"There are only {self.match.left_over}.")
        self.match.take(self.seat, count)
        return self.observe()
