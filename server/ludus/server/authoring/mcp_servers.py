"""`connect_mcp`: the tools of an MCP server that runs inside a sandbox, for an episode's agent."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from ludus.protocol.bounds import short
from ludus.protocol.content import Content, ImageBlock, TextBlock
from ludus.protocol.errors import AuthoringError
from ludus.sandbox import Limits, Process, Sandbox, SandboxFileError, SandboxLimitReached
from ludus.server.authoring.mcp_repair import usable_schema
from ludus.server.authoring.mcp_stdio import Connection, McpConnection, McpServerEnded, Revision, open_process
from ludus.server.authoring.schema_tool import SchemaTool
from ludus.server.authoring.tools import StepContext
from ludus.server.execution.errors import ToolError

__all__ = ["McpServer", "content_of", "open_mcp"]


log = logging.getLogger("ludus.server.episodes")

MOST_TOOLS: Final = 256
"""The default for the most tools of a server."""
_PAGES: Final = 32
_BLOCKS: Final = 256
_ERROR_CHARS: Final = 4_000
_MARGIN_SECONDS: Final = 1.0
"""Time that a call leaves before the step's deadline, so that a server which hangs is the agent's error to see."""
_LEAST_SECONDS: Final = 0.05
_IMAGES: Final = {
    "image/png": "image/png", "image/jpeg": "image/jpeg", "image/jpg": "image/jpeg", "image/gif": "image/gif",
    "image/webp": "image/webp",
}  # fmt: skip
"""The types of images that are shown, under the names that servers write, with their right names."""

ChosenTools = Sequence[str] | Mapping[str, str] | Callable[[Sequence[str]], Mapping[str, str]] | None
"""The tools to take of a server, by their names or with the names for the agent; None for all."""

_RESULT: Final = TypeAdapter[types.CallToolResult | types.InputRequiredResult](
    types.CallToolResult | types.InputRequiredResult
)


class McpServer:
    """An MCP server inside a sandbox, as returned by `connect_mcp`. It ends with its sandbox at the latest.

    Args:
        start: connects to the server, and starts it if need be.
        seconds: for how long to wait for the answer to a request.
        restarts: how often it may be started again.
        raises_end: whether calls raise `McpServerEnded` when the server has ended, because no agent can end it. By
            default that is the agent's error to see.
        most_tools: how many tools it may list.

    Attributes:
        tools: its tools, to return from `Environment.task_tools`.
        instructions: the server's own text on how to use it; None if it has none. Nothing shows it to the agent.
        restarts: how often it may be started again.
    """

    def __init__(
        self, start: Callable[[], Coroutine[Any, Any, McpConnection]], seconds: float, restarts: int = 0, *,
        raises_end: bool = False, most_tools: int = MOST_TOOLS,
    ) -> None:  # fmt: skip
        self._start = start
        self._seconds = seconds
        self._raises_end = raises_end
        self._most_tools = most_tools
        self._connection: McpConnection | None = None
        self._reported: McpConnection | None = None
        """The last connection whose end the agent has seen."""
        self._starting = asyncio.Lock()
        self._warned = False
        self._chosen: tuple[ChosenTools, str, bool] = None, "", False
        """The tools to take, the prefix of their names, and whether their calls may overlap."""
        self.restarts = restarts
        self.tools: tuple[SchemaTool, ...] = ()
        self.instructions: str | None = None

    async def call(self, tool: str, arguments: Mapping[str, Any], *, seconds: float | None = None) -> list[Content]:
        """Call a tool by its name on the server, whether or not the agent has it, and return what it shows.

        Args:
            tool: the name.
            arguments: its arguments; they are not checked here.
            seconds: for how long to wait; by default `seconds` of `connect_mcp`.

        Raises:
            ToolError: the tool or the server refused, did not answer in time, or the server has ended.
            McpServerEnded: the server has ended, if this server `raises_end`.
            SandboxFailed: the sandbox is gone.
        """
        seconds = self._seconds if seconds is None else seconds
        try:
            result = await self.result(tool, arguments, seconds=seconds)
        except TimeoutError:
            raise ToolError(f"{tool} did not answer within {seconds:.3g} s") from None
        except McpServerEnded as error:
            if self._raises_end:
                raise
            self._reported = self._connection
            raise ToolError(self._ended(error)) from None
        except MCPError as error:
            raise ToolError(f"{tool} failed: {error.error.message[:_ERROR_CHARS]}") from None
        except (ValidationError, ValueError, TypeError, RecursionError):
            raise ToolError(f"{tool} answered with something that is no result of a tool") from None
        if isinstance(result, types.InputRequiredResult):
            raise ToolError(f"{tool} asked for further input, and there is no person who could give it")
        if self.tools_changed and not self._warned:
            self._warned = True
            log.warning("an MCP server has changed its tools; the episode keeps those with which it began")
        content = _content(result)
        if result.is_error:
            text = "\n".join(
                block.text if isinstance(block, TextBlock) else f"[an image of type {block.mime_type!r}]"
                for block in content
            )
            raise ToolError(text or f"{tool} failed without a message")
        return content

    async def result(
        self, tool: str, arguments: Mapping[str, Any], *, seconds: float | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool as `call` does, and return its result as the server gave it, errors of the tool included.

        Raises:
            TimeoutError: there was no answer in time.
            McpServerEnded, SandboxFailed: the server or its sandbox is gone.
            MCPError: the server answered with an error.
            ValidationError: the answer is no result of a tool.
        """
        found: types.CallToolResult | types.InputRequiredResult = await self.request(
            lambda client: _call(client, tool, dict(arguments)), seconds=seconds
        )
        return found

    async def request(self, make: Callable[[Client], Coroutine[Any, Any, Any]], *, seconds: float | None = None) -> Any:
        """Send any request to the server, and return its result.

        Raises:
            TimeoutError, McpServerEnded, SandboxFailed, MCPError, ValidationError: as in `result`.
        """
        seconds = self._seconds if seconds is None else seconds
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout(seconds):
            connection = await self._connected()
        left = max(_LEAST_SECONDS, until - asyncio.get_running_loop().time())
        return await connection.request(make, left)

    @property
    def is_open(self) -> bool:
        """Whether the server runs."""
        return self._connection is not None and self._connection.is_open

    @property
    def tools_changed(self) -> bool:
        """Whether the server has said that its list of tools is no longer the one in `tools`."""
        return self._connection is not None and self._connection.tools_changed

    async def refresh(self) -> None:
        """List the tools again, for `Environment.task_tools`. An episode that has begun keeps those that it has.

        Raises:
            AuthoringError: there are tools that cannot be used, as in `connect_mcp`.
            TimeoutError, McpServerEnded, SandboxFailed, MCPError, ValidationError: as in `result`.
        """
        connection = await self._connected()
        connection.tools_changed = self._warned = False  # a change while the list is read counts
        listed = await _list_tools(connection, self._seconds, self._most_tools)
        chosen, prefix, concurrent = self._chosen
        self.tools = tuple(self._usable(_chosen(listed, chosen, prefix), concurrent, named=bool(chosen)))

    async def aclose(self) -> None:
        """End the server; it may be called more than once."""
        self.restarts = 0
        if self._connection is not None:
            await self._connection.aclose()

    async def _connected(self) -> McpConnection:
        async with self._starting:
            connection = self._connection
            assert connection is not None
            if connection.is_open:
                return connection
            ended = connection.ended()
            if self._reported is not connection or self.restarts == 0 or not isinstance(ended, McpServerEnded):
                self._reported = connection  # the agent must see that the server's state is lost
                raise ended
            self.restarts -= 1
            self._connection = await self._start()
            return self._connection

    def _ended(self, error: McpServerEnded) -> str:
        further = "; the next call starts it again, without its state" if self.restarts > 0 else ""
        return f"the program behind this tool is gone: {error.message[:_ERROR_CHARS]}{further}"

    async def _open(self, chosen: ChosenTools, prefix: str, concurrent: bool) -> None:
        self._connection = await self._start()
        instructions = self._connection.client.instructions
        self.instructions = None if instructions is None else instructions[:_ERROR_CHARS]
        self._chosen = chosen, prefix, concurrent
        await self.refresh()

    def _usable(
        self, chosen: Sequence[tuple[types.Tool, str]], concurrent: bool, *, named: bool
    ) -> Iterator[SchemaTool]:
        """Yield the tools that can be used. Others are left out with a warning, unless the author has named them."""
        problem: AuthoringError | None = None
        usable = 0
        for tool, name in chosen:
            try:
                made = self._tool(tool, name, concurrent)
            except AuthoringError as error:
                if named:
                    raise
                problem = error
                log.warning("a tool of an MCP server is left out: %s", error.message)
            else:
                usable += 1
                yield made
        if problem is not None and not usable:
            raise problem

    def _tool(self, tool: types.Tool, name: str, concurrent: bool) -> SchemaTool:
        async def run(arguments: dict[str, Any], context: StepContext) -> list[Content]:
            left = context.deadline - asyncio.get_running_loop().time()
            margin = min(_MARGIN_SECONDS, left / 4)
            return await self.call(tool.name, arguments, seconds=max(_LEAST_SECONDS, min(self._seconds, left - margin)))

        try:
            schema = usable_schema(tool.input_schema)
        except AuthoringError as error:
            raise AuthoringError(f"the tool {name!r} cannot be used: {error.message}") from None
        return SchemaTool(name, tool.description or tool.title or "", schema, run, concurrent=concurrent)


