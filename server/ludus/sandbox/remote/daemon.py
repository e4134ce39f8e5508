"""`ludus sandboxd`: creates sandboxes on this machine for Ludus servers on others.

How this works:

- A client opens a WebSocket on `/v1/sandboxes` with a bearer token, and greets with the id of its session.
- A session outlives its connection by a grace period: a client that comes back within it continues, and nothing is
  done twice (see `channel`). After that, or when the client says goodbye, its sandboxes are closed.
- `/healthz` answers without a token, `/metrics` with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import WSMsgType, web
from pydantic import ValidationError

from ludus.protocol.errors import AuthoringError
from ludus.sandbox.core.model import SandboxProvider
from ludus.sandbox.remote import messages as m
from ludus.sandbox.remote.session import HostLimits, Session

__all__ = ["Daemon", "serving_sandboxes"]


log = logging.getLogger("ludus.sandboxd")

PATH: Final = "/v1/sandboxes"
_GREETING_SECONDS: Final = 10.0
"""How long a connection may take until its request, and then its greeting, have arrived."""
_MIN_TOKEN: Final = 16


class SandboxdError(AuthoringError):
    """`ludus sandboxd` cannot start with these options."""


@dataclass(slots=True)
class _Client:
    """A session, with the connection that carries it, or the task that waits for the next one."""

    name: str
    session: Session
    socket: web.WebSocketResponse | None = None
    carrying: asyncio.Task[None] | None = None
    waiting: asyncio.Task[None] | None = None


class Daemon:
    """The state of one `ludus sandboxd`.

    Args:
        provider: the backend of the sandboxes; it must be open.
        token: what clients must present; None lets every client in.
        limits: what clients may have.
        grace: for how many seconds the sandboxes of a client that is not connected stay.
    """

    def __init__(
        self, provider: SandboxProvider, *, token: str | None, limits: HostLimits | None = None, grace: float = 5.0
    ) -> None:
        self.provider = provider
        self.limits = limits or HostLimits()
        self._token = None if token is None else _digest(token)
        self._grace = grace
        self._clients: dict[str, _Client] = {}
        self._boxes = 0
        self._created = 0
        self._refused = 0
        self._greeted: set[Any] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._closed = False

    # ── what sessions need ─────────────────────────────────────────────────────────────────────────────────────────

    def reserve(self) -> None:
        """Count a sandbox.

        Raises:
            HostFull: there is no room for it.
        """
        if self._boxes >= self.limits.boxes:
            raise m.HostFull(f"this host has {self._boxes} sandboxes, as many as it may")
        self._boxes += 1
        self._created += 1

    def release(self) -> None:
        """Count one sandbox less."""
        self._boxes -= 1

    def load(self) -> m.Load:
        """Return the number of sandboxes."""
        return m.Load(boxes=self._boxes, capacity=self.limits.boxes)

    # ── HTTP ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application()
        app.router.add_get(PATH, self._serve_client)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    def _admit(self, request: web.Request) -> None:
        """Raise `HTTPUnauthorized` without the token."""
        if self._token is None:
            return
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(_digest(token.strip()), self._token):
            self._refused += 1
            log.warning("a client at %s was refused: it has not the right token", request.remote)
            raise web.HTTPUnauthorized(
                text="the token is missing or wrong\n", headers={"WWW-Authenticate": 'Bearer realm="sandboxd"'}
            )

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        self._admit(request)
        rows = {
            "boxes": ("gauge", self._boxes), "boxes_capacity": ("gauge", self.limits.boxes),
            "boxes_created_total": ("counter", self._created), "clients": ("gauge", len(self._clients)),
            "clients_refused_total": ("counter", self._refused),
        }  # fmt: skip
        lines = [
            f"# TYPE ludus_sandboxd_{name} {kind}\nludus_sandboxd_{name} {n}\n" for name, (kind, n) in rows.items()
        ]
        return web.Response(text="".join(lines), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _serve_client(self, request: web.Request) -> web.StreamResponse:
        self._greeted.add(request.protocol)
        try:
            self._admit(request)
            socket = web.WebSocketResponse(max_msg_size=m.MAX_FRAME, compress=False, autoping=True, timeout=2.0)
            await socket.prepare(request)
            await self._converse(socket, request.remote or "?")
            return socket
        finally:
            self._greeted.discard(request.protocol)

    async def _converse(self, socket: web.WebSocketResponse, remote: str) -> None:
        """Greet a client, and carry its session until the connection ends."""
        client = None
        try:
            hello = await _read_hello(socket)
            client = await self._find_session(hello, socket)
            welcome = m.Welcome(
                version=m.VERSION, received=client.session.channel.received, provider=self.provider.name,
                grace=self._grace, load=self.load(),
            )  # fmt: skip
            await socket.send_str(welcome.model_dump_json())
            log.info("client %s at %s is connected", client.session.name, remote)
            client.carrying = asyncio.create_task(self._carry(client.session, socket, hello.received))
            await client.carrying
        except ConnectionError:
            pass
        except m.WireError as error:
            self._refused += 1
            log.warning("the client at %s was refused: %s", remote, error.message)
            if client is not None:
                client.session.ended.set()
            lost = isinstance(error, _Lost)
            with suppress(ConnectionError):
                await socket.send_str(m.Refusal(refused=error.message[:1000], lost=lost).model_dump_json())
        finally:
            if client is not None and client.socket is socket:
                client.socket = client.carrying = None
                client.waiting = asyncio.create_task(self._wait_for_return(client))
                self._endings.add(client.waiting)
                client.waiting.add_done_callback(self._endings.discard)
            with suppress(ConnectionError):
                await socket.close()

    async def _find_session(self, hello: m.Hello, socket: web.WebSocketResponse) -> _Client:
        """Return the session that a client continues or begins, now carried by this connection and no other."""
        client = self._clients.get(hello.session)
        if client is not None and client.session.ended.is_set():
            client = None
        if client is None and (hello.resume or self._closed):
            raise _Lost("the session does not exist any more: the client was gone for too long, or this host restarted")
        if client is None:
            clients = sum(not client.session.ended.is_set() for client in self._clients.values())
            if clients >= self.limits.clients:
                raise m.WireError(f"{clients} clients are connected, as many as this host allows")
            client = self._clients[hello.session] = _Client(hello.session, Session(self, hello.session))
        client.socket = socket
        carrying, client.carrying = client.carrying, None
        if carrying is not None:
            carrying.cancel()
            await asyncio.gather(carrying, return_exceptions=True)
        if client.waiting is not None:
            client.waiting.cancel()
            client.waiting = None
        return client

    async def _carry(self, session: Session, socket: web.WebSocketResponse, received: int) -> None:
        carrying = asyncio.create_task(session.channel.carry(socket, received))
        ended = asyncio.create_task(session.ended.wait())
        try:
            await asyncio.wait([carrying, ended], return_when=asyncio.FIRST_COMPLETED)
            if carrying.done():
                log.info("client %s: the connection has ended: %s", session.name, carrying.result())
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await session.channel.flush()  # the reply to its goodbye
        finally:
            for task in (carrying, ended):
                task.cancel()
            await asyncio.gather(carrying, ended, return_exceptions=True)

    async def _wait_for_return(self, client: _Client) -> None:
        """End a session whose client does not come back in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await client.session.ended.wait()
        if self._clients.get(client.name) is client:
            del self._clients[client.name]
        await client.session.aclose()
        log.info("client %s: the session has ended", client.session.name)

    async def aclose(self) -> None:
        """Close all sandboxes of all clients."""
        self._closed = True
        client = tuple(self._clients.values())
        for one in client:
            one.session.ended.set()
        await asyncio.gather(*(one.session.aclose() for one in client), return_exceptions=True)
        await asyncio.gather(*self._endings, return_exceptions=True)

    def watch(self, protocol: Any) -> None:
        """End a new connection on which no request arrives in time."""

        def end() -> None:
            if protocol not in self._greeted and (transport := protocol.transport) is not None:
                transport.abort()

        asyncio.get_running_loop().call_later(_GREETING_SECONDS, end)


