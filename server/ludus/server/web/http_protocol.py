"""uvicorn's HTTP protocol, with limits on the time, size and number of arriving requests.

uvicorn over httptools waits without limit for a head or a body that arrives slowly, and lets a head grow without limit.
A timer per request would cost every request some time. Instead, each connection records when it began to wait, and one
sweep every `SWEEP_SECONDS` looks for those that have waited too long. At the limit of connections, the one that has
waited the longest is closed for the new one.

This module also corrects uvicorn where it differs from RFC 9110 and 9112. Blanks after a header's value are removed. An
answer to HTTP/1.0 is never chunked. A connection that closes before its request is complete first reads and discards
the rest, up to `DISCARDED_BYTES`, because otherwise the peer would lose the answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from httptools import HttpRequestParser
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ludus.protocol.errors import CapacityError, InvalidRequest, LudusError, PayloadTooLarge, ShuttingDown
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.delivery import WatchedHttpProtocol
from ludus.server.web.guard import error_body, refuse
from ludus.server.web.http_answers import WholeAnswers
from ludus.server.web.http_heads import Framing, RequestParser, fault_of_head, head_without_upgrade

HEAD_BYTES: Final = 64 * 1024
"""The most bytes of a request line with its headers."""

HEAD_FIELDS: Final = 200
"""The most header fields of a request; each takes several times its length in memory."""

DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of an already answered request that are read and discarded before the connection is closed."""

SWEEP_SECONDS: Final = 0.5
"""The longest time between two sweeps of the connections."""

