"""The environment of the transcripts in `spec/transcripts/`: one sum, a tool that adds, and a graded answer."""

from __future__ import annotations

from ludus.server import Environment, Private, Result, Task, tool


class Sum(Task):
    """A sum with its answer."""

    question: str
    answer: Private[int]


class Arithmetic(Environment[Sum]):
    """Small sums."""

    version = "0.1.0"
    splits = {"train": [Sum(id="sum-0", question="What is 2 + 2?", answer=4)]}
    reward_range = (0.0, 1.5)

    def setup(self) -> None:
        """Remember whether progress was rewarded."""
        self._has_progress = False

    def prompt(self) -> str:
        """Return the question."""
        return self.task.question

    @tool
    def add(self, a: int, b: int) -> Result:
        """Add two numbers."""
        is_progress = not self._has_progress and a + b == self.task.answer
        self._has_progress |= is_progress
        return Result(str(a + b), reward=0.5 if is_progress else None)

    def grade(self, answer: str) -> float:
        """Return 1 for the right number."""
        return float(answer.strip() == str(self.task.answer))
