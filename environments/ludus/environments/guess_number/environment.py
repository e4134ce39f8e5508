"""Find a hidden number in a range within a budget of guesses; each wrong guess is answered with higher or lower."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final, Literal

from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult, text_of
from ludus.server import Difficulty, ProceduralEnvironment, Result, Task, TaskDraw, ToolError, tool
from ludus.server.authoring.partition import SplitType, draw_in_split, split_of

Size = Literal["tiny", Difficulty]
"""The difficulties, with ranges of seven numbers."""


@dataclass(frozen=True, slots=True)
class Level:
    """The parameters of a difficulty."""

    sizes: tuple[int, int]
    """The least and the greatest size of the range."""
    spare: int
    """The guesses that are allowed in addition to those that halving the range needs in the worst case."""


TINY_LOWS: Final = tuple(low for low in range(100, 1000) if low % 10 <= 3)
"""The low ends of the tiny ranges: all seven numbers of a range share their first two digits."""
LEVELS: Final[Mapping[Size, Level]] = {
    "tiny": Level(sizes=(7, 7), spare=0),
    "easy": Level(sizes=(8, 20), spare=2),
    "medium": Level(sizes=(50, 200), spare=1),
    "hard": Level(sizes=(12_289, 16_383), spare=0),
}


class GuessNumberTask(Task):
    """A range and a budget. The number itself is drawn from the episode's seed, so a group shares it."""

    low: int
    high: int
    guesses: int
    """Guesses allowed."""
    difficulty: Size


@cache
def tiny_ranges(split: SplitType, secret: str = "") -> Sequence[tuple[int, int]]:
    """Return every tiny range of a split, in a fixed shuffled order; no range is in two splits."""
    ranges = [(low, low + LEVELS["tiny"].sizes[0] - 1) for low in TINY_LOWS]
    own = [ends for ends in ranges if split_of(_identity(ends)) == split]
    random.Random(f"guess_number:tiny:{split}" + (f":{secret}" if secret else "")).shuffle(own)
    return own


def _identity(ends: tuple[int, int]) -> str:
    return f"guess_number:{ends}"


