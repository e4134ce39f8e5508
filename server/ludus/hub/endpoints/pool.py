"""All endpoints of a hub: which releases run, which one a path leads to, and which are stopped.

How this works: every second, `Endpoints` looks at each server: those that are idle are stopped, and paths without a
version are led to the newest one, also for channels that are open. A new version gets the new episodes; the server of
the one before goes on until its episodes have ended, and is then idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ludus.hub.endpoints.environments import Environments, Wheels
from ludus.hub.endpoints.gateways import EndpointGateway, EndpointPool, close_all
from ludus.hub.endpoints.neighbors import Neighbors
from ludus.hub.endpoints.processes import UNSAFE
from ludus.hub.endpoints.servers import ReleaseServer, stop_all
from ludus.hub.endpoints.span_relay import SpanRelay
from ludus.protocol.errors import CapacityError, LudusError
from ludus.registry.types.errors import PackageNotFound, VersionBlocked
from ludus.sandbox import find_provider
from ludus.sandbox.core.errors import SandboxUnavailable
from ludus.sandbox.core.stale import remove_left_behind
from ludus.server.serving.settings import ServerSettings

if TYPE_CHECKING:
    from ludus.hub.blocking.watch import BlockWatch
    from ludus.hub.core.peers import Peers
    from ludus.hub.endpoints.releases import Address, FindRelease, Release
    from ludus.hub.settings.endpoints import EndpointSettings
    from ludus.sandbox import SandboxProvider

log = logging.getLogger("ludus.hub.endpoints")

LOOK_SECONDS: Final = 1.0
"""The time between two looks at all servers."""

RETRY_SECONDS: Final = 5.0
"""When a client should come back that found no room."""


class Endpoint:
    """The gateways and servers of one package.

    Args:
        id: `owner/name`.
        settings: the settings of the server that clients see.
        neighbors: the other processes of the hub.
    """

    def __init__(self, id: str, settings: ServerSettings, neighbors: Neighbors) -> None:
        self.id = id
        self._neighbors = neighbors
        self.secret = secrets.token_hex(16)
        self.servers: dict[str, ReleaseServer] = {}
        self.newest: EndpointGateway | None = None
        """The gateway of the path without a version."""
        self.pinned: dict[str, EndpointGateway] = {}
        """The gateways of the paths with a version."""
        self._settings = settings

    def gateways(self) -> list[EndpointGateway]:
        """Return all of its gateways."""
        return [*self.pinned.values(), *([self.newest] if self.newest is not None else [])]

    def gateway(self, server: ReleaseServer, *, pinned: bool) -> EndpointGateway:
        """Return the gateway of a release, or that of the newest one, which this release is now."""
        version = server.release.version
        if pinned:
            if version not in self.pinned:
                self.pinned[version] = self._open(server)
            return self.pinned[version]
        if self.newest is None:
            self.newest = self._open(server)
            for other in self.servers.values():
                self.newest.releases.add(other)
        self.newest.releases.add(server)
        self.newest.releases.newest = server
        return self.newest

    def _open(self, server: ReleaseServer) -> EndpointGateway:
        gateway = EndpointGateway(EndpointPool(server, self._neighbors), self._settings, self.secret)
        gateway.begin_sweeping()
        return gateway


class Endpoints:
    """Runs published releases on demand.

    Args:
        find: finds releases in the registry.
        folder: where virtual environments lie.
        settings: the settings.
        wheels: see `Environments`.
        peers: the processes of the hub.
        blocks: the wheels that do not run.
    """

    def __init__(
        self, find: FindRelease, folder: Path, settings: EndpointSettings, wheels: Wheels | None, peers: Peers,
        blocks: BlockWatch,
    ) -> None:  # fmt: skip
        self.neighbors = Neighbors(peers)
        self._wheels = wheels
        self._blocks = blocks
        self.settings = settings
        self._find = find
        self._folder = folder
        self._endpoints: dict[str, Endpoint] = {}
        self._provider: SandboxProvider | None = None
        self._environments: Environments | None = None
        self._opening = asyncio.Lock()
        self._starting = asyncio.Semaphore(settings.limits.starting)
        self._relay = SpanRelay(settings.limits.spans)
        self._watching: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._closed = False

    async def gateway(self, address: Address) -> EndpointGateway:
        """Return the gateway of a path.

        Raises:
            PackageNotFound: the registry has no such package or version.
            VersionBlocked: its wheel is blocked, and no episode of it ran here.
            EndpointRefused: it may not run here.
            SandboxUnavailable: this machine has no sandbox to run it in.
        """
        await self._blocks.look()
        release = await self._release(address.owner, address.name, address.version)
        blocked = self._blocks.reasons.get(release.sha256)
        if blocked is not None and self.server(release.owner, release.name, release.version) is None:
            raise VersionBlocked.of(release.title, blocked)
        await self.neighbors.peers.look()
        await self._open()
        endpoint = self._endpoints.get(release.id)
        if endpoint is None:
            endpoint = self._endpoints[release.id] = Endpoint(release.id, self._client_settings(), self.neighbors)
        return endpoint.gateway(self._server(endpoint, release), pinned=address.version is not None)

    def server(self, owner: str, name: str, version: str) -> ReleaseServer | None:
        """Return the server of a release; None if nothing has asked for it yet."""
        endpoint = self._endpoints.get(f"{owner}/{name}")
        return endpoint.servers.get(version) if endpoint is not None else None

    def secret(self, owner: str, name: str) -> str | None:
        """Return what the hub shares with the processes of a package; None if nothing has asked for it yet."""
        endpoint = self._endpoints.get(f"{owner}/{name}")
        return endpoint.secret if endpoint is not None else None

    def servers(self) -> list[ReleaseServer]:
        """Return the servers of all releases that anything has asked for."""
        return [server for endpoint in self._endpoints.values() for server in endpoint.servers.values()]

    async def apply_blocks(self) -> None:
        """Kill the servers of blocked releases, and let those run again that are blocked no more."""
        ending: list[ReleaseServer] = []
        for server in self.servers():
            before, server.blocked = server.blocked, self._blocks.reasons.get(server.release.sha256)
            if server.blocked is not None and before is None:
                log.warning("ending the endpoint %s, which is blocked: %s", server.release.title, server.blocked)
                server.kill_now()
                ending.append(server)
        await stop_all(ending)

    async def close(self) -> None:
        """Stop everything, and close all connections."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await close_all([gateway for endpoint in self._endpoints.values() for gateway in endpoint.gateways()])
        await stop_all(self.servers())
        if self._stopping:
            await asyncio.wait(self._stopping)
        if self._provider is not None:
            await self._provider.aclose()
        await self._relay.close()

    # ── releases ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _release(self, owner: str, name: str, version: str | None) -> Release:
        endpoint = self._endpoints.get(f"{owner}/{name}")
        if version is not None and endpoint is not None and version in endpoint.servers:
            return endpoint.servers[version].release  # a version never changes
        return await asyncio.to_thread(self._find, owner, name, version)

    def _server(self, endpoint: Endpoint, release: Release) -> ReleaseServer:
        server = endpoint.servers.get(release.version)
        if server is None:
            assert self._environments is not None
            assert self._provider is not None
            server = endpoint.servers[release.version] = ReleaseServer(
                release, self.settings, self._environments, self._provider, endpoint.secret, self._admit,
                self._has_room_for_replica, self._starting, self._relay, self.neighbors.peers.own,
            )  # fmt: skip
            server.blocked = self._blocks.reasons.get(release.sha256)
            if endpoint.newest is not None:
                endpoint.newest.releases.add(server)
        return server

    def _client_settings(self) -> ServerSettings:
        return ServerSettings(port=0, allow_hosts=("*",), limits=self.settings.limits.server)

    async def _open(self) -> None:
        """Open the sandbox provider, at the first request that needs it.

        Raises:
            SandboxUnavailable: this machine has no sandbox, and the operator has not allowed to do without.
        """
        async with self._opening:
            if self._provider is not None:
                return
            name = UNSAFE if self.settings.unsafe_own_packages else self.settings.sandbox
            if name == UNSAFE and not self.settings.unsafe_own_packages:
                raise SandboxUnavailable(
                    f"this hub runs no package without a sandbox; the setting `unsafe_own_packages` allows {UNSAFE} "
                    "for a hub whose packages are all the operator's own"
                )
            self.settings = self.settings.model_copy(update={"sandbox": name})
            provider = find_provider(name)
            create = provider.create if name != UNSAFE else None
            environments = Environments(self._folder, self.settings, create, self._wheels)
            try:
                await asyncio.to_thread(remove_left_behind)
                await provider.open()
                await asyncio.to_thread(environments.open)
            except BaseException:
                await provider.aclose()
                raise
            self._provider, self._environments = provider, environments
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    # ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, server: ReleaseServer) -> None:
        """Make room for one more server, if there is none by stopping the one that was unused for longest.

        Raises:
            CapacityError: all are in use, or the hub is stopping.
        """
        if self._closed:
            raise CapacityError("the hub is stopping", retryAfter=RETRY_SECONDS)
        limits, owner = self.settings.limits, server.release.owner
        running = [one for one in self.servers() if one.running and one is not server]
        own = [one for one in running if one.release.owner == owner]
        for found, most, limit in (
            (own, limits.running_of_owner, "running_of_owner"),
            (running, limits.running, "running"),
        ):
            if _processes(found) >= most and not self._stop_one(found):
                whose = f"of {owner} " if limit == "running_of_owner" else ""
                raise CapacityError(
                    f"{most} endpoints {whose}run and are all in use; try again", limit=limit, retryAfter=RETRY_SECONDS
                )

    def _has_room_for_replica(self, server: ReleaseServer) -> bool:
        """Return whether one more process of a server is within the limits; nothing is stopped for it."""
        limits, running = self.settings.limits, [one for one in self.servers() if one.running]
        own = [one for one in running if one.release.owner == server.release.owner]
        return not self._closed and _processes(running) < limits.running and _processes(own) < limits.running_of_owner

    def _stop_one(self, servers: list[ReleaseServer]) -> bool:
        unused = [server for server in servers if server.unused and server.worker.up]
        if not unused:
            return False
        self._stop_soon(min(unused, key=lambda one: one.used_at))
        return True

    def _stop_soon(self, server: ReleaseServer) -> None:
        log.info("stopping the endpoint %s, which is not used", server.release.title)
        task = asyncio.get_running_loop().create_task(server.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    # ── looking after them ─────────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look_at_peers()
            for endpoint in list(self._endpoints.values()):
                try:
                    await self._look_at(endpoint)
                except LudusError as error:
                    log.warning("looking at the endpoint %s failed: %s", endpoint.id, error.message)
                except Exception:
                    log.exception("looking at the endpoint %s failed", endpoint.id)

    async def _look_at_peers(self) -> None:
        """Find out which other processes there are, for starts over channels that are open."""
        try:
            await self.neighbors.peers.look()
        except Exception:
            log.exception("looking for the other processes of the hub failed")

    async def _look_at(self, endpoint: Endpoint) -> None:
        newest = endpoint.newest
        if newest is not None and newest.connected:
            owner, _, name = endpoint.id.partition("/")
            with contextlib.suppress(PackageNotFound):
                release = await self._release(owner, name, None)
                endpoint.gateway(self._server(endpoint, release), pinned=False)
        for server in list(endpoint.servers.values()):
            if server.look(wanted=self._is_wanted(endpoint, server)):
                self._stop_soon(server)

    def _is_wanted(self, endpoint: Endpoint, server: ReleaseServer) -> bool:
        """Return whether channels are open over which it gets new episodes."""
        names, pinned = {worker.name for worker in server.replicas.workers}, endpoint.pinned.get(server.release.version)
        newest = endpoint.newest
        if newest is not None and newest.releases.newest is server and names & newest.connected:
            return True
        return pinned is not None and bool(names & pinned.connected)


def _processes(servers: list[ReleaseServer]) -> int:
    """Return how many processes servers have, replicas included."""
    return sum(len(server.replicas.workers) for server in servers)
