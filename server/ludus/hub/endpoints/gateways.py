"""The gateways of endpoints: which process gets a request.

How this works: a package has one gateway for `/e/owner/name`, and one for each pinned version, `/e/owner/name@version`.
Both are `ludus.server.workers.gateway.Gateway`, and each release is one worker. What names an episode, a group, a
capability or an ORS session goes to the worker that the id names, so it stays with its version. Everything else goes to
the newest version, or to the pinned one. A worker that does not run is started by the first request for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ludus.server.workers.gateway import Gateway
from ludus.server.workers.placements import Placements
from ludus.server.workers.pool import Pool, Worker, lost

if TYPE_CHECKING:
    from ludus.hub.endpoints.servers import ReleaseServer
    from ludus.server.web.delivery import Delivery
    from ludus.server.web.settings import ServerSettings
    from ludus.server.workers.upstream import Uplink


class EndpointPool(Pool):
    """The releases of one path. The newest of them gets new episodes.

    Args:
        newest: the newest release.
    """

    def __init__(self, newest: ReleaseServer) -> None:
        super().__init__([], durable=False)
        self.servers: dict[str, ReleaseServer] = {}
        self.newest = newest
        self.add(newest)

    def add(self, server: ReleaseServer) -> None:
        """Add a release."""
        self.servers[server.worker.name] = server
        self.workers[server.worker.name] = server.worker

    def any(self, prefer: Iterable[str] = ()) -> Worker:
        """Return the worker of the newest release."""
        return self.newest.worker

    def candidates(self) -> Sequence[Worker]:
        """Return the worker of the newest release."""
        return [self.newest.worker]

    async def reach(self, worker: Worker, *, about_episodes: bool = True) -> None:
        """Wait until a worker can be reached, and start it if it does not run.

        Raises:
            InfrastructureFailed: the worker died, and the episodes with it.
            LudusError: see `ReleaseServer.ensure`.
        """
        server = self.servers[worker.name]
        if about_episodes and server.has_lost_episodes:
            raise lost()
        await server.ensure()


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

    @property
    def connected(self) -> set[str]:
        """The workers to which channels of clients are connected."""
        return {name for one in self._connections for name, uplink in one.uplinks.items() if not uplink.closed}

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

        task = asyncio.get_running_loop().create_task(run())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def _of_session(self, session: str) -> Worker:
        """Return the worker of a session whose id its client made up: the one that its first request found."""
        return self._placements.pin(session)

    async def close(self) -> None:
        """Close all connections."""
        await super().close()
        for task in list(self._settling):
            task.cancel()
        await asyncio.gather(*self._settling)
        self._placements.close()


def server_of(gateway: EndpointGateway, worker: Worker) -> ReleaseServer:
    """Return the release of a worker."""
    return gateway.releases.servers[worker.name]


async def close_all(gateways: Iterable[EndpointGateway]) -> None:
    """Close gateways at the same time."""
    await asyncio.gather(*(gateway.close() for gateway in gateways))
