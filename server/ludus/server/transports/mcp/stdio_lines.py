"""The lines of stdio, with bounded length, and with an error reply to each line that is not a JSON-RPC message.

The SDK's transport reads lines of any length. It drops a line that it cannot parse, so that the sender waits in vain;
JSON-RPC 2.0 (section 5.1) defines an error with a null id for such a line.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from io import TextIOBase
from typing import Any, BinaryIO, Final, cast

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ludus.protocol.bounds import check_json
from ludus.protocol.errors import InvalidRequest, LudusError, ParseError, PayloadTooLarge, to_wire

Incoming = ObjectReceiveStream[SessionMessage | Exception]
Outgoing = ObjectSendStream[SessionMessage]

_REFUSED: Final = "refused: "
"""The beginning of the text that replaces a refused line. It is not JSON, so it takes the path of unreadable lines."""

_PIECE: Final = 64 * 1024


@asynccontextmanager
async def bounded_stdio(line_bytes: int) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Yield streams of messages on stdin and stdout, and reply to each line that is not a message.

    Args:
        line_bytes: the longest line.
    """
    with _stdin() as stdin:
        lines = _Lines(stdin, line_bytes)
        async with stdio_server(stdin=anyio.wrap_file(cast(Any, lines))) as (incoming, outgoing):
            sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            async with anyio.create_task_group() as group:
                group.start_soon(_pass_on, incoming, sender, outgoing)
                yield receiver, cast(Outgoing, outgoing)
                group.cancel_scope.cancel()


async def _pass_on(incoming: Any, sender: ObjectSendStream[SessionMessage | Exception], outgoing: Any) -> None:
    async with sender:
        async for message in incoming:
            if isinstance(message, Exception):
                wire = to_wire(_why(message))
                error = types.ErrorData(code=wire.code, message=wire.message, data=wire.data or None)
                await outgoing.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=error)))
            else:
                await sender.send(message)


def _why(error: Exception) -> LudusError:
    problem = error.errors(include_url=False, include_context=False)[0] if isinstance(error, ValidationError) else None
    if problem is None or problem["type"] != "json_invalid":
        return InvalidRequest("the line is JSON, but no JSON-RPC 2.0 message; each line is one message")
    if str(problem["input"]).startswith(_REFUSED):
        return PayloadTooLarge(f"the line {str(problem['input']).removeprefix(_REFUSED)}; send less in one message")
    return ParseError("the line is not JSON; each line is one JSON-RPC 2.0 message")


class _Lines(TextIOBase):
    """The lines of a binary stream as text, each of bounded length."""

    def __init__(self, stream: BinaryIO, line_bytes: int) -> None:
        self._stream = stream
        self._line_bytes = line_bytes

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """Return the next line that is not blank, or a `_REFUSED` text if it is too long or holds too many values."""
        while (line := self._stream.readline(self._line_bytes + 1)).isspace():
            pass
        if len(line) > self._line_bytes and not line.endswith(b"\n"):
            while (piece := self._stream.readline(_PIECE)) and not piece.endswith(b"\n"):
                pass
            return f"{_REFUSED}is longer than {self._line_bytes} bytes\n"
        try:
            check_json(line)
        except PayloadTooLarge as error:
            return f"{_REFUSED}holds more than {error.data['maximum']} JSON values\n"
        return line.decode("utf-8", "replace")


@contextmanager
def _stdin() -> Iterator[BinaryIO]:
    """Yield the process's stdin. While entered, environment code and its children read nothing from descriptor 0."""
    try:
        private = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:  # no descriptor 0: use this process's replacement for stdin
        yield sys.stdin.buffer
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        # A thread may still read from this descriptor at exit, so it is never closed.
        yield os.fdopen(private, "rb", closefd=False)
    finally:
        os.dup2(private, 0)
