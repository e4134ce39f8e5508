"""Word problems with small numbers: a task for a pretrained model that is small enough to train on a laptop.

There are no tools, and the answer is one number. `level` is how many numbers a problem has.
The numbers of a problem, in any order, belong to one split, so that a test problem differs from every problem of the
training split by more than its names.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import partial
from random import Random
from typing import Final
from zlib import crc32

from ludus.server import (
    Answer,
    Attempt,
    Call,
    Environment,
    Exact,
    FromTask,
    Private,
    Rubric,
    Split,
    StepResult,
    Task,
)

COUNTS: Final = {"train": 1_000, "validation": 100, "test": 200}
LARGEST: Final = 12
NAMES: Final = ("Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry")
THINGS: Final = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps")


class Problem(Task):
    """A sum or a difference in words."""

    question: str
    level: int
    """How many numbers the question has: 2 or 3."""
    solution: Private[str]


def split_of(numbers: Sequence[int]) -> str:
    """Return the split of a problem's numbers, in any order: a sixth of them belongs to the test split."""
    return {0: "test", 1: "validation"}.get(crc32(bytes(sorted(numbers))) % 6, "train")


def make_problem(split: str, index: int) -> Problem:
    """Return the task at an index. The levels take turns."""
    rng = Random(f"{split}/{index}")
    level = 2 + index % 2
    while True:
        numbers = [rng.randint(2, LARGEST) for _ in range(level)]
        if split_of(numbers) == split:
            break
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    value, story = numbers[0], f"{name} has {numbers[0]} {things}"
    for number in numbers[1:]:
        gets = number > value or rng.random() < 0.5
        value += number if gets else -number
        story += f" and {'gets' if gets else 'loses'} {number}"
    return Problem(
        id=f"{split}-{index}",
        question=f"{story}. How many {things} does {name} have?",
        level=level,
        solution=str(value),
    )


def number_of(attempt: Attempt) -> str:
    """Return the number of a message that is nothing but a number; an empty text for any other message."""
    found = re.fullmatch(r"\s*(\d+)\.?\s*", attempt.answer, re.ASCII)
    return found[1] if found else ""


class WordProblems(Environment[Problem]):
    """Solve a problem about a few things and answer with the number."""

    version = "1.0.0"
    splits = {split: Split.lazy(partial(make_problem, split), count) for split, count in COUNTS.items()}
    reward_range = (0.0, 1.0)
    rubric = Rubric(Exact(FromTask("solution"), of=number_of, name="correct"), name="word_problems", version="1")

    def prompt(self) -> str:
        """Return the question."""
        return f"{self.task.question} Answer with the number only."

    @classmethod
    def oracle(cls, task: Problem) -> Generator[Call | Answer, StepResult, None]:
        """Give the number."""
        yield Answer(task.solution)
