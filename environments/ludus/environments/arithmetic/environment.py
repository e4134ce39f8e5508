"""Compute an expression exactly, and give its value in the final message."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from ludus.environments._partition import FreshTests, SplitName, digest, draw, fresh_tests, place_of, split_of
from ludus.environments.arithmetic.answers import read_answer
from ludus.environments.arithmetic.exploits import messages, right_messages
from ludus.environments.arithmetic.expressions import (
    DIFFICULTIES,
    PAIRS,
    Difficulty,
    Expression,
    drawn_expression,
    easy_expression,
    read_expression,
    shows_value,
)
from ludus.protocol import Answer, Call, Component, Reward, StepResult
from ludus.server import Environment, HeldOutTask, Private, Split, Task

COUNTS: Final[Mapping[SplitName, int]] = {"validation": 300, "test": 300}
"""The number of tasks of the splits that end. Training never does."""


class ArithmeticTask(Task):
    """An expression."""

    expression: str
    difficulty: Difficulty
    solution: Private[str]
    """The value: a whole number, or a fraction such as 7/2."""


class ExpressionProposal(BaseModel):
    """An expression for a new task; its value is computed."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    expression: Annotated[str, Field(min_length=3, max_length=200)]
    """Whole numbers, decimals and fractions in parentheses such as (7/2), joined by + - × ÷, powers such as 12^2, and
    parentheses. The value is not a number in it."""
    difficulty: Difficulty


def make_task(split: SplitName, difficulties: Sequence[Difficulty], index: int) -> ArithmeticTask:
    """Return the training task at an index; difficulties take turns."""
    difficulty, which = difficulties[index % len(difficulties)], index // len(difficulties)
    stream = f"arithmetic:{difficulty}:{index}"
    if difficulty == "easy":
        found = easy_expression(place_of(split, which), random.Random(digest(stream)))
    else:
        make = partial(drawn_expression, difficulty=difficulty)
        found = draw(split, stream, make, lambda one: one.identity)
    return _task(f"{split}-{index}", found, difficulty)


def held_out_tasks(split: SplitName, difficulties: Sequence[Difficulty]) -> Sequence[ArithmeticTask]:
    """Return all tasks of the split for validation or test, none of them twice; difficulties take turns."""
    return _made_once(split, tuple(difficulties), fresh_tests() if split == "test" else None)


@cache
def _made_once(
    split: SplitName, difficulties: Sequence[Difficulty], fresh: FreshTests | None
) -> Sequence[ArithmeticTask]:
    """Return the tasks; fresh ones differ from those that everybody can compute as well."""
    rng = random.Random(digest(f"arithmetic:{split}:{fresh.secret if fresh else ''}"))
    pairs = rng.sample(range(PAIRS // 10), COUNTS[split] * (2 if fresh else 1))
    prefix = f"{split}-{fresh.name}" if fresh else split
    public = _made_once(split, difficulties, None) if fresh else ()
    seen = {read_expression(task.expression).identity for task in public}
    tasks: list[ArithmeticTask] = []
    while len(tasks) < COUNTS[split]:
        difficulty = difficulties[len(tasks) % len(difficulties)]
        if difficulty == "easy":
            found = easy_expression(place_of(split, pairs.pop()), rng)
        else:
            found = drawn_expression(rng, difficulty)
            if split_of(found.identity) != split:
                continue
        if found.identity in seen:
            continue
        seen.add(found.identity)
        tasks.append(_task(f"{prefix}-{len(tasks)}", found, difficulty))
    return tasks


def _held_out_task(split: SplitName, difficulties: Sequence[Difficulty], index: int) -> ArithmeticTask:
    return held_out_tasks(split, difficulties)[index]


def _task(id: str, found: Expression, difficulty: Difficulty) -> ArithmeticTask:
    return ArithmeticTask(id=id, expression=found.text, difficulty=difficulty, solution=str(found.value))


def _splits(*difficulties: Difficulty) -> dict[str, Split[ArithmeticTask]]:
    held_out: dict[str, Split[ArithmeticTask]] = {
        split: Split.lazy(partial(_held_out_task, split, difficulties), count) for split, count in COUNTS.items()
    }
    return {"train": Split.generated(partial(make_task, "train", difficulties)), **held_out}


class Arithmetic(Environment[ArithmeticTask]):
    """Compute an expression of whole numbers, fractions, decimals and powers exactly."""

    version = "0.4.0"
    splits = _splits(*DIFFICULTIES)
    variants = {difficulty: {"splits": _splits(difficulty)} for difficulty in DIFFICULTIES}
    reward_range = (0.0, 1.0)
    blocking = False
    proposals = ExpressionProposal

    def prompt(self) -> str:
        """Return the expression and the form of the answer."""
        return (
            f"Compute {self.task.expression}\n"
            "The result must be exact: a whole number, a decimal that ends, or a fraction such as 7/2.\n"
            "End your message with a line that has only the result, in this form:\n"
            "Answer: NUMBER"
        )

    def grade(self, answer: str) -> Reward:
        """Compare the number that the message gives with the value."""
        number = read_answer(answer)
        correct = number is not None and str(number) == self.task.solution
        return Reward.of(
            float(correct),
            {
                "correct": Component(value=float(correct)),
                "is_number": Component(value=float(number is not None), weight=0.0),
            },
        )

    @classmethod
    def oracle(cls, task: ArithmeticTask) -> Generator[Call | Answer, StepResult, None]:
        """Give the value."""
        yield Answer(f"Answer: {task.solution}")

    @classmethod
    def task_from_proposal(cls, id: str, proposal: ExpressionProposal) -> ArithmeticTask:
        """Return the task of an expression.

        Raises:
            ValueError: it is no expression, or shows its value.
            HeldOutTask: its numbers belong to another split.
        """
        found = read_expression(proposal.expression)
        if len(found.numbers) < 2:
            raise ValueError("an expression has two numbers or more")
        if shows_value(found):
            raise ValueError(f"the value of {found.text} is a number in it")
        if (split := split_of(found.identity)) != "train":
            raise HeldOutTask(f"the numbers of {found.text} belong to the split {split}")
        return _task(id, found, proposal.difficulty)

    @classmethod
    def exploits(cls, task: ArithmeticTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the messages of `exploits.py`, one policy each."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        return {name: say(message) for name, message in messages(task.expression, task.solution).items()}

    @classmethod
    def equivalents(cls, task: ArithmeticTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return messages that write the value in other ways, one policy each."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        return {name: say(message) for name, message in right_messages(task.expression, task.solution).items()}
