"""Nim: take one to three stones; who takes the last one wins."""

from collections.abc import Generator
from random import Random

from ludus.server import Answer, Call, Environment, EpisodeLimits, Result, StepResult, Task, ToolError, text_of, tool


class Heap(Task):
    stones: int
    luck: int


TASKS = [
    Heap(id=f"heap-{stones}-{luck}", stones=stones, luck=luck)
    for luck in range(60)
    for stones in range(5, 16)
    if stones % 4
]


class Nim(Environment[Heap]):
    """Play Nim against an opponent who knows how to win."""

    splits = {"train": [t for t in TASKS if t.luck % 6], "test": [t for t in TASKS if not t.luck % 6]}

    reward_range = (0.0, 1.0)
    random_baseline = 0.3
    limits = EpisodeLimits(max_steps=12)

    def setup(self) -> None:
        self.left = self.task.stones
        self.opponent = Random(self.task.luck)

    def prompt(self) -> str:
        return f"{self.left} stones. Take 1, 2 or 3."

    @tool
    def take(self, count: int) -> str | Result:
        """Take stones.

        Args:
            count: how many, from 1 to 3.
        """
        if not 1 <= count <= min(3, self.left):
            raise ToolError(f"You cannot take {count} of {self.left} stones.")
        self.left -= count
        if self.left == 0:
            return Result("You win.", reward=1.0, finished=True)
        theirs = self.left % 4 or self.opponent.randint(1, min(3, self.left))
        self.left -= theirs
        if self.left == 0:
            return Result("You lose.", reward=0.0, finished=True)
        return f"They take {theirs}. {self.left} stones."

    @classmethod
    def oracle(cls, task: Heap) -> Generator[Call | Answer, StepResult, None]:
        left = task.stones
        while left > 0:
            count = left % 4 or 1
            result = yield Call("take", {"count": count})
            left = int(text_of(result.content).split()[-2]) if "stones" in text_of(result.content) else 0
