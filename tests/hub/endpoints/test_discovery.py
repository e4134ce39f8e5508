"""A stock MCP client finds an environment from the hub's address alone, and plays an episode to its end."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from mcp import Client as McpClient

pytestmark = pytest.mark.timeout(120)

MAZE = '''
"""A door with a word."""

from ludus.server import Environment, Result, Task, tool


class Door(Environment[Task]):
    """Opens for the right word."""

    splits = {"train": [Task(id="only")]}

    def prompt(self):
        """Say what to do."""
        return "Say the word that opens the door: sesame."

    @tool(ends=True)
    async def say(self, word: str) -> Result:
        """Say a word."""
        return Result("the door opens" if word == "sesame" else "nothing happens", reward=float(word == "sesame"))
'''


async def remote_by_catalog(address: str) -> str:
    """Follow the AI catalog of a domain, as the server card extension says."""
    async with httpx.AsyncClient() as web:
        catalog = (await web.get(f"{address}/.well-known/ai-catalog.json")).json()
        entry = next(one for one in catalog["entries"] if one["type"] == "application/mcp-server-card+json")
        card = (await web.get(entry["url"], headers={"accept": "application/mcp-server-card+json"})).json()
    return next(str(one["url"]) for one in card["remotes"] if one["type"] == "streamable-http")


async def remote_by_registry(address: str) -> str:
    """Search the registry API."""
    async with httpx.AsyncClient() as web:
        found = (await web.get(f"{address}/v0.1/servers", params={"search": "door", "version": "latest"})).json()
    return str(found["servers"][0]["server"]["remotes"][0]["url"])


@pytest.mark.suite("hub-endpoints")
@pytest.mark.parametrize("find", [remote_by_catalog, remote_by_registry])
async def test_a_stock_client_starts_from_the_address_of_the_hub_and_plays_to_the_end(
    start_hub: Any, find: Any
) -> None:
    hub = await start_hub()
    await hub.publish("door", source=MAZE, cls="Door")
    remote = await find(hub.url)
    async with McpClient(remote) as control:
        assert "start_episode" in {tool.name for tool in (await control.list_tools()).tools}
        started = await control.call_tool("start_episode", {"environment": "door"})
    said = " ".join(block.text for block in started.content if block.type == "text")
    assert "Say the word that opens the door" in said
    agent = re.search(r"https?://\S+/play/[^\s\"\\]+", said)
    assert agent is not None
    async with McpClient(agent[0]) as play:
        assert [tool.name for tool in (await play.list_tools()).tools] == ["say"]
        answer = await play.call_tool("say", {"word": "sesame"})
        assert "the door opens" in answer.model_dump_json()
        again = await play.call_tool("say", {"word": "sesame"})
        assert again.is_error, "the episode has ended"


async def test_reading_cards_starts_no_endpoint(start_hub: Any, tools: Any) -> None:
    hub = await start_hub()
    await hub.publish("door", source=MAZE, cls="Door")
    assert await remote_by_catalog(hub.url)
    assert not hub.endpoints.servers()
    assert not tools.server_processes()
