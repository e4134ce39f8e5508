"""Compute an expression exactly, and give its value in the final message."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ludus.environments.arithmetic.answers import read_answer
from ludus.environments.arithmetic.exploits import messages, right_messages
from ludus.environments.arithmetic.expressions import (
    PAIRS,
    Expression,
    drawn_expression,
    easy_expression,
    read_expression,
    shows_value,
)
from ludus.protocol import Answer, Call, Component, Reward, StepResult
from ludus.server import Difficulty, HeldOutTask, Private, ProceduralEnvironment, Task, TaskDraw
from ludus.server.authoring.partition import digest, draw_in_split, place_of, split_of


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


def _task(id: str, found: Expression, difficulty: Difficulty) -> ArithmeticTask:
    return ArithmeticTask(id=id, expression=found.text, difficulty=difficulty, solution=str(found.value))


class Arithmetic(ProceduralEnvironment[ArithmeticTask]):
    """Compute an expression of whole numbers, fractions, decimals and powers exactly."""

    version = "0.4.0"
    reward_range = (0.0, 1.0)
    blocking = False
    proposals = ExpressionProposal

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> ArithmeticTask:
        """Draw an expression for training."""
        stream = f"arithmetic:{draw.difficulty}:{draw.index}"
        if draw.difficulty == "easy":
            found = easy_expression(place_of(draw.split, draw.place), random.Random(digest(stream)))
        else:
            make = partial(drawn_expression, difficulty=draw.difficulty)
            found = draw_in_split(draw.split, stream, make, lambda one: one.identity)
        return _task(draw.id, found, draw.difficulty)

    @classmethod
    def make_held_out_tasks(cls, draw: TaskDraw[Difficulty], count: int, taken: set[str]) -> Sequence[ArithmeticTask]:
        """Draw all expressions of a split from one generator."""
        rng = random.Random(digest(f"arithmetic:{draw.split}:{draw.secret}"))
        pairs = rng.sample(range(PAIRS // 10), count * (2 if draw.fresh else 1))
        tasks: list[ArithmeticTask] = []
        while len(tasks) < count:
            draw = draw.at(len(tasks))
            if draw.difficulty == "easy":
                found = easy_expression(place_of(draw.split, pairs.pop()), rng)
            else:
                found = drawn_expression(rng, draw.difficulty)
                if split_of(found.identity) != draw.split:
                    continue
            if found.identity not in taken:
                taken.add(found.identity)
                tasks.append(_task(draw.id, found, draw.difficulty))
        return tasks

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
