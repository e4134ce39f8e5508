"""An environment that writes down every run of its tool in the file that `COUNTING_FILE` names."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ludus.server import Environment, Result, Task, tool


def write_down(tag: str) -> None:
    """Add a line to the file."""
    with Path(os.environ["COUNTING_FILE"]).open("a", encoding="utf-8") as file:
        file.write(f"{tag}\n")


class Counting(Environment[Task]):
    """Counts."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        return "Work."

    @tool
    async def work(self, tag: str, milliseconds: float = 0) -> Result:
        """Work for a while."""
        write_down(tag)
        if milliseconds:
            await asyncio.sleep(milliseconds / 1000)
        return Result(f"{tag} done", reward=1.0)
