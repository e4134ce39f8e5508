"""uvicorn's HTTP protocol, with limits on the time, size and number of arriving requests.

uvicorn over httptools waits without limit for a head or a body that arrives slowly, and lets a head grow without limit.
A timer per request would cost every request some time. Instead, each connection records when it began to wait, and one
sweep every `SWEEP_SECONDS` looks for those that have waited too long. At the limit of connections, the one that has
waited the longest is closed for the new one.

Limits on bytes do not bound work: 256 KiB can be 40,000 chunks of one byte. Data is parsed in fair turns
(`ludus.server.web.turns`), and a body in many tiny chunks is refused (`Chunks`). Pipelined requests stay unparsed while
one waits.

This module also corrects uvicorn where it differs from RFC 9110 and 9112. Blanks after a header's value are removed. An
answer to HTTP/1.0 is never chunked. A connection that closes before its request is complete first reads and discards
the rest, up to `DISCARDED_BYTES`, because otherwise the peer would lose the answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import httptools
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ludus.protocol.errors import CapacityError, InvalidRequest, LudusError, PayloadTooLarge
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.delivery import WatchedHttpProtocol
from ludus.server.web.guard import error_body
from ludus.server.web.http_answers import WholeAnswers
from ludus.server.web.turns import FairTransport

HEAD_BYTES: Final = 64 * 1024
"""The most bytes of a request line with its headers."""

HEAD_FIELDS: Final = 200
"""The most header fields of a request; each takes several times its length in memory."""

DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of an already answered request that are read and discarded before the connection is closed."""

FREE_CHUNKS: Final = 1_000
"""The chunks of a body that may be of any size; a body with more is refused if they are small on average."""

CHUNK_BYTES: Final = 64
"""The least average size of the chunks of a body with more than `FREE_CHUNKS`."""

PIECE_BYTES: Final = 1024
"""The bytes that are parsed at one time where each may be an event: heads and chunks."""

BODY_PIECE_BYTES: Final = 64 * 1024
"""The bytes that are parsed at one time within a body of known length."""

HEAD_COST: Final = 20
"""What a piece of a head that is not complete costs, in the units of `Turns`."""

BYTES_PER_COST: Final = 512
"""The bytes of a body that cost one unit, as they have to be parsed later."""

REQUEST_COST: Final = 200
"""What the start of a request costs, in the units of `Turns`."""

SWEEP_SECONDS: Final = 0.5
"""The longest time between two sweeps of the connections."""

_BLANKS: Final = b" \t"

_STATUS_LINES: Final = {
    400: b"HTTP/1.1 400 Bad Request\r\n",
    408: b"HTTP/1.1 408 Request Timeout\r\n",
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
    503: b"HTTP/1.1 503 Service Unavailable\r\n",
}


class Refused(Exception):
    """Stops the HTTP parser at an event that is refused."""

    def __init__(self, status: int, error: LudusError) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


