"""A player on an agent framework's own MCP client, which gets its orders line by line: see `Player` in the tests.

python agents_client.py FRAMEWORK http URL | FRAMEWORK stdio COMMAND...

Each framework gets one function: it connects as that framework's documentation says, lists its tools in the
framework's own form, and calls them by the framework's own means. No model is asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
Tools = tuple[list[str], Call]


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201


def texts(value: Any) -> list[str]:
    """Every text in what a framework makes of a tool result, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        if value.get("type") == "text" or set(value) == {"text"}:
            return [str(value["text"])]
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in texts(part)]
    if hasattr(value, "model_dump"):
        return texts(value.model_dump(mode="json"))
    return []


@asynccontextmanager
async def langchain(kind: str, *where: str) -> AsyncIterator[Tools]:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    if kind == "http":
        connection: Any = {"transport": "streamable_http", "url": where[0]}
    else:
        connection = {"transport": "stdio", "command": where[0], "args": list(where[1:])}
    client = MultiServerMCPClient({"ludus": connection})
    if kind == "http":
        tools = {tool.name: tool for tool in await client.get_tools()}  # a new session for each call

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await tools[name].ainvoke(arguments)

        yield list(tools), call
        return
    from langchain_mcp_adapters.tools import load_mcp_tools

    async with client.session("ludus") as session:
        loaded = {tool.name: tool for tool in await load_mcp_tools(session)}

        async def call_here(name: str, arguments: dict[str, Any]) -> Any:
            return await loaded[name].ainvoke(arguments)

        yield list(loaded), call_here


@asynccontextmanager
async def openai_agents(kind: str, *where: str) -> AsyncIterator[Tools]:
    from agents import Agent, RunContextWrapper
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp, MCPUtil
    from agents.tool_context import ToolContext

    if kind == "http":
        server: Any = MCPServerStreamableHttp({"url": where[0]}, client_session_timeout_seconds=30)
    else:
        server = MCPServerStdio({"command": where[0], "args": list(where[1:])}, client_session_timeout_seconds=30)
    async with server:
        agent = Agent(name="player", mcp_servers=[server])
        functions = await MCPUtil.get_function_tools(server, False, RunContextWrapper(None), agent)
        tools = {tool.name: tool for tool in functions}

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            given = json.dumps(arguments)
            context = ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=given)
            return await tools[name].on_invoke_tool(context, given)

        yield list(tools), call


@asynccontextmanager
async def pydantic_ai(kind: str, *where: str) -> AsyncIterator[Tools]:
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    if kind == "http":
        toolset = MCPToolset(where[0], init_timeout=60)
    else:
        from fastmcp.client.transports import StdioTransport

        toolset = MCPToolset(StdioTransport(command=where[0], args=list(where[1:])), init_timeout=60)
    seen: list[str] = []
    asked: list[tuple[str, dict[str, Any]]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """The package's own function model: it calls the requested tool, once."""
        seen[:] = [tool.name for tool in info.function_tools]
        if asked:
            name, arguments = asked.pop()
            return ModelResponse(parts=[ToolCallPart(name, arguments)])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(model), toolsets=[toolset])
    async with agent:
        await agent.run("What tools are there?")

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            asked.append((name, arguments))
            run = await agent.run("Go on.")
            return [part.content for message in run.all_messages() for part in message.parts
                    if isinstance(part, ToolReturnPart) or part.part_kind == "retry-prompt"]  # fmt: skip

        yield list(seen), call


@asynccontextmanager
async def google_adk(kind: str, *where: str) -> AsyncIterator[Tools]:
    from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams, StreamableHTTPConnectionParams
    from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
    from mcp import StdioServerParameters

    if kind == "http":
        parameters: Any = StreamableHTTPConnectionParams(url=where[0], timeout=30)
    else:
        server = StdioServerParameters(command=where[0], args=list(where[1:]))
        parameters = StdioConnectionParams(server_params=server, timeout=30)
    toolset = McpToolset(connection_params=parameters)
    try:
        tools = {tool.name: tool for tool in await toolset.get_tools()}

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            from unittest.mock import MagicMock

            return await tools[name].run_async(args=arguments, tool_context=MagicMock())

        yield list(tools), call
    finally:
        await toolset.close()


@asynccontextmanager
async def smolagents(kind: str, *where: str) -> AsyncIterator[Tools]:
    from mcp import StdioServerParameters
    from smolagents import MCPClient

    if kind == "http":
        parameters: Any = {"url": where[0], "transport": "streamable-http"}
    else:
        parameters = StdioServerParameters(command=where[0], args=list(where[1:]))
    client = await asyncio.to_thread(MCPClient, parameters, structured_output=False)
    try:
        tools = {tool.name: tool for tool in client.get_tools()}

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await asyncio.to_thread(tools[name], **arguments)

        yield list(tools), call
    finally:
        await asyncio.to_thread(client.disconnect)


@asynccontextmanager
async def inspect_ai(kind: str, *where: str) -> AsyncIterator[Tools]:
    from inspect_ai.tool import ToolDef, mcp_connection, mcp_server_http, mcp_server_stdio

    if kind == "http":
        server = mcp_server_http(url=where[0], timeout=30)
    else:
        server = mcp_server_stdio(command=where[0], args=list(where[1:]))
    async with mcp_connection(server):
        tools = {ToolDef(tool).name: tool for tool in await server.tools()}

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await tools[name](**arguments)

        yield list(tools), call


FRAMEWORKS = {
    "langchain": langchain,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "google-adk": google_adk,
    "smolagents": smolagents,
    "inspect-ai": inspect_ai,
}


async def main(framework: str, kind: str, *where: str) -> None:
    async with FRAMEWORKS[framework](kind, *where) as (tools, call):
        say(tools=tools)
        while line := await asyncio.to_thread(sys.stdin.readline):
            tool, arguments = json.loads(line)
            try:
                result = await call(tool, arguments)
            except Exception as error:
                say(texts=[f"{type(error).__name__}: {error}"], failed=True)
            else:
                say(texts=texts(result), failed=False)


asyncio.run(main(*sys.argv[1:]))
