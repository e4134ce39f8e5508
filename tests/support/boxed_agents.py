"""mini-swe-agent in the sandbox of `ludus box`, and the environments that it plays in tests."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from peer_clients import ROOT, python_of

LUDUS = shlex.quote(str(Path(sys.executable).with_name("ludus")))
PROGRAM = ROOT / "docs" / "snippets" / "peers" / "mini_harness.py"

CODING = '''
from ludus.server import (
    Environment, FromTask, FunctionTest, FunctionTests, Limits, Private, SandboxSettings, Task, tool,
)


class Problem(Task):
    question: str
    tests: Private[list[FunctionTest]]


def problem(n: int) -> Problem:
    question = f"Write answer.py with a function f(a) that returns a + {n}."
    tests = [FunctionTest([2], 2 + n), FunctionTest([-1], n - 1, hidden=True)]
    return Problem(id=f"add-{n}", question=question, tests=tests)


class Coding(Environment[Problem]):
    splits = {"train": [problem(n) for n in range(64)]}
    sandbox_settings = SandboxSettings(limits=Limits(seconds=20, memory=256 * 2**20), warm=2)
    verifier_sandbox = "separate"
    artifacts = ("answer.py",)
    rubric = FunctionTests(function="f", path="answer.py", source=None, tests=FromTask("tests"))

    def prompt(self) -> str:
        return self.task.question

    @tool
    async def bash(self, command: str) -> str:
        """Execute a bash command"""
        result = await self.sandbox.run(["sh", "-c", command])
        return f"{result.text}{result.stderr.decode(errors='replace')}({result.ending})"
'''
"""`Coding`: 64 small functions, written in the sandbox of the episode and graded there."""

ANSWERS = '''
from typing import Annotated

from pydantic import Field

from ludus.server import Environment, Limits, Message, Result, SandboxSettings, Task, TextBlock, tool


class Color(Task):
    color: str


COLORS = ["red", "green", "blue", "white", "black", "brown", "pink", "gray", "gold", "teal", "lime", "navy"]
OBJECTS = ["cup", "car", "hat", "box", "pen", "key", "bag", "map"]


class Answers(Environment[Color]):
    """Write `yes` into the file `answer`."""

    splits = {
        "train": [Color(id=f"{c}-{o}", color=f"{c} {o}") for c in COLORS for o in OBJECTS[:6]],
        "test": [Color(id=f"{c}-{o}", color=f"{c} {o}") for c in COLORS for o in OBJECTS[6:]],
    }
    sandbox_settings = SandboxSettings(limits=Limits(seconds=20), warm=2)

    def prompt(self) -> list[Message]:
        return [
            Message(role="system", content=(TextBlock(text="You use bash."),)),
            Message(role="user", content=(TextBlock(text=f"Is the {self.task.color} here? Write it down."),)),
        ]

    @tool
    async def bash(self, command: Annotated[str, Field(description="The bash command to execute")]) -> Result:
        """Execute a bash command"""
        await self.sandbox.run(["sh", "-c", command])
        files = [entry.name for entry in await self.sandbox.list()]
        if "answer" not in files:
            return Result("no answer")
        right = (await self.sandbox.read("answer")).strip() == b"yes"
        return Result("written", reward=float(right), finished=True)
'''
"""`Answers`: a task that the tiny model can learn, one command long."""


def harness_of_mini(*options: str) -> str:
    """The harness that runs mini-swe-agent in a sandbox, with these options of `ludus box`."""
    python = python_of("mini-swe-agent")
    venv = ROOT / ".peers" / "mini-swe-agent"
    words = [
        *options, "--env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "--show", str(venv),
        "--show", str(PROGRAM), "--", python, str(PROGRAM),
    ]  # fmt: skip
    return f"command {LUDUS} box {shlex.join(words)}"
