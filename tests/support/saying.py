"""Environments to learn from: the right number must be said."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import ClassVar

from ludus.server import Environment, Result, Split, Task, tool


class Number(Task):
    """Which number to say."""

    target: int


class Crash(Exception):
    """What bad code raises."""


class Saying(Environment[Number]):
    """Say the right number. `warm` earns a little and goes on; some tools break."""

    splits = {
        "train": [Number(id=f"n-{index}", target=index % 4) for index in range(40)],
        "hard": Split([Number(id=f"h-{index}", target=index % 4) for index in range(10)], type="train"),
        "test": [Number(id=f"t-{index}", target=index % 4) for index in range(6)],
    }
    started: ClassVar[list[tuple[str, int]]] = []
    """Task and seed of each episode."""

    def setup(self) -> None:
        self.started.append((self.task.id, self.seed))

    def prompt(self) -> str:
        return f"The number is {self.task.target}."

    @tool(ends=True)
    def say(self, number: int) -> Result:
        """Say it."""
        return Result("said", reward=float(number == self.task.target))

    @tool
    def warm(self) -> Result:
        """Earn a little."""
        return Result("warmer", reward=0.25)

    @tool
    def crash(self) -> str:
        """Raise."""
        raise Crash("kaboom")

    def grade(self, answer: str) -> float:
        return 0.5


class Troubled(Saying):
    """Fails a share of the calls, spread evenly over all callers."""

    share: ClassVar[float] = 0.0
    calls: ClassVar[Iterator[int]] = itertools.count()

    @tool(ends=True)
    def say(self, number: int) -> Result:
        """Say it."""
        call = next(self.calls)
        if int((call + 1) * self.share) > int(call * self.share):
            raise Crash("injected")
        return Result("said", reward=float(number == self.task.target))


class Broken(Environment[Number]):
    """Cannot be set up."""

    splits = Saying.splits

    def setup(self) -> None:
        raise Crash("no disk")

    def prompt(self) -> str:
        return "Never."

    @tool
    def say(self, number: int) -> str:
        """Say it."""
        return "said"
