"""Solve a math problem stated in words, and give the exact number in the final message."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Final

from ludus.environments._partition import FreshTests, SplitName, different_problems, fresh_tests
from ludus.environments.word_problems.answers import read_answer
from ludus.environments.word_problems.exploits import messages, right_messages
from ludus.environments.word_problems.problems import Problem, draw_problem
from ludus.environments.word_problems.story import DIFFICULTIES, Difficulty
from ludus.protocol import Answer, Call, Component, Reward, StepResult
from ludus.server import Environment, Private, Split, Task

COUNTS: Final[Mapping[SplitName, int]] = {"validation": 300, "test": 300}
"""The number of tasks of the splits that end. Training never does."""


class WordProblem(Task):
    """A problem in words."""

    question: str
    situations: tuple[str, ...]
    """The families of the pieces that the problem is composed of."""
    steps: int
    """How many computations it takes."""
    unit: str
    """What the answer is a number of."""
    difficulty: Difficulty
    solution: Private[str]
    """The exact answer: a whole number, or a fraction such as 7/2."""


def train_task(difficulties: Sequence[Difficulty], index: int) -> WordProblem:
    """Return the training task at an index; difficulties take turns."""
    difficulty, which = difficulties[index % len(difficulties)], index // len(difficulties)
    problem = draw_problem(f"word_problems:train:{difficulty}:{which}", "train", difficulty)
    return _task(f"train-{index}", problem, difficulty)


def held_out_tasks(split: SplitName, difficulties: Sequence[Difficulty]) -> Sequence[WordProblem]:
    """Return all tasks of the split for validation or test, none of them twice; difficulties take turns."""
    fresh = fresh_tests() if split == "test" else None
    return _tasks(split, tuple(difficulties), fresh)


@cache
def _tasks(split: SplitName, difficulties: Sequence[Difficulty], fresh: FreshTests | None) -> Sequence[WordProblem]:
    prefix = f"{split}-{fresh.name}" if fresh else split
    found = _problems(split, difficulties, fresh)
    return [
        _task(f"{prefix}-{index}", problem, difficulties[index % len(difficulties)])
        for index, problem in enumerate(found)
    ]


@cache
def _problems(split: SplitName, difficulties: Sequence[Difficulty], fresh: FreshTests | None) -> Sequence[Problem]:
    """Return different problems; fresh ones differ from those that everybody can compute as well."""

    def draw_at(place: int, difficulty: Difficulty) -> Problem:
        stream = f"word_problems:{split}:{fresh.secret if fresh else ''}:{difficulty}:{place}"
        return draw_problem(stream, split, difficulty)

    known = _problems(split, difficulties, None) if fresh else ()
    return different_problems(COUNTS[split], difficulties, draw_at, known)


def _held_out_task(split: SplitName, difficulties: Sequence[Difficulty], index: int) -> WordProblem:
    return held_out_tasks(split, difficulties)[index]


def _task(id: str, problem: Problem, difficulty: Difficulty) -> WordProblem:
    return WordProblem(
        id=id,
        question=problem.question,
        situations=problem.families,
        steps=problem.steps,
        unit=problem.unit,
        difficulty=difficulty,
        solution=str(problem.answer),
    )


def _splits(*difficulties: Difficulty) -> dict[str, Split[WordProblem]]:
    held_out: dict[str, Split[WordProblem]] = {
        split: Split.lazy(partial(_held_out_task, split, difficulties), number) for split, number in COUNTS.items()
    }
    return {"train": Split.generated(partial(train_task, difficulties)), **held_out}


class WordProblems(Environment[WordProblem]):
    """Solve a math problem stated in words: several steps, exact numbers, and sentences that do not matter."""

    version = "0.3.0"
    splits = _splits(*DIFFICULTIES)
    variants = {difficulty: {"splits": _splits(difficulty)} for difficulty in DIFFICULTIES}
    reward_range = (0.0, 1.0)
    blocking = False

    def prompt(self) -> str:
        """Return the problem and the form of the answer."""
        return (
            f"{self.task.question}\n\n"
            "The text may hold numbers that do not matter. The result must be exact, not rounded: a whole number, a "
            "decimal that ends, or a fraction such as 7/2, in the unit that the question asks for.\n"
            "Think step by step if you like, and end your message with a line that has only the result, in this form:\n"
            "Answer: NUMBER"
        )

    def grade(self, answer: str) -> Reward:
        """Compare the number that the message gives with the answer."""
        number = read_answer(answer, self.task.unit)
        correct = number is not None and number == Fraction(self.task.solution)
        return Reward.of(
            float(correct),
            {
                "correct": Component(value=float(correct)),
                "is_number": Component(value=float(number is not None), weight=0.0),
            },
        )

    @classmethod
    def oracle(cls, task: WordProblem) -> Generator[Call | Answer, StepResult, None]:
        """Give the answer."""
        yield Answer(f"Answer: {task.solution}")

    @classmethod
    def exploits(cls, task: WordProblem) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the messages of `exploits.py`, one policy each."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        found = messages(task.question, task.solution, task.unit)
        return {name: say(message) for name, message in found.items()}

    @classmethod
    def equivalents(cls, task: WordProblem) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return messages that write the answer in other ways, one policy each."""

        def say(message: str) -> Generator[Call | Answer, StepResult, None]:
            yield Answer(message)

        return {name: say(message) for name, message in right_messages(task.solution, task.unit).items()}
