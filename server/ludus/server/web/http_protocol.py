"""uvicorn's HTTP protocol, with limits on the time, size and number of arriving requests.

uvicorn over httptools waits without limit for a head or a body that arrives slowly, and lets a head grow without limit.
A timer per request would cost every request some time. Instead, each connection records when it began to wait, and one
sweep every `SWEEP_SECONDS` looks for those that have waited too long. At the limit of connections, the one that has
waited the longest is closed for the new one.

Limits on bytes do not bound work: 256 KiB can be 40,000 chunks of one byte. Data is parsed in fair turns
(`ludus.server.web.turns`), and a body in many tiny chunks is refused (`RequestFraming`). Pipelined requests stay
unparsed while one waits. A refusal is sent behind the answers to the whole requests before it, and nothing is read
behind what is refused.

This module also corrects uvicorn where it differs from RFC 9110 and 9112. Blanks after a header's value are removed. An
answer to HTTP/1.0 is never chunked. A connection that closes before its request is complete first reads and discards
the rest, up to `DISCARDED_BYTES`, because otherwise the peer would lose the answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import httptools
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ludus.protocol.errors import CapacityError, InvalidRequest, LudusError, ShuttingDown
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.delivery import WatchedHttpProtocol
from ludus.server.web.guard import error_body, error_headers, refuse
from ludus.server.web.http_answers import WholeAnswers
from ludus.server.web.http_heads import (
    HEAD_BYTES,
    HEAD_FIELDS,
    Refused,
    RequestFraming,
    RequestParser,
    fault_of_head,
    head_too_large,
    head_without_upgrade,
    refused_by,
)
from ludus.server.web.turns import FairTransport

__all__ = ["BoundedHttpProtocol", "run_timeout_sweeper"]


DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of an already answered request that are read and discarded before the connection is closed."""

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
    _body_left = 0
    """The bytes that are missing in a body of known length."""
    _framing: RequestFraming | None = None
    """Counts the chunks of the body that is arriving, if it has any."""
    _refusal: bytes | None = None
    """The answer to a request that is refused, which follows those to the requests before it.

    Empty if it has none, as behind a request that closes the connection. Nothing is read any more."""
    _cycle_before: Any = None
    """The cycle of the request before the pipelined one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first head of a new peer, and make room if there are too many connections."""
        self._waiting_since = self.loop.time()
        self._limits: ConnectionLimits = getattr(self.config.app, "connection_limits", NO_LIMITS)
        self._fair = FairTransport(transport, self._piece)
        super().connection_made(self._fair)  # type: ignore[arg-type]
        # After `super()`, which sets uvicorn's own flow and parser; these replace them.
        self.flow = _Flow(self)
        parser: httptools.HttpRequestParser = RequestParser(self)
        self.parser = parser
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
        if self._refusal is not None or self.transport.is_closing():
            return len(data), 1
        piece = data
        if at or len(data) > PIECE_BYTES:
            body_left = self._body_left
            # A body of known length is one event for each piece; in heads and chunked bodies, every byte may be one.
            piece = data[at : at + (min(body_left, BODY_PIECE_BYTES) if body_left > 0 else PIECE_BYTES)]
        self._events = 1
        self._parse(piece)
        return at + len(piece), self._events

    def _parse(self, piece: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(piece)
            if self._framing is not None:
                self._framing.arrived(len(piece))
        except httptools.HttpParserUpgrade as upgrade:
            self._hand_over(upgrade.args[0])
            return
        except Refused as refused:
            self._refuse(refused.status, refused.error)
            return
        except httptools.HttpParserError as error:
            if (refusal := refused_by(error)) is not None:
                self._refuse(refusal.status, refusal.error)
            else:
                self.send_400_response("")
            return
        if self._in_head:
            self._events += HEAD_COST
            self._head_bytes += len(piece)
            self._count_head(self._head_bytes)
            if self._head_bytes > HEAD_BYTES:
                refusal = head_too_large()
                self._refuse(refusal.status, refusal.error)
            elif not self._limits.arrivals.heads_fit():
                self._refuse(503, _busy("requests are arriving", "arriving_bytes"))
        elif self._counted:
            self._count_head(0)

    def _hand_over(self, end: int) -> None:
        """Give the connection to the protocol of WebSockets, with what has arrived behind the upgrade.

        Args:
            end: where the upgrade ends in the data that is not parsed yet.
        """
        # Taken before the switch: the new protocol puts a `FairTransport` of its own around the socket, and what waits
        # in this one would never be parsed.
        unparsed = self._fair.take_unparsed()[end:]
        self.handle_websocket_upgrade()
        if unparsed:
            self._fair.inner.get_protocol().data_received(unparsed)  # type: ignore[attr-defined]

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, in the same form as other refusals of Ludus."""
        self._refuse(400, InvalidRequest("this is not an HTTP request, or one broken beyond reading"))

    def on_message_begin(self) -> None:
        """Start to wait for the rest of a new request's head.

        Raises:
            Refused: the request before it closes the connection.
        """
        if self._refusal is not None or self.transport.is_closing():
            raise Refused(400, InvalidRequest("the request before this one closes the connection"))
        self._waiting_since = self.loop.time()
        self._head_bytes = self._body_left = 0
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head, and drop trailers.

        Raises:
            Refused: there are too many fields.
        """
        if not self._in_head:
            if self._framing is not None:
                self._framing.drop_trailer()
            return
        if len(self.headers) >= HEAD_FIELDS:
            raise head_too_large()
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check a complete head, strip its values, and begin the request.

        Raises:
            Refused: the head is ambiguous, or asks for what is not served here.
        """
        parser = self.parser
        fault = fault_of_head(parser.get_method(), parser.get_http_version(), self.headers)
        if fault is None and parser.should_upgrade():
            if not self._should_upgrade():
                # The head comes again.
                return
            if self._answering():
                fault = "an upgrade waits for the answers to the requests before it"
        if fault is not None:
            raise Refused(400, InvalidRequest(fault))
        self._in_head = False
        self._events += REQUEST_COST + len(self.headers)
        blanks = False
        for name, value in self.headers:
            if name == b"content-length":
                self._body_left = int(value)
            elif name == b"transfer-encoding":
                self._framing = RequestFraming()
            if value and value[-1] in _BLANKS:
                blanks = True
        if blanks:
            self._strip_values()
        # `super()` replaces the cycle. If a pipelined request is refused, the one before is the current one again.
        before = self.cycle
        super().on_headers_complete()
        self._cycle_before = before if self.pipeline else None

    def declined_upgrade(self) -> bytes | None:
        """Return the head of a request for a protocol other than WebSocket, without its wish for that."""
        if self._should_upgrade():
            return None
        method, version = self.parser.get_method(), self.parser.get_http_version()
        return head_without_upgrade(method, self.url, version, self.headers)

    def _get_upgrade(self) -> bytes | None:
        """Return to which protocol the request asks to upgrade, however many `Connection` headers it has."""
        if not self.parser.should_upgrade():
            return None
        return next(
            (value.strip(_BLANKS).lower() for name, value in reversed(self.headers) if name == b"upgrade"), None
        )

    def _strip_values(self) -> None:
        """Remove blanks after the values of header fields, which are no part of them (RFC 9110, 5.5)."""
        self.headers[:] = [(name, value.rstrip(_BLANKS)) for name, value in self.headers]
        self.expect_100_continue = any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers
        )

    def on_chunk_header(self) -> None:
        """Count a chunk of the body."""
        if self._framing is not None:
            self._framing.begin_chunk()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body.

        Raises:
            Refused: the chunks of the body are too small.
        """
        self._events += 1 + len(body) // BYTES_PER_COST
        if self._framing is not None:
            self._framing.take(len(body))
        else:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop waiting for a request that is complete; close a connection that only discarded the rest."""
        self._waiting_since = None
        if self._in_head:
            # The head asks for a protocol that is not spoken here, and comes again.
            return
        self._framing = None
        if self.cycle is not None:
            super().on_message_complete()
            if not self.cycle.keep_alive:
                # What follows a request that closes the connection gets no answer.
                self._refusal = b""
        if self._discarded is not None:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Record when the answer was complete, and discard the unread body of its request."""
        self._idle_since = self.loop.time()
        cycle: Any = self.cycle
        # A body that was not read keeps reading paused, and the next request would never be parsed.
        if cycle is not None and cycle.body and cycle.response_complete:
            cycle.body = bytearray()
        super().on_response_complete()
        if self.flow.read_paused and not self.pipeline and not self.transport.is_closing():
            self.flow.resume_reading()
        if self._refusal is not None and not self._answering() and not self.transport.is_closing():
            self._send_refusal()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.transport = self._ending  # type: ignore[assignment]
        cycle.send = WholeAnswers(cycle).send  # type: ignore[method-assign, assignment]
        if cycle.scope["http_version"] != "1.1":
            app = _Unchunked(app, cycle)
        quiet: Any = partial(_end_quietly, app, cycle)
        super()._start_asgi_task(cycle, quiet)

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
        if since is None or now - since < patience:
            return
        if self._fair.lingering:
            self.transport.close()
            return
        # Here the peer waits for this server and not the other way round.
        if self.flow.read_paused or self._fair.behind or (self._in_head and self._answering()):
            return
        if self._discarded is not None:
            self.transport.close()
            return
        self._refuse(408, InvalidRequest(f"the request did not arrive within {patience:g} s"), linger=False)

    def waits_since(self) -> float | None:
        """Return the time since which the connection has waited for its peer; None while a request is served."""
        if self.transport.is_closing() or (self._answering() and not self._fair.lingering):
            return None
        return self._waiting_since if self._waiting_since is not None else self._idle_since

    def _make_room(self) -> None:
        waiting = [
            (since, index, connection)
            for index, connection in enumerate(self.connections)
            if connection is not self
            and isinstance(connection, BoundedHttpProtocol)
            and (since := connection.waits_since()) is not None
        ]
        # The index decides between equal times, because connections cannot be compared.
        oldest: BoundedHttpProtocol = min(waiting)[2] if waiting else self
        if oldest._waiting_since is None or oldest._fair.lingering:
            oldest.transport.close()
        else:
            error = _busy(f"connections are open ({self._limits.most})", "max_connections")
            oldest._refuse(503, error, linger=False)

    def _count_head(self, size: int) -> None:
        self._limits.arrivals.heads += size - self._counted
        self._counted = size

    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete)

    def _refuse(self, status: int, error: LudusError, *, linger: bool = True) -> None:
        """Answer what is not a whole request with an error, behind the requests before it, and close.

        Args:
            status: the status of the answer.
            error: the error.
            linger: whether to discard what the peer still sends, which would otherwise cost it the answer.
        """
        if self._refusal is not None or self.transport.is_closing():
            return
        self._count_head(0)
        self._refusal = refusal_bytes(status, error, to_head=self.parser.get_method() == b"HEAD")
        cycle: Any = self.cycle
        in_body = not self._in_head and self._waiting_since is not None
        self._waiting_since = None
        # The broken request is the last one that waits.
        if in_body and self.pipeline:
            self.pipeline.popleft()
            self.cycle = self._cycle_before
        elif in_body and cycle is not None:
            # A second answer would be taken for that to the next request.
            if cycle.response_started:
                self._refusal = b""
            # The application may wait for the rest of a body that will never come.
            cycle.disconnected = True
            cycle.message_event.set()
            self._send_refusal(linger=linger)
            return
        if not self._answering():
            self._send_refusal(linger=linger)

    def _send_refusal(self, *, linger: bool = True) -> None:
        self.transport.write(self._refusal or b"")
        if linger:
            self._waiting_since = self.loop.time()
            self._fair.linger()
        else:
            self.transport.close()