_BLANKS: Final = b" \t"
_TOO_MUCH_FRAMING: Final = "the chunks or trailers of the request take many times the bytes of its content"

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
    _refusal: bytes | None = None
    """The answer to a broken request, which follows those to the requests before it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first head of a new peer, and make room if there are too many connections."""
        self._waiting_since = self.loop.time()
        self._limits: ConnectionLimits = getattr(self.config.app, "connection_limits", _NO_LIMITS)
        super().connection_made(transport)
        parser: HttpRequestParser = RequestParser(self)
        self.parser, self._framing = parser, Framing()
        self._ending = _Ending(self, transport)
        if len(self.connections) > self._limits.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the head of a lost connection."""
        self._count_head(0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser, and refuse a head that is too large."""
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > DISCARDED_BYTES:
                self.transport.close()
                return
        if self._refusal is not None:
            return
        framing, in_body = self._framing, not self._in_head and self._waiting_since is not None
        message, content = framing.message, framing.content
        super().data_received(data)
        if in_body and framing.exceeded(message, content, len(data)) and self._waiting_since is not None:
            self._refuse(400, InvalidRequest(_TOO_MUCH_FRAMING))
        if self._in_head and self._refusal is None:
            self._head_bytes += len(data)
            self._count_head(self._head_bytes)
            if self._head_bytes > HEAD_BYTES or len(self.headers) > HEAD_FIELDS:
                limits = f"{HEAD_BYTES} bytes or has more than {HEAD_FIELDS} fields"
                self._refuse(431, PayloadTooLarge(f"the head of the request is larger than {limits}"))
            elif not self._limits.arrivals.heads_fit():
                self._refuse(503, _busy("requests are arriving", "arriving_bytes"))
        elif self._counted:
            self._count_head(0)

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, in the same form as other refusals of Ludus."""
        self._refuse(400, InvalidRequest("this is not an HTTP request, or one broken beyond reading"))

    def on_message_begin(self) -> None:
        """Start to wait for the rest of a new request's head."""
        self._waiting_since = self.loop.time()
        self._head_bytes = 0
        self._in_head = True
        self._framing.begin()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head. Trailers are ignored; they would be taken for headers."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check a complete head, strip its values, and begin the request."""
        if self._discarded is not None or self._refusal is not None or self.transport.is_closing():
            return
        if len(self.headers) > HEAD_FIELDS:
            self._refuse(431, PayloadTooLarge(f"the head of the request has more than {HEAD_FIELDS} fields"))
            return
        fault = fault_of_head(self.parser.get_method(), self.parser.get_http_version(), self.headers)
        if fault is None and self._should_upgrade() and self._answering():
            fault = "an upgrade waits for the answers to the requests before it"
        if fault is not None:
            self._refuse(400, InvalidRequest(fault))
            return
        if self.parser.should_upgrade() and not self._should_upgrade():
            return  # the head comes again
        self._in_head = False
        for _, value in self.headers:
            if value and value[-1] in _BLANKS:
                self._strip_values()
                break
        super().on_headers_complete()

    def declined_upgrade(self) -> bytes | None:
        """Return the head of a request for a protocol other than WebSocket, without its wish for that."""
        if self._refusal is not None or self.transport.is_closing() or self._should_upgrade():
            return None
        method, version = self.parser.get_method(), self.parser.get_http_version()
        return head_without_upgrade(method, self.url, version, self.headers)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol, unless the request was refused."""
        if self._refusal is None and not self.transport.is_closing():
            super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: a request for another protocol was refused."""

    def _get_upgrade(self) -> bytes | None:
        """Return to which protocol the request asks to upgrade, however many `Connection` headers it has."""
        if not self.parser.should_upgrade():
            return None
        return next(
            (value.strip(_BLANKS).lower() for name, value in reversed(self.headers) if name == b"upgrade"), None
        )

    def _strip_values(self) -> None:
        """Remove blanks after the values of header fields, which are no part of them (RFC 9110, 5.5)."""
        fields = self.headers.copy()
        self.headers.clear()
        for name, value in fields:
            super().on_header(name, value.rstrip(_BLANKS))

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body, or discard it if no request is being served, or its head was refused."""
        self._framing.content += len(body)
        if self.cycle is not None and not self._in_head:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop waiting for a request that is complete; close a connection that only discarded the rest."""
        self._waiting_since = None
        if self.cycle is not None and not self._in_head:
            super().on_message_complete()
            if not self.cycle.keep_alive and self._refusal is None:
                self._refusal = b""  # nothing is read behind it
        if self._discarded is not None:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Record when the answer was complete, and discard the unread body of its request."""
        self._idle_since = self.loop.time()
        cycle: Any = self.cycle
        if cycle is not None and cycle.body and cycle.response_complete:
            cycle.body = bytearray()
        super().on_response_complete()
        if self._refusal is not None and not self._answering() and not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.transport = self._ending  # type: ignore[assignment]
        cycle.send = WholeAnswers(cycle).send  # type: ignore[method-assign, assignment]
        if cycle.scope["http_version"] != "1.1":
            app = _Unchunked(app, cycle)
        super()._start_asgi_task(cycle, partial(_end_quietly, app, cycle))

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
        if since is None or now - since < patience or self.flow.read_paused:
            return
        if self._discarded is not None:
            self.transport.close()
            return
        if self._in_head and self._answering():
            return
        self._refuse(408, InvalidRequest(f"the request did not arrive within {patience:g} s"))

    def waits_since(self) -> float | None:
        """Return the time since which the connection has waited for its peer; None while a request is served."""
        if self._answering() or self.transport.is_closing():
            return None
        return self._waiting_since if self._waiting_since is not None else self._idle_since

    def _make_room(self) -> None:
        waiting = [
            (since, index, one)
            for index, one in enumerate(self.connections)
            if one is not self and isinstance(one, BoundedHttpProtocol) and (since := one.waits_since()) is not None
        ]
        oldest: BoundedHttpProtocol = min(waiting)[2] if waiting else self
        if oldest._waiting_since is None:
            oldest.transport.close()
        else:
            oldest._refuse(503, _busy(f"connections are open ({self._limits.most})", "max_connections"))

    def _count_head(self, size: int) -> None:
        self._limits.arrivals.heads += size - self._counted
        self._counted = size

    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete)

    def _refuse(self, status: int, error: LudusError) -> None:
        if self.transport.is_closing() or self._refusal is not None:
            return
        cycle: Any = self.cycle
        self._waiting_since = None
        self._count_head(0)
        if self._in_head and self._answering():
            self._refusal = _refusal(status, error)  # the requests before it are answered first
            return
        if self._in_head or cycle is None or not (self.pipeline or cycle.response_started):
            self.transport.write(_refusal(status, error))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def _refusal(status: int, error: LudusError) -> bytes:
    """Return the answer to what is not a whole request."""
    body = error_body("", error)
    retry = b"" if error.retry_after is None else b"retry-after: %d\r\n" % int(error.retry_after + 1)
    fields = b"content-type: application/json\r\nconnection: close\r\n%bcontent-length: %d\r\n\r\n" % (retry, len(body))
    return _STATUS_LINES[status] + fields + body


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits that all connections of a server share."""

    most: int
    """The most connections at one time."""
    arrivals: Arrivals


_NO_LIMITS: Final = ConnectionLimits(2**31, Arrivals(2**40, 1))


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
            raise  # the application raised it itself
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
