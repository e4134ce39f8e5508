"""What the tests of quotas serve, and the time they run in."""

from __future__ import annotations

from ludus.server import Environment, Result, Task, tool


class Clock:
    """A clock that stands still, or goes on a little with each reading."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Clicker(Environment[Task]):
    """Counts clicks."""

    splits = {"train": [Task(id="only")]}
    seedable = False
    forkable = True

    def setup(self) -> None:
        """Begin at 0."""
        self.clicks = 0

    def prompt(self) -> str:
        """Say what to do."""
        return "Click."

    @tool(inline=True)
    def click(self) -> Result:
        """Click once."""
        self.clicks += 1
        return Result(str(self.clicks), reward=1.0)

    @tool(inline=True)
    def fill(self, size: int) -> str:
        """Return a long text."""
        return "x" * size

    def grade(self, answer: str) -> float:
        """Return 1 for the number of clicks."""
        return float(answer == str(self.clicks))
