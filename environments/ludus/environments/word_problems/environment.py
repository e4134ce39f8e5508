"""Solve a math problem stated in words, and give the exact number in the final message."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from fractions import Fraction

from ludus.environments.word_problems.answers import read_answer
from ludus.environments.word_problems.exploits import messages, right_messages
from ludus.environments.word_problems.problems import Problem, draw_problem
from ludus.protocol import Answer, Call, Component, Reward, StepResult
from ludus.server import Difficulty, Private, ProceduralEnvironment, Task, TaskDraw


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


def problem_of(draw: TaskDraw[Difficulty]) -> Problem:
    """Return the problem of a draw."""
    stream = f"word_problems:{draw.series}:{draw.difficulty}:{draw.place}"
    return draw_problem(stream, draw.split, draw.difficulty)


class WordProblems(ProceduralEnvironment[WordProblem]):
    """Solve a math problem stated in words: several steps, exact numbers, and sentences that do not matter."""

    version = "0.3.0"
    reward_range = (0.0, 1.0)
    blocking = False

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> WordProblem:
        """Compose a problem."""
        problem = problem_of(draw)
        return WordProblem(
            id=draw.id,
            question=problem.question,
            situations=problem.families,
            steps=problem.steps,
            unit=problem.unit,
            difficulty=draw.difficulty,
            solution=str(problem.answer),
        )

    @classmethod
    def task_identity(cls, task: WordProblem, draw: TaskDraw[Difficulty]) -> str:
        """Return the numbers that matter, which the question has among others."""
        return problem_of(draw).identity

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
