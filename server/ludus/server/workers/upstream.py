"""Connections from the gateway to workers.

Each connection of a client has its own connection to each worker that it uses. So the worker sees the end of a client's
connection as it would without a gateway, and can tell whether a reply was lost (`ludus.server.web.delivery`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import httptools

from ludus.common.backoff import Backoff
from ludus.protocol.errors import ShuttingDown
from ludus.server.web.http_heads import Framing
from ludus.server.workers.pool import Pool, Worker

__all__ = ["Headers", "Uplink", "WholeAnswer", "ask", "connect"]


GATEWAY_HEADER: Final = b"ludus-gateway"
"""The header by which the gateway proves to a worker that it is the gateway, and names the client's address."""

CONNECT_SECONDS: Final = 10.0
HEAD_BYTES: Final = 256 * 1024
"""The most bytes of the head of an answer."""
REPLY_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of a whole answer that is read for the gateway itself."""

_HEAD_END: Final = b"\r\n\r\n"
_RESET: Final = struct.pack("ii", 1, 0)
_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 0.5
_CONNECT_TRIES: Final = 40

Headers = Iterable[tuple[bytes, bytes]]


class Uplink(asyncio.Protocol):
    """One connection to a worker.

    Attributes:
        sink: gets all data of the worker.
        on_lost: called when the connection has ended.
        on_room: called with whether the connection takes more data.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.sink: Callable[[bytes], None] = _drop
        self.on_lost: Callable[[], None] = _nothing
        self.on_room: Callable[[bool], None] = _nothing_of
        self.transport: asyncio.Transport
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Pass data on."""
        self.sink(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that the connection has ended."""
        self.closed = True
        self.on_lost()

    def pause_writing(self) -> None:
        """Say that there is no room."""
        self.on_room(False)

    def resume_writing(self) -> None:
        """Say that there is room again."""
        self.on_room(True)

    def close(self) -> None:
        """Close the connection in order, after what was written is sent."""
        self.transport.close()

    def reset(self) -> None:
        """Break the connection, as the client broke its own, so that the worker knows that replies were lost."""
        if not self.closed:
            sock: Any = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError, AttributeError):
                # With a linger time of zero, closing sends a reset in place of an orderly end.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()


async def connect(pool: Pool, worker: Worker, *, about_episodes: bool = True) -> Uplink:
    """Return a connection to a worker, which may be one that is being restarted.

    Raises:
        InfrastructureFailed: see `Pool.reach`.
        ShuttingDown: the worker cannot be reached.
    """
    pause = Backoff(_FIRST_PAUSE, _LAST_PAUSE)
    for _ in range(_CONNECT_TRIES):
        await pool.reach(worker, about_episodes=about_episodes)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await _open(worker)
        except OSError:  # it has just died, and the supervisor does not know yet
            pool.refused(worker)
            await asyncio.sleep(pause.next())
    raise ShuttingDown(f"worker {worker.name} cannot be reached; send the request again", retryAfter=1.0)


async def _open(worker: Worker) -> Uplink:
    """Return a new connection to a worker.

    Raises:
        OSError: nothing accepts it.
    """
    loop = asyncio.get_running_loop()
    uplink: Uplink
    if worker.dial is None:
        tls = worker.tls
        _, uplink = await loop.create_connection(lambda: Uplink(worker), worker.host, worker.port, ssl=tls)
        return uplink
    connected = await worker.dial()
    try:
        _, uplink = await loop.create_connection(lambda: Uplink(worker), sock=connected)
    except BaseException:
        # A socket that was given to `create_connection` stays open when that fails.
        connected.close()
        raise
    return uplink


