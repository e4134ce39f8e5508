"""An environment whose work waits until the file `open` is there when it begins, so that a test can kill its server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from ludus.protocol.episodes import Candidate
from ludus.server import Environment, Result, Task, tool


def is_open(what: str) -> bool:
    """Leave a line in a file, and return whether the gate is open."""
    with Path("runs.txt").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {what}\n")
    return Path("open").exists()


async def pass_gate(what: str) -> None:
    """Go on at once or never."""
    if not is_open(what):
        await asyncio.Event().wait()


class Gated(Environment[Task]):
    """Adds numbers, behind a gate or not."""

    version = "1.0.0"
    splits = {"train": [Task(id="only")]}

    async def setup(self) -> None:
        """Begin with nothing."""
        self.sum = 0

    def prompt(self) -> str:
        """Return a prompt."""
        return "Add."

    @tool
    def add(self, number: int) -> Result:
        """Add a number."""
        self.sum += number
        return Result(str(self.sum), reward=float(number))

    @tool
    async def add_behind_gate(self, number: int) -> Result:
        """Add a number behind the gate."""
        await pass_gate("add")
        return self.add(number)

    async def grade(self, answer: str) -> float:
        """Return 1 for the sum, behind the gate."""
        await pass_gate("grade")
        return float(answer == str(self.sum))

    @classmethod
    async def score_group(cls, task: Task, candidates: Sequence[Candidate]) -> Sequence[float]:
        """Return the place of each candidate, behind the gate."""
        await pass_gate("score")
        return [float(place) for place in range(len(candidates))]


class Opening(Gated):
    """Is set up behind the gate."""

    async def setup(self) -> None:
        """Begin with nothing, behind the gate."""
        await pass_gate("setup")
        self.sum = 0