async def connect_mcp(
    sandbox: Sandbox, command: Sequence[str], *, tools: Sequence[str] | Mapping[str, str] | None = None,
    prefix: str = "", env: Mapping[str, str] | None = None, cwd: str = ".", limits: Limits | None = None,
    seconds: float = 20.0, start_seconds: float = 30.0, restarts: int = 0, concurrent: bool = False,
    revision: Revision = "auto",
) -> McpServer:  # fmt: skip
    """Start an MCP server on standard input and output inside a sandbox. Call it in `setup`.

    The agent's commands run as the same user as the server, so they can end it or answer in its place. That is a tool
    error, and never makes the episode unscored. Do not grade by what it reports.

    Args:
        sandbox: the sandbox, for example `self.sandbox`.
        command: the server's program and arguments.
        tools: the tools to take; or, as a mapping, their names on the server with the names for the agent. By default
            all.
        prefix: text in front of every name.
        env, cwd, limits: as in `Sandbox.spawn`.
        seconds: for how long to wait for the answer to a call. A step's own deadline shortens it.
        start_seconds: for how long to wait until the server has started.
        restarts: how often to start the server again, without its state, if it has ended.
        concurrent: whether calls of its tools may overlap.
        revision: how to agree on a revision of MCP: "auto", "legacy", or "2026-07-28".

    Raises:
        AuthoringError: the server does not start, does not answer as MCP asks, or has tools that cannot be used: two
            with one name, or a name, description or schema beyond the bounds of `SchemaTool`.
        SandboxFailed, SandboxUnsupported: as in `Sandbox.spawn`.
    """
    what = f"the MCP server {short(list(command), 200)}"

    async def spawn() -> Process:
        try:
            return await sandbox.spawn(command, env=env, cwd=cwd, limits=limits)
        except (SandboxFileError, SandboxLimitReached) as error:
            raise McpServerEnded(f"it cannot be started: {error.message}") from None

    async def start() -> Connection:
        return await open_process(spawn, revision, start_seconds)

    server = McpServer(start, seconds, restarts)
    await open_mcp(server, what, tools=tools, prefix=prefix, concurrent=concurrent)
    return server


