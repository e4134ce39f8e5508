"""`start_episode` for clients that keep only the first block of a result."""

from __future__ import annotations

import re
from typing import Any

from mcp import Client as McpClient
from mcp.types import CallToolResult, ImageContent, TextContent

from ludus.server import Environment, ImageBlock, Message, Task, TextBlock, tool


class Pictured(Environment[Task]):
    """A task with a picture and two messages."""

    splits = {"train": [Task(id="one")]}

    def prompt(self) -> list[Message]:
        content = (TextBlock(text="Look at this."), ImageBlock.of(b"x"), TextBlock(text="What is it?"))
        return [Message(role="system", content=(TextBlock(text="Be brief."),)), Message(role="user", content=content)]

    @tool
    def guess(self, what: str) -> str:
        """Say what it is."""
        return f"you said {what}"


async def test_the_first_block_holds_the_task_the_address_and_the_tools(serve: Any) -> None:
    server = await serve(Pictured)
    async with McpClient(f"{server.url}/mcp") as client:
        result = await client.call_tool("start_episode", {"environment": "pictured"})
    assert isinstance(result, CallToolResult)
    first, *others = result.content
    assert isinstance(first, TextContent)
    for part in ("Be brief.", "Look at this.", "[image: image/png]", "What is it?", "- guess: Say what it is."):
        assert part in first.text
    assert [type(block) for block in others] == [ImageContent]
    found = re.search(r"http://\S+/play/play_[\w.-]+/mcp", first.text)
    assert found is not None
    async with McpClient(found[0]) as player:
        answer = await player.call_tool("guess", {"what": "a cat"})
    assert isinstance(answer, CallToolResult)
    assert isinstance(answer.content[0], TextContent)
    assert answer.content[0].text == "you said a cat"
