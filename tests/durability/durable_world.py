"""Environments for servers that are killed: state that only their calls make, random numbers, and one that departs."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

from ludus.protocol.episodes import Candidate
from ludus.server import Environment, Result, Task, tool


class Question(Task):
    """A question."""

    question: str


TASKS = [Question(id=f"t{number}", question=f"number {number}") for number in range(5)]


class Ledger(Environment[Question]):
    """Adds numbers, and draws some."""

    version = "1.0.0"
    splits = {"train": TASKS}
    forkable = True

    def setup(self) -> None:
        """Begin with nothing."""
        self.sum = 0

    def prompt(self) -> str:
        """Return the task's question."""
        return self.task.question

    @tool
    def add(self, number: int) -> Result:
        """Add a number, and draw one. Each run of it leaves a line in a file."""
        with Path("runs.txt").open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {number}\n")
        self.sum += number
        return Result(f"{self.sum} {self.rng.randrange(10**9)}", reward=float(number))

    @classmethod
    def score_group(cls, task: Question, candidates: Sequence[Candidate]) -> Sequence[float]:
        """Return random scores, and leave a line in a file."""
        with Path("scores.txt").open("a", encoding="utf-8") as file:
            file.write("scored\n")
        return [random.random() for _ in candidates]

    def grade(self, answer: str) -> float:
        """Return 1 for the sum."""
        return float(answer == str(self.sum))


class Drifting(Environment[Question]):
    """Gives its process's id, which no other process has."""

    version = "1.0.0"
    splits = {"train": TASKS}

    def prompt(self) -> str:
        """Return the question."""
        return "who?"

    @tool
    def who(self) -> str:
        """Return the process's id."""
        return str(os.getpid())
