"""The channel transport: all methods over one WebSocket, or over one for each worker of the server.

How this works:

* A server of one process has one connection (`ChannelConnection`), which carries everything.
* A server of several workers says so in a header of the upgrade, with the path of the workers' own channels. The ids of
  its episodes and groups name their workers. Requests about them go over a connection to that worker, which a gateway
  passes on without reading it; all other requests, such as starts, go over the general connection.
* Requests of one episode never overtake each other: while any request about a worker's episodes is still unanswered on
  the general connection, further ones follow it there.
* If a proxy does not route the workers' paths, everything goes over the general connection.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from ludus.client.transports._channel_connection import ChannelConnection
from ludus.client.transports.base import WireCapabilities
from ludus.client.transports.mcp import McpWire
from ludus.protocol import errors
from ludus.protocol.identifiers import CHANNEL_PATH
from ludus.protocol.methods import METHODS
from ludus.protocol.model import WireModel
from ludus.protocol.workers import worker_of

if TYPE_CHECKING:
    from ludus.protocol.methods import Method
    from ludus.protocol.modules import Module

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

GONE: Final = 410
"""The HTTP status with which a gateway refuses the channel of a worker that died with its episodes."""

_HTTP: Final = re.compile("^ws")
"""The start of an address that names the channel's protocol in the place of HTTP."""

_NOT_ROUTED: Final = frozenset({404, 405, 426})
"""The statuses with which a proxy refuses the path of a worker if it does not route such paths."""


class ChannelWire:
    """The wire of `connect(wire="channel")`.

    Args:
        url: the server's address, `http(s)://…` or `ws(s)://…`, without `/channel`.
        token: the trainer token.
        timeout: seconds that a request may take if it sets no timeout of its own; None for no limit.
        reconnect_seconds: seconds to try to reconnect before the waiting requests fail.
    """

    name = "channel"
    capabilities = WireCapabilities(methods=frozenset(METHODS), ordered=True)

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float | None = 300.0, reconnect_seconds: float = 30.0
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._reconnect_seconds = reconnect_seconds
        self._general = ChannelConnection(self._url + CHANNEL_PATH, token, timeout, reconnect_seconds)
        self._mcp = McpWire(
            _HTTP.sub("http", self._url), token, timeout=timeout, reconnect_seconds=reconnect_seconds, connections=1
        )
        """For the settings, which the channel does not carry."""
        self._workers: dict[str, _WorkerConnection] = {}
        self._unanswered: Counter[str] = Counter()
        """Requests on the general connection about episodes of a worker, by worker."""
        self._routed = True
        """Whether the paths of workers lead anywhere."""

    @property
    def connected_before(self) -> bool:
        """Whether there has been a connection."""
        return self._general.connected_before

    @property
    def refused_with(self) -> int | None:
        """The HTTP status with which the server refused the first connection, if it did."""
        return self._general.refused_with

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`."""
        identifier: str | None = getattr(params, "episode", None) or getattr(params, "group", None)
        worker = worker_of(identifier) if identifier is not None else None
        if worker is None:
            return await self._general.request(method, params, timeout=timeout)
        path = self._general.worker_path
        if path is not None and self._routed and not self._unanswered[worker]:
            try:
                return await self._of_worker(worker, path).request(method, params, timeout=timeout)
            except _NotRouted:
                self._routed = False
        self._unanswered[worker] += 1
        try:
            return await self._general.request(method, params, timeout=timeout)
        finally:
            self._unanswered[worker] -= 1

    async def modules(self) -> frozenset[Module] | None:
        """Return the modules that the server announces at its MCP endpoint; None if they cannot be read."""
        return await self._mcp.modules()

    async def close(self) -> None:
        """Close all connections. Closing twice is no error."""
        self._routed = False  # so that nothing opens another one
        await asyncio.gather(
            self._general.close(), self._mcp.close(), *(worker.close() for worker in self._workers.values())
        )

    def _of_worker(self, worker: str, path: str) -> ChannelConnection:
        connection = self._workers.get(worker)
        if connection is None:
            url = self._url + path.replace("{worker}", worker)
            connection = _WorkerConnection(url, self._token, self._timeout, self._reconnect_seconds, reached=True)
            self._workers[worker] = connection
        return connection


class _NotRouted(errors.ConnectionFailed):
    """The path of a worker's channel leads nowhere."""


class _WorkerConnection(ChannelConnection):
    """The connection to the channel of one worker."""

    def _refusal(self, status: int, pause: float | None, reason: str) -> errors.LudusError:
        if status == GONE:
            return errors.InfrastructureFailed(
                reason or "the worker process that had this episode died, and the episode with it; start another one",
                endReason="infrastructure_error",
            )
        if status in _NOT_ROUTED:
            return _NotRouted(f"{self._url} leads to no worker (HTTP {status})", url=self._url)
        return super()._refusal(status, pause, reason)
