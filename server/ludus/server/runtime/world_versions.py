"""A world with its versions, and the stay of an episode in it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ludus.protocol.episodes import EpisodeWorld
from ludus.server.runtime.journal import WorldMade


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

    @property
    def bytes(self) -> int:
        """The bytes of its versions, without the one that a branch shares with its origin."""
        shared = 0 if self.made.origin is not None else None
        return sum(one.size for one in self.versions.values() if one.number != shared)


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
