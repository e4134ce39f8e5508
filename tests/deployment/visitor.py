"""A trainer and an agent in a process of their own, who know the server only by its public address.

python visitor.py URL TOKEN WIRE…    prints one line of JSON: what each wire gave, and the play URLs that were shown
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import aiohttp
import mcp_types
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from ludus.client import connect


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent))


async def play(url: str, mode: Any) -> list[Any]:
    """The tools of an episode, and what one of them shows, as a stock client sees them."""
    async with McpClient(url, mode=mode) as agent:
        tools = [tool.name for tool in (await agent.list_tools()).tools]
        return [tools, text_of(await agent.call_tool("say", {"text": "x" * 10}))]


async def trainer(url: str, token: str, wire: Any) -> dict[str, Any]:
    """One episode on a wire of the SDK, with an argument larger than a proxy's usual limit."""
    async with connect(url, token=token, wire=wire, reconnect_seconds=5) as client:
        episode = await client.environment("echo").start()
        large = await episode.call("measure", text="x" * 2_000_000)
        played = None
        if episode.play_url is not None:
            played = [await play(episode.play_url, mode) for mode in ("auto", "legacy")]
        await episode.close()
        return {"length": large.content[0].text, "play_url": episode.play_url, "played": played}  # type: ignore[union-attr]


async def host(url: str, token: str) -> dict[str, Any]:
    """What a stock MCP host finds at `/mcp`: it starts an episode and connects to the URL that it is given."""
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    async with http, McpClient(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
        begun = text_of(await client.call_tool("start_episode", {"environment": "echo"}))
    found = re.search(r"https?://\S+/play/\S+", begun)
    assert found is not None, begun
    return {"play_url": found[0], "played": await play(found[0], "auto")}


async def pages(url: str, token: str) -> dict[str, Any]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        async with session.get(f"{url}/docs") as docs:
            page = await docs.text()
        async with session.get(f"{url}/openapi.json") as document:
            servers = (await document.json())["servers"]
    found = re.search(r"url: '([^']+)'", page)
    return {"document": found and found[1], "servers": servers}


async def main(url: str, token: str, *wires: str) -> None:
    report = {wire: await trainer(url, token, wire) for wire in wires}
    report["host"] = await host(url, token)
    report["pages"] = await pages(url, token)
    print(json.dumps(report))  # noqa: T201


asyncio.run(main(*sys.argv[1:]))
