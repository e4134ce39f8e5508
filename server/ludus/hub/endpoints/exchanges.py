"""One HTTP request to an endpoint, passed on to its process, and the answer passed back.

How this works:

* `HttpExchange` is a client of the gateway, as its own connections are (`ludus.server.workers.roles.Client`), so the
  gateway finds the process in the same way. It only has an ASGI server between itself and the client.
* Each request has a connection of its own to the process, which ends as the client's connection does, as far as that is
  known: so the process can tell whether its reply was lost (`ludus.server.web.delivery`). The body is passed on as it
  arrives, and the answer is read by a parser (`AnswerReader`) that makes ASGI messages of it; no body is looked into.
* The process is not trusted: of its answer, only what `answers.py` allows leaves the hub.
* A side that is slower than the other pauses it: `_HIGH_WATER` bytes of an answer may wait.
* A client that leaves resets the connection to the process, which then knows that its reply was lost. A process that
  dies before its answer gives the error of the transport; in the middle of an answer, the client's connection breaks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import httptools
from starlette.types import Message, Receive, Scope, Send

from ludus.hub.endpoints.answers import AnswerRefused, checked_type, passed_headers
from ludus.hub.endpoints.gateways import server_of
from ludus.hub.endpoints.neighbors import PeerWorker
from ludus.hub.endpoints.passes import pass_of
from ludus.protocol.errors import EpisodeFailed, LudusError, ShuttingDown
from ludus.server.web.delivery import watch
from ludus.server.web.http_heads import HEAD_BYTES, HEAD_FIELDS, Framing
from ludus.server.workers import upstream
from ludus.server.workers.connection import body_too_large, error_answer
from ludus.server.workers.pool import lost
from ludus.server.workers.requests import Request
from ludus.server.workers.routing import Place, place_of, target_of_mcp
from ludus.telemetry.tracing import TRACE_FIELDS, active

if TYPE_CHECKING:
    from ludus.hub.endpoints.gateways import EndpointGateway
    from ludus.server.auth.principal import Principal
    from ludus.server.web.delivery import Delivery
    from ludus.server.web.turns import FairTransport
    from ludus.server.workers.pool import Worker
    from ludus.server.workers.roles import GatewayRole

PRIVATE_HEADERS: Final = frozenset({b"authorization", b"x-api-key", b"cookie", b"proxy-authorization"})
"""Headers of clients that no process of an endpoint gets, because they are credentials of the hub."""

_HIGH_WATER: Final = 256 * 1024
_STATUSES: Final = 100, 600
_START: Final = b"HTTP/1."
_MOST_INTERIM: Final = 100
_NO_ANSWER: Final = "the endpoint's process answered with something that is not HTTP"
_TOO_LARGE: Final = (
    f"the head of the answer of the endpoint's process is larger than {HEAD_BYTES} bytes or has more than "
    f"{HEAD_FIELDS} fields"
)

_TRACE_FIELDS: Final = frozenset(name.encode() for name in TRACE_FIELDS)


class ClientGone(Exception):
    """The client has left."""


class HttpExchange:
    """One request of a client.

    Args:
        gateway: the gateway of the endpoint.
        scope, receive, send: the request.
        target: its path and query, as the process is to see them.
        asked: its path and query as the client sent them.
        stays: whether no other process of the hub may answer it.
        sender: the principal, of whom the process gets a pass; None for a request that needs none.
    """

    transport: FairTransport

    def __init__(
        self, gateway: EndpointGateway, scope: Scope, receive: Receive, send: Send, target: bytes, asked: bytes,
        sender: Principal | None, *, stays: bool,
    ) -> None:  # fmt: skip
        self.gateway: GatewayRole = gateway
        self.stays = stays
        self.peer: str = (scope.get("client") or ("unknown", 0))[0]
        self.uplinks: dict[str, upstream.Uplink] = {}
        self._endpoint = gateway
        self._scope = scope
        self._receive = receive
        self._send = send
        self._asked = asked
        self._request = request = Request()
        request.method = scope["method"].encode("latin-1")
        request.target = target
        request.headers = [
            (name, value) for name, value in scope["headers"] if name not in PRIVATE_HEADERS and name != b"expect"
        ]
        request.headers = _traced(request.headers)
        if sender is not None:
            request.headers.append((b"authorization", f"Bearer {pass_of(gateway.secret, sender)}".encode()))
        request.complete = not (request.length or request.chunked)
        self._answered: Message | None = None
        """The start of an answer that the gateway gave itself."""

    @property
    def answering(self) -> bool:
        """Whether the client waits for an answer, which it always does."""
        return True

    @property
    def sent_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the request as the client sent them, with the current span."""
        return _traced(self._scope["headers"])

    @property
    def control_target(self) -> bytes:
        """The path of MCP of the endpoint as the client sent it; only requests for it need it."""
        return self._asked

    def hold(self, reason: str, *, held: bool) -> None:
        """Do nothing: the body is read when there is room for it."""

    async def run(self) -> None:
        """Answer the request."""
        request = self._request
        place, named = place_of(request.path)
        identifier: Any = None
        self._endpoint.counts.requests[place] += 1
        try:
            if place is Place.PAGE:
                await self._endpoint.releases.newest.ensure()
                await self._endpoint.pages.answer(self, request, named)
                await self._send_answer()
                return
            worker, about_episodes = await self._endpoint.worker_for(self, request, place, named)
            await self._pass_on(worker, about_episodes=about_episodes)
        except ClientGone:
            return
        except LudusError as error:
            if isinstance(error, EpisodeFailed) and place in (Place.PLAY, Place.CONTROL):
                identifier = target_of_mcp(await self.whole(request))[1]
            self.answer(request, *error_answer(request, request.path, error, place, identifier))
            await self._send_answer()

    def answer(
        self, request: Request, status: int, body: bytes, headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> None:  # fmt: skip
        """Answer the request without a worker.

        Raises:
            AnswerRefused: the content type is not passed on.
        """
        kind = checked_type(content_type.encode("latin-1")).decode("latin-1")  # that of a page is the process's own
        fields = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        self._answered = {"type": "http.response.start", "status": status, "headers": encoded, "body": body}

    async def _send_answer(self) -> None:
        if (start := self._answered) is not None:
            body = start.pop("body")
            await self._send(start)
            await self._send({"type": "http.response.body", "body": body})

    async def whole(self, request: Request) -> bytes:
        """Return the body of the request, and keep it for being passed on.

        Raises:
            PayloadTooLarge: the body is larger than an endpoint accepts.
        """
        limit = self._endpoint.settings.limits.body_bytes
        while not request.complete:
            if (request.length or 0) > limit or request.size > limit:
                raise body_too_large(limit)
            request.arrived(await self._read())
        body = b"".join(request.parts)
        request.parts.clear()
        if body:
            request.parts.append(body)
        return body

    async def _read(self) -> bytes:
        """Return the next part of the body; empty at its end.

        Raises:
            ClientGone: the client has left.
        """
        while not self._request.complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part: bytes = message.get("body", b"")
            if not message.get("more_body", False):
                if part:
                    self._request.arrived(part)
                return b""
            if part:
                return part
        return b""

    def head_for(self, request: Request, worker: Worker, *, lasting: bool = True) -> bytes:
        """Return the head with which the request is passed on to a worker. See `Request.head`."""
        if isinstance(worker, PeerWorker):
            return worker.head(request.method, self._asked, self.sent_headers)
        return request.head(self._endpoint.introduction(self.peer), lasting=lasting)

    # ── passing it on ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _pass_on(self, worker: Worker, *, about_episodes: bool) -> None:
        server = server_of(self._endpoint, worker)
        if server is not None:
            server.in_use += 1
        try:
            uplink = await upstream.connect(self._endpoint.pool, worker, about_episodes=about_episodes)
            delivery = watch(self._scope)
            if delivery.verdict is False:  # the client has left, or the rest of its request was refused
                uplink.reset()
                raise ClientGone
            reader = AnswerReader(uplink, to_head=self._request.method == b"HEAD")
            sending = asyncio.ensure_future(self._send_body(uplink))
            try:
                whole = await self._pass_back(uplink, reader, sending, delivery)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            if whole:
                self._endpoint.settle(uplink, delivery)
            elif not reader.began:
                refusal = server.refusal(about_episodes=about_episodes) if server is not None else None
                if refusal is not None:
                    raise refusal
                if about_episodes and await worker.died():
                    raise lost()
                raise ShuttingDown("the endpoint's process ended before it answered; try again", retryAfter=1.0)
            else:  # write a head that is held for the body, so that the connection breaks in the middle of the answer
                await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        finally:
            if server is not None:
                server.in_use -= 1

    async def _send_body(self, uplink: upstream.Uplink) -> None:
        """Send the request, and wait until the client leaves."""
        request, room = self._request, asyncio.Event()
        room.set()
        uplink.on_room = lambda free: room.set() if free else room.clear()
        uplink.transport.write(self.head_for(request, uplink.worker))
        for part in request.parts:
            uplink.transport.write(request.encoded(part))
        if request.complete and request.chunked:
            uplink.transport.write(request.encoded(b""))
        request.parts.clear()
        if not request.complete:
            request.sink = lambda part: uplink.transport.write(request.encoded(part))
            while not request.complete:
                await room.wait()
                part = await self._read()
                if part or not request.complete:
                    request.arrived(part)
        while (await self._receive())["type"] != "http.disconnect":
            continue
        raise ClientGone

    async def _pass_back(
        self, uplink: upstream.Uplink, reader: AnswerReader, sending: asyncio.Future[None], delivery: Delivery
    ) -> bool:
        """Pass the answer on, and return whether it was whole.

        Raises:
            ClientGone: the client has left.
        """
        try:
            while True:
                while (message := reader.take()) is not None:
                    await self._send(message)
                    if message.get("more_body") is False:
                        delivery.sent()  # at once: a client that has it all may close its connection
                if reader.complete or uplink.closed:
                    return reader.complete
                waiting = asyncio.ensure_future(reader.wait())
                await asyncio.wait({waiting, sending}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if sending.done() and not reader.complete and sending.exception() is not None:
                    raise ClientGone
        except BaseException:
            uplink.reset()
            raise


def _traced(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers of a client with the current span, below which the process's own is."""
    if (tracing := active()) is None:
        return list(headers)
    kept = [field for field in headers if field[0] not in _TRACE_FIELDS]
    return kept + [(name.encode(), value.encode()) for name, value in tracing.carrier().items()]


class AnswerReader:
    """Makes ASGI messages of an answer, of which only what `answers.py` allows is passed on.

    Args:
        uplink: the connection on which it arrives.
        to_head: whether it answers a HEAD request.
    """

    def __init__(self, uplink: upstream.Uplink, *, to_head: bool) -> None:
        self._uplink = uplink
        self._to_head = to_head
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._untyped: Message | None = None
        """The start of an answer without a content type, which must turn out to have no body."""
        self._parts: list[bytes] = []
        """The parts of the body in the data that is being parsed, which become one message."""
        self._messages: deque[Message] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._refusal: AnswerRefused | None = None
        self._taken = False
        self._framing = Framing()
        self._start = b""
        """The first bytes of the answer."""
        self._interim = 0
        """The number of answers of the class 1xx."""
        self._ended = False
        self._lengths = False
        self._encodings = 0
        self.began = False
        """Whether the head of the answer has arrived."""
        uplink.sink, uplink.on_lost = self._feed, self._lost

    @property
    def complete(self) -> bool:
        """Whether the whole answer has arrived and was taken."""
        return self._ended and not self._messages

    def take(self) -> Message | None:
        """Return the next message, if one has arrived.

        Raises:
            AnswerRefused: the answer is not passed on. None of it was taken before.
        """
        if self._refusal is not None:
            raise self._refusal
        if not self._messages:
            return None
        self._taken = True
        message = self._messages.popleft()
        before = self._waiting
        self._waiting -= len(message.get("body", b""))
        if before > _HIGH_WATER >= self._waiting and not self._uplink.closed:
            self._uplink.transport.resume_reading()
        return message

    async def wait(self) -> None:
        """Wait until there is another message, or the connection has ended."""
        self._changed.clear()
        if not self._messages and self._refusal is None and not self._uplink.closed:
            await self._changed.wait()

    def _feed(self, data: bytes) -> None:
        if self._ended:  # this connection had one request
            return
        before = self._waiting
        self._start += data[: len(_START) - len(self._start)]
        if not _START.startswith(self._start):  # the parser reads RTSP, too
            self._fail(_NO_ANSWER)
            return
        in_body = self.began
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse("the endpoint's process answered with a switch to another protocol, which was not asked for")
        except httptools.HttpParserError:
            self._fail(_NO_ANSWER)
        if in_body and self._framing.exceeded(len(data)):
            self._fail("the chunks or trailers of the answer of the endpoint's process take many times its content")
        self._flush()
        if not self.began:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(_TOO_LARGE)
        self._changed.set()
        if before <= _HIGH_WATER < self._waiting and not self._uplink.closed:
            self._uplink.transport.pause_reading()

    def _fail(self, reason: str) -> None:
        """Refuse an answer of which nothing was taken; break off one that was."""
        if self._ended:
            return
        if self._taken:
            self._uplink.reset()
        else:
            self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        if self._refusal is None:
            self._refusal = AnswerRefused(reason)
        self._uplink.reset()

    def _lost(self) -> None:
        if self.began and not self._ended and self._refusal is None:
            if not self._lengths:  # the end of the connection is that of the answer
                self._end()
            elif self._untyped is not None:
                self._refuse("the endpoint's process ended before its answer, which has no content type, was whole")
        self._changed.set()

    def _flush(self) -> None:
        if self._parts:
            body = b"".join(self._parts)
            self._parts.clear()
            self._waiting += len(body)
            self._messages.append({"type": "http.response.body", "body": body, "more_body": True})

    def _end(self) -> None:
        self._ended = True
        if self._untyped is not None:
            self._messages.append(self._untyped)
        self._flush()
        self._messages.append({"type": "http.response.body", "body": b"", "more_body": False})

    def on_status(self, reason: bytes) -> None:
        """Check the reason. The hub has its own."""
        if b"\0" in reason:
            self._fail(_NO_ANSWER)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head. Trailers are ignored."""
        if not self.began:
            self._lengths = self._lengths or name.lower() in (b"content-length", b"transfer-encoding")
            self._encodings += name.lower() == b"transfer-encoding"
            if self._encodings > 1 or (name.lower() == b"transfer-encoding" and value.lower().strip() != b"chunked"):
                self._refuse("the endpoint's process answered with a Transfer-Encoding other than `chunked`")
            self._headers.append((name, value))
            if len(self._headers) > HEAD_FIELDS:
                self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Begin the answer, unless it is an interim one."""
        status = self._parser.get_status_code()
        if self._ended:
            return
        if not _STATUSES[0] <= status < _STATUSES[1] or self._parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(f"the endpoint's process answered with the status {status}, or another version of HTTP")
        self._interim += status < 200
        if self._interim > _MOST_INTERIM:
            self._refuse(f"the endpoint's process answered with more than {_MOST_INTERIM} interim answers")
        if status >= 200 and self._refusal is None:
            self.began = True
            try:
                headers = passed_headers(self._headers)
            except AnswerRefused as error:
                self._refuse(error.message)
                return
            start: Message = {"type": "http.response.start", "status": status, "headers": headers}
            if self._to_head or any(name == b"content-type" for name, _ in headers):
                self._messages.append(start)
            else:
                self._untyped = start
            if self._to_head:
                self._end()
        self._headers, self._encodings = [], 0

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._framing.content += len(body)
        if self._ended:
            return
        if self._untyped is not None:
            self._refuse("the endpoint's process answered with a body without a content type")
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Note that the answer is complete, unless it is an interim one."""
        if self._parser.get_status_code() >= 200 and not self._ended and self._refusal is None:
            self._end()
