"""A player on `mcp` 1.30, which gets its orders line by line: see `Player` in the tests.

python mcp1_client.py http URL | stdio COMMAND...
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201


async def main(kind: str, *where: str) -> None:
    async with AsyncExitStack() as stack:
        if kind == "http":
            streams = (await stack.enter_async_context(streamablehttp_client(where[0])))[:2]
        else:
            parameters = StdioServerParameters(command=where[0], args=list(where[1:]))
            streams = await stack.enter_async_context(stdio_client(parameters))
        session = await stack.enter_async_context(ClientSession(*streams))
        hello = await session.initialize()
        prompts = await session.list_prompts() if hello.capabilities.prompts is not None else None
        prompt = await session.get_prompt(prompts.prompts[0].name) if prompts else None
        tools = await session.list_tools()
        say(
            tools=[tool.name for tool in tools.tools],
            prompt=[message.content.model_dump() for message in prompt.messages] if prompt else None,
            instructions=hello.instructions,
            experimental=hello.capabilities.experimental,
        )
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            try:
                result = await session.call_tool(tool, arguments)
            except Exception as error:
                say(failure=f"{type(error).__name__}: {error}")
            else:
                say(**result.model_dump(mode="json", by_alias=True))


asyncio.run(main(*sys.argv[1:]))
