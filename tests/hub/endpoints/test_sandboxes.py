"""Environments with a sandbox, as endpoints: they play, and the code in the sandbox reaches nothing around it."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client as McpClient

from ludus.client import connect, text_of

pytestmark = [pytest.mark.timeout(120)]

CODER = '''
"""Runs programs in a sandbox."""

import asyncio, contextlib, io

from ludus.server import Environment, Limits, Private, Result, SandboxSettings, Task, tool


class Coder(Environment[Task]):
    """Runs programs in a sandbox."""

    version = "1.0.0"
    splits = {"train": [Task(id="only")]}
    sandbox_settings = SandboxSettings()

    def prompt(self):
        """Say what to do."""
        return "Write a program."

    @tool
    async def execute(self, code: str) -> Result:
        """Run Python code in the sandbox."""
        result = await self.sandbox.run(["python3", "-c", code])
        return Result(f"{result.text}{result.stderr.decode()[-500:]}|{result.ending}", reward=1.0)

    @tool
    def run(self, code: str) -> str:
        """Run Python code in the process of the environment."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, {})
        return output.getvalue()
'''


async def publish(hub: Any, name: str = "coder") -> str:
    """Publish the environment with a sandbox, and return its address."""
    address: str = await hub.publish(name, source=CODER, cls="Coder")
    return address


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_an_environment_with_a_sandbox_plays_unchanged(start_hub: Any, wire: Any) -> None:
    hub = await start_hub()
    async with connect(await publish(hub), wire=wire) as client:
        episode = await client.environment("coder").start(index=0)
        step = await episode.call("execute", code="open('kept', 'w').write('7'); print(6 * 7)")
        assert text_of(step.content).startswith("42")
        assert step.reward is not None
        assert step.reward.value == 1.0
        assert text_of((await episode.call("execute", code="print(open('kept').read())")).content).startswith("7")
        if episode.play_url is not None:
            async with McpClient(episode.play_url) as stock:
                said = await stock.call_tool("execute", {"code": "print(open('kept').read() * 3)"})
                assert said.model_dump(mode="json")["content"][0]["text"].startswith("777")
