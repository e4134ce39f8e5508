"""A match: the episodes of the seats of one game, negotiation or other task of several agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from ludus.client.episode import Episode
from ludus.protocol.errors import ProtocolViolation

if TYPE_CHECKING:
    from ludus.client._session import Session
    from ludus.protocol.episodes import StartResult


class Match:
    """The episodes of one match by seat, opened by one request. Leaving the `async with` block closes all of them.

    Each is an episode like any other: with its own prompt, tools, steps, rewards and play URL. The seats may be played
    at the same time or in turn by one caller.
    """

    def __init__(self, session: Session, match: str, episodes: Mapping[str, Episode]) -> None:
        self.id: Final[str] = match
        """The match's id on the server."""
        self.seats: Final[Mapping[str, Episode]] = MappingProxyType(dict(episodes))
        """The episodes by the names of their seats, in the environment's order."""
        self._session = session

    def __len__(self) -> int:
        return len(self.seats)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.seats.values())

    def __getitem__(self, seat: str) -> Episode:
        return self.seats[seat]

    async def close(self) -> None:
        """Close every episode of the match. A seat that is closed before the end has left the match."""
        await asyncio.gather(*(episode.__aexit__(None, None, None) for episode in self))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._session.finish(self.close())
        else:
            await self.close()

    def __repr__(self) -> str:
        return f"<Match {self.id} of {', '.join(self.seats)}>"


def matches_of(session: Session, result: StartResult, environment: str) -> tuple[Match, ...]:
    """Return the matches of a start.

    Raises:
        ProtocolViolation: an episode has no seat.
    """
    matches: dict[str, dict[str, Episode]] = {}
    for started in result.episodes:
        if started.match is None or started.seat is None:
            raise ProtocolViolation(f"the server started episode {started.episode} without a seat; it has no matches")
        episode = Episode(session, started, group=result.group, environment=environment)
        matches.setdefault(started.match, {})[started.seat] = episode
    return tuple(Match(session, match, episodes) for match, episodes in matches.items())
