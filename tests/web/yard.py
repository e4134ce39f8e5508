"""An environment that waits, breaks and leaves traces, served by these tests from its file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ludus.server import Environment, Private, Result, Task, tool


class Errand(Task):
    goal: str
    answer: Private[int]


class Yard(Environment[Errand]):
    """A place to run errands."""

    splits = {"train": [Errand(id="one", goal="say 7", answer=7)]}

    def prompt(self) -> str:
        return self.task.goal

    @tool(inline=True)
    def say(self, number: int) -> Result:
        """Say a number."""
        return Result("said", reward=float(number == self.task.answer), finished=True)

    @tool
    async def wait(self, seconds: float) -> str:
        """Wait for a while."""
        self._note("waiting")
        await asyncio.sleep(seconds)
        self._note("waited")
        return "waited"

    @tool
    def stumble(self) -> str:
        """Fail, and tell too much."""
        raise RuntimeError(f"cannot log in with {self.secrets['api_key']}")

    async def teardown(self) -> None:
        self._note("torn down")

    def _note(self, what: str) -> None:
        path = os.environ.get("YARD_NOTES")
        if path:
            with Path(path).open("a") as notes:
                notes.write(what + "\n")
