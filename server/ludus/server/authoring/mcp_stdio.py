"""Connections to MCP servers, such as one on the standard input and output of a process in a sandbox.

How this works:

- A task of its own (`_run`) holds the `mcp` package's client, which must be entered and left by the same task. Calls
  come from the tasks of steps.
- The client reads and writes two memory streams. `_read` fills one from the process's standard output, `_write`
  empties the other into its standard input, and `_drain` keeps the end of standard error for messages.
- What arrives is untrusted. `_read` bounds a message and the number of messages that nothing asked for, and drops what
  is no message or answers nothing that waits. A server that exceeds a bound is killed. While a call waits, the server
  may report any progress, and an answer that is too long is an error of that call alone.
- Every call runs in a task that can be abandoned, because the client waits for the process to take a cancellation.
- The end of the process or of its sandbox ends standard output, and with it all of these tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Literal, Self

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.shared.message import SessionMessage

from ludus.protocol.errors import LudusError
from ludus.sandbox import Process, SandboxFailed, SandboxInputClosed
from ludus.server.authoring.mcp_repair import repair_result

__all__ = ["ANSWER_BYTES", "McpConnection", "McpServerEnded", "open_process", "too_long"]


Revision = Literal["auto", "legacy", "2026-07-28"]
"""How to agree on a revision of MCP: "auto" asks for the newest, and falls back to the handshake of older servers."""

ANSWER_BYTES: Final = 8 * 1024 * 1024
"""The default for the longest answer that is read; a longer one is an error of its call."""
_LONGEST_FACTOR: Final = 64
"""A message that is longer than so many answers ends the server."""
_HEAD_BYTES: Final = 1024
_LINE_BYTES: Final = 64 * 1024
_UNASKED: Final = 1_000
"""Notifications, requests and other lines that a server may send for one request."""
_UNANSWERED: Final = 8
"""Calls in a row without an answer, after which a server counts as hung."""
_STDERR_BYTES: Final = 4096
_ID: Final = re.compile(rb'^\s*\{[^{]{0,100}"id"\s*:\s*"?(\d{1,15})')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*"?(\d{1,15})"?\s*\}\s*$')
_CLOSE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 1.0
_QUEUE: Final = 64


def too_long(limit: int) -> types.ErrorData:
    """Return the error of a call whose answer is too long to be read."""
    return types.ErrorData(code=types.INTERNAL_ERROR, message=f"the answer is longer than {limit:,} bytes")


class McpServerEnded(LudusError):
    """An MCP server has ended, or was ended because it exceeded a bound; the message says which."""


class McpConnection(ABC):
    """An MCP server and its client. A subclass defines what carries the messages; `start` opens the connection."""

    def __init__(self) -> None:
        self._unasked = 0
        """Messages since the last request that are no answer to it."""
        self._waiting = 0
        """Requests that wait for their answer."""
        self._fault: str | None = None
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._unanswered = 0
        self._task: asyncio.Task[None] | None = None
        self.tools_changed = False
        """Whether the server has said that its list of tools has changed; who lists them again resets it."""

    async def start(self, revision: Revision, seconds: float) -> Self:
        """Agree with the server on a revision of MCP, and return this connection.

        Raises:
            McpServerEnded: it ended, or did not answer as MCP asks within `seconds`.
            SandboxFailed: the sandbox is gone.
        """
        self._task = asyncio.create_task(self._run(revision))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._fault = f"it did not answer within {seconds:g} s"
            await self.aclose()
            raise self.ended() from None
        except BaseException:
            await self.aclose()
            raise
        return self

    @abstractmethod
    def ended(self) -> LudusError:
        """Return the error for a server that is gone: `McpServerEnded`, or `SandboxFailed` if its sandbox is gone."""

    @abstractmethod
    def _streams(self) -> AbstractAsyncContextManager[Any]:
        """Return what carries the messages, as the `mcp` package's client wants it."""

    @abstractmethod
    async def _stop(self) -> None:
        """End what the connection was made for."""

    @property
    def is_open(self) -> bool:
        """Whether the server runs and no bound was exceeded."""
        return not self._closing.is_set()

    @property
    def client(self) -> Client:
        """The client; calls to it go through `request`."""
        return self._ready.result()

    async def request(self, make: Callable[[Client], Coroutine[Any, Any, Any]], seconds: float) -> Any:
        """Send one request, and return its result.

        Raises:
            TimeoutError: there is no answer within `seconds`; a later one is dropped.
            McpServerEnded: the server ended, or was ended, before it answered.
            SandboxFailed: the sandbox is gone.
            MCPError: the server answered with an error.
        """
        if not self.is_open:
            raise self.ended()
        self._unasked = 0
        self._waiting += 1
        call = asyncio.create_task(make(self.client))
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({call, closing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                error = call.exception()
                if error is not None and self._closing.is_set():
                    raise self.ended()
                return call.result()
            if self._closing.is_set():
                raise self.ended()
            raise TimeoutError
        finally:
            self._waiting -= 1
            closing.cancel()
            if not call.done():
                self._abandon(call)

    def _abandon(self, call: asyncio.Task[Any]) -> None:
        self._abandoned.add(call)
        call.add_done_callback(_consume)
        call.add_done_callback(self._abandoned.discard)
        call.cancel()
        self._unanswered += 1
        if self._unanswered >= _UNANSWERED:
            self._end(f"it left {_UNANSWERED} calls in a row without an answer")

    async def aclose(self) -> None:
        """End the server and all tasks of this connection."""
        self._closing.set()
        if self._task is None:
            return
        if not self._ready.done():
            self._task.cancel()  # it waits for an answer to the handshake
        done, _ = await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)

    def _end(self, fault: str | None = None) -> None:
        if not self._closing.is_set():
            self._fault = fault or self._fault
            self._closing.set()

    async def _notice(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.tools_changed = True

    async def _run(self, revision: Revision) -> None:
        try:
            streams = self._streams()
            async with Client(streams, mode=revision, cache=None, message_handler=self._notice) as client:
                if not self._ready.done():
                    self._ready.set_result(client)
                await self._closing.wait()
        except Exception as error:
            if not self._closing.is_set():
                self._fault = f"it does not answer as MCP asks ({_first(error)})"
        finally:
            self._closing.set()
            for call in self._abandoned:
                call.cancel()
            with contextlib.suppress(SandboxFailed):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._stop()
            if not self._ready.done():
                self._ready.set_exception(self.ended())
                self._ready.exception()  # marks it as read, for a caller that was canceled


class Connection(McpConnection):
    """A connection to a server on the standard input and output of a process in a sandbox."""

    def __init__(self, process: Process, answer_bytes: int = ANSWER_BYTES) -> None:
        super().__init__()
        self._process = process
        self._answer_bytes = answer_bytes
        self._pending: set[str | int] = set()
        self._lost: SandboxFailed | None = None
        self._ended_itself = False
        self._stderr = bytearray()
        self._drained = asyncio.Event()

    @property
    def ended_itself(self) -> bool:
        """Whether the process has ended, and not because it was ended."""
        return self._ended_itself and self._lost is None

    def ended(self) -> LudusError:
        """See `McpConnection.ended`."""
        if self._lost is not None:
            return self._lost
        end = self._process.end
        why = self._fault or (f"it has ended: {end.ending}" if end is not None else "it closed its standard output")
        said = self._stderr.decode("utf-8", "replace").strip()
        return McpServerEnded(f"{why}; it wrote to standard error: {said}" if said else why)

    async def _stop(self) -> None:
        await self._process.aclose()

    # ── the streams ────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        arrived_in, arrived = anyio.create_memory_object_stream[SessionMessage | Exception](_QUEUE)
        sent, sent_out = anyio.create_memory_object_stream[SessionMessage](_QUEUE)
        steps: list[Awaitable[None]] = [self._read(arrived_in), self._write(sent_out), self._drain()]
        tasks = [asyncio.ensure_future(step) for step in steps]
        try:
            yield arrived, sent
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (arrived_in, arrived, sent, sent_out):
                stream.close()

    async def _read(self, arrived: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        parts = bytearray()
        size, tail = 0, b""
        longest = _LONGEST_FACTOR * self._answer_bytes
        fault: str | None = None
        try:
            while line := await self._process.stdout.read_line(_LINE_BYTES):
                size += len(line)
                if size > self._answer_bytes:
                    del parts[_HEAD_BYTES:]  # only its id is needed
                    tail = (tail + line)[-_HEAD_BYTES:]
                else:
                    parts += line
                if size > longest:
                    fault = f"it sent a message of more than {longest:,} bytes"
                    break
                if not line.endswith(b"\n"):
                    continue
                if parts.startswith(b"Content-Length:"):
                    fault = "it frames messages with Content-Length; on standard output, MCP has one message a line"
                    break
                message = (
                    self._parse(bytes(parts)) if size <= self._answer_bytes else self._too_long(bytes(parts), tail)
                )
                parts.clear()
                size, tail = 0, b""
                if self._unasked > _UNASKED:
                    if not self._waiting or not self._ready.done():
                        fault = f"it sent more than {_UNASKED:,} messages that nothing asked for"
                        break
                    if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                        continue  # a call may report any progress until it has its answer, or its time is up
                if message is not None:
                    await arrived.send(SessionMessage(message))
        except SandboxFailed as error:
            self._lost = error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            if fault is None and self._lost is None and not self._closing.is_set():
                await self._see_end()
            arrived.close()
            self._end(fault)

    def _too_long(self, head: bytes, tail: bytes) -> types.JSONRPCMessage | None:
        """Return the error that answers the call whose answer is too long; None if it is not known which one it is."""
        match = _ID.search(head) or _LAST_ID.search(tail)
        call = int(match[1]) if match is not None else next(iter(self._pending), None)
        if call not in self._pending or call is None:
            self._unasked += 1
            return None
        self._pending.discard(call)
        self._unanswered = 0
        return types.JSONRPCError(jsonrpc="2.0", id=call, error=too_long(self._answer_bytes))

    def _parse(self, line: bytes) -> types.JSONRPCMessage | None:
        """Return a message, or None for a line that is none, or that answers nothing that waits."""
        message: types.JSONRPCMessage
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            found = _ID.search(line)
            if found is None or int(found[1]) not in self._pending:
                self._unasked += 1
                return None
            # An answer that is nested too deeply, for example. Without this, its call would wait until its deadline.
            error = types.ErrorData(code=types.PARSE_ERROR, message="the answer is not valid JSON-RPC")
            message = types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            if isinstance(message.id, str) and message.id.isascii() and message.id.isdigit():
                message.id = int(message.id)  # our ids are numbers; some servers answer with their text
            if message.id not in self._pending:
                self._unasked += 1
                return None
            self._pending.discard(message.id)
            self._unasked = self._unanswered = 0
            if isinstance(message, types.JSONRPCResponse) and isinstance(message.result, dict):
                repair_result(message.result)
        else:
            self._unasked += 1
        return message

    async def _write(self, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async for item in sent:
                message = item.message
                if isinstance(message, types.JSONRPCRequest):
                    self._pending.add(message.id)
                data = message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._process.write(data.encode() + b"\n")
        except SandboxInputClosed:
            await self._see_end()
            self._end(None if self._process.end is not None else "it closed its standard input")
        except SandboxFailed as error:
            self._lost = error
            self._end()

    async def _drain(self) -> None:
        try:
            with contextlib.suppress(SandboxFailed):
                while data := await self._process.stderr.read():
                    self._stderr += data
                    del self._stderr[:-_STDERR_BYTES]
        finally:
            self._drained.set()

    async def _see_end(self) -> None:
        """Wait a moment for the end of the process and the rest of its standard error, so that a message has both."""
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._process.wait()
                await self._drained.wait()
        except TimeoutError:
            self._fault = self._fault or "it closed its standard output"  # it is killed now, which is not the cause
        except SandboxFailed as error:
            self._lost = error
        else:
            self._ended_itself = True


async def open_process(
    start: Callable[[], Awaitable[Process]], revision: Revision, seconds: float, answer_bytes: int = ANSWER_BYTES
) -> Connection:
    """Return a connection to a process.

    With "auto", a server that ends at the question for the newest revision, which older ones do not know, is started
    once more, and greeted with the handshake that it expects.

    Args:
        start: starts the process.
        revision: how to agree on a revision.
        seconds: for how long to wait for each handshake.
        answer_bytes: the longest answer that is read.

    Raises:
        McpServerEnded, SandboxFailed: as in `McpConnection.start`.
    """
    connection = Connection(await start(), answer_bytes)
    try:
        return await connection.start(revision, seconds)
    except McpServerEnded:
        if revision != "auto" or not connection.ended_itself:
            raise
        first = connection
    try:
        return await Connection(await start(), answer_bytes).start("legacy", seconds)
    except McpServerEnded:
        raise first.ended() from None


def _consume(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {str(error)[:300]}"