class Answer:
    """Follows an answer of a worker, to know where it ends."""

    def __init__(self, *, to_head: bool = False) -> None:
        self._to_head = to_head
        self._parser = httptools.HttpResponseParser(self)
        self._lengths = False
        self._another = False
        self._framing = Framing()
        self._head_bytes = 0
        self.broken = False
        """Whether it is not one answer of HTTP."""
        self.began = False
        """Whether any of it has arrived."""
        self.status = 0
        """The HTTP status of the final answer; 0 before that."""
        self.complete = False
        self.keeps_alive = False
        """Whether the connection can be used for another request."""

    def feed(self, data: bytes) -> None:
        """Read a part of the answer.

        Raises:
            httptools.HttpParserError: it is not HTTP, or more than one answer.
        """
        # Broken until everything of this part was read: the parser may raise at any byte.
        self.began = self.broken = True
        in_body = self.status > 0 and not self.complete
        self._head_bytes += 0 if in_body else len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise httptools.HttpParserError("a switch to another protocol was not asked for") from None
        if self._another:
            raise httptools.HttpParserError("there is another answer behind the one that was asked for")
        if in_body and self._framing.exceeded(len(data)):
            raise httptools.HttpParserError("the chunks or trailers of an answer take many times its content")
        if not self.status and self._head_bytes > HEAD_BYTES:
            raise httptools.HttpParserError(f"the head of an answer is larger than {HEAD_BYTES} bytes")
        self.broken = False

    def ends_with_connection(self) -> bool:
        """Return whether the end of the connection is the end of the answer, and not a loss."""
        return self.complete or (self.status > 0 and not self._lengths)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Look for the headers that say where the body ends."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._lengths = True

    def on_headers_complete(self) -> None:
        """Note the status."""
        # The parser takes what follows a whole answer for a further one; the gateway asked for one only.
        self._another = self._another or self.complete
        status = self._parser.get_status_code()
        # Interim answers (1xx) have heads of their own, and the final answer follows them.
        if status >= 200:
            self.status = status
            self.keeps_alive = self._parser.should_keep_alive()
            if self._to_head:
                self.complete = True

    def on_body(self, data: bytes) -> None:
        """Count a part of the body."""
        self._framing.content += len(data)

    def on_message_complete(self) -> None:
        """Note that the answer is complete, unless it is an interim one."""
        if self._parser.get_status_code() >= 200:
            self.complete = True


def head_in(data: bytes) -> bytes:
    """Return the head of a final answer, with the interim answers before it; empty if it is not whole.

    Args:
        data: the bytes of a worker up to now.
    """
    start = 0
    while (end := data.find(_HEAD_END, start)) >= 0:
        end += len(_HEAD_END)
        if data[start:].split(b" ", 2)[1][:1] != b"1":
            return data[:end]
        start = end
    return b""


class Reply(NamedTuple):
    """A whole answer of a worker."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class WholeAnswer(Answer):
    """Keeps an answer, with its headers and its body."""

    def __init__(self, *, to_head: bool = False) -> None:
        super().__init__(to_head=to_head)
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        super().on_header(name, value)
        self.headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        super().on_body(data)
        self.body += data


async def ask(worker: Worker, method: bytes, target: bytes, headers: Headers, body: bytes = b"") -> Reply:
    """Send one request to a worker over a connection of its own, and return the whole answer.

    Raises:
        OSError: the worker cannot be reached, ended the connection, or answered with more than `REPLY_BYTES`.
    """
    uplink = await _open(worker)
    answer = WholeAnswer(to_head=method == b"HEAD")
    arrived = 0
    settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle() -> None:
        if not settled.done():
            settled.set_result(None)

    def read(data: bytes) -> None:
        nonlocal arrived
        arrived += len(data)
        try:
            answer.feed(data)
        except httptools.HttpParserError:
            settle()
        if answer.complete or arrived > REPLY_BYTES:
            settle()

    uplink.sink, uplink.on_lost = read, settle
    try:
        fields = [*headers, (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % field for field in fields)
        uplink.transport.write(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, target, lines, body))
        # The connection may have ended before `on_lost` was set.
        if uplink.closed:
            settle()
        await settled
        if arrived > REPLY_BYTES:
            raise OSError(f"worker {worker.name} answered with more than {REPLY_BYTES} bytes")
        if not answer.ends_with_connection():
            raise ConnectionResetError(f"worker {worker.name} ended the connection")
        return Reply(answer.status, answer.headers, bytes(answer.body))
    finally:
        uplink.transport.abort()


def _drop(data: bytes) -> None:
    """Ignore data."""


def _nothing() -> None:
    """Do nothing."""


def _nothing_of(room: bool) -> None:
    """Do nothing."""
