"""Params and results of the methods of the module `worlds`: state that outlives an episode, with versions."""

from __future__ import annotations

from pydantic import Field

from ludus.protocol.episodes import Key, Name
from ludus.protocol.integers import Whole
from ludus.protocol.model import WireModel


class WorldVersion(WireModel):
    """One version of a world."""

    version: Whole
    """Its number. Numbers are never used again."""
    bytes: Whole
    """The size of its state."""
    created_at: float
    """Unix time, seconds."""
    episode: str | None = None
    """The episode that made it; null for the first version, and for a reset."""
    task: Name | None = None
    """The task of that episode."""
    reset_to: Whole | None = None
    """The earlier version whose state it has, if a reset made it."""


class WorldOrigin(WireModel):
    """What a branch began with."""

    world: str
    """The id of the other world, which may be gone."""
    version: Whole
    """Its version."""


class WorldInfo(WireModel):
    """A world."""

    world: str
    """The world's id."""
    environment: Name
    split: Name
    """The split whose tasks may be played in it."""
    version: Whole
    """The number of its last version."""
    versions: tuple[WorldVersion, ...]
    """The versions that the server still has, in their order."""
    origin: WorldOrigin | None = None
    """What it is a branch of; null if it is none."""
    busy: bool
    """Whether an episode plays in it."""
    expires_at: float | None
    """When it is deleted if nothing uses it until then, in seconds of Unix time; null for never."""


class ListWorldsParams(WireModel):
    """List one page of the principal's worlds."""

    environment: Name | None = None
    """Only those of this environment; null for all."""
    cursor: str | None = None
    """The `nextCursor` of the previous page; null for the first page."""
    limit: int = Field(default=100, ge=1, le=1000)


class ListWorldsResult(WireModel):
    """Worlds in the order of their ids."""

    worlds: tuple[WorldInfo, ...]
    next_cursor: str | None
    """Null after the last page."""


class GetWorldParams(WireModel):
    """Get one world."""

    world: str
    """The world's id."""


class GetWorldResult(WireModel):
    """The world."""

    world: WorldInfo


class BranchWorldParams(WireModel):
    """Make new worlds that begin with the state of a version of another one."""

    world: str
    """The id of the other world."""
    version: Whole | None = None
    """The version; null for the last one."""
    count: int = Field(default=1, ge=1, le=1024)
    """How many branches."""
    key: Key


class BranchWorldResult(WireModel):
    """The new worlds."""

    worlds: tuple[WorldInfo, ...]


class ResetWorldParams(WireModel):
    """Make a new last version of a world, with the state of an earlier one."""

    world: str
    """The world's id."""
    version: Whole
    """The earlier version."""
    key: Key


class ResetWorldResult(WireModel):
    """The world afterwards."""

    world: WorldInfo


class DeleteWorldParams(WireModel):
    """Delete a world with all its versions."""

    world: str
    """The world's id."""


class DeleteWorldResult(WireModel):
    """Whether there was such a world. Repeats are harmless."""

    deleted: bool
    """False if the principal has no such world."""
