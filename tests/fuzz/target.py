"""What the fuzzer fires at: an environment whose tools do everything that tools may do, and two that look inside."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from typing import Any

from pydantic import BaseModel

from ludus.protocol import EpisodeLimits, Reward
from ludus.server import Environment, Private, Result, Split, Task, ToolError, tool

SECRET = "the-answer-nobody-may-see"
REWARD = 0.7310585786
_ALIVE: weakref.WeakSet[Target] = weakref.WeakSet()


class Riddle(Task):
    """A task with something to hide."""

    question: str
    answer: Private[str] = SECRET


class Point(BaseModel):
    """A nested argument."""

    x: int
    y: float = 0.0
    tags: list[str] = []


def riddle(index: int) -> Riddle:
    return Riddle(id=f"riddle-{index}", question=f"Question {index}?")


class Target(Environment[Riddle]):
    """A target for the fuzzer."""

    splits = {
        "train": Split.generated(riddle),
        "validation": Split.lazy(riddle, count=20),
        "test": [riddle(index) for index in range(5)],
    }
    forkable = True
    limits = EpisodeLimits(max_steps=200)

    def setup(self) -> None:
        _ALIVE.add(self)

    def prompt(self) -> str:
        return self.task.question

    @tool
    def echo(self, text: str) -> str:
        """Say it again."""
        return text

    @tool(inline=True)
    def add(self, a: int, b: int = 1) -> Result:
        """Add."""
        return Result(str(a + b), reward=Reward.of(REWARD, {"sum": 1.0}), metadata={"answer": SECRET})

    @tool
    async def place(self, point: Point) -> str:
        """Take a model."""
        await asyncio.sleep(0)
        return f"at {point.x}"

    @tool(concurrent=True)
    async def look(self, where: str | None = None) -> str:
        """Overlap."""
        return where or "nowhere"

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("no")

    @tool
    def fail(self) -> str:
        """Break."""
        raise RuntimeError(SECRET)

    @tool
    def repeat(self, count: int) -> str:
        """Much text."""
        return " x" * min(max(count, 0), 20_000)

    @tool(ends=True)
    def finish(self) -> Result:
        """End."""
        return Result("done", reward=REWARD)

    def grade(self, answer: str) -> float:
        return float(answer == self.task.answer)

    @classmethod
    def score_group(cls, task: Riddle, candidates: Any) -> list[float]:
        return [REWARD for _ in candidates]


class Probe(Environment[Riddle]):
    """Looks at the process it runs in."""

    splits = {"train": [riddle(0)]}

    def prompt(self) -> str:
        return "Look."

    @tool
    async def inside(self) -> Result:
        """Count what is alive."""
        gc.collect()
        counts = {
            "instances": len(_ALIVE),
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "blocks": sys.getallocatedblocks(),
        }
        return Result("looked", metadata=counts)
