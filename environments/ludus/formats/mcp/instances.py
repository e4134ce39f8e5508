"""Running MCP servers: an instance for each episode, from a pool that keeps some ready.

How this works:

- An `Instance` holds one process, or one session over HTTP, for each server of the target, and their tools.
- A process runs in a sandbox of its own. Without isolation that is `unsafe-local`: its keeper bounds what the process
  uses, ends everything that it started, and ends with this server, whatever ended this server.
- `Pool.take` returns an instance that is ready, and starts its replacement in the background.
- With the option `reset`, instances go back to the pool after their tool has reset them; otherwise they end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ludus.formats.hosting.description import usable_names
from ludus.formats.mcp.http import HttpConnection
from ludus.formats.mcp.settings import McpSettings
from ludus.formats.mcp.targets import EPISODE_DIRECTORY, ServerSpec
from ludus.protocol.content import text_of
from ludus.protocol.errors import AuthoringError, InfrastructureFailed, LudusError
from ludus.sandbox import Process, Sandbox, SandboxFileError, SandboxLimitReached, SandboxProvider
from ludus.server import StepContext, ToolError
from ludus.server.authoring.mcp_servers import McpServer, open_mcp
from ludus.server.authoring.mcp_stdio import McpConnection, McpServerEnded, open_process
from ludus.server.authoring.schema_tool import SchemaTool

log = logging.getLogger("ludus.formats")

_INHERITED: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""The variables that a process without a sandbox gets from this one, as MCP's own clients do."""
_IN_FOLDER: Final = 'cd "$1" && shift && exec "$@"'

T = TypeVar("T")
ResultT = TypeVar("ResultT", bound=types.Result)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of the agent that reached a server."""

    tool: str
    """The name, as the agent knows it."""
    arguments: Mapping[str, Any]
    text: str
    """The text of the result, or of the error."""
    is_error: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What a tool or a resource shows to a verifier."""

    text: str
    """All of its text."""
    structured: Any
    """The structured content of the result; None if it has none."""
    is_error: bool = False

    @property
    def data(self) -> Any:
        """The structured content, or else the text as JSON, or else the text."""
        if self.structured is not None:
            return self.structured
        with suppress(ValueError, RecursionError):
            return json.loads(self.text)
        return self.text


class UnreadableState(InfrastructureFailed):
    """A verifier could not read the state of a server."""


@dataclass(slots=True)
class _Part:
    """One server of an instance."""

    spec: ServerSpec
    server: McpServer
    names: dict[str, str] = field(default_factory=dict)
    """The names of its tools on the server, by those for the agent."""


