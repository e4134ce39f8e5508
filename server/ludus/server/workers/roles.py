"""What the parts of the gateway know of each other, as types, so that no two modules import each other."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ludus.server.serving.settings import ServerSettings
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.turns import FairTransport
from ludus.server.workers.counts import GatewayCounts
from ludus.server.workers.pool import Pool, Worker
from ludus.server.workers.requests import Request
from ludus.server.workers.routing import Place, Target
from ludus.server.workers.upstream import Uplink

__all__ = ["Client", "GatewayRole"]


class Client(Protocol):
    """The connection of a client."""

    gateway: GatewayRole
    stays: bool
    """Whether its requests must be answered here, and not by another server that shares this one's address."""
    peer: str
    transport: FairTransport
    uplinks: dict[str, Uplink]

    @property
    def answering(self) -> bool:
        """Whether a worker has a request of this client, or the connection is no longer one of HTTP."""
        ...

    def hold(self, reason: str, *, held: bool) -> None:
        """Stop or resume reading from the client, for one of several reasons."""
        ...

    def answer(
        self, request: Request, status: int, body: bytes, headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> None:  # fmt: skip
        """Answer a request without a worker."""
        ...

    async def whole(self, request: Request) -> bytes:
        """Return the body of a request, and keep it for being passed on."""
        ...

    def head_for(self, request: Request, worker: Worker, *, lasting: bool = True) -> bytes:
        """Return the head with which a request is passed on to a worker. See `Request.head`."""
        ...


class OwnPages(Protocol):
    """The pages that the gateway answers itself."""

    async def answer(self, client: Client, request: Request, path: str) -> None:
        """Answer a request."""
        ...


class GatewayRole(Protocol):
    """The gateway, as its connections know it."""

    pool: Pool
    settings: ServerSettings
    arrivals: Arrivals
    counts: GatewayCounts

    @property
    def pages(self) -> OwnPages:
        """The pages that the gateway answers itself."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the notes about starts cannot be written; None while they can."""
        ...

    def add(self, connection: Client) -> None:
        """Note a new connection, and make room for it if there are too many."""
        ...

    def remove(self, connection: Client) -> None:
        """Forget a connection that has ended."""
        ...

    def introduction(self, peer: str) -> bytes:
        """Return the value of the header by which workers know the gateway and the client's address."""
        ...

    def without_prefix(self, path: str) -> str:
        """Return a path without the prefix under which a proxy publishes the server."""
        ...

    def owner_of(self, request: Request) -> bytes:
        """Return what identifies the sender of a request."""
        ...

    def find(self, client: Client, name: str | None) -> Worker | None:
        """Return the worker that an id names; None if there is none."""
        ...

    def place(self, client: Client, owner: bytes, target: Target) -> tuple[Worker, asyncio.Future[None] | None]:
        """Return the worker for a start, and what to wait for before it is sent on; None for nothing."""
        ...

    async def worker_for(self, client: Client, request: Request, endpoint: Place, named: str) -> tuple[Worker, bool]:
        """Return the worker of a request, which can be reached, and whether the request is about its episodes."""
        ...

    def tell_others_soon(self, client: Client, request: Request, answering: str, body: bytes) -> None:
        """Send a report of outcomes to all workers but one, so that their curricula know it too."""
        ...