class Chunks:
    """Counts the chunks of one body."""

    __slots__ = ("_arrived", "_bytes", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0
        self._arrived = 0

    def begin(self) -> None:
        """Count a chunk."""
        self._count += 1

    def take(self, size: int) -> None:
        """Count bytes of a chunk.

        Raises:
            Refused: the body has many chunks, and they are small.
        """
        self._bytes += size
        if self._count > FREE_CHUNKS and self._bytes < CHUNK_BYTES * self._count:
            raise Refused(
                400,
                InvalidRequest(
                    f"the body arrives in {self._count} chunks of {self._bytes / self._count:.0f} bytes on average; "
                    f"send chunks of {CHUNK_BYTES} bytes or more, or a Content-Length",
                    limit="chunk_bytes",
                    minimum=CHUNK_BYTES,
                ),
            )

    def arrived(self, size: int) -> None:
        """Count bytes of the body as they arrived: chunks with their sizes, extensions and trailers.

        Raises:
            Refused: there is much around the content of the chunks.
        """
        self._arrived += size
        if self._arrived > HEAD_BYTES + 2 * self._bytes:
            why = f"what surrounds the chunks of the body is larger than {HEAD_BYTES} bytes and their content"
            raise Refused(431, PayloadTooLarge(f"{why}; send larger chunks, without extensions and trailers"))


class BoundedHttpProtocol(WatchedHttpProtocol):
    """An HTTP connection that records since when it has waited for its peer."""

    _waiting_since: float | None = None
    """When the wait for the rest of a head or body began; None while the connection does not wait for any."""
    _idle_since: float = 0.0
    """When the last answer was complete."""
    _head_bytes: int = 0
    _counted: int = 0
    """Bytes of an incomplete head that are counted in `Arrivals`."""
    _in_head: bool = False
    _discarded: int | None = None
    """Bytes discarded after the last answer on this connection; None while the connection stays in use."""
    _events = 0
    """What the piece that is being parsed has cost so far."""
    _body_seen = 0
    """The bytes of the body that have arrived, if its length is known."""
    _body_size: int | None = None
    """The length that the head announces; None before it was needed."""
    _trailers = 0
    """The fields behind the body."""
    _chunks: Chunks | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first head of a new peer, and make room if there are too many connections."""
        self._waiting_since = self.loop.time()
        self._limits: ConnectionLimits = getattr(self.config.app, "connection_limits", NO_LIMITS)
        self._fair = FairTransport(transport, self._piece)
        super().connection_made(self._fair)  # type: ignore[arg-type]
        self.flow = _Flow(self)
        self._ending = _Ending(self, transport)
        if len(self.connections) > self._limits.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the head of a lost connection."""
        self._count_head(0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data in fair turns, or discard it after the last answer."""
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > DISCARDED_BYTES:
                self.transport.close()
                return
        self._fair.received(data)

    def _piece(self, data: bytes, at: int) -> tuple[int, int]:
        """Parse a piece of the data; see `Piece`."""
        if self.transport.is_closing() or self._fair.lingering:
            return len(data), 1
        piece = data
        if at or len(data) > PIECE_BYTES:
            piece = data[at : at + self._piece_size()]
        self._events = 1
        self._parse(piece)
        return at + len(piece), self._events

    def _piece_size(self) -> int:
        """Return how many bytes may be parsed at one time."""
        if self._in_head or self._chunks is not None or self.headers is None:
            return PIECE_BYTES
        if self._body_size is None:
            lengths = [value for name, value in self.headers if name == b"content-length"]
            self._body_size = int(lengths[0]) if lengths and lengths[0].isdigit() else 0
            if any(name == b"transfer-encoding" for name, _ in self.headers):
                self._chunks = Chunks()
        left = self._body_size - self._body_seen
        return min(left, BODY_PIECE_BYTES) if left > 0 else PIECE_BYTES

    def _parse(self, piece: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(piece)
            if self._chunks is not None:
                self._chunks.arrived(len(piece))
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._hand_over(upgrade.args[0])
            else:
                self._unsupported_upgrade_warning()
            return
        except Refused as refused:
            self._refuse(refused.status, refused.error)
            return
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Refused):
                self._refuse(error.__context__.status, error.__context__.error)
            else:
                self.send_400_response("")
            return
        if self._in_head:
            self._events += HEAD_COST
            self._head_bytes += len(piece)
            self._count_head(self._head_bytes)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(431, head_too_large())
            elif not self._limits.arrivals.heads_fit():
                self._refuse(503, _busy("requests are arriving", "arriving_bytes"))
        elif self._counted:
            self._count_head(0)

    def _hand_over(self, end: int) -> None:
        """Give the connection to the protocol of WebSockets, with what has arrived behind the upgrade.

        Args:
            end: where the upgrade ends in the data that is not parsed yet.
        """
        rest = self._fair.take_unparsed()[end:]
        self.handle_websocket_upgrade()
        if rest:
            self._fair.inner.get_protocol().data_received(rest)  # type: ignore[attr-defined]

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, in the same form as other refusals of Ludus."""
        self._refuse(400, InvalidRequest("this is not an HTTP request, or one broken beyond reading"))

    def on_message_begin(self) -> None:
        """Start to wait for the rest of a new request's head."""
        self._waiting_since = self.loop.time()
        self._head_bytes = self._body_seen = self._trailers = 0
        self._in_head = True
        self._chunks = None
        self._body_size = None
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head, and discard those behind the body.

        Raises:
            Refused: there are too many fields.
        """
        if not self._in_head:
            self._trailers += 1
            if self._trailers > HEAD_FIELDS:
                raise Refused(431, head_too_large())
            return
        if len(self.headers) >= HEAD_FIELDS:
            raise Refused(431, head_too_large())
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check a complete head, strip its values, and begin the request."""
        self._in_head = False
        if self._discarded is not None or self.transport.is_closing():
            return
        self._events += REQUEST_COST + len(self.headers)
        for _, value in self.headers:
            if value and value[-1] in _BLANKS:
                self._strip_values()
                break
        super().on_headers_complete()

    def _strip_values(self) -> None:
        """Remove blanks after the values of header fields, which are no part of them (RFC 9110, 5.5)."""
        self.headers[:] = [(name, value.rstrip(_BLANKS)) for name, value in self.headers]
        self.expect_100_continue = any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers
        )

    def on_chunk_header(self) -> None:
        """Count a chunk of the body."""
        if self._chunks is None:
            self._chunks = Chunks()
        self._chunks.begin()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body, or discard it if no request is being served.

        Raises:
            Refused: the chunks of the body are too small.
        """
        self._events += 1 + len(body) // BYTES_PER_COST
        if self._chunks is not None:
            self._chunks.take(len(body))
        else:
            self._body_seen += len(body)
        if self.cycle is not None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop waiting for a request that is complete; close a connection that only discarded the rest."""
        self._waiting_since = None
        if self.cycle is not None:
            super().on_message_complete()
        if self._discarded is not None:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Record when the answer was complete, and discard the unread body of its request."""
        self._idle_since = self.loop.time()
        cycle: Any = self.cycle
        if cycle is not None and cycle.body and cycle.response_complete:
            cycle.body = bytearray()
        super().on_response_complete()
        if self.flow.read_paused and not self.pipeline and not self.transport.is_closing():
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.transport = self._ending  # type: ignore[assignment]
        cycle.send = WholeAnswers(cycle).send  # type: ignore[method-assign, assignment]
        if cycle.scope["http_version"] != "1.1":
            app = _Unchunked(app, cycle)
        super()._start_asgi_task(cycle, app)

    def end(self) -> None:
        """Close the connection once the answered request has arrived completely."""
        if self._waiting_since is None or self._in_head:
            self.transport.close()
        elif self._discarded is None:
            self._discarded = 0
            self._waiting_since = self.loop.time()

    def sweep(self, now: float, patience: float) -> None:
        """End the connection if it has waited for the rest of a request for longer than `patience` seconds."""
        since = self._waiting_since
        if since is None or now - since < patience or self.flow.read_paused or self._fair.behind:
            return
        if self._discarded is not None or self._fair.lingering:
            self.transport.close()
            return
        if self._in_head and self._answering():
            return
        self._refuse(408, InvalidRequest(f"the request did not arrive within {patience:g} s"), linger=False)

    def waits_since(self) -> float | None:
        """Return the time since which the connection has waited for its peer; None while a request is served."""
        if self.transport.is_closing() or (self._answering() and not self._fair.lingering):
            return None
        return self._waiting_since if self._waiting_since is not None else self._idle_since

    def _make_room(self) -> None:
        waiting = [
            (since, index, one)
            for index, one in enumerate(self.connections)
            if one is not self and isinstance(one, BoundedHttpProtocol) and (since := one.waits_since()) is not None
        ]
        oldest: BoundedHttpProtocol = min(waiting)[2] if waiting else self
        if oldest._waiting_since is None or oldest._fair.lingering:
            oldest.transport.close()
        else:
            why = _busy(f"connections are open ({self._limits.most})", "max_connections")
            oldest._refuse(503, why, linger=False)

    def _count_head(self, size: int) -> None:
        self._limits.arrivals.heads += size - self._counted
        self._counted = size

    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete)

    def _refuse(self, status: int, error: LudusError, *, linger: bool = True) -> None:
        """Answer what is not a whole request with an error, if no other answer is on its way, and close."""
        if self.transport.is_closing() or self._fair.lingering:
            return
        self._count_head(0)
        cycle: Any = self.cycle
        ours_to_answer = not self.pipeline and (
            cycle is None or cycle.response_complete or not (self._in_head or cycle.response_started)
        )
        if not ours_to_answer or not (self._in_head or cycle is None or not cycle.response_complete):
            self.transport.close()
            return
        body = error_body("", error)
        retry = b"" if error.retry_after is None else b"retry-after: %d\r\n" % int(error.retry_after + 1)
        self.transport.write(
            _STATUS_LINES[status]
            + b"content-type: application/json\r\nconnection: close\r\n%bcontent-length: %d\r\n\r\n"
            % (retry, len(body))
            + body
        )
        if linger:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Discard what the peer still sends, before the connection closes: otherwise it would lose the answer."""
        self._waiting_since = self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._fair.linger()


def head_too_large() -> PayloadTooLarge:
    """Return the error for a head with more bytes or fields than a server accepts."""
    limits = f"{HEAD_BYTES} bytes or has more than {HEAD_FIELDS} fields"
    return PayloadTooLarge(f"the head of the request is larger than {limits}")


class _Flow(FlowControl):
    """Flow control that parses nothing more while a pipelined request waits for its turn."""

    def __init__(self, protocol: BoundedHttpProtocol) -> None:
        super().__init__(protocol.transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        if self.read_paused and not self._protocol.pipeline:
            super().resume_reading()


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits that all connections of a server share."""

    most: int
    """The most connections at one time."""
    arrivals: Arrivals


NO_LIMITS: Final = ConnectionLimits(2**31, Arrivals(2**40, 1))
"""The limits of connections to an application that has none."""


class _Ending:
    """The transport that uvicorn's request cycles see. Closing it waits for the rest of the request."""

    __slots__ = ("_protocol", "get_extra_info", "is_closing", "write")

    def __init__(self, protocol: BoundedHttpProtocol, transport: asyncio.Transport) -> None:
        self._protocol = protocol
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def close(self) -> None:
        self._protocol.end()


class _Unchunked:
    """An application for an HTTP/1.0 client: closing the connection ends an answer without a length."""

    def __init__(self, app: Any, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle
        self._plain = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                self._plain = b"content-length" not in names and scope["method"] != "HEAD"
            if self._plain:
                await self._send(message)
            else:
                await send(message)

        await self._app(scope, receive, sending)

    async def _send(self, message: Message) -> None:
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected or cycle.response_complete:
            return
        if message["type"] == "http.response.start":
            cycle.response_started = True
            dropped = (b"connection", b"transfer-encoding")
            fields = [*cycle.default_headers, *message.get("headers", ()), (b"connection", b"close")]
            lines = [b"%b: %b\r\n" % field for field in fields[:-1] if field[0].lower() not in dropped]
            lines.append(b"%b: %b\r\n" % fields[-1])
            cycle.transport.write(b"".join([STATUS_LINE[message["status"]], *lines, b"\r\n"]))
            return
        cycle.transport.write(message.get("body", b""))
        if not message.get("more_body", False):
            cycle.response_complete = True
            cycle.message_event.set()
            cycle.transport.close()
            cycle.on_response()


def _busy(what: str, limit: str) -> CapacityError:
    return CapacityError(f"too many {what}; try again", limit=limit, retryAfter=1.0)


async def run_timeout_sweeper(connections: set[Any], patience: float) -> None:
    """Sweep a server's connections until canceled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(min(SWEEP_SECONDS, patience / 2))
        now = loop.time()
        for connection in list(connections):
            if isinstance(connection, BoundedHttpProtocol):
                connection.sweep(now, patience)
