"""One connection of a client to the gateway.

How this works:

* The bytes of the client go through an HTTP parser, which makes `Request`s. One task for each connection (`_serve`)
  answers them one after the other.
* A request's head is written again for the worker, so gateway and worker never disagree about where a request ends. Its
  body is passed on as it arrives. The worker's answer is passed back as it is; a second parser only finds its end.
* The connection to a worker is kept for the client's next request to it, and ends as the client's connection ends.
* An upgrade to the channel of one worker makes a tunnel: from then on, bytes are passed both ways without being read.
  An upgrade to the general channel is handed to `FramedChannel`.
* A side that writes faster than the other one reads is paused: each side has at most one full write buffer of the event
  loop, and a request that is not read yet is bounded by `UNREAD_BYTES`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import httptools
from pydantic_core import to_json

from ludus.common.incidents import new_incident
from ludus.protocol.errors import (
    EpisodeFailed,
    LudusError,
    MethodNotFound,
    PayloadTooLarge,
    to_wire,
)
from ludus.server.serving.serve import HEADERS
from ludus.server.web.delivery import _unacknowledged
from ludus.server.web.guard import error_body, error_headers, refusal_headers
from ludus.server.web.http_protocol import DISCARDED_BYTES, refusal_bytes
from ludus.server.web.telemetry import route_of
from ludus.server.web.turns import FairTransport
from ludus.server.workers import upstream
from ludus.server.workers.framed import FramedChannel
from ludus.server.workers.pool import lost
from ludus.server.workers.reader import RequestReader
from ludus.server.workers.requests import Request
from ludus.server.workers.routing import Place, place_of, target_of_mcp
from ludus.telemetry.tracing import TRACE_FIELDS, Tracing, active

if TYPE_CHECKING:
    from ludus.server.workers.pool import Worker
    from ludus.server.workers.roles import GatewayRole

__all__ = ["ClientConnection", "body_too_large", "error_answer"]


log = logging.getLogger("ludus.gateway")

GONE: Final = 410
"""The status for the channel of a worker that died with its episodes."""

UPGRADE_ANSWER_BYTES: Final = 256 * 1024
"""The most bytes of an answer to an upgrade."""

_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 408: "Request Timeout", 410: "Gone", 413: "Content Too Large",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip
_SWITCHING: Final = b"HTTP/1.1 101 "


class ClientLeft(Exception):
    """The connection of the client is lost, or cannot be used any more."""


class ClientConnection(RequestReader, asyncio.Protocol):
    """A connection of a client.

    Args:
        gateway: the gateway that accepted it.
    """

    def __init__(self, gateway: GatewayRole) -> None:
        super().__init__(gateway)
        self.peer = ""
        self.stays = True
        self.uplinks: dict[str, upstream.Uplink] = {}
        self.idle_since = 0.0
        self.channel: FramedChannel | None = None
        self._answered: asyncio.Future[None] | None = None
        self._begun = False
        """Whether a part of the answer to the served request was written."""
        self._tunnel: upstream.Uplink | None = None
        self._acknowledged = True
        """Whether the client had acknowledged everything when it closed its side."""
        self._task: asyncio.Task[None] | None = None
        self._tracing = active()

    # ── the transport ───────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a new client."""
        self.transport = FairTransport(transport, self._piece, flush=self._pass_parts)  # type: ignore[arg-type]
        name = transport.get_extra_info("peername")
        self.peer = name[0] if isinstance(name, tuple) else "unknown"
        self.waiting_since = self._loop.time()
        self._task = self._loop.create_task(self._serve())
        self.gateway.counts.opened()
        self.gateway.add(self)

    def data_received(self, data: bytes) -> None:
        """Pass data to the tunnel, and otherwise read it in fair turns."""
        # A tunnel without room must not be written to: nothing else bounds what waits for its worker.
        if self._tunnel is not None and not self.transport.behind and not self.transport.held:
            self._tunnel.transport.write(data)
        else:
            self.transport.received(data)

    def _piece(self, data: bytes, at: int) -> tuple[int, int]:
        """Read a piece of the data for the tunnel, the channel or the parser; see `Piece`."""
        if self.lost or self._refusal is not None or self.transport.is_closing():
            return len(data), 1
        if self._tunnel is not None:
            self._tunnel.transport.write(data[at:])
            return len(data), 1
        if self.channel is not None:
            return self.channel.read_piece(data, at)
        if self._upgraded:
            self._after_upgrade += data[at:]
            self._hold("unread")
            return len(data), 1
        return self._piece_of_http(data, at)

    def eof_received(self) -> None:
        """Note whether the client has everything that was written; the connection then closes."""
        self._acknowledged = not self.transport.get_write_buffer_size() and not self._holds_back()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connections to workers as the client ended this one."""
        self.lost = True
        self._count_head(0)
        self.gateway.counts.closed()
        self.gateway.remove(self)
        for uplink in self.uplinks.values():
            if exc is None and self._acknowledged:
                uplink.close()
            else:
                uplink.reset()
        if self.channel is not None:
            self.channel.client_lost()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Stop reading from workers: the client does not read."""
        for uplink in self.uplinks.values():
            if not uplink.closed:
                uplink.transport.pause_reading()
        if self.channel is not None:
            self.channel.client_has_room(room=False)

    def resume_writing(self) -> None:
        """Read from workers again."""
        for uplink in self.uplinks.values():
            if not uplink.closed:
                uplink.transport.resume_reading()
        if self.channel is not None:
            self.channel.client_has_room(room=True)

    @property
    def answering(self) -> bool:
        """Whether a worker has a request of this client, or the connection is no longer one of HTTP."""
        return (self._answered is not None or self._upgraded) and not self.transport.lingering

    @property
    def idle(self) -> bool:
        """Whether the client waits for nothing."""
        return self._serving is None and not self._requests and not self._upgraded

    def _holds_back(self) -> bool:
        sock: Any = self.transport.get_extra_info("socket")
        try:
            return sock is not None and _unacknowledged(sock) > 0
        except OSError:
            return True

    # ── serving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self) -> None:
        try:
            while True:
                while not self._requests:
                    if self._refusal is not None:
                        self._send_refusal()
                        return
                    self._release("unread")
                    await self._next_event()
                self._serving = request = self._requests.popleft()
                self._begun = False
                await (self._answer(request) if self._tracing is None else self._traced(self._tracing, request))
                if not request.keep_alive or self.lost:
                    break
                await self._arrive(request)
                self._serving = None
                self.idle_since = self._loop.time()
            await self._discard(request)
            self.transport.close()
        except ClientLeft:
            if not self.lost:
                self.transport.abort()
        except Exception:
            incident = new_incident()
            log.exception("a connection failed (incident %s)", incident, extra={"incident": incident})
            self.transport.abort()

    async def _traced(self, tracing: Tracing, request: Request) -> None:
        """Answer a request in a span, which becomes the parent of the worker's. Pages and upgrades have none here."""
        path = self.gateway.without_prefix(request.path)
        if request.upgrade or place_of(path)[0] is Place.PAGE:
            await self._answer(request)
            return
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        name = f"gateway {request.method.decode('latin-1')} {route_of(path)}"
        with tracing.span(name, kind="SERVER", parent=tracing.context_of(fields)):
            context = [(key.encode(), value.encode()) for key, value in tracing.carrier().items()]
            request.headers = [field for field in request.headers if field[0].decode("latin-1") not in TRACE_FIELDS]
            request.headers += context
            await self._answer(request)

    async def _answer(self, request: Request) -> None:
        gateway = self.gateway
        endpoint, named = place_of(gateway.without_prefix(request.path))
        identifier: Any = None
        gateway.counts.requests[endpoint] += 1
        try:
            if endpoint is Place.PAGE and not request.upgrade:
                await gateway.pages.answer(self, request, named)
                return
            if request.upgrade:
                await self._upgrade(request, endpoint, named)
                return
            worker, about_episodes = await gateway.worker_for(self, request, endpoint, named)
            if not await self.proxy(request, worker):
                # Nothing of the answer has arrived. Only if the episode died with the worker, it is known what to say.
                if not gateway.pool.durable and about_episodes and await worker.died():
                    raise lost()
                raise ClientLeft
        except LudusError as error:
            if isinstance(error, EpisodeFailed) and endpoint in (Place.PLAY, Place.CONTROL):
                identifier = target_of_mcp(await self.whole(request))[1]
            self._answer_error(request, error, endpoint, identifier)

    def _answer_error(self, request: Request, error: LudusError, endpoint: Place, identifier: Any) -> None:
        path = self.gateway.without_prefix(request.path)
        self.answer(request, *error_answer(request, path, error, endpoint, identifier))

    def answer(
        self, request: Request, status: int, body: bytes, headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> None:  # fmt: skip
        """Answer a request without a worker."""
        fields = {"content-type": content_type, "content-length": str(len(body)), **dict(HEADERS), **(headers or {})}
        if not request.keep_alive or not request.complete:
            request.keep_alive = False
            fields["connection"] = "close"
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\n{lines}\r\n"
        self._begun = True
        self.transport.write(head.encode("latin-1") + (b"" if request.method == b"HEAD" else body))

    def refuse(self, status: int, error: LudusError, *, linger: bool = True) -> None:
        """Answer what is not a whole request with an error, behind the requests before it, and close.

        Args:
            status: the HTTP status.
            error: the error.
            linger: whether to discard what the client still sends, which would otherwise cost it the answer.
        """
        if self._refusal is not None or self.lost:
            if self.transport.lingering:
                self.transport.close()
            return
        # An answer would be taken for that to the client's next request.
        if self.idle and self.waiting_since is None:
            self.transport.close()
            return
        self.waiting_since = None
        self._count_head(0)
        self._parts.clear()
        self._refusal = refusal_bytes(status, error, to_head=self._parser.get_method() == b"HEAD")
        broken = self._request
        if broken in self._requests:
            self._requests.remove(broken)
        if broken is self._serving or (self._serving is None and not self._requests):
            if self._task is not None:
                self._task.cancel()
            self._send_refusal(linger=linger)

    def _send_refusal(self, *, linger: bool = True) -> None:
        """Write the refusal, unless a part of another answer to the same request was written, and close."""
        for uplink in self.uplinks.values():
            # Its worker has a part of the request, which it is not to answer.
            if uplink.sink is not _discard:
                uplink.sink, uplink.on_lost = _discard, _nothing
                uplink.reset()
        if not (self._upgraded or (self._serving is not None and self._begun)):
            self.transport.write(self._refusal or b"")
        if linger:
            self._holds.clear()
            self.waiting_since = self._loop.time()
            self.transport.linger()
        else:
            self.transport.close()

    async def whole(self, request: Request) -> bytes:
        """Return the body of a request, and keep it for being passed on.

        Raises:
            PayloadTooLarge: the body is larger than the server accepts.
        """
        limit = self.gateway.settings.limits.body_bytes
        if (request.length or 0) > limit:
            raise body_too_large(limit)
        # The body is read here and not by a worker, so the client waits for this server's permission.
        if request.header(b"expect").lower() == b"100-continue" and not request.complete:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not request.complete:
            if request.size > limit:
                raise body_too_large(limit)
            self._release("unread")
            await self._next_event()
        body = b"".join(request.parts)
        request.parts.clear()
        if body:
            request.parts.append(body)
        return body

    async def _arrive(self, request: Request) -> None:
        """Wait for the rest of a request that was answered early, and discard it."""
        request.sink = _discard
        while not request.complete:
            if request.size > DISCARDED_BYTES:
                raise ClientLeft
            self._release("unread")
            await self._next_event()

    async def _discard(self, request: Request) -> None:
        """Before the connection closes, read the rest of a request; the peer would lose the answer otherwise."""
        if not self.lost and not request.upgrade:
            await self._arrive(request)

    # ── passing requests on ─────────────────────────────────────────────────────────────────────────────────────────

    def head_for(self, request: Request, worker: Worker, *, lasting: bool = True) -> bytes:
        """Return the head with which a request is passed on to a worker. See `Request.head`."""
        return request.head(self.gateway.introduction(self.peer), lasting=lasting)

    async def uplink_to(self, worker: Worker) -> upstream.Uplink:
        """Return the connection to a worker that this client has, or a new one."""
        uplink = self.uplinks.get(worker.name)
        if uplink is None or uplink.closed or uplink.transport.is_closing():
            uplink = await upstream.connect(self.gateway.pool, worker)
            if self.lost:
                uplink.reset()
                raise ClientLeft
            # After the check: `connection_lost` has already ended those that were there.
            self.uplinks[worker.name] = uplink
        return uplink

    async def proxy(self, request: Request, worker: Worker) -> bool:
        """Pass a request on to a worker, and its answer back. Return whether there was any answer.

        Raises:
            ClientLeft: the worker died in the middle of its answer. The connection of the client breaks, too.
        """
        uplink = await self.uplink_to(worker)
        to_head = request.method == b"HEAD"
        lasting = request.version == "1.1" and not to_head
        answer, head = upstream.Answer(to_head=to_head), bytearray()
        self._answered = answered = self._loop.create_future()

        def settle() -> None:
            if not answered.done():
                answered.set_result(None)

        def passed(data: bytes) -> None:
            try:
                answer.feed(data)
            except httptools.HttpParserError:
                uplink.reset()
                return
            # What a worker sends behind the head would be taken for another answer.
            if to_head:
                head.extend(data)
                data = upstream.head_in(bytes(head)) if answer.complete else b""
            if data:
                self._begun = True
                self.transport.write(data)
            if answer.complete and (lasting or to_head):
                settle()

        def pass_on(part: bytes) -> None:
            uplink.transport.write(request.encoded(part))

        uplink.sink, uplink.on_lost = passed, settle
        uplink.on_room = lambda room: self.hold("uplink", held=not room)
        data = [self.head_for(request, worker, lasting=lasting)]
        data += map(request.encoded, request.parts)
        if request.complete and request.chunked:
            data.append(request.encoded(b""))
        if not request.complete:
            request.parts.clear()
            request.sink = pass_on
        uplink.transport.write(b"".join(data))
        self._release("unread")
        # It may have ended between two requests, when `on_lost` did nothing.
        if uplink.closed:
            settle()
        await answered
        self._answered = None
        # What the worker sends from now on belongs to no request.
        uplink.sink, uplink.on_lost, uplink.on_room = _discard, _nothing, _nothing_of
        self._release("uplink")
        if not answer.began:
            return False
        request.parts.clear()
        if answer.broken or not (answer.complete or answer.ends_with_connection()):
            raise ClientLeft
        if not (lasting and answer.keeps_alive and request.complete):
            uplink.close()
            self.uplinks.pop(worker.name, None)
            request.keep_alive = False
        return True

    async def _upgrade(self, request: Request, endpoint: Place, named: str) -> None:
        gateway = self.gateway
        request.keep_alive = False
        if endpoint is Place.WORKER_CHANNEL:
            worker = gateway.find(self, named)
            if worker is None:
                raise MethodNotFound(f"this server has no worker {named!r}")
            try:
                uplink = await self.uplink_to(worker)
            except EpisodeFailed as error:
                self.answer(request, GONE, error_body(request.path, error), refusal_headers(error))
                return
        elif endpoint is Place.CHANNEL:
            worker = gateway.pool.any()
            await gateway.pool.reach(worker, about_episodes=False)
            uplink = await self.uplink_to(worker)
        else:
            raise MethodNotFound("this server has no WebSocket at this path")
        head = await self._switch(request, uplink)
        if head is None:
            return
        if endpoint is Place.CHANNEL:
            self.channel = FramedChannel(self, request, uplink)
            # Before the client's data: the worker sent it first.
            self.channel.worker_sent(uplink, head)
            self.transport.put_back(bytes(self._after_upgrade))
        else:
            self._join(uplink, head)
        self._after_upgrade = bytearray()
        self.waiting_since = None
        self._release("unread")
        # Until the connection is lost.
        await self._loop.create_future()

    async def _switch(self, request: Request, uplink: upstream.Uplink) -> bytes | None:
        """Pass an upgrade on and its answer back. Return what came behind the answer; None if it is a refusal."""
        received = bytearray()
        event = asyncio.Event()

        def read(data: bytes) -> None:
            received.extend(data)
            event.set()

        uplink.sink, uplink.on_lost = read, event.set
        uplink.transport.write(self.head_for(request, uplink.worker))
        while b"\r\n\r\n" not in received or not received.startswith(_SWITCHING):
            if len(received) > UPGRADE_ANSWER_BYTES:
                uplink.reset()
                raise ClientLeft
            if uplink.closed:
                if not received:
                    raise ClientLeft
                self.transport.write(self.passed_refusal(bytes(received)))
                return None
            await event.wait()
            event.clear()
        end = received.index(b"\r\n\r\n") + 4
        self.transport.write(self.passed_switch(bytes(received[:end])))
        return bytes(received[end:])

    def passed_switch(self, head: bytes) -> bytes:
        """Return the head of a worker's switch to a WebSocket as the client gets it."""
        return head

    def passed_refusal(self, answer: bytes) -> bytes:
        """Return a worker's whole refusal of an upgrade as the client gets it."""
        return answer

    def _join(self, uplink: upstream.Uplink, head: bytes) -> None:
        """Make a tunnel of the connections of client and worker."""
        uplink.sink = self.transport.write
        uplink.on_lost = self.transport.close
        uplink.on_room = lambda room: self.hold("uplink", held=not room)
        self.transport.write(head)
        uplink.transport.write(bytes(self._after_upgrade))
        self._tunnel = uplink
        if uplink.closed:
            self.transport.close()


def error_answer(
    request: Request, path: str, error: LudusError, endpoint: Place, identifier: Any
) -> tuple[int, bytes, dict[str, str]]:
    """Return the status, the body and the headers by which the transport of a request gives an error.

    Args:
        request: the request.
        path: its path, without the prefix under which the server is published.
        error: the error.
        endpoint: what the path leads to.
        identifier: the JSON-RPC id of the request, if it has one.
    """
    status, headers = error.http_status, (refusal_headers if request.upgrade else error_headers)(error)
    if isinstance(error, EpisodeFailed) and identifier is not None:
        return 200, to_json({"jsonrpc": "2.0", "id": identifier, "error": to_wire(error)}), headers
    if isinstance(error, EpisodeFailed) and endpoint is Place.OTHER:
        answer: dict[str, Any] = {"detail": "Active environment not found"}
        if request.has(b"ludus-extension"):
            answer["ludus"] = to_wire(error)
        return 404, to_json(answer), headers
    return status, error_body(path, error), headers


def body_too_large(limit: int) -> PayloadTooLarge:
    """Return the error for a request whose body has more bytes than a server accepts."""
    return PayloadTooLarge(
        f"the request is larger than the {limit} bytes this server accepts", limit="body_bytes", maximum=limit
    )


def _discard(part: bytes) -> None:
    """Ignore a part."""


def _nothing() -> None:
    """Do nothing."""


def _nothing_of(room: bool) -> None:
    """Do nothing."""
