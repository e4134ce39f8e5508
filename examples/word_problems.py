"""Word problems without arithmetic: who has how many of what, among people and things that the question is not about.

There are no tools, and the answer is one number. A model that is small enough to train on a laptop can learn it,
because the number is in the text. `level` is how many people a problem has. The numbers of a problem, in any order,
belong to one split, so that a test problem differs from every problem of the training split by more than its names.
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
    final_answer,
)

COUNTS: Final = {"train": 1_000, "validation": 100, "test": 200}
LARGEST: Final = 20
NAMES: Final = ("Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry")
THINGS: Final = ("apples", "books", "cards", "coins", "eggs", "pens", "shells", "stamps")


class Problem(Task):
    """A question about one of several people."""

    question: str
    level: int
    """How many people the text is about: 2 or 3. Each of them has the same two kinds of things."""
    solution: Private[str]


def split_of(numbers: Sequence[int]) -> str:
    """Return the split of a problem's numbers, in any order: a sixth of them belongs to the test split."""
    return {0: "test", 1: "validation"}.get(crc32(bytes(sorted(numbers))) % 6, "train")


def make_problem(split: str, index: int) -> Problem:
    """Return the task at an index. The levels take turns."""
    rng = Random(f"{split}/{index}")
    level = 2 + index % 2
    numbers = rng.sample(range(2, LARGEST + 1), 2 * level)
    while split_of(numbers) != split:
        numbers = rng.sample(range(2, LARGEST + 1), 2 * level)
    names, (this, that) = rng.sample(NAMES, level), rng.sample(THINGS, 2)
    facts = {name: {this: numbers[2 * i], that: numbers[2 * i + 1]} for i, name in enumerate(names)}
    story = " ".join(f"{name} has {has[this]} {this} and {has[that]} {that}." for name, has in facts.items())
    who, what = rng.choice(names), rng.choice((this, that))
    return Problem(
        id=f"{split}-{index}",
        question=f"{story} How many {what} does {who} have?",
        level=level,
        solution=str(facts[who][what]),
    )


def number_of(attempt: Attempt) -> str:
    """Return the number of a message that states nothing but a number; an empty text for any other message."""
    number = re.fullmatch(r"(\d+)(?:\.0+)?", final_answer(attempt.answer), re.ASCII)
    return number[1] if number else ""


class WordProblems(Environment[Problem]):
    """Read who has what, and answer with the number."""

    version = "1.1.0"
    splits = {split: Split.lazy(partial(make_problem, split), count) for split, count in COUNTS.items()}
    reward_range = (0.0, 1.0)
    rubric = Rubric(Exact(FromTask("solution"), of=number_of, name="correct"), name="word_problems", version="1")
    waived_checks = {"leakage": "the number is in the text, and the task is to find out which one it is"}

    def prompt(self) -> str:
        """Return the question."""
        return f"{self.task.question} Answer with the number only."

    @classmethod
    def oracle(cls, task: Problem) -> Generator[Call | Answer, StepResult, None]:
        """Give the number."""
        yield Answer(task.solution)