def refusal_bytes(status: int, error: LudusError, *, to_head: bool) -> bytes:
    """Return the answer to what is not a whole request.

    Args:
        status: the status.
        error: the error.
        to_head: whether the request is one for HEAD: a body would be taken for the answer to the next request.
    """
    body = error_body("", error)
    fields = {"content-type": "application/json", "connection": "close", **error_headers(error)}
    if not to_head:
        fields["content-length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return _STATUS_LINES[status] + lines.encode("latin-1") + b"\r\n" + (b"" if to_head else body)


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


async def _end_quietly(app: Any, cycle: Any, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request; if the server stops and cancels it, with an error that says so, and without a traceback."""
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            # The application raised it itself.
            raise
        if not (cycle.response_started or cycle.disconnected):
            await refuse(scope, receive, send, ShuttingDown("the server stopped before it answered", retryAfter=1.0))
        if not cycle.response_complete:
            cycle.disconnected = True
            cycle.transport.close()


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


def _busy(subject: str, limit: str) -> CapacityError:
    return CapacityError(f"too many {subject}; try again", limit=limit, retryAfter=1.0)


async def run_timeout_sweeper(connections: set[Any], patience: float) -> None:
    """Sweep a server's connections until canceled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(min(SWEEP_SECONDS, patience / 2))
        now = loop.time()
        for connection in list(connections):
            if isinstance(connection, BoundedHttpProtocol):
                connection.sweep(now, patience)
