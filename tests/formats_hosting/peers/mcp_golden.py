"""Plays scripted episodes with an MCP server by direct calls of the MCP SDK, and prints what it shows, as JSON.

Standard input has `command`, `env`, `scripts` (lists of calls, one list for each episode) and `state` (the call that
reads the final state). Each episode has a process and a directory of its own.
"""

import asyncio
import json
import sys
import tempfile

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def shown(result):
    """Return the content and the error flag of a result."""
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    return {"content": blocks, "structured": result.structuredContent, "is_error": bool(result.isError)}


async def play(orders, script):
    """Play one episode."""
    with tempfile.TemporaryDirectory() as folder:
        command = [text.replace("{dir}", folder) for text in orders["command"]]
        env = {name: text.replace("{dir}", folder) for name, text in orders["env"].items()}
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=env)
        async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
            await session.initialize()
            calls = [shown(await session.call_tool(tool, arguments)) for tool, arguments in script]
            tool, arguments = orders["state"]
            return {"calls": calls, "state": shown(await session.call_tool(tool, arguments))}


async def main():
    """Play all episodes."""
    orders = json.load(sys.stdin)
    json.dump([await play(orders, script) for script in orders["scripts"]], sys.stdout)


asyncio.run(main())
