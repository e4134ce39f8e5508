"""Reach a target with some numbers and the four operations, computed exactly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import cache
from typing import Final

from ludus.environments.countdown.expression import Expression, read_expression, swapped, without_layout
from ludus.environments.countdown.generator import LEVELS, make_problem
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult
from ludus.server import Difficulty, Private, ProceduralEnvironment, Result, Task, TaskDraw, ToolError, tool
from ludus.server.authoring.partition import digest

TESTS: Final = 300
"""The number of test tasks."""


class CountdownTask(Task):
    """Numbers, and a target that they can reach."""

    numbers: tuple[int, ...]
    target: int
    difficulty: Difficulty
    solution: Private[str]
    """One of the expressions that reach the target."""


@cache
def _fresh_places(difficulty: Difficulty, secret: str) -> Sequence[int]:
    """Return where the fresh test tasks of a level are in its test split; none of them is a public one."""
    rng = random.Random(digest(f"countdown:test:{secret}:{difficulty}"))
    return rng.sample(range(TESTS, LEVELS[difficulty].choices // 10), TESTS)


class Countdown(ProceduralEnvironment[CountdownTask]):
    """Combine the given numbers with + - * / and parentheses, each at most once, so that they make the target."""

    version = "0.3.0"
    counts = {"train": 40_000, "validation": 300, "test": TESTS}
    variants = {"easy": {}, "hard": {}}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=20)
    forkable = True
    blocking = False

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> CountdownTask:
        """Return the numbers and the target at a place."""
        place = _fresh_places(draw.difficulty, draw.secret)[draw.place] if draw.fresh else draw.place
        problem = make_problem(draw.split, draw.difficulty, place)
        return CountdownTask(
            id=draw.id,
            numbers=problem.numbers,
            target=problem.target,
            difficulty=draw.difficulty,
            solution=problem.solution,
        )

    def setup(self) -> None:
        """Reset the count of tries."""
        self._tries = 0

    def prompt(self) -> str:
        """Return the rules."""
        numbers = ", ".join(map(str, self.task.numbers))
        return (
            f"Make {self.task.target} from the numbers {numbers}.\n"
            "Use + - * / and parentheses. Use each number at most once, or as often as it is listed; you need not use "
            "all. Fractions on the way are fine; the result must be exact.\n"
            "Call `evaluate` to compute an expression without submitting it. Call `submit` with your solution: the "
            "first submission that keeps these rules ends the episode, right or wrong."
        )

    @tool(inline=True)
    def evaluate(self, expression: str) -> str:
        """Compute an expression without submitting it.

        Args:
            expression: whole numbers joined by + - * / and parentheses, for example (3 + 4) * 5.
        """
        found = self._read(expression)
        self._tries += 1
        difference = found.value - self.task.target
        against = (
            "exactly the target"
            if difference == 0
            else f"{abs(difference)} {'more' if difference > 0 else 'less'} than the target {self.task.target}"
        )
        unused = ", ".join(map(str, (Counter(self.task.numbers) - Counter(found.numbers)).elements()))
        return f"The value is {found.value}: {against}. Numbers not used: {unused or 'none'}."

    @tool(inline=True, ends=True)
    def submit(self, expression: str) -> Result:
        """Submit your solution. This ends the episode.

        Args:
            expression: whole numbers joined by + - * / and parentheses, for example (3 + 4) * 5.
        """
        found = self._read(expression)
        target = self.task.target
        correct = found.value == target
        components = {
            "correct": Component(value=float(correct)),
            "closeness": Component(value=float(1 / (1 + abs(found.value - target))), weight=0.0),
            "numbers_used": Component(value=float(len(found.numbers)), weight=0.0),
            "tries": Component(value=float(self._tries), weight=0.0),
        }
        text = f"Correct: the value is {target}." if correct else f"Wrong: the value is {found.value}, not {target}."
        return Result(text, Reward.of(float(correct), components), finished=True)

    def _read(self, text: str) -> Expression:
        found = read_expression(without_layout(text, self.task.target))
        if wrong := Counter(found.numbers) - Counter(self.task.numbers):
            number, extra = next(iter(wrong.items()))
            listed = self.task.numbers.count(number)
            often = "once" if extra + listed == 1 else f"{extra + listed} times"
            allowed = f"it is listed {'once' if listed == 1 else f'{listed} times'}" if listed else "it is not listed"
            raise ToolError(
                f"You use {number} {often}, but {allowed}. Numbers: {', '.join(map(str, self.task.numbers))}."
            )
        return found

    @classmethod
    def oracle(cls, task: CountdownTask) -> Generator[Call | Answer, StepResult, None]:
        """Submit the known solution."""
        yield Call("submit", {"expression": task.solution})

    @classmethod
    def equivalents(cls, task: CountdownTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return other expressions of the target, and other ways to write the known one."""

        def submit(expression: str, *tried: str) -> Generator[Call | Answer, StepResult, None]:
            for one in tried:
                yield Call("evaluate", {"expression": one})
            yield Call("submit", {"expression": expression})

        solution = task.solution
        return {
            "operands in the other order": submit(swapped(solution)),
            "parentheses around it": submit(f"({solution})"),
            "signs of mathematics": submit(solution.translate(str.maketrans("*/-", "×÷−"))),
            "square brackets": submit(solution.translate(str.maketrans("()", "[]"))),
            "LaTeX": submit(f"${solution.replace('*', chr(92) + 'times ')}$"),
            "the target behind it": submit(f"{solution} = {task.target}"),
            "evaluated first": submit(solution, str(task.numbers[0]), solution),
        }