async def open_mcp(
    server: McpServer, what: str, *, tools: ChosenTools = None, prefix: str = "", concurrent: bool = False
) -> None:
    """Start a server and list its tools; if that fails, it is closed.

    Args:
        server: the server.
        what: what it is, for messages.
        tools: as in `connect_mcp`, or a function that returns such a mapping for the names on the server.
        prefix, concurrent: as in `connect_mcp`.

    Raises:
        AuthoringError: as in `connect_mcp`.
        SandboxFailed, SandboxUnsupported: as in `Sandbox.spawn`.
    """
    try:
        await server._open(tools, prefix, concurrent)
    except BaseException as error:
        await server.aclose()
        if isinstance(error, McpServerEnded):
            raise AuthoringError(f"{what} does not start: {error.message}") from None
        if isinstance(error, TimeoutError):
            raise AuthoringError(f"{what} did not list its tools within {server._seconds:g} s") from None
        if isinstance(error, MCPError | ValidationError | ValueError | RecursionError):
            raise AuthoringError(f"{what} does not list its tools: {str(error)[:_ERROR_CHARS]}") from None
        if isinstance(error, AuthoringError):
            raise AuthoringError(f"{what} has tools that cannot be used: {error.message}") from None
        raise


async def _call(
    client: Client, tool: str, arguments: dict[str, Any]
) -> types.CallToolResult | types.InputRequiredResult:
    # Not `call_tool`, which validates results with a schema of the server's own, and without a limit of time.
    params = types.CallToolRequestParams(name=tool, arguments=arguments)
    return await client.session.send_request(types.CallToolRequest(params=params), _RESULT)


