"""Single-turn math: the policy answers a question in one message, and `MathEqual` compares the result.

There are no tools. The rubric scores the message; an equal value counts in any form: 7/2, 3.5 or \\frac{7}{2}. Only a
number counts, because the question itself is equal to its result, too.
Tasks are generated from their index, so there is no data file. The fractions of a question, in any order, belong to one
split, so that a test question differs from every question of the training split by more than the order of its terms.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from fractions import Fraction
from functools import partial
from random import Random
from typing import Final
from zlib import crc32

from ludus.server import (
    Answer,
    Attempt,
    Call,
    Environment,
    FromTask,
    MathEqual,
    Private,
    Rubric,
    Split,
    StepResult,
    Task,
)

DENOMINATORS: Final = range(2, 16)
RESULT: Final = re.compile(r"\\boxed\{\s*(-?\d+(?:\.\d+|/\d+)?|-?\\[dt]?frac\{\d+\}\{\d+\})\s*\}")
COUNTS: Final = {"train": 10_000, "validation": 200, "test": 200}


class Problem(Task):
    """A sum or difference of fractions."""

    question: str
    level: int
    """The number of fractions. `ludus run` and `ludus calibrate` group their results by it."""
    solution: Private[str]


def split_of(fractions: Sequence[tuple[int, int]]) -> str:
    """Return the split of a question's fractions, in any order: a sixth of them belongs to the test split."""
    return {0: "test", 1: "validation"}.get(crc32(str(sorted(fractions)).encode()) % 6, "train")


def make_fractions(rng: Random, level: int) -> list[tuple[int, int]]:
    """Return numerators and denominators."""
    denominators = rng.choices(DENOMINATORS, k=level)
    return [(rng.randint(1, 9 * denominator), denominator) for denominator in denominators]


def make_problem(split: str, index: int) -> Problem:
    """Return the task at an index. The levels 2, 3 and 4 take turns."""
    rng = Random(f"{split}/{index}")
    level = 2 + index % 3
    fractions = make_fractions(rng, level)
    while split_of(fractions) != split:
        fractions = make_fractions(rng, level)
    value, terms = Fraction(0), ""
    for place, (numerator, denominator) in enumerate(fractions):
        sign = rng.choice("+-") if place else "+"
        value += Fraction(numerator, denominator) * (1 if sign == "+" else -1)
        terms += f" {sign} " if place else ""
        terms += f"\\frac{{{numerator}}}{{{denominator}}}"
    return Problem(id=f"{split}-{index}", question=f"${terms}$", level=level, solution=str(value))


def result_of(attempt: Attempt) -> str:
    """Return the last number in a box of the message; an empty text if there is none."""
    results: list[str] = RESULT.findall(attempt.answer)
    return results[-1] if results else ""


class MathProblems(Environment[Problem]):
    """Compute with fractions and give the result in the final message."""

    version = "1.1.0"
    splits = {split: Split.lazy(partial(make_problem, split), count) for split, count in COUNTS.items()}
    reward_range = (0.0, 1.0)
    rubric = Rubric(MathEqual(FromTask("solution"), of=result_of, name="correct"), name="math", version="1")

    def prompt(self) -> str:
        """Return the question."""
        return f"Compute {self.task.question}. End your message with the number as \\boxed{{...}}."

    @classmethod
    def oracle(cls, task: Problem) -> Generator[Call | Answer, StepResult, None]:
        """Give the result."""
        yield Answer(f"The result is \\boxed{{{task.solution}}}.")
