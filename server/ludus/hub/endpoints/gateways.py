"""The gateways of endpoints: which process gets a request.

How this works: a package has one gateway for `/e/owner/name`, and one for each pinned version,
`/e/owner/name@version`. Both are `ludus.server.workers.gateway.Gateway`, and each process of a release is one worker.
What names an episode, a group, a capability or an ORS session goes to the worker that the id names, so it stays with
its version and its process. Everything else goes to a process of the newest version, or of the pinned one. A release
that does not run is started by the first request for it. A worker can also be one of another process of the hub: then
the request goes there (`ludus.hub.endpoints.neighbors`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from ludus.hub.endpoints.neighbors import PeerWorker
from ludus.hub.endpoints.releases import process_of
from ludus.server.workers.gateway import TELL_SECONDS, Gateway
from ludus.server.workers.placements import Placements
from ludus.server.workers.pool import Pool, Worker, lost

if TYPE_CHECKING:
    from ludus.hub.endpoints.neighbors import Neighbors, PassedClient
    from ludus.hub.endpoints.servers import ReleaseServer
    from ludus.server.serving.settings import ServerSettings
    from ludus.server.web.delivery import Delivery
    from ludus.server.workers.requests import Request
    from ludus.server.workers.roles import Client
    from ludus.server.workers.routing import Target
    from ludus.server.workers.upstream import Uplink


class EndpointPool(Pool):
    """The releases of one path. The newest of them gets new episodes.

    Args:
        newest: the newest release.
        neighbors: the other processes of the hub.
    """

    def __init__(self, newest: ReleaseServer, neighbors: Neighbors) -> None:
        super().__init__([], durable=False)
        self.neighbors = neighbors
        self.servers: dict[str, ReleaseServer] = {}
        self.newest = newest
        self.add(newest)

    def add(self, server: ReleaseServer) -> None:
        """Add a release, with the processes that it has and will have."""
        if self.servers.get(server.worker.name) is server:
            return

        def add(worker: Worker) -> None:
            self.servers[worker.name] = server
            self.workers[worker.name] = worker

        for worker in server.replicas.workers:
            add(worker)
        server.replicas.on_add.append(add)

    def find(self, name: str | None) -> Worker | None:
        """Return the worker of a name; None if this process has none, or if it has ended for good."""
        worker = super().find(name)
        return worker if worker is not None and self.servers[worker.name].replicas.has(worker) else None

    def any(self, prefer: Iterable[str] = ()) -> Worker:
        """Return a worker of the newest release: a preferred one, or each in turn."""
        newest = self.newest
        return newest.replicas.pool.any(prefer) if newest.ready else newest.worker

    def candidates(self) -> Sequence[Worker]:
        """Return the workers of the newest release that a new episode may go to."""
        return self.newest.ready or [self.newest.worker]

    async def reach(self, worker: Worker, *, about_episodes: bool = True) -> None:
        """Wait until a worker can be reached, and start its release if that does not run.

        Raises:
            InfrastructureFailed: the worker died, and the episodes with it.
            LudusError: see `ReleaseServer.ensure` and `Neighbors.reach`.
        """
        if isinstance(worker, PeerWorker):
            await self.neighbors.reach(worker)
            return
        server = self.servers[worker.name]
        if (refusal := server.refusal(about_episodes=about_episodes)) is not None:
            raise refusal
        if about_episodes and server.has_lost_episodes(worker):
            raise lost()
        await server.ensure()
        if worker is not server.worker:
            await super().reach(worker, about_episodes=about_episodes)

    def refused(self, worker: Worker) -> None:
        """Note that nothing has accepted a connection to a worker."""
        if isinstance(worker, PeerWorker):
            self.neighbors.peers.note_away(worker.process)


class EndpointGateway(Gateway):
    """The gateway of one path.

    Args:
        pool: its releases.
        settings: the settings of the server that its clients see.
        secret: what it proves itself with to the processes.
    """

    def __init__(self, pool: EndpointPool, settings: ServerSettings, secret: str) -> None:
        super().__init__(pool, Placements(pool), settings, has_tokens=True)
        self.secret = secret
        self.releases = pool
        self._settling: set[asyncio.Task[None]] = set()
        """Tasks that end by themselves, or with the gateway."""

    @property
    def connected(self) -> set[str]:
        """The workers to which channels of clients are connected."""
        return {
            name for connection in self._connections for name, uplink in connection.uplinks.items() if not uplink.closed
        }

    def settle(self, uplink: Uplink, delivery: Delivery) -> None:
        """End the connection to a process as that of its client ends, once that is known."""

        async def run() -> None:
            try:
                delivered = await delivery.wait()
            except asyncio.CancelledError:
                delivered = True
            if delivered:
                uplink.close()
            else:
                uplink.reset()

        self._keep(asyncio.get_running_loop().create_task(run()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def tell_others(self, client: Client, request: Request, answering: str, body: bytes) -> None:
        """Send a report of outcomes to all workers but one, and to the other processes of the hub.

        A process that has to start the endpoint first is waited for a while only; it gets the report nevertheless.
        """
        telling = self.releases.neighbors.tell(cast("PassedClient", client), body)
        for task in telling:
            self._keep(task)
        await super().tell_others(client, request, answering, body)
        if telling:
            await asyncio.wait(telling, timeout=TELL_SECONDS)

    def find(self, client: Client, name: str | None) -> Worker | None:
        """Return the worker that an id of a client's request names, which may be another process; None for none."""
        worker = self.pool.find(name)
        process = process_of(name)
        if worker is not None or process is None or process == self.releases.neighbors.peers.own:
            return worker
        return self.releases.neighbors.worker(process, may_pass=not client.stays)

    def place(self, client: Client, owner: bytes, target: Target) -> tuple[Worker, asyncio.Future[None] | None]:
        """Return the worker of a start, which may be another process, and what to wait for. See `Placements.place`."""
        if target.key is not None and not client.stays:
            elsewhere = self.releases.neighbors.for_start(target.key)
            if elsewhere is not None:
                return elsewhere, None
        return super().place(client, owner, target)

    def _of_session(self, client: Client, session: str) -> Worker:
        """Return the worker of a session whose id its client made up: the one that its first request found."""
        elsewhere = self.releases.neighbors.for_start(session) if not client.stays else None
        return elsewhere or self._placements.pin(session)

    async def close(self) -> None:
        """Close all connections."""
        await super().close()
        for task in list(self._settling):
            task.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)
        self._placements.close()


def server_of(gateway: EndpointGateway, worker: Worker) -> ReleaseServer | None:
    """Return the release of a worker; None for one of another process."""
    return gateway.releases.servers.get(worker.name)


async def close_all(gateways: Iterable[EndpointGateway]) -> None:
    """Close gateways at the same time."""
    await asyncio.gather(*(gateway.close() for gateway in gateways))
