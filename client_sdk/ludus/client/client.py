"""The client: a connection to one server, and its environments."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ludus.client._session import Session
from ludus.client.environment import RemoteEnvironment
from ludus.client.episode import Group
from ludus.client.worlds import World, list_worlds
from ludus.protocol.episodes import Candidate, EnvironmentInfo, ListEnvironmentsParams
from ludus.protocol.methods import LIST_ENVIRONMENTS

if TYPE_CHECKING:
    from ludus.client.transports.base import Wire
    from ludus.protocol.rewards import Reward
    from ludus.protocol.worlds import WorldInfo

__all__ = ["Client"]


class Client:
    """A connection to one server. `connect` makes it; use it as an async context manager.

    Leaving the block closes the episodes that are still open. Until then, the client keeps unused episodes alive.
    """

    def __init__(self, wire: Wire, url: str) -> None:
        self.url: Final[str] = url.rstrip("/")
        """The server's address."""
        self._session = Session(wire, self.url)

    @property
    def wire(self) -> str:
        """The name of the wire that the client uses; with `auto`, it is known after the first request."""
        return self._session.wire.name

    async def environments(self) -> tuple[EnvironmentInfo, ...]:
        """Return the environments of the server."""
        self._session.used = True
        return (await self._session.wire.request(LIST_ENVIRONMENTS, ListEnvironmentsParams())).environments

    def environment(self, name: str) -> RemoteEnvironment:
        """Return the environment of that name, without a request: a wrong name shows at the first use."""
        self._session.used = True
        return RemoteEnvironment(self._session, name)

    def world(self, world: str) -> World:
        """Return the world with an id, without a request: a wrong id shows at the first use."""
        self._session.used = True
        return World(self._session, world)

    async def worlds(self, environment: str | None = None) -> tuple[WorldInfo, ...]:
        """Return the worlds of the client's token, or only those of one environment."""
        self._session.used = True
        return await list_worlds(self._session, environment)

    async def score_group(self, group: str, candidates: Mapping[str, Candidate]) -> dict[str, Reward]:
        """Ask the environment to score episodes of one group against each other.

        Args:
            group: the group's id.
            candidates: by episode id, the messages of the policy in that episode.

        Returns:
            A reward for each candidate, by episode id.

        Raises:
            Unsupported: the environment does not score groups.
        """
        self._session.used = True
        return await Group(self._session, group, ()).score(candidates)

    async def close(self) -> None:
        """Close the episodes that are still open, then the connection. Closing twice is no error."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.url} over {self.wire}>"
