"""Reading the requests of one connection: what `ClientConnection` is built on."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import httptools

from ludus.protocol.errors import CapacityError, InvalidRequest, LudusError
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
from ludus.server.web.http_protocol import BODY_PIECE_BYTES, BYTES_PER_COST, PIECE_BYTES, REQUEST_COST
from ludus.server.web.turns import FairTransport
from ludus.server.workers.requests import Request

if TYPE_CHECKING:
    from ludus.server.workers.roles import GatewayRole

UNREAD_BYTES: Final = 64 * 1024
"""The bytes of requests that wait, at which a client is read no further."""


class RequestReader:
    """Parses the bytes of a client into requests, in fair turns, and stops reading while too much waits.

    Args:
        gateway: the gateway that accepted the connection.
    """

    def __init__(self, gateway: GatewayRole) -> None:
        self.gateway = gateway
        self.transport: FairTransport
        self.lost = False
        self.waiting_since: float | None = None
        """Since when the rest of a request has been awaited; None while nothing is awaited."""
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(self)
        self._request = Request()
        self._requests: deque[Request] = deque()
        self._serving: Request | None = None
        self._awaited: asyncio.Future[None] | None = None
        self._after_upgrade = bytearray()
        self._upgraded = False
        self._in_head = False
        self._began_now = False
        """Whether the head began in the data that is being parsed."""
        self._refusal: bytes | None = None
        """The answer to a broken request, which follows those to the requests before it. Nothing is read behind it."""
        self._head_bytes = 0
        self._counted = 0
        self._holds: set[str] = set()
        self._events = 0
        """What the piece that is being parsed has cost so far."""
        self._framing: RequestFraming | None = None
        """Counts the chunks of the body that is arriving, if it has any."""
        self._body_left = 0
        """The bytes that are missing in a body of known length."""
        self._parts: list[bytes] = []
        """The parts of the body that came in this turn; they are passed on together."""

    def refuse(self, status: int, error: LudusError) -> None:
        """Answer what is not a whole request with an error, and close the connection. Requests before it are served."""
        raise NotImplementedError

    def hold(self, reason: str, *, held: bool) -> None:
        """Stop or resume reading from the client, for one of several reasons."""
        if held:
            self._hold(reason)
        else:
            self._release(reason)

    def _hold(self, reason: str) -> None:
        if not self._holds and not self.lost:
            self.transport.pause_reading()
        self._holds.add(reason)

    def _release(self, reason: str) -> None:
        if reason in self._holds:
            self._holds.discard(reason)
            if not self._holds and not self.lost:
                if self.waiting_since is not None:
                    self.waiting_since = self._loop.time()
                self.transport.resume_reading()

    @property
    def held(self) -> bool:
        """Whether the client is not read at this time."""
        return bool(self._holds)

    def _piece_of_http(self, data: bytes, at: int) -> tuple[int, int]:
        """Parse a piece of the data; see `Piece`."""
        size = min(self._body_left, BODY_PIECE_BYTES) if self._body_left > 0 else PIECE_BYTES
        piece = data if at == 0 and len(data) <= size else data[at : at + size]
        self._events = 1
        self._parse(piece)
        return at + len(piece), self._events

    def _parse(self, data: bytes) -> None:
        idle = self._serving is None and not self._requests
        try:
            self._parser.feed_data(data)
            if self._framing is not None:
                self._framing.arrived(len(data))
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded = True
            self._after_upgrade += data[upgrade.args[0] :]
        except Refused as refused:
            self.refuse(refused.status, refused.error)
            return
        except httptools.HttpParserError as error:
            if (refusal := refused_by(error)) is not None:
                self.refuse(refusal.status, refusal.error)
            else:
                self.refuse(400, InvalidRequest("this is not an HTTP request, or one broken beyond reading"))
            return
        if self._in_head:
            # Data in which a head begins may be the end of the request before it, if there is one.
            self._head_bytes = len(data) * idle if self._began_now else self._head_bytes + len(data)
            self._began_now = False
            self._count_head(self._head_bytes)
            if self._head_bytes > HEAD_BYTES:
                refusal = head_too_large()
                self.refuse(refusal.status, refusal.error)
            elif not self.gateway.arrivals.heads_fit():
                self.refuse(503, CapacityError("too many requests are arriving; try again", retryAfter=1.0))
        if self._refusal is None:
            self._hold_unread()

    def _hold_unread(self) -> None:
        """Read no further while more requests, or more of their bodies, wait than are needed."""
        waiting = sum(sum(map(len, request.parts)) for request in self._requests)
        if waiting > UNREAD_BYTES or len(self._requests) > 1:
            self._hold("unread")

    def _count_head(self, size: int) -> None:
        self.gateway.arrivals.heads += size - self._counted
        self._counted = size

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        self._request = Request()
        self._in_head = self._began_now = True
        self._head_bytes = self._body_left = 0
        self.waiting_since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        """Keep a part of the request's target."""
        self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head, and drop trailers.

        Raises:
            Refused: there are too many fields.
        """
        self._events += 1
        if not self._in_head:
            if self._framing is not None:
                self._framing.drop_trailer()
            return
        if len(self._request.headers) >= HEAD_FIELDS:
            raise head_too_large()
        self._request.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Hand over a request whose head is complete.

        Raises:
            Refused: the head is too large, or ambiguous.
        """
        request, parser = self._request, self._parser
        request.method, request.version = parser.get_method(), parser.get_http_version()
        if len(request.target) + sum(len(name) + len(value) for name, value in request.headers) > HEAD_BYTES:
            raise head_too_large()
        fault = fault_of_head(request.method, request.version, request.headers)
        if fault is not None:
            raise Refused(400, InvalidRequest(fault))
        if parser.should_upgrade() and not self._asks_for_websocket():
            return  # the head comes again
        self._in_head = False
        self._count_head(0)
        request.keep_alive = parser.should_keep_alive() and request.version == "1.1"
        request.upgrade = parser.should_upgrade()
        self._events += REQUEST_COST
        if request.chunked:
            self._framing = RequestFraming()
        elif not request.upgrade:
            self._body_left = request.length or 0
        self._requests.append(request)
        self._wake()

    def _asks_for_websocket(self) -> bool:
        return self._request.header(b"upgrade").strip().lower() == b"websocket"

    def declined_upgrade(self) -> bytes | None:
        """Return the head of a request for a protocol other than WebSocket, without its wish for that."""
        request = self._request
        if self._asks_for_websocket():
            return None
        return head_without_upgrade(request.method, request.target, request.version, request.headers)

    def on_chunk_header(self) -> None:
        """Count a chunk of the body."""
        if self._framing is not None:
            self._framing.begin_chunk()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body.

        Raises:
            Refused: the chunks of the body are too small.
        """
        self._events += 1 + len(body) // BYTES_PER_COST
        if self._framing is not None:
            self._framing.take(len(body))
        else:
            self._body_left -= len(body)
        self._parts.append(body)

    def _pass_parts(self) -> None:
        """Pass on the parts of the body that came in this turn."""
        if self._parts:
            self._request.arrived(b"".join(self._parts))
            self._parts.clear()
            self._hold_unread()
            self._wake()

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        if self._in_head:
            return  # the head asks for a protocol that is not spoken here, and comes again
        self._framing = None
        self._pass_parts()
        self.waiting_since = None
        self._request.arrived(b"")
        self._wake()

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def _next_event(self) -> None:
        """Wait until more of a request has arrived."""
        self._awaited = self._loop.create_future()
        try:
            await self._awaited
        finally:
            self._awaited = None
