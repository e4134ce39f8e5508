"""Solve a problem of algebra, and give an exact expression in the form that is asked for."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Final, NamedTuple

from ludus.environments.algebra.exploits import messages, right_messages
from ludus.environments.algebra.grading import Form, is_answer, said
from ludus.environments.algebra.topics import TOPICS, Drawn
from ludus.protocol import Answer, Call, Component, Reward, StepResult
from ludus.server import Difficulty, Private, ProceduralEnvironment, Task, TaskDraw
from ludus.server.authoring.dice import Dice
from ludus.server.authoring.partition import SplitType, digest, split_of

HINTS: Final[Mapping[Form, str]] = {
    "expanded": "Write a sum of terms without parentheses around sums, with like terms combined, such as "
    "2x^2 - 3x + 1/2.",
    "factored": "Write a product of factors with whole coefficients that cannot be factored further, such as "
    "3(x + 1)(2x - 5).",
    "numbers": "Write exact numbers, such as 7, -5/2 or 3 - 4i. If there are several solutions, write all of them, "
    "such "
    "as x = 2 or x = -3.",
    "assignment": "Write both values, such as x = 2, y = -7/2.",
    "inequality": "Write all solutions in one of these forms: x <= 2, or -1 < x <= 5/2, or x < -1 or x > 4.",
    "fraction": "Write one fraction whose numerator and denominator are multiplied out or factored, such as "
    "(2x + 1)/(x - 3)^2.",
    "partial_fractions": "Write a sum of fractions with numbers above and linear denominators, such as "
    "2/(x - 1) - 5/(x + 4).",
}
"""What the prompt says about each form."""

_NUMBER: Final = re.compile(r"\d+")


class AlgebraProblem(Task):
    """A problem of algebra."""

    question: str
    topic: str
    form: Form
    """The form of the answer."""
    difficulty: Difficulty
    solution: Private[str]
    """The answer, in its form."""


class Problem(NamedTuple):
    """A problem with the name of its topic, and a text that is equal for all with its topic and numbers."""

    topic: str
    drawn: Drawn
    identity: str


def draw_problem(stream: str, split: SplitType, difficulty: Difficulty) -> Problem:
    """Return the first problem of a stream that belongs to a split and whose numbers do not show the answer."""
    dice = Dice(digest(f"algebra:{stream}"))
    while True:
        topic = dice.pick(TOPICS[difficulty])
        drawn = topic(dice)
        if drawn is None:
            continue
        numbers = _NUMBER.findall(drawn.question)
        identity = identity_of(topic.__name__, numbers)
        if split_of(identity) == split and not (drawn.form == "numbers" and _shown(drawn.solution, numbers)):
            return Problem(topic.__name__, drawn, identity)


def identity_of(topic: str, numbers: Sequence[str]) -> str:
    """Return a text that is equal for all problems with a topic and some numbers, in any order."""
    return f"algebra:{topic}:{' '.join(sorted(numbers))}"


def _shown(solution: str, numbers: Sequence[str]) -> bool:
    """Return whether a single number, or its negative, is one of the numbers of the question."""
    return solution.removeprefix("x = ").lstrip("-") in numbers


class Algebra(ProceduralEnvironment[AlgebraProblem]):
    """Solve a problem of algebra: expand, factor, simplify, solve, differentiate and others, with an exact answer."""

    version = "0.3.0"
    reward_range = (0.0, 1.0)
    blocking = False

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> AlgebraProblem:
        """Draw a problem of the split."""
        problem = draw_problem(f"{draw.series}:{draw.difficulty}:{draw.place}", draw.split, draw.difficulty)
        question, form, solution = problem.drawn
        return AlgebraProblem(
            id=draw.id, question=question, topic=problem.topic, form=form, difficulty=draw.difficulty, solution=solution
        )

    @classmethod
    def task_identity(cls, task: AlgebraProblem, draw: TaskDraw[Difficulty]) -> str:
        """Return the topic and the numbers."""
        return identity_of(task.topic, _NUMBER.findall(task.question))

    def prompt(self) -> str:
        """Return the problem and the form of the answer."""
        return (
            f"{self.task.question}\n"
            f"{HINTS[self.task.form]} Use * or nothing for products, / for quotients and ^ for powers, or LaTeX.\n"
            "End your message with a line that has only the result, in this form:\n"
            "Answer: RESULT"
        )

    def grade(self, answer: str) -> Reward:
        """Compare what the message gives with the answer, and check its form."""
        found = is_answer(self.task.form, said(self.task.form, answer), self.task.solution)
        return Reward.of(
            float(bool(found)),
            {
                "correct": Component(value=float(bool(found))),
                "is_readable": Component(value=float(found is not None), weight=0.0),
            },
        )

    @classmethod
    def oracle(cls, task: AlgebraProblem) -> Generator[Call | Answer, StepResult, None]:
        """Give the answer."""
        yield Answer(f"Answer: {task.solution}")

    @classmethod
    def exploits(cls, task: AlgebraProblem) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the messages of `exploits.py`, one policy each."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        found = messages(task.question, task.form, task.solution)
        return {name: say(message) for name, message in found.items()}

    @classmethod
    def equivalents(cls, task: AlgebraProblem) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return messages that write the answer in other ways, one policy each."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        return {name: say(message) for name, message in right_messages(task.form, task.solution).items()}
