"""The `ludus` command, in this process or in one of its own, against a real `ludus serve`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from terminal import run_ludus, run_ludus_here, serving

WORLD: Final = '''
import asyncio
from collections.abc import Generator

from ludus.server import Answer, Call, Environment, Private, Result, Split, StepResult, Task, ToolError, tool


class Sum(Task):
    a: int
    b: int
    answer: Private[int]


def sums(index: int) -> Sum:
    return Sum(id=f"sum-{index}", a=index, b=2, answer=index + 2)


class Sums(Environment[Sum]):
    """Add two numbers."""

    splits = {"train": [sums(index) for index in range(6)], "test": Split.lazy(sums, 3)}
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"{self.task.a} + {self.task.b}?\\x1b[31m[bold]"

    @tool
    def note(self, text: str, times: int = 1, loud: bool = False) -> str:
        """Write something down."""
        return (text.upper() if loud else text) * times

    @tool
    def pick(self, numbers: list[int]) -> str:
        """Pick numbers."""
        return f"sum {sum(numbers)}"

    @tool
    def submit(self, number: int) -> Result:
        """Submit the sum."""
        right = number == self.task.answer
        return Result("right" if right else "wrong", reward=float(right), components={"right": right}, finished=True)

    @tool
    def crash(self) -> str:
        """Break."""
        raise RuntimeError("boom")

    @classmethod
    def oracle(cls, task: Sum) -> Generator[Call | Answer, StepResult, None]:
        yield Call("submit", {"number": task.answer})


class Riddle(Environment[Sum]):
    """Answer in words."""

    splits = {"train": [sums(1)]}

    def prompt(self) -> str:
        return "What is it?"

    def grade(self, answer: str) -> float:
        return float(answer == "an egg")


async def crasher(conversation):
    return Call("crash") if conversation.task.index % 2 else Call("submit", {"number": 2})


async def waiting(conversation):
    print("waiting", flush=True)
    await asyncio.Event().wait()


async def buggy(conversation):
    raise ValueError("my bug")
'''

Ran = subprocess.CompletedProcess[str]
Ludus = Callable[..., Ran]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with environments and policies."""
    path = tmp_path_factory.mktemp("world") / "world.py"
    path.write_text(WORLD)
    return path


@pytest.fixture
def ludus(tmp_path: Path) -> Ludus:
    """`ludus("envs", url, input=…)` runs the command to its end in this process."""
    return partial(run_ludus_here, cwd=tmp_path)


@pytest.fixture
def ludus_process(tmp_path: Path) -> Ludus:
    """`ludus_process("envs", url, input=…)` runs the command to its end in a process of its own."""
    return partial(run_ludus, cwd=tmp_path)


@pytest.fixture(scope="module")
def url(world: Path) -> Iterator[str]:
    """The address of a `ludus serve` process."""
    with serving(f"{world}:Sums", f"{world}:Riddle") as address:
        yield address


@pytest.fixture(scope="module")
def single(world: Path) -> Iterator[str]:
    """The address of a server with one environment."""
    with serving(f"{world}:Sums") as address:
        yield address


@pytest.fixture
def serve_process() -> Iterator[Callable[..., str]]:
    """`url = serve_process(source, …)`: one more `ludus serve` process, for this test."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(serving(*arguments))
