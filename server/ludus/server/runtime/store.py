"""The episodes that a host holds: open ones, and recently closed ones that still answer repeated requests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator

from ludus.protocol.errors import EpisodeNotFound
from ludus.protocol.methods import Scope
from ludus.server.auth.principal import Principal
from ludus.server.runtime.episode import Episode
from ludus.server.runtime.journal import Journal

_CLOSED_KEPT = 50_000


class EpisodeStore:
    """Holds episodes and finds them by id, for principals that may see them."""

    def __init__(self, journal: Journal | None, result_ttl_seconds: float) -> None:
        self._journal = journal
        self._result_ttl_seconds = result_ttl_seconds
        self._loop = asyncio.get_running_loop()
        self._living: dict[str, Episode] = {}
        self._closed: OrderedDict[str, tuple[float, Episode]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._living) + len(self._closed)

    def __contains__(self, episode: str) -> bool:
        return episode in self._living or episode in self._closed

    def __iter__(self) -> Iterator[Episode]:
        """Iterate over the episodes that are not closed, whether or not they have ended."""
        return iter(list(self._living.values()))

    def add(self, episode: Episode) -> None:
        """Add an episode."""
        self._living[episode.id] = episode

    def find(self, episode: str) -> Episode:
        """Return the episode with an id; the call counts as use of the episode.

        Raises:
            EpisodeNotFound: there is no such episode.
        """
        found = self._living.get(episode)
        if found is None:
            return self._find_closed(episode)
        found.used = self._loop.time()
        return found

    def _find_closed(self, episode: str) -> Episode:
        closed = self._closed.get(episode)
        if closed is None:
            raise _not_found(episode)
        return closed[1]

    def runs(self, episode: str) -> bool:
        """Return whether an episode is here and has not ended. Unlike `find`, the call does not count as use."""
        found = self._living.get(episode)
        return found is not None and found.end_reason is None

    def get_owned(self, episode: str, principal: Principal) -> Episode:
        """Return the episode with an id if the principal owns it or is an admin; for others it does not exist.

        Raises:
            EpisodeNotFound: there is no such episode for the principal.
        """
        found = self._living.get(episode)
        if found is None:
            found = self._find_closed(episode)
        else:
            found.used = self._loop.time()
        if found.owner != principal.name and Scope.ADMIN not in principal.scopes:
            raise _not_found(episode)
        return found

    def archive(self, episode: Episode) -> None:
        """Keep a closed episode for a short time, for repeated requests only."""
        if self._living.pop(episode.id, None) is None:
            return
        episode.secrets = None
        self._closed[episode.id] = (self._loop.time() + self._result_ttl_seconds, episode)
        if len(self._closed) > _CLOSED_KEPT:
            self._evict_oldest()

    def evict(self, now: float) -> None:
        """Drop archived episodes whose time to live has passed."""
        while self._closed and next(iter(self._closed.values()))[0] <= now:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        name, _ = self._closed.popitem(last=False)
        if self._journal is not None:
            self._journal.evict(name)


def _not_found(episode: str) -> EpisodeNotFound:
    shown = episode[:64]
    return EpisodeNotFound(
        f"this server does not know the episode {shown!r}: it was closed a while ago, belongs to another token, or was "
        "started on another server (behind a load balancer, requests must reach the server that started the episode)",
        episode=shown,
    )
