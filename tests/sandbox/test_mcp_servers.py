"""MCP servers inside a sandbox: their tools on every wire, and what one that misbehaves can cause."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from boxed_mcp import HOSTILE, PACKAGED, PACKAGES, PLAIN
from mcp import Client
from sandboxing import MIB, TIGHT, leftovers, opened

from ludus.client import connect
from ludus.protocol import episodes as e
from ludus.protocol.errors import AuthoringError, EpisodeFailed
from ludus.sandbox import Sandbox, SandboxSettings
from ludus.server import Environment, EpisodeHost, EpisodeLimits, Task, ToolError, connect_mcp, tool
from ludus.server.auth.principal import Principal
from ludus.server.authoring.mcp_servers import McpServer

Start = Callable[..., Awaitable[EpisodeHost]]
LIMITS = TIGHT.but(memory=256 * MIB, spawned_output=256 * MIB)
PLAIN_COMMAND = ["python3", "-c", PLAIN]


@pytest.fixture
async def box() -> Any:
    provider = await opened("bubblewrap-rlimits")
    async with await provider.create(SandboxSettings(limits=LIMITS, warm=0)) as made:
        yield made
    await provider.aclose()
    assert leftovers() == []
    assert [task for task in asyncio.all_tasks() if "mcp_stdio" in repr(task.get_coro())] == []


async def hostile(box: Sandbox, mode: str, **about: Any) -> McpServer:
    return await connect_mcp(box, ["python3", "-c", HOSTILE, mode], **about)


def text_of(content: Sequence[Any]) -> str:
    return "".join(block.text for block in content if block.type == "text")


async def test_it_works(box: Sandbox) -> None:
    server = await connect_mcp(box, PLAIN_COMMAND)
    assert [one.name for one in server.tools] == ["write_cell", "read_cell", "draw", "die"]
    assert text_of(await server.call("write_cell", {"cell": "A1", "value": 3})) == "written"
    assert json.loads(text_of(await server.call("read_cell", {"cell": "A1"}))) == {"value": 3}
    with pytest.raises(ToolError, match="that cell is empty"):
        await server.call("read_cell", {"cell": "B1"})
    with pytest.raises(ToolError, match="gone: it has ended: exit code 3"):
        await server.call("die", {})
    with pytest.raises(ToolError, match="gone: it has ended: exit code 3"):
        await server.call("draw", {})
