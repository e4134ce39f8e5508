"""Environments for adapters: sums with a tool and a final answer, and the same with every third episode broken."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import ClassVar

from ludus.server import Environment, Private, Result, Split, Task, tool


class Sum(Task):
    a: int
    b: int
    answer: Private[int]


def make_sum(index: int) -> Sum:
    rng = random.Random(index)
    a, b = rng.randrange(10), rng.randrange(10)
    return Sum(id=f"sum-{index}", a=a, b=b, answer=a + b)


class Sums(Environment[Sum]):
    """Add two numbers: ask for the sum as often as you like, then submit it or say it. Right answers are worth 1."""

    splits = {
        "train": [make_sum(index) for index in range(64)],
        "test": Split.lazy(lambda index: make_sum(1000 + index), 16),
    }
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"What is {self.task.a} + {self.task.b}?"

    @tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: the first number.
            b: the second number.
        """
        return str(a + b)

    @tool
    def submit(self, number: int) -> Result:
        """Submit the sum.

        Args:
            number: the sum.
        """
        value = self._value(number)
        return Result("right" if value else "wrong", reward=value, components={"right": value}, finished=True)

    def grade(self, answer: str) -> float:
        """Compare the last number in the answer with the sum."""
        words = [word.strip(".,!?") for word in answer.split()]
        numbers = [int(word) for word in words if word.removeprefix("-").isdigit()]
        return self._value(numbers[-1] if numbers else None)

    def _value(self, number: int | None) -> float:
        return float(number == self.task.answer)


class EveryThirdBreaks(Sums):
    """The same sums, but whatever ends every third episode of the server raises an exception."""

    _numbers: ClassVar[Iterator[int]] = itertools.count(1)

    def setup(self) -> None:
        self._breaks = next(EveryThirdBreaks._numbers) % 3 == 0

    def _value(self, number: int | None) -> float:
        if self._breaks:
            raise RuntimeError("this episode breaks")
        return super()._value(number)
