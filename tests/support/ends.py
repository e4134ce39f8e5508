"""Environments that end in several ways."""

from __future__ import annotations

from collections import Counter

from ludus.server import Environment, Result, Task, tool


class Ungraded(Environment[Task]):
    """Earns by steps and grades nothing."""

    splits = {"train": [Task(id="only")]}

    def prompt(self) -> str:
        return "Earn."

    @tool
    def earn(self) -> Result:
        """Earn a half."""
        return Result("earned", reward=0.5)

    @tool
    def stop(self) -> Result:
        """Use up the budget."""
        return Result("out of budget", reward=0.25, truncated=True)


class Graded(Ungraded):
    """Grades what is submitted."""

    grades: Counter[str] = Counter()

    def grade(self, answer: str) -> float:
        self.grades[answer] += 1
        return 1.0
