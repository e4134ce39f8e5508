"""Environments whose calls last until the test says so, and that say what happens to their episodes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ludus.server import Environment, Result, Task, tool

GO = Path("go")


def note(what: str) -> None:
    """Leave a line in a file."""
    with Path("notes.txt").open("a", encoding="utf-8") as file:
        file.write(f"{what} {os.getpid()}\n")


class Waiting(Environment[Task]):
    """Adds numbers; some calls wait for a file."""

    version = "1.0.0"
    splits = {"train": [Task(id="only")]}

    def setup(self) -> None:
        """Begin with nothing."""
        self.sum = 0

    def prompt(self) -> str:
        """Say what to do."""
        return "Add."

    async def teardown(self) -> None:
        """Say that the episode left this process."""
        note("teardown")

    @tool
    async def add(self, number: int, wait: bool = False) -> Result:
        """Add a number, once there is the file `go`, if it has to wait."""
        note(f"run {number}")
        while wait and not GO.exists():  # noqa: ASYNC110, ASYNC240 - the test makes it
            await asyncio.sleep(0.01)
        self.sum += number
        return Result(str(self.sum), reward=float(number))


class Acting(Waiting):
    """The same, but its calls act on the outside."""

    durable = "snapshot"
    outside_effects = True

    def snapshot(self) -> bytes:
        """Return the sum."""
        return str(self.sum).encode()

    def restore(self, state: bytes) -> None:
        """Set the sum."""
        self.sum = int(state)
