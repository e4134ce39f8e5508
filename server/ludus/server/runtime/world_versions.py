"""A world with its versions, and the stay of an episode in it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from ludus.protocol.episodes import EpisodeWorld
from ludus.protocol.lifecycle import EndReason
from ludus.server.durability.journal import WorldMade

COMMITTING: Final = frozenset(
    {EndReason.COMPLETED, EndReason.SUBMITTED, EndReason.STEP_LIMIT, EndReason.OBSERVATION_LIMIT, EndReason.TRUNCATED}
)
"""The ends after which an episode's state becomes the next version of its world: those that come with the outcome of a
call. A passed time limit may have cut a call off in its middle."""


@dataclass(frozen=True, slots=True)
class Version:
    """A state of a world."""

    number: int
    digest: str
    size: int
    at: float
    """Unix time."""
    by: str | None = None
    task: str | None = None
    reset_to: int | None = None
    stored: str = ""
    """The name of its bytes: versions with the same one share them, also in other worlds."""


@dataclass(slots=True)
class World:
    """A world and its versions."""

    id: str
    made: WorldMade
    versions: dict[int, Version] = field(default_factory=dict)
    last: int = -1
    """The number of the last version; -1 before the first one."""
    writer: str | None = None
    """The id of the episode that plays in it."""
    used: float = field(default_factory=time.time)
    """The Unix time of the last use."""

    def place_of(self, digest: str) -> str:
        """Return the name of the bytes with a digest in this world."""
        stored = (version.stored for version in self.versions.values() if version.digest == digest and version.stored)
        return next(stored, f"{self.id}/{digest}")


class StoredBytes:
    """Counts the bytes of all versions of all worlds. Those that several share count once, as long as one has them."""

    def __init__(self) -> None:
        self.total = 0
        """The bytes."""
        self._holders = Counter[str]()

    def hold(self, version: Version) -> None:
        """Count a version."""
        if not self._holders[version.stored]:
            self.total += version.size
        self._holders[version.stored] += 1

    def release(self, version: Version) -> None:
        """Count a version no more."""
        self._holders[version.stored] -= 1
        if not self._holders[version.stored]:
            del self._holders[version.stored]
            self.total -= version.size


@dataclass(slots=True)
class Stay:
    """The stay of an episode in a world."""

    world: World
    version: int = 0
    """The version that it began with."""
    committed: int | None = None
    """The version that it made."""

    @property
    def begins_with(self) -> Version | None:
        """The state that it begins with; None in a new world, until there is one."""
        return self.world.versions.get(self.version)

    @property
    def info(self) -> EpisodeWorld:
        """What a trainer sees of it."""
        return EpisodeWorld(id=self.world.id, version=self.version, committed=self.committed)
