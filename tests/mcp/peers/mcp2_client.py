"""A player on `mcp` 2.3, which gets its orders line by line: see `Player` in the tests.

python mcp2_client.py MODE http URL | MODE stdio COMMAND...
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201


async def main(mode: str, kind: str, *where: str) -> None:
    if kind == "http":
        server: Any = where[0]
    else:
        server = stdio_client(StdioServerParameters(command=where[0], args=list(where[1:])))
    async with Client(server, mode=mode) as client:
        # A pinned client never asks what the server can do, so this asks for what may not be there.
        try:
            prompts = (await client.list_prompts()).prompts
        except MCPError:
            prompts = []
        prompt = await client.get_prompt(prompts[0].name) if prompts else None
        tools = await client.list_tools()
        say(
            tools=[tool.name for tool in tools.tools],
            prompt=[message.content.model_dump() for message in prompt.messages] if prompt else None,
            instructions=client.instructions,
            extensions=client.server_capabilities.extensions,
        )
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            try:
                result = await client.call_tool(tool, arguments)
            except Exception as error:
                say(failure=f"{type(error).__name__}: {error}")
            else:
                say(**result.model_dump(mode="json", by_alias=True))


asyncio.run(main(*sys.argv[1:]))
