"""The gateway: one address for all workers."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from typing import TYPE_CHECKING, Final

from ludus.protocol.errors import CapacityError, InvalidRequest, PayloadTooLarge
from ludus.protocol.identifiers import CONTROL_PATH
from ludus.protocol.workers import EPISODE_HEADER, worker_of_session
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.http_protocol import SWEEP_SECONDS
from ludus.server.workers.connection import ClientConnection
from ludus.server.workers.counts import GatewayCounts
from ludus.server.workers.pages import Pages
from ludus.server.workers.roles import Client
from ludus.server.workers.routing import (
    ANY,
    NEW,
    Kind,
    Place,
    Target,
    target_of_capability,
    target_of_id,
    target_of_mcp,
)
from ludus.server.workers.upstream import GATEWAY_HEADER, ask
from ludus.telemetry.tracing import from_environment

if TYPE_CHECKING:
    from ludus.server.serving.settings import ServerSettings
    from ludus.server.workers.placements import Placements
    from ludus.server.workers.pool import Pool, Worker
    from ludus.server.workers.requests import Request

__all__ = ["Gateway", "TELL_SECONDS"]


log = logging.getLogger("ludus.gateway")

BACKLOG: Final = 4096
OK: Final = 200
TELL_SECONDS: Final = 10.0
"""How long the other workers may take to note a report of outcomes."""

CLOSE_SECONDS: Final = 3.0
"""How long connections may take to close at the end."""

_EPISODE: Final = EPISODE_HEADER.lower().encode()
_SMALL_BODY: Final = 64 * 1024


class Gateway:
    """Accepts clients and passes their requests on.

    Args:
        pool: the workers.
        placements: chooses the workers of starts.
        settings: the settings of the server.
        has_tokens: whether senders are distinguished by their tokens.
    """

    def __init__(self, pool: Pool, placements: Placements, settings: ServerSettings, *, has_tokens: bool) -> None:
        self.pool = pool
        self.settings = settings
        self.secret = secrets.token_hex(16)
        """What proves to workers that a request comes from this gateway."""
        self.arrivals = Arrivals(settings.limits.arriving_bytes, settings.limits.body_bytes)
        self.counts = GatewayCounts()
        from_environment("ludus-gateway")
        self.pages = Pages(self)
        self._placements = placements
        self._has_tokens = has_tokens
        self._prefix = settings.proxies.root_path
        self._connections: set[ClientConnection] = set()
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def listen(self, listener: socket.socket) -> None:
        """Accept clients from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientConnection(self), sock=listener, backlog=BACKLOG)
        self.begin_sweeping()

    def begin_sweeping(self) -> None:
        """Look after connections from now on, also after those that another server has accepted."""
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    def stop_accepting(self) -> None:
        """Accept no further clients."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Close all connections."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        # A copy: connections that end remove themselves.
        for connection in list(self._connections):
            connection.transport.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._connections:
                    self._empty.clear()
                    await self._empty.wait()
                await asyncio.gather(*self._telling)
        except TimeoutError:
            for connection in list(self._connections):
                connection.transport.abort()

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, connection: Client) -> None:
        """Note a new connection, and make room for it if there are too many."""
        assert isinstance(connection, ClientConnection)
        self._connections.add(connection)
        if len(self._connections) > self.settings.limits.max_connections:
            waiting = [
                candidate for candidate in self._connections if candidate is not connection and not candidate.answering
            ]
            oldest = min(
                waiting, key=lambda candidate: candidate.waiting_since or candidate.idle_since, default=connection
            )
            message = f"too many connections are open ({self.settings.limits.max_connections}); try again"
            oldest.refuse(503, CapacityError(message, limit="max_connections", retryAfter=1.0), linger=False)

    def remove(self, connection: Client) -> None:
        """Forget a connection that has ended."""
        assert isinstance(connection, ClientConnection)
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    async def _sweep(self) -> None:
        """End connections whose clients are slow, idle or gone."""
        settings, loop = self.settings, asyncio.get_running_loop()
        pinged_at = loop.time()
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, settings.request_seconds / 2))
            now = loop.time()
            ping_now = now - pinged_at >= settings.ping_seconds
            pinged_at = now if ping_now else pinged_at
            for connection in list(self._connections):
                self._look_at(connection, now, ping_now=ping_now)

    def _look_at(self, connection: ClientConnection, now: float, *, ping_now: bool) -> None:
        settings, channel = self.settings, connection.channel
        if channel is not None:
            if now - channel.heard_at > settings.ping_seconds + settings.pong_seconds and not connection.held:
                connection.transport.abort()
            elif ping_now:
                channel.ping()
        elif connection.waiting_since is not None:
            busy = connection.held or connection.answering or connection.transport.behind
            if now - connection.waiting_since > settings.request_seconds and not busy:
                message = f"the request did not arrive within {settings.request_seconds:g} s"
                connection.refuse(408, InvalidRequest(message), linger=False)
        elif connection.idle and now - connection.idle_since > settings.keep_alive_seconds:
            connection.transport.close()

    # ── routing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def introduction(self, peer: str) -> bytes:
        """Return the value of the header by which workers know the gateway and the client's address.

        Args:
            peer: the client's address; empty for a request of the gateway's own.
        """
        return f"{self.secret} {peer}".encode()

    def without_prefix(self, path: str) -> str:
        """Return a path without the prefix under which a proxy publishes the server."""
        return path[len(self._prefix) :] if self._prefix and path.startswith(self._prefix + "/") else path

    @property
    def trouble(self) -> str | None:
        """Why starts cannot be noted at present; None if they can."""
        return self._placements.trouble

    def owner_of(self, request: Request) -> bytes:
        """Return what identifies the sender of a request; the same for all on a server without tokens."""
        return request.owner() if self._has_tokens else b""

    def find(self, client: Client, name: str | None) -> Worker | None:
        """Return the worker that an id of a client's request names; None if there is none."""
        return self.pool.find(name)

    def place(self, client: Client, owner: bytes, target: Target) -> tuple[Worker, asyncio.Future[None] | None]:
        """Return the worker for a start, and what to wait for before it is sent on (see `Placements.place`)."""
        if target.key is None:
            worker = self.pool.least_busy(b"")
            # Before anything awaits: starts that come at once would all go to the same least busy worker.
            worker.note_start(target.episodes)
            return worker, None
        return self._placements.place(owner, target.key, target.episodes)

    async def worker_for(self, client: Client, request: Request, endpoint: Place, named: str) -> tuple[Worker, bool]:
        """Return the worker of a request, which can be reached, and whether the request is about its episodes.

        Raises:
            LudusError: the worker cannot be reached.
        """
        target = await self._target(client, request, endpoint, named)
        worker = self.find(client, target.worker)
        if worker is None and endpoint is Place.OTHER and target.worker is not None:
            worker = self._of_session(client, target.worker)
        about_episodes = worker is not None and not request.path.endswith(("/create", "/create_session"))
        if worker is None:
            if target.kind is Kind.START:
                worker, noted = self.place(client, self.owner_of(request), target)
                if noted is not None:
                    # Another request may wait for the same note.
                    await asyncio.shield(noted)
            else:
                worker = self.pool.any(client.uplinks)
        if request.path.endswith("/create"):
            # A health check may have come between `/create_session` and this.
            worker.note_start(1)
        await self.pool.reach(worker, about_episodes=about_episodes)
        if target.kind is Kind.EVERY:
            await self.tell_others(client, request, worker.name, b"".join(request.parts))
        return worker, about_episodes

    def _of_session(self, client: Client, session: str) -> Worker:
        """Return the worker of a session whose id its client made up."""
        if self.settings.max_workers is not None:
            return self._placements.pin(session)
        return self.pool.by_hash(session.encode("utf-8", "replace"))

    async def _target(self, client: Client, request: Request, endpoint: Place, named: str) -> Target:
        # An error has to name the request's id, so small messages are read before their worker is known to live.
        small = request.method == b"POST" and (request.length or _SMALL_BODY + 1) <= _SMALL_BODY
        if endpoint in (Place.PLAY, Place.CONTROL) and small:
            await client.whole(request)
        if endpoint is Place.PLAY:
            return target_of_capability(named)
        if endpoint is Place.CONTROL:
            named_worker = target_of_id(request.header(_EPISODE).decode("latin-1"))
            if named_worker.kind is Kind.WORKER or request.method != b"POST":
                return named_worker
            try:
                return target_of_mcp(await self._body(client, request))[0]
            except PayloadTooLarge:
                # A worker refuses it.
                return ANY
        sid = request.header(b"x-session-id").decode("latin-1")
        if sid:
            worker = worker_of_session(sid)
            return Target(Kind.WORKER, worker if self.find(client, worker) is not None else sid)
        return NEW if request.path.endswith("/create_session") else ANY

    async def _body(self, client: Client, request: Request) -> bytes:
        length = request.length
        if request.complete or (length is not None and length <= _SMALL_BODY):
            return await client.whole(request)
        sender = request.header(b"authorization") or request.header(b"x-api-key") or client.peer
        size = self.settings.limits.body_bytes if length is None else min(length, self.settings.limits.body_bytes)
        async with self.arrivals.room(sender, size):
            return await client.whole(request)

    def tell_others_soon(self, client: Client, request: Request, answering: str, body: bytes) -> None:
        """Send a report of outcomes to all workers but one, also if its client leaves with the answer of that one."""
        task = asyncio.get_running_loop().create_task(self.tell_others(client, request, answering, body))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def tell_others(self, client: Client, request: Request, answering: str, body: bytes) -> None:
        """Send a report of outcomes to all workers but one, so that their curricula know it too."""
        headers = [*request.report_headers(), (GATEWAY_HEADER, self.introduction(client.peer))]

        async def tell(worker: Worker) -> None:
            try:
                async with asyncio.timeout(TELL_SECONDS):
                    reply = await ask(worker, b"POST", (self._prefix + CONTROL_PATH).encode(), headers, body)
                if reply.status != OK:
                    log.warning("worker %s refused a report of outcomes (HTTP %d)", worker.name, reply.status)
            except OSError as error:
                log.warning("worker %s did not get a report of outcomes: %s", worker.name, error)

        await asyncio.gather(
            *(tell(worker) for worker in self.pool.workers.values() if worker.up and worker.name != answering)
        )
