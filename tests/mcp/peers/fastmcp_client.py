"""A player on `fastmcp`, which gets its orders line by line: see `Player` in the tests.

python fastmcp_client.py http URL | stdio COMMAND...
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201


async def main(kind: str, *where: str) -> None:
    server: Any = where[0] if kind == "http" else StdioTransport(command=where[0], args=list(where[1:]))
    async with Client(server) as client:
        tools = await client.list_tools()
        try:
            prompts = await client.list_prompts()
            prompt = await client.get_prompt(prompts[0].name) if prompts else None
        except Exception:
            prompt = None
        say(
            tools=[tool.name for tool in tools],
            prompt=[message.content.model_dump(mode="json") for message in prompt.messages] if prompt else None,
        )
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            try:
                result = await client.call_tool_mcp(tool, arguments)
            except Exception as error:
                say(failure=f"{type(error).__name__}: {error}")
            else:
                say(**result.model_dump(mode="json", by_alias=True))


asyncio.run(main(*sys.argv[1:]))
