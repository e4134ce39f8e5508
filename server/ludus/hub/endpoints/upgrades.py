"""Channels of clients to endpoints.

How this works: the hub's HTTP server hands each upgrade to a WebSocket to a protocol class, which `channels_of` makes.
An upgrade for an endpoint becomes a connection of the gateway (`EndpointConnection`), to which the client's own
connection is handed over; it reads the frames of the general channel as far as it must to find a process, and passes
those of a process's own channel on unread. The hub itself has no WebSockets, so all other upgrades are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httptools

from ludus.hub.endpoints.answers import SANDBOXED, AnswerRefused, passed_headers, passed_upgrade
from ludus.hub.endpoints.exchanges import PRIVATE_HEADERS
from ludus.hub.endpoints.neighbors import PeerWorker
from ludus.hub.endpoints.passes import pass_of
from ludus.protocol.errors import Forbidden, InternalError, InvalidRequest, LudusError, NotFound, Unauthenticated
from ludus.protocol.identifiers import CHANNEL_PATH, CONTROL_PATH
from ludus.server.serving.serve import HEADERS
from ludus.server.web.guard import error_body, refusal_headers
from ludus.server.workers import upstream
from ludus.server.workers.connection import ClientConnection
from ludus.server.workers.routing import Place

if TYPE_CHECKING:
    from ludus.hub.endpoints.proxy import Upgrade
    from ludus.server.auth.principal import Principal
    from ludus.server.workers.pool import Worker
    from ludus.server.workers.requests import Request
    from ludus.server.workers.upstream import Headers

log = logging.getLogger("ludus.hub.endpoints")

CHECK_SECONDS: Final = 5.0
"""How often the token of an open channel is checked again."""

_REASONS: Final = {401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 421: "Misdirected Request"}
_REFUSALS: Final = (400, 600)

FindGateway = Callable[[bytes, "Headers"], Awaitable["Upgrade"]]
"""Returns where an upgrade goes, by its path with its query and its headers.

