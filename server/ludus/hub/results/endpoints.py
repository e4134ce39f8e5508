"""The hub as the client of its own endpoints: a connection whose answers are bounded in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from ludus.client import connect
from ludus.client.client import Client
from ludus.client.episode import Episode
from ludus.protocol import errors as e
from ludus.registry.types.errors import HubUnavailable

_log = logging.getLogger("ludus.hub.results")


class EndpointClient:
    """A connection to the server of a version, which opens when it is used.

    Args:
        address: the address of the version's server.
        token: the hub's credential there.
        seconds: how long the endpoint may take for an answer.
        clock: returns seconds that only increase.
    """

    def __init__(self, address: str, token: str, seconds: float, clock: Callable[[], float]) -> None:
        self.address = address
        self.starting = 0
        """The number of episodes or matches that are being started."""
        self._token = token
        self._seconds = seconds
        self._clock = clock
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The connection."""
        if self._client is None:
            self._client = connect(self.address, token=self._token, timeout=self._seconds, reconnect_seconds=5.0)
        return self._client

    def play_url(self, episode: Episode, public: str) -> str:
        """Return the address of an episode's agent endpoint for players.

        Args:
            episode: the episode.
            public: where the version runs, for players.

        Raises:
            Unsupported: the server has no agent endpoints.
        """
        url = episode.require_play_url()
        if url.startswith(self.address + "/play/") and "/e/" in self.address:
            return public + url.removeprefix(self.address)
        return url

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    @contextlib.asynccontextmanager
    async def bounded(self, failure: str) -> AsyncIterator[None]:
        """Bound the time of requests to the endpoint.

        Args:
            failure: what the endpoint did not do if they take too long, such as "did not answer".

        Raises:
            HubUnavailable: they took too long, or the endpoint cannot be reached.
        """
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise HubUnavailable(f"the endpoint {failure} within {self._seconds:g} s; try again") from None
        except e.TransportError as error:  # its message has an address inside the hub
            _log.warning("the endpoint %s: %s", failure, error.message)
            raise HubUnavailable("the endpoint of this version cannot be reached now; try again in a while") from None