class _Lost(m.WireError):
    """A client's session does not exist any more."""


async def _read_hello(socket: web.WebSocketResponse) -> m.Hello:
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            message = await socket.receive()
    except TimeoutError:
        raise m.WireError(f"the greeting did not arrive within {_GREETING_SECONDS:g} s") from None
    if message.type is not WSMsgType.TEXT:
        raise m.WireError("the first message is not a greeting")
    try:
        hello = m.Hello.model_validate_json(message.data)
    except ValidationError as error:
        raise m.WireError(f"the greeting cannot be read: {m.describe_validation(error)}") from None
    if hello.version != m.VERSION:
        raise m.WireError(
            f"the client has version {hello.version} of the protocol and this host version {m.VERSION}: install the "
            "same release of ludus-rl on both"
        )
    return hello


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def check_binding(host: str, token: str | None) -> None:
    """Check that a daemon may listen on an address with this token.

    Raises:
        SandboxdError: the token is too short, or there is none and the address is not loopback.
    """
    if token is not None and len(token) < _MIN_TOKEN:
        raise SandboxdError(f"the token has {len(token)} characters, and must have {_MIN_TOKEN} at least")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if token is None and not loopback:
        raise SandboxdError(
            f"listening on {host} needs a token, since every client that reaches it could run commands here: write "
            "one to a file and name it with --token-file, or listen on 127.0.0.1"
        )


@asynccontextmanager
async def serving_sandboxes(
    daemon: Daemon, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None,
    listener: socket.socket | None = None,
) -> AsyncIterator[str]:  # fmt: skip
    """Serve until the block ends, then close every sandbox. The value is the address for clients, `ws://…`.

    Args:
        daemon: what serves.
        host, port: where to listen.
        tls: the certificate to show.
        listener: a Unix socket that listens already, instead of an address; the value is then empty.

    Raises:
        SandboxdError: the address cannot be listened on.
    """
    runner = web.AppRunner(daemon.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    inner = runner.server
    assert inner is not None

    def connect() -> Any:
        protocol = inner()
        daemon.watch(protocol)
        return protocol

    try:
        loop = asyncio.get_running_loop()
        if listener is not None:
            server: asyncio.Server = await loop.create_unix_server(connect, sock=listener)
        else:
            server = await loop.create_server(connect, host, port, ssl=tls)
    except OSError as error:
        await runner.cleanup()
        raise SandboxdError(f"cannot listen on {host}:{port}: {error}") from None
    try:
        url_host = f"[{host}]" if ":" in host else host
        bound = "" if listener is not None else server.sockets[0].getsockname()[1]
        yield f"{'ws' if tls is None else 'wss'}://{url_host}:{bound}" if listener is None else ""
    finally:
        server.close()
        await daemon.aclose()
        await runner.cleanup()
        await daemon.provider.aclose()