class GuessNumber(ProceduralEnvironment[GuessNumberTask]):
    """Find a hidden whole number by guessing; each wrong guess is answered with higher or lower."""

    version = "0.1.0"
    counts = {"train": 10_000, "validation": 300, "test": 300}
    variants = {
        # Seven numbers, three guesses: for models of a few hundred thousand weights. Only halving always wins.
        "tiny": {"difficulties": ("tiny",), "random_baseline": 3 / 7},
        "easy": {"random_baseline": 0.49},
        "hard": {"random_baseline": 0.0},
        "shaped": {"shaping": 0.25},
    }
    reward_range = (0.0, 1.0)
    random_baseline = 0.19  # the average reward of guesses within the range that ignore the answers
    limits = EpisodeLimits(max_steps=40)
    forkable = True
    blocking = False

    shaping: ClassVar[float] = 0.0
    """The part of the reward that is for narrowing the range instead of winning. Use a sum of powers of two, so that
    rewards add up to exactly 1."""

    @classmethod
    def count_tasks(cls, split: SplitType, difficulties: Sequence[Size]) -> int:
        """Return how many ranges a split has; there are few tiny ones."""
        return cls.counts[split] if "tiny" not in difficulties else len(tiny_ranges(split))

    @classmethod
    def make_task(cls, draw: TaskDraw[Size]) -> GuessNumberTask:
        """Draw a range."""
        level = LEVELS[draw.difficulty]
        count = cls.counts[draw.split]

        def candidate(rng: random.Random) -> tuple[int, int]:
            # The low end modulo `count` is the index, so no two tasks of a split are the same.
            low = count * rng.randrange(100_000 // count) + draw.index
            return low, low + rng.randint(*level.sizes) - 1

        if draw.difficulty == "tiny":
            low, high = tiny_ranges(draw.split, draw.secret)[draw.index]
        else:
            stream = f"guess_number:{draw.difficulty}:{draw.index}" + (f":{draw.secret}" if draw.fresh else "")
            low, high = draw_in_split(draw.split, stream, candidate, _identity)
        guesses = (high - low + 1).bit_length() + level.spare
        return GuessNumberTask(id=draw.id, low=low, high=high, guesses=guesses, difficulty=draw.difficulty)

    def setup(self) -> None:
        """Draw the number."""
        self._secret = self.rng.randint(self.task.low, self.task.high)
        self._low, self._high = self.task.low, self.task.high
        self._used = 0
        self._progress = 0.0

    def prompt(self) -> str:
        """Return the rules."""
        task = self.task
        return (
            f"I have chosen a whole number from {task.low} to {task.high}, both included. Find it in at most "
            f"{task.guesses} guesses.\n"
            "Call `guess` with a number. After a wrong guess I say whether my number is higher or lower. A number "
            "outside the range is refused and costs no guess.\n"
            "The game ends when you find the number (you win) or when your guesses are used up (you lose)."
        )

    @tool(inline=True)
    def guess(self, number: int) -> Result:
        """Guess the hidden number.

        Args:
            number: your guess.
        """
        task = self.task
        if not task.low <= number <= task.high:
            raise ToolError(f"Guess a whole number from {task.low} to {task.high}. No guess was used.")
        self._used += 1
        possible = self._low <= number <= self._high
        if number == self._secret:
            return self._result(f"{number} is right. You win.", possible, won=True)
        higher = number < self._secret
        if higher:
            self._low = max(self._low, number + 1)
        else:
            self._high = min(self._high, number - 1)
        left = task.guesses - self._used
        rest = f"Guesses left: {left}." if left else "You have no guesses left. You lose."
        text = f"My number is {'higher' if higher else 'lower'} than {number}. {rest}"
        return self._result(text, possible, lost=left == 0)

    def _result(self, text: str, possible: bool, *, won: bool = False, lost: bool = False) -> Result:
        before, self._progress = self._progress, 1.0 if won else self._narrowed()
        gained = self._progress - before
        win = 1.0 - self.shaping
        components = {
            "win": Component(value=float(won), weight=win),
            "progress": Component(value=gained, weight=self.shaping),
            "guesses": Component(value=1.0, weight=0.0),
            "impossible": Component(value=float(not possible), weight=0.0),
        }
        reward = Reward.of(win * won + self.shaping * gained, components)
        finished = won or lost
        return Result(text, reward, finished=finished, metadata={"secret": self._secret} if finished else {})

    def _narrowed(self) -> float:
        # The share of the number's bits that is known, in whole 1024ths, so that differences are exact.
        size = self.task.high - self.task.low + 1
        remaining = self._high - self._low + 1
        return math.floor(1024 * math.log(size / remaining) / math.log(size)) / 1024

    @classmethod
    def oracle(cls, task: GuessNumberTask) -> Generator[Call | Answer, StepResult, None]:
        """Halve the range with each guess; the budget of every task suffices for this."""
        low, high = task.low, task.high
        while True:
            middle = (low + high) // 2
            result = yield Call("guess", {"number": middle})
            if result.ended:
                return
            if "higher" in text_of(result.content):
                low = middle + 1
            else:
                high = middle - 1

    @classmethod
    def equivalents(cls, task: GuessNumberTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return other ways to halve the range, which need no more guesses."""

        def halve(low: int, high: int, *tried: int) -> Generator[Call | Answer, StepResult, None]:
            for number in tried:
                yield Call("guess", {"number": number})
            while True:
                middle = (low + high + 1) // 2
                result = yield Call("guess", {"number": middle})
                if result.ended:
                    return
                if "higher" in text_of(result.content):
                    low = middle + 1
                else:
                    high = middle - 1

        return {
            "the upper of two middles": halve(task.low, task.high),
            "a refused guess first": halve(task.low, task.high, task.low - 1),
        }