class Instance:
    """Running servers, for one episode at a time."""

    def __init__(self, parts: Sequence[_Part], boxes: Sequence[Sandbox]) -> None:
        self._parts = parts
        self._boxes = boxes
        self.calls: list[ToolCall] = []
        """The agent's calls in this episode."""
        self.tools: dict[str, SchemaTool] = {}
        self._owners: dict[str, _Part] = {}
        self._collect()

    def _collect(self) -> None:
        """Collect the servers' tools."""
        self.tools, self._owners = {}, {}
        for part in self._parts:
            for tool in part.server.tools:
                if tool.name in self.tools:
                    raise AuthoringError(
                        f"two servers have a tool that would be called {tool.name!r}; rename one of the servers"
                    )
                tool.function = self._recorded(tool)
                self.tools[tool.name] = tool
                self._owners[tool.name] = part

    def _recorded(self, tool: SchemaTool) -> Callable[..., Awaitable[Any]]:
        run = tool.function
        assert run is not None

        async def call(arguments: dict[str, Any], context: StepContext) -> Any:
            try:
                content = await run(arguments, context)
            except ToolError as error:
                self.calls.append(ToolCall(tool.name, arguments, str(error), True))
                raise
            self.calls.append(ToolCall(tool.name, arguments, text_of(content), False))
            return content

        return call

    @property
    def is_open(self) -> bool:
        """Whether all servers run."""
        return all(part.server.is_open for part in self._parts)

    async def refresh(self) -> None:
        """List the tools again if a server has said that they have changed.

        Raises:
            UnreadableState: a server is gone, does not answer, or has tools that cannot be used now.
        """
        changed = [part for part in self._parts if part.server.tools_changed]
        for part in changed:
            try:
                await part.server.refresh()
            except (LudusError, MCPError, ValueError, TimeoutError) as error:
                raise UnreadableState(f"{part.spec} has changed its tools, and cannot list them: {error}") from None
        if changed:
            self._collect()

    async def directory(self) -> str:
        """Return the directory of the episode.

        Raises:
            AuthoringError: no server is a process, or several are, each with a directory of its own.
        """
        if len(self._boxes) != 1:
            reason = "each of these servers has a directory of its own" if self._boxes else "an HTTP server has none"
            raise AuthoringError(f"tasks cannot name {EPISODE_DIRECTORY}, since {reason}")
        return await _directory(self._boxes[0])

    @property
    def instructions(self) -> str:
        """The servers' own texts on how to use them."""
        return "\n\n".join(part.server.instructions for part in self._parts if part.server.instructions)

    async def read(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Reading:
        """Call a tool, whether or not the agent has it; an error of the tool is a reading too.

        Raises:
            UnreadableState: there is no such tool, or the server is gone or does not answer.
        """
        part = self._owners.get(tool)
        if part is None:
            raise UnreadableState(f"no server has the tool {tool!r}; there are: {', '.join(self._owners)}")
        name = part.names[tool]
        try:
            result = await part.server.result(name, arguments or {})
        except MCPError as error:
            return Reading(error.error.message, None, True)
        except TimeoutError:
            raise UnreadableState(f"{tool} did not answer the verifier in time") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise UnreadableState(f"{tool} answered with something that is no result: {type(error).__name__}") from None
        except LudusError as error:
            raise UnreadableState(f"{part.spec} is gone: {error.message}") from None
        if not isinstance(result, types.CallToolResult):
            raise UnreadableState(f"{tool} asked for further input")
        blocks = [block.text for block in result.content if isinstance(block, types.TextContent)]
        return Reading("\n".join(blocks), result.structured_content, bool(result.is_error))

    async def resource(self, uri: str) -> Reading:
        """Read a resource from the first server that has it.

        Raises:
            UnreadableState: a server is gone or does not answer.
        """
        params = types.ReadResourceRequestParams(uri=uri)
        request = types.ReadResourceRequest(params=params)
        found = await self._first(request, types.ReadResourceResult)
        if isinstance(found, str):
            return Reading(found, None, True)
        texts = [content.text for content in found.contents if isinstance(content, types.TextResourceContents)]
        return Reading("\n".join(texts), None)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return a prompt of the first server that has it.

        Raises:
            InfrastructureFailed: no server has it, or a server is gone or does not answer.
        """
        params = types.GetPromptRequestParams(name=name, arguments=dict(arguments))
        found = await self._first(types.GetPromptRequest(params=params), types.GetPromptResult)
        if isinstance(found, str):
            raise UnreadableState(f"the prompt {name!r} cannot be read: {found}")
        return found

    async def _first(self, request: Any, kind: type[ResultT]) -> ResultT | str:
        """Return the first server's result, or the last error if all have answered with one."""
        said = ""
        for part in self._parts:
            try:
                found: ResultT = await part.server.request(lambda client: client.session.send_request(request, kind))
            except MCPError as error:
                said = error.error.message
            except TimeoutError:
                raise UnreadableState(f"{part.spec} did not answer in time") from None
            except LudusError as error:
                raise UnreadableState(f"{part.spec} is gone: {error.message}") from None
            else:
                return found
        return said

    async def aclose(self) -> None:
        """End the servers and everything that they started."""
        for part in self._parts:
            await part.server.aclose()
        for box in self._boxes:
            await box.aclose()


class Starter:
    """Starts instances of some servers.

    Args:
        specs: the servers.
        settings: the options.
        provider: the sandboxes of those that are processes; None if there are none.
    """

    def __init__(self, specs: Sequence[ServerSpec], settings: McpSettings, provider: SandboxProvider | None) -> None:
        self._specs = specs
        self._settings = settings
        self._provider = provider
        self.count = 0
        """How many instances were started."""

    async def start(self) -> Instance:
        """Start the servers and list their tools.

        Raises:
            AuthoringError: a server does not start, does not answer as MCP asks, or has tools that cannot be used.
            SandboxFailed, SandboxUnsupported: there is no place for a process.
        """
        self.count += 1
        boxes: list[Sandbox] = []
        parts: list[_Part] = []
        try:
            for spec in self._specs:
                parts.append(await self._part(spec, boxes))
            return Instance(parts, boxes)
        except BaseException:
            for part in parts:
                await part.server.aclose()
            for box in boxes:
                await box.aclose()
            raise

    async def _part(self, spec: ServerSpec, boxes: list[Sandbox]) -> _Part:
        settings = self._settings
        if spec.url:
            connect: Callable[[], Coroutine[Any, Any, McpConnection]] = lambda: self._session(spec)  # noqa: E731
        else:
            assert self._provider is not None
            box = await self._provider.create(settings.sandbox_settings(spec.image))
            boxes.append(box)
            connect = lambda: self._process(spec, box)  # noqa: E731
        part = _Part(spec, McpServer(connect, settings.call_seconds, raises_end=True, most_tools=settings.most_tools))
        prefix = (f"{spec.name}_" if spec.name else "") + settings.prefix

        def named(names: Sequence[str]) -> Mapping[str, str]:
            if len(set(names)) < len(names):
                return {}
            found = usable_names(names)
            part.names = {prefix + shown: name for name, shown in found.items()}
            return found

        await open_mcp(part.server, str(spec), tools=named, prefix=prefix)
        if not part.server.tools:
            raise AuthoringError(f"{spec} has no tools, so an agent could do nothing with it")
        return part

    async def _session(self, spec: ServerSpec) -> McpConnection:
        connection = HttpConnection(spec.url, spec.headers, self._settings.answer_bytes)
        try:
            return await connection.start(self._settings.revision or "legacy", self._settings.start_seconds)
        except McpServerEnded as error:
            hint = "" if self._settings.revision else "; a server without sessions needs revision=2026-07-28"
            raise McpServerEnded(f"{error.message}{hint}") from None

    async def _process(self, spec: ServerSpec, box: Sandbox) -> McpConnection:
        settings = self._settings
        env = {**(settings.env or {}), **spec.env}
        command = list(spec.command)
        cwd = spec.cwd or settings.cwd
        if not settings.is_isolated:
            env = {**{name: os.environ[name] for name in _INHERITED if name in os.environ}, **env}
            cwd = _absolute(cwd or ".")
        if any(EPISODE_DIRECTORY in text for text in (*command, *env.values())):
            directory = await _directory(box)
            command = [text.replace(EPISODE_DIRECTORY, directory) for text in command]
            env = {name: text.replace(EPISODE_DIRECTORY, directory) for name, text in env.items()}
        if cwd is not None:
            command = ["/bin/sh", "-c", _IN_FOLDER, "sh", cwd, *command]

        async def spawn() -> Process:
            try:
                return await box.spawn(command, env=env)
            except (SandboxFileError, SandboxLimitReached) as error:
                raise McpServerEnded(f"it cannot be started: {error.message}") from None

        return await open_process(spawn, settings.revision or "auto", settings.start_seconds, settings.answer_bytes)


async def _directory(box: Sandbox) -> str:
    return (await box.run(["pwd"])).text.strip()


def _absolute(folder: str) -> str:
    return os.path.abspath(folder)


class Pool:
    """Instances that are ready, and all others.

    Args:
        start: starts an instance.
        warm: how many to keep ready.
        reuses: whether instances come back, so that one which is taken needs no replacement.
    """

    def __init__(self, start: Callable[[], Awaitable[Instance]], warm: int, *, reuses: bool = False) -> None:
        self._start = start
        self._warm = warm
        self._reuses = reuses
        self._ready: deque[Instance] = deque()
        self._all: set[Instance] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._own: set[asyncio.Task[Any]] = set()
        """Tasks that a caller's cancellation does not reach."""
        self._closed = False

    async def take(self) -> Instance:
        """Return an instance that is ready, or a new one; replacements start in the background.

        Raises:
            LudusError: it could not be started.
        """
        found = None
        while self._ready and found is None:
            found = self._ready.popleft()
            if not found.is_open:
                self._drop(found)
                found = None
        self._refill()
        if found is None:
            found = await self.start_one()
        found.calls = []
        return found

    async def start_one(self) -> Instance:
        """Return a new instance.

        Raises:
            LudusError: it could not be started.
        """
        starting = self._keep(self._add())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._discard)
            raise

    def give_back(self, instance: Instance) -> None:
        """Keep an instance for another episode."""
        if self._closed or not instance.is_open or (len(self._ready) >= self._warm and not self._reuses):
            self._drop(instance)
        else:
            self._ready.append(instance)

    async def end(self, instance: Instance) -> None:
        """End an instance."""
        self._all.discard(instance)
        await instance.aclose()

    async def fill(self) -> None:
        """Wait until as many are ready as there should be.

        Raises:
            LudusError: one could not be started.
        """
        for _ in range(self._warm - len(self._ready)):
            self._ready.append(await self.start_one())

    async def settle(self) -> None:
        """Wait until no instance is being started or ended in the background."""
        while waited := [*self._starting, *self._own]:
            await asyncio.wait(waited)

    async def aclose(self) -> None:
        """End all instances."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        await self.settle()
        self._ready.clear()
        await asyncio.gather(*(self.end(one) for one in tuple(self._all)), return_exceptions=True)

    def _refill(self) -> None:
        while not (self._closed or self._reuses) and len(self._ready) + len(self._starting) < self._warm:
            task = asyncio.create_task(self._add_ready())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _add_ready(self) -> None:
        try:
            self._ready.append(await self._add())
        except LudusError as error:
            # The next episode that needs an instance starts one itself and gets the error.
            log.warning("preparing an MCP server failed: %s", error.message)

    async def _add(self) -> Instance:
        if self._closed:
            raise InfrastructureFailed("the MCP servers of this environment have been closed")
        instance = await self._start()
        self._all.add(instance)
        return instance

    def _drop(self, instance: Instance) -> None:
        self._keep(self.end(instance))

    def _discard(self, starting: asyncio.Task[Instance]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._drop(starting.result())

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task
