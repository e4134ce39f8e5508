"""A treasure hunt: dig where the gold is, with as few holes as you can."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from random import Random

from ludus.server import (
    Answer,
    Call,
    Environment,
    EpisodeLimits,
    Private,
    Result,
    Reward,
    Split,
    StepResult,
    Task,
    ToolError,
    tool,
)


class Beach(Task):
    """One stretch of sand."""

    length: int
    gold: Private[int]


LENGTHS = range(5, 40)
HELD_OUT = LENGTHS[5::7]  # not every second one: training would show even numbers only, and validation odd ones


def beach(index: int, lengths: Sequence[int]) -> Beach:
    rng = Random(index)
    length = rng.choice(lengths)
    return Beach(id=f"beach-{index}", length=length, gold=rng.randint(1, length))


class TreasureHunt(Environment[Beach]):
    """Find the gold on a beach by digging."""

    version = "1.0.0"
    splits = {
        "train": Split.generated(lambda index: beach(index, [n for n in LENGTHS if n not in HELD_OUT])),
        "validation": Split.lazy(lambda index: beach(index, HELD_OUT), count=50),
    }
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=20)

    def setup(self) -> None:
        self.holes = 0

    def prompt(self) -> str:
        return f"There is gold on this beach, somewhere from metre 1 to metre {self.task.length}. Dig it up."

    @tool
    def dig(self, metre: int) -> str | Result:
        """Dig a hole.

        Args:
            metre: where to dig, counted from 1.
        """
        if not 1 <= metre <= self.task.length:
            raise ToolError(f"The beach goes from metre 1 to metre {self.task.length}.")
        self.holes += 1
        if metre == self.task.gold:
            reward = Reward.of(1 / self.holes, {"holes": float(self.holes)})
            return Result("Gold!", reward=reward, finished=True)
        return "Only sand here. The gold lies " + ("further on." if metre < self.task.gold else "further back.")

    @classmethod
    def oracle(cls, task: Beach) -> Generator[Call | Answer, StepResult, None]:
        yield Call("dig", {"metre": task.gold})