async def _list_tools(connection: McpConnection, seconds: float, most: int) -> list[types.Tool]:
    listed: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        params = types.PaginatedRequestParams(cursor=cursor)
        request = types.ListToolsRequest(params=params)

        async def ask(client: Client, request: types.ListToolsRequest = request) -> types.ListToolsResult:
            return await client.session.send_request(request, types.ListToolsResult)

        page = await connection.request(ask, seconds)
        listed += page.tools
        cursor = page.next_cursor
        if cursor is None or len(listed) > most:
            break
    if cursor is not None or len(listed) > most:
        raise AuthoringError(f"it lists more than {most} tools, or more than {_PAGES} pages of them")
    return listed


def _chosen(listed: Sequence[types.Tool], chosen: ChosenTools, prefix: str) -> list[tuple[types.Tool, str]]:
    """Return the tools to take, each with its name for the agent."""
    by_name: dict[str, types.Tool] = {}
    for tool in listed:
        if tool.name in by_name:
            raise AuthoringError(f"it lists two tools called {tool.name[:100]!r}")
        by_name[tool.name] = tool
    names = chosen(list(by_name)) if callable(chosen) else chosen
    if not isinstance(names, Mapping):
        names = {name: name for name in (by_name if names is None else names)}
    missing = [name for name in names if name not in by_name]
    if missing:
        have = ", ".join(map(repr, by_name))[:1000]
        raise AuthoringError(f"it has no tool {missing[0]!r}; it has {have or 'none'}")
    return [(by_name[name], prefix + shown) for name, shown in names.items()]


def _content(result: types.CallToolResult) -> list[Content]:
    content = [content_of(block) for block in result.content[:_BLOCKS]]
    if (more := len(result.content) - _BLOCKS) > 0:
        content.append(TextBlock(text=f"[{more} further blocks left out]"))
    structured = result.structured_content
    if structured is not None and not any(_says_the_same(block, structured) for block in content):
        content.append(TextBlock(text=json.dumps(structured, ensure_ascii=False)))
    return content


def _says_the_same(block: Content, structured: Mapping[str, Any]) -> bool:
    """Return whether a text is a structured value, or the only one in it: servers send both, for older clients."""
    if not isinstance(block, TextBlock):
        return False
    values = [structured, *structured.values()] if len(structured) == 1 else [structured]
    try:
        value = json.loads(block.text)
    except (ValueError, RecursionError):
        return block.text in values
    return value in values or block.text in values


def content_of(block: types.ContentBlock) -> Content:
    """Return what an agent sees of a block; one that cannot be shown becomes a text that says so."""
    if isinstance(block, types.TextContent):
        return TextBlock(text=block.text)
    if isinstance(block, types.ImageContent):
        return _image(block.data, block.mime_type)
    if isinstance(block, types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, types.TextResourceContents):
            return TextBlock(text=resource.text)
        if resource.mime_type in _IMAGES:
            return _image(resource.blob, resource.mime_type)
        return TextBlock(text=f"[resource {str(resource.uri)[:1000]} of type {str(resource.mime_type)[:100]!r}]")
    if isinstance(block, types.ResourceLink):
        named = [text for text in (block.title or block.name, block.description) if text]
        return TextBlock(text=f"[resource {str(block.uri)[:1000]}{''.join(f', {text[:1000]}' for text in named)}]")
    return TextBlock(text=f"[content of type {block.type!r}, which is not shown]")


def _image(data: str, mime_type: str) -> Content:
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        mime_type = head.removeprefix("data:").partition(";")[0] or mime_type
    if (right_name := _IMAGES.get(mime_type.lower())) is None:
        return TextBlock(text=f"[an image of type {mime_type[:100]!r}, which is not shown]")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return TextBlock(text="[an image that is not base64]")
    return ImageBlock(data=data, mime_type=right_name)