It raises `LudusError` if there is none, or the sender may not use it."""


class EndpointConnection(ClientConnection):
    """A channel of a client to an endpoint, as uvicorn knows its connections.

    Args:
        upgrade: where it goes.
        head: the head of the upgrade as the client sent it.
        connections: the connections of the server.
    """

    def __init__(self, upgrade: Upgrade, head: bytes, connections: set[Any]) -> None:
        super().__init__(upgrade.gateway)
        self.stays = upgrade.stays
        self._head = head
        self._own_set = connections
        self._checking: asyncio.Task[None] | None = None
        connections.add(self)

    def keep_checking(self, check: Callable[[], Awaitable[object]]) -> None:
        """Close the connection once its token is revoked, or its sender has fewer rights than when it was opened.

        Args:
            check: raises the error that the upgrade would get now.
        """
        self._checking = asyncio.get_running_loop().create_task(self._check(check))

    async def _check(self, check: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await check()
            except (Unauthenticated, Forbidden, NotFound):
                self.transport.close()
                return
            except LudusError as error:
                log.warning("a channel could not be checked: %s", error.message)

    @property
    def sent_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the upgrade as the client sent them."""
        return _headers(self._head)

    @property
    def control_target(self) -> bytes:
        """The path of MCP of the endpoint, as the client would send it."""
        path = _target(self._head).partition(b"?")[0].rstrip(b"/")
        return path.removesuffix(CHANNEL_PATH.encode()) + CONTROL_PATH.encode()

    def head_for(self, request: Request, worker: Worker, *, lasting: bool = True) -> bytes:
        """Return the head with which a request is passed on to a worker. See `Request.head`."""
        if isinstance(worker, PeerWorker):
            return worker.head(b"GET", _target(self._head), self.sent_headers, upgrade=True)
        return super().head_for(request, worker, lasting=lasting)

    async def _answer(self, request: Request) -> None:
        if not request.upgrade:  # answers to other requests leave through `HttpExchange` only
            request.keep_alive = False
            self._answer_error(request, InvalidRequest("this is no upgrade to a WebSocket"), Place.CHANNEL, None)
            return
        await super()._answer(request)

    def passed_switch(self, head: bytes) -> bytes:
        """Return the head of a process's switch to a WebSocket with the headers that the hub passes on."""
        return _head(101, "Switching Protocols", passed_upgrade(_headers(head)))

    def passed_refusal(self, answer: bytes) -> bytes:
        """Return a process's refusal of an upgrade as the hub passes it on, or the hub's own."""
        whole = upstream.WholeAnswer()
        try:
            with contextlib.suppress(httptools.HttpParserError):
                whole.feed(answer)
            if not (whole.ends_with_connection() and _REFUSALS[0] <= whole.status < _REFUSALS[1]):
                raise AnswerRefused("the endpoint's process has neither taken nor refused the upgrade")
            headers = passed_headers(whole.headers.items())
        except AnswerRefused as error:
            return _refusal(error)
        return _refused(whole.status, [field for field in headers if field[0] != b"content-length"], bytes(whole.body))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._own_set.discard(self)
        if self._checking is not None:
            self._checking.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection, because the hub stops."""
        self.transport.close()


def channels_of(find: FindGateway) -> type[asyncio.Protocol]:
    """Return a protocol class for uvicorn's option `ws`.

    Args:
        find: finds the gateway of an upgrade.
    """

    class Channels(asyncio.Protocol):
        """Reads the head of an upgrade, and hands the connection over."""

        def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any]) -> None:
            self._connections: set[Any] = server_state.connections
            self._waiting = bytearray()
            self._task: asyncio.Task[None] | None = None
            self._transport: asyncio.Transport

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport = transport  # type: ignore[assignment]

        def data_received(self, data: bytes) -> None:
            if self._task is not None:
                self._waiting += data
            else:
                self._connections.add(self)
                self._task = asyncio.get_running_loop().create_task(self._hand_over(data))
                self._transport.pause_reading()

        def connection_lost(self, exc: Exception | None) -> None:
            self._connections.discard(self)
            if self._task is not None:
                self._task.cancel()

        def shutdown(self) -> None:
            """Close the connection, because the hub stops."""
            self._transport.close()

        async def _hand_over(self, head: bytes) -> None:
            try:
                upgrade = await find(_target(head), _headers(head))
            except LudusError as error:
                self._refuse(error)
                return
            except Exception:
                log.exception("an upgrade failed")
                self._refuse(InternalError("the hub failed; its log has the cause"))
                return
            if self._transport.is_closing():
                return
            connection = EndpointConnection(upgrade, head, self._connections)
            self._connections.discard(self)
            self._transport.set_protocol(connection)
            connection.connection_made(self._transport)
            connection.keep_checking(partial(_check_again, find, head, upgrade.sender))
            own_pass = pass_of(upgrade.gateway.secret, upgrade.sender)
            connection.data_received(_passed(head, upgrade.target, own_pass))
            if self._waiting:
                connection.data_received(bytes(self._waiting))
            self._transport.resume_reading()

        def _refuse(self, error: LudusError) -> None:
            self._transport.write(_refusal(error))
            self._transport.close()

    return Channels


def _refusal(error: LudusError) -> bytes:
    """Return the answer that refuses an upgrade with an error."""
    fields = {"content-type": "application/json", **refusal_headers(error)}
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    return _refused(error.http_status, headers, error_body(CHANNEL_PATH, error))


def _refused(status: int, headers: Headers, body: bytes) -> bytes:
    added = [(name.encode(), value.encode()) for name, value in (*HEADERS, ("connection", "close"), SANDBOXED)]
    fields = [*headers, *added, (b"content-length", str(len(body)).encode())]
    return _head(status, _REASONS.get(status, "Refused"), fields) + body


def _head(status: int, reason: str, headers: Headers) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % field for field in headers)
    return f"HTTP/1.1 {status} {reason}\r\n".encode() + lines + b"\r\n"


async def _check_again(find: FindGateway, head: bytes, sender: Principal) -> None:
    """Raise the error that an upgrade would get now.

    Raises:
        Forbidden: the sender has fewer rights now than when the channel was opened.
    """
    now = await find(_target(head), _headers(head))
    if not sender.scopes <= now.sender.scopes:
        raise Forbidden("the sender has fewer rights at this endpoint now")


def _target(head: bytes) -> bytes:
    return head.split(b" ", 2)[1]


def _headers(head: bytes) -> list[tuple[bytes, bytes]]:
    lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]


def _passed(head: bytes, target: bytes, own_pass: str) -> bytes:
    """Return the head as the gateway reads it: below the endpoint's path, and with a pass for credentials."""
    method, _, rest = head.split(b" ", 2)
    lines = [b"%b %b %b" % (method, target, rest.partition(b"\r\n")[0])]
    lines += [b"%b: %b" % field for field in _headers(head) if field[0] not in PRIVATE_HEADERS]
    lines.append(b"authorization: Bearer " + own_pass.encode())
    return b"\r\n".join(lines) + b"\r\n\r\n"
