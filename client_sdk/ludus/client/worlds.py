"""The client side of a world: state that outlives an episode, with versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ludus.client._params import make
from ludus.common.backoff import Backoff
from ludus.protocol.episodes import CloseParams
from ludus.protocol.errors import NotFound, Unsupported, WorldBusy
from ludus.protocol.methods import BRANCH_WORLD, CLOSE, DELETE_WORLD, GET_WORLD, LIST_WORLDS, RESET_WORLD
from ludus.protocol.worlds import (
    BranchWorldParams,
    DeleteWorldParams,
    GetWorldParams,
    ListWorldsParams,
    ResetWorldParams,
    WorldInfo,
)

if TYPE_CHECKING:
    from ludus.client._session import Session
    from ludus.client.transports.base import Wire


DELETE_ATTEMPTS: Final = 10
"""How often to try to delete a world whose episodes are closed first."""


class World:
    """A world of a server. Making this object sends no request; a wrong id shows at the first one.

    Pass its `id` to `RemoteEnvironment.episode` to play in it.
    """

    def __init__(self, session: Session, world: str) -> None:
        self.id: Final[str] = world
        """The world's id on the server."""
        self._session = session

    async def info(self) -> WorldInfo:
        """Return the world with its versions.

        Raises:
            WorldNotFound: there is no such world, or it belongs to another token.
        """
        return (await self._wire.request(GET_WORLD, make(GetWorldParams, world=self.id))).world

    async def branch(self, count: int = 1, *, version: int | None = None) -> tuple[World, ...]:
        """Make new worlds that begin with the state of a version of this one, and go their own ways. If the caller is
        canceled meanwhile, they are deleted as soon as they are there.

        Args:
            count: how many.
            version: the version; the last one when None.

        Raises:
            WorldVersionNotFound: the server does not have that version, or no longer.
            CapacityError: the token has too many worlds.
        """
        params = make(
            BranchWorldParams, world=self.id, version=version, count=count, key=self._session.new_key()
        )  # fmt: skip
        require_worlds(self._session.wire)
        branches = (await self._session.open(BRANCH_WORLD, params)).worlds
        return tuple(World(self._session, row.world) for row in branches)

    async def reset(self, version: int) -> WorldInfo:
        """Make a new last version with the state of an earlier one, and return the world.

        Raises:
            WorldBusy: an episode plays in it.
            WorldVersionNotFound: the server does not have that version, or no longer.
        """
        params = make(ResetWorldParams, world=self.id, version=version, key=self._session.new_key())
        return (await self._wire.request(RESET_WORLD, params)).world

    async def delete(self, *, end: bool = False) -> bool:
        """Delete it with all its versions; return whether it was there. Deleting it twice is no error.

        Args:
            end: close the episode that plays in it first, for example that of a program that was killed.

        Raises:
            WorldBusy: an episode plays in it, and `end` is false; or one is being started all the time.
        """
        backoff = Backoff(0.02, 1.0)
        for attempt in range(DELETE_ATTEMPTS):
            try:
                return (await self._wire.request(DELETE_WORLD, make(DeleteWorldParams, world=self.id))).deleted
            except WorldBusy as error:
                if not end or attempt == DELETE_ATTEMPTS - 1:
                    raise
                playing = error.data.get("episode")
            try:
                await self._wire.request(CLOSE, make(CloseParams, episode=str(playing)))
            except NotFound:  # it is being set up, or has just ended
                await asyncio.sleep(backoff.next())
        raise AssertionError  # the loop returns or raises

    async def discard(self) -> None:
        """Close the episode that plays in it, also one that is being started, and delete it, without an error.

        It goes on if the caller is canceled, and the end of the client waits for it, for ten seconds at most. A world
        that is still there then is deleted by the server when it was not used for long.
        """
        await self._session.finish(self.delete(end=True))

    @property
    def _wire(self) -> Wire:
        require_worlds(self._session.wire)
        return self._session.wire

    def __repr__(self) -> str:
        return f"<World {self.id}>"


async def list_worlds(session: Session, environment: str | None) -> tuple[WorldInfo, ...]:
    """Return all worlds of the token, or those of one environment."""
    require_worlds(session.wire)
    worlds: list[WorldInfo] = []
    cursor: str | None = None
    while True:
        params = make(ListWorldsParams, environment=environment, cursor=cursor, limit=1000)
        result = await session.wire.request(LIST_WORLDS, params)
        worlds += result.worlds
        cursor = result.next_cursor
        if cursor is None:
            return tuple(worlds)


def require_worlds(wire: Wire) -> None:
    """Refuse what a wire cannot carry.

    Raises:
        Unsupported: the wire has no worlds.
    """
    if GET_WORLD.name not in wire.capabilities.methods:
        raise Unsupported(f"the wire {wire.name!r} has no worlds; connect with wire='channel' or 'mcp'")
