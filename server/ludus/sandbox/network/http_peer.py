"""One side of a connection that speaks HTTP, as the egress proxy sees it, and the errors that it answers itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import h11

CHUNK: Final = 64 * 1024
"""The most bytes that are read at once."""
HEADERS: Final = 128
"""The most headers of a request or a response."""
_LINGER_SECONDS: Final = 1.0
_SLICE_SECONDS: Final = 0.001
"""For how long a connection parses requests and responses before other work has its turn."""
_HOP_BY_HOP: Final = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"host", b"via",
})  # fmt: skip
_REASONS: Final = {
    400: "Bad Request", 403: "Refused", 408: "Request Timeout", 431: "Head Too Large", 501: "Not Implemented",
    502: "Bad Gateway", 503: "Limit Reached", 504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip


class Refused(Exception):
    """A request that the proxy answers itself; the text of the error is the response."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class FairReader:
    """A lock with pauses, under which the connections of one sandbox parse their input.

    However small the pieces of input are, at least half of the event loop's time is left to other work.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._spent = 0.0

    async def take(self, read_part: Callable[[], Any]) -> Any:
        """Call `read_part` when it is its turn, and return its result."""
        async with self._lock:
            if self._spent > _SLICE_SECONDS:
                await asyncio.sleep(self._spent)
                self._spent = 0.0
            began = time.perf_counter()
            try:
                return read_part()
            finally:
                self._spent += time.perf_counter() - began


class Peer:
    """One side of a connection that speaks HTTP."""

    def __init__(
        self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        count: Callable[[int], None], turns: FairReader,
    ) -> None:  # fmt: skip
        self.http = http
        self.reader = reader
        self.writer = writer
        self._count = count
        self._turns = turns
        self._ahead: Any = None
        """The event that followed the joined pieces of a body."""

    def like(self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Peer:
        """Return a peer on another connection, whose bytes and time count together with those of this one."""
        return Peer(http, reader, writer, self._count, self._turns)

    async def next(self) -> Any:
        """Return the next event from this side; pieces of a body that arrived together are joined into one."""
        while True:
            event, self._ahead = self._ahead, None
            if event is None:
                event = await self._turns.take(self._read)
            if event is not h11.NEED_DATA:
                return event
            data = await self.reader.read(CHUNK)
            self._count(len(data))
            self.http.receive_data(data)

    def _read(self) -> Any:
        enough = time.perf_counter() + _SLICE_SECONDS
        body = bytearray()
        while isinstance(event := self.http.next_event(), h11.Data):
            body += event.data
            if time.perf_counter() > enough:
                return h11.Data(data=bytes(body))
        if body:
            self._ahead = None if event is h11.NEED_DATA else event
            return h11.Data(data=bytes(body))
        return event

    async def send(self, event: Any) -> None:
        """Send an event to this side."""
        self.writer.write(self.http.send(event) or b"")
        await self.writer.drain()


def end_to_end(headers: Any) -> list[tuple[bytes, bytes]]:
    """Return the headers without the hop-by-hop ones."""
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")} - {
        b"content-length"
    }
    return [(name, value) for name, value in headers if name not in _HOP_BY_HOP and name not in named]


async def explain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refused: Refused) -> None:
    """Answer a refused request. Then read on for a moment: closing with unread input would discard the response."""
    text = f"network: {refused}\n".encode()
    head = f"HTTP/1.1 {refused.status} {_REASONS.get(refused.status, 'Refused')}\r\n"
    head += f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + text)
    await writer.drain()
    writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while await reader.read(CHUNK):
                pass
