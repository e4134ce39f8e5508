"""Worlds: state that outlives an episode, with versions, one writer at a time and branches.

How this works:

* A world is a list of versions, each the bytes that the author's `save_world` returned. They are parts in the store of
  snapshots, under the world's id: on disk or in the database of the journal, or in a temporary folder without one. A
  branch shares the bytes of the version that it begins with.
* A start that names a world takes it (`reserve`), so that a second one is refused as long as an episode plays in it.
  The episode gets a copy of the last version, and what it does to it stays unseen.
* The call that ends an episode well also takes the state that it leaves (`world_states.py`). The new version (`leave`)
  is appended to the journal next to the call's outcome and the end, as one row: after a crash, all of them are there or
  none, so no version is made twice and none is lost that was answered for.
* An episode that ends in any other way leaves its world as it was.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final

from ludus.protocol import episodes as e
from ludus.protocol import worlds as w
from ludus.protocol.errors import (
    CapacityError,
    InvalidParams,
    Unsupported,
    WorldBusy,
    WorldMismatch,
    WorldNotFound,
    WorldVersionNotFound,
)
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.methods import Scope
from ludus.protocol.text import replace_surrogates
from ludus.server.auth.principal import Principal
from ludus.server.durability.journal import Journal, Started, WorldDeleted, WorldMade, WorldVersioned
from ludus.server.execution import user_code
from ludus.server.runtime.episode import Episode, StepRecord
from ludus.server.runtime.limits import ServerLimits
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.world_versions import COMMITTING, Stay, StoredBytes, Version, World
from ludus.server.tasks.catalog import Published

log = logging.getLogger("ludus.server.worlds.worlds")

_STARTING: Final = "an episode that is being set up"
"""The writer of a world until its episode has started."""


class Worlds:
    """The worlds of a server.

    Args:
        limits: how many there may be, and how large.
        new_id: makes an id.
        snapshots: keeps their states.
        journal: gets their versions.
    """

    def __init__(
        self, limits: ServerLimits, new_id: Callable[[], str], snapshots: Snapshots, journal: Journal | None
    ) -> None:
        self._limits = limits
        self._new_id = new_id
        self._snapshots = snapshots
        self._journal = journal
        self._worlds: dict[str, World] = {}
        self._owned = Counter[str]()
        self._promised = Counter[str]()
        """The worlds that are being made, by owner; they count, so that requests at the same time keep the limit."""
        self._stored = StoredBytes()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of all worlds."""
        return iter(self._worlds)

    def __len__(self) -> int:
        return len(self._worlds)

    # ── episodes ───────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def reserved(
        self, published: Published, split: str, task: Any, params: e.StartParams, principal: Principal
    ) -> AsyncIterator[Sequence[Stay | None]]:
        """Take a world for each episode of a start, until the block is left; `begin` keeps them.

        Raises:
            Unsupported: the environment has no worlds.
            WorldNotFound, WorldVersionNotFound, WorldBusy, WorldMismatch: the start cannot have the world.
            CapacityError: there is no room for new worlds.
        """
        choice = params.world
        makes = choice is not None and (choice.id is None or choice.branch)
        with self._promise(principal.name, params.count if makes else 0):
            stays = await self._reserve(published, split, task, params, principal)
            try:
                yield stays
            finally:
                for stay in stays:
                    # `begin` has put the episode's id in its place if the start went well.
                    if stay is not None and stay.world.writer == _STARTING:  # it did not begin
                        stay.world.writer = None
                        if stay.world.id not in self._worlds:
                            self._drop_states(stay.world)

    async def _reserve(
        self, published: Published, split: str, task: Any, params: e.StartParams, principal: Principal
    ) -> Sequence[Stay | None]:
        choice, count = params.world, params.count
        if choice is None:
            return (None,) * count
        if published.worlds is None:
            name = published.name
            raise Unsupported(f"environment {name!r} has no worlds; leave `world` out", environment=name)
        requested = WorldMade(
            owner=principal.name, environment=published.name,
            environment_version=replace_surrogates(published.cls.version), split=split,
            tasks=replace_surrogates(str(user_code.call(published.worlds.world_of, task))), size=count,
        )  # fmt: skip
        if choice.id is None:
            self._admit(principal.name)
            return [Stay(World(self._new_id(), requested, writer=_STARTING)) for _ in range(count)]
        world = self._owned_by(choice.id, principal)
        if (mismatch := _differs(world.made, requested)) is not None:
            raise WorldMismatch(f"task {task.id!r} cannot be played in world {world.id}: {mismatch}", world=world.id)
        if choice.branch:
            branches = await self._branches(world, choice.version, principal, count)
            for branch in branches:
                branch.writer = _STARTING
            return [Stay(branch) for branch in branches]
        if count > 1:
            raise InvalidParams(
                f"{count} episodes cannot play in one world at the same time; set `branch` in `world`, and each gets a "
                "branch of it"
            )
        # From this check to the assignment nothing may await, or two starts could take one world.
        if world.writer is not None:
            raise _busy(world, "wait until it has ended, or play in a branch of the world")
        world.writer = _STARTING
        return [Stay(world, world.last)]

    def begin(self, episode: Episode) -> None:
        """Let an episode that has been set up play in the world that is reserved for it."""
        stay = episode.stay
        if stay is None:
            return
        world = stay.world
        world.writer, world.used = episode.id, time.time()
        if world.id not in self._worlds:
            initial = world.versions[0]
            world.versions[0] = replace(initial, stored=initial.stored or world.place_of(initial.digest))
            self._add(world)
            # The world's entry comes before that of the episode's start, which names it (`EpisodeHost._open_group`).
            self._append(world, world.versions[0], made=world.made)

    def leave(self, episode: Episode, reason: EndReason, last_call: StepRecord | None) -> None:
        """Let an episode that ends leave its world; the state that its last call left becomes the next version."""
        stay = episode.stay
        if stay is None:
            return
        world = stay.world
        world.writer, world.used = None, time.time()
        state = last_call.final_version if last_call is not None else None
        if state is None or reason not in COMMITTING:
            return
        if state.size > self._limits.world_bytes:
            log.warning(
                "world %s has no new version: episode %s left %d bytes, and `world_bytes` is %d",
                world.id, episode.id, state.size, self._limits.world_bytes,
            )  # fmt: skip
            return
        stay.committed = world.last + 1
        self._commit(
            world, Version(stay.committed, state.digest, state.size, world.used, by=episode.id, task=episode.row.id)
        )

    # ── requests ───────────────────────────────────────────────────────────────────────────────────────────────────

    def list(self, params: w.ListWorldsParams, principal: Principal) -> w.ListWorldsResult:
        """Return one page of the principal's worlds."""
        names = [
            name
            for name in sorted(self._worlds)
            if self._may_see(self._worlds[name], principal)
            and params.environment in (None, self._worlds[name].made.environment)
            and (params.cursor is None or name > params.cursor)
        ]
        page = names[: params.limit]
        return w.ListWorldsResult(
            worlds=tuple(self._info(self._worlds[name]) for name in page),
            next_cursor=page[-1] if len(names) > len(page) else None,
        )

    def get(self, params: w.GetWorldParams, principal: Principal) -> w.GetWorldResult:
        """Return one world."""
        return w.GetWorldResult(world=self._info(self._owned_by(params.world, principal)))

    async def branch(self, params: w.BranchWorldParams, principal: Principal, digest: bytes) -> w.BranchWorldResult:
        """Make branches of a world."""
        world = self._owned_by(params.world, principal)
        with self._promise(principal.name, params.count):
            branches = await self._branches(world, params.version, principal, params.count)
            for branch in branches:
                self._add(branch)
                self._append(branch, branch.versions[0], made=branch.made, key=params.key, request=digest)
        return w.BranchWorldResult(worlds=tuple(map(self._info, branches)))

    def reset(self, params: w.ResetWorldParams, principal: Principal, digest: bytes) -> w.ResetWorldResult:
        """Make a new version of a world that is as an earlier one."""
        world = self._owned_by(params.world, principal)
        earlier = _version_of(world, params.version)
        if world.writer is not None:
            raise _busy(world, "reset it when that has ended")
        version = Version(world.last + 1, earlier.digest, earlier.size, time.time(), reset_to=earlier.number)
        self._commit(world, version, params.key, digest)
        return w.ResetWorldResult(world=self._info(world))

    def delete(self, params: w.DeleteWorldParams, principal: Principal) -> w.DeleteWorldResult:
        """Delete a world."""
        world = self._worlds.get(params.world)
        if world is None or not self._may_see(world, principal):
            return w.DeleteWorldResult(deleted=False)
        if world.writer is not None:
            raise _busy(world, "delete it when that has ended")
        self._delete(world)
        return w.DeleteWorldResult(deleted=True)

    def evict(self) -> None:
        """Delete the worlds that were not used for long."""
        oldest = time.time() - self._limits.world_idle_seconds
        for world in [idle for idle in self._worlds.values() if idle.writer is None and idle.used < oldest]:
            self._delete(world)

    # ── an earlier process ─────────────────────────────────────────────────────────────────────────────────────────

    def restore(self, entries: Iterable[WorldVersioned | WorldDeleted]) -> None:
        """Take over the worlds of earlier processes."""
        worlds: dict[str, World] = {}
        stored_at: dict[tuple[str, str], str] = {}
        """Where the bytes of a world and a digest are, also of worlds that were deleted since."""
        for entry in entries:
            if isinstance(entry, WorldDeleted):
                worlds.pop(entry.episode, None)
                continue
            if entry.made is not None:
                worlds[entry.episode] = World(entry.episode, entry.made)
            if (world := worlds.get(entry.episode)) is not None:
                origin = entry.made.origin if entry.made is not None else None
                # The world that a branch came from may have been deleted; the bytes that they share are still one copy.
                stored = None
                if origin is not None:
                    stored = stored_at.get((origin[0], entry.digest), f"{origin[0]}/{entry.digest}")
                version = Version(
                    entry.version, entry.digest, entry.size, entry.at, entry.by, entry.task, entry.reset_to,
                    stored or world.place_of(entry.digest),
                )  # fmt: skip
                stored_at[world.id, version.digest] = version.stored
                world.versions[version.number], world.last, world.used = version, version.number, version.at
                for number in self._surplus(world):
                    del world.versions[number]
        for world in worlds.values():
            self._add(world)

    def results(
        self, entries: Iterable[WorldVersioned | WorldDeleted]
    ) -> Iterable[tuple[str, str, bytes, w.BranchWorldResult | w.ResetWorldResult]]:
        """Yield the owner, the key, the digest and the result of each request of earlier processes."""
        branches: dict[tuple[str, str, bytes], list[World]] = {}
        for entry in entries:
            if not isinstance(entry, WorldVersioned) or entry.key is None:
                continue
            world = self._worlds.get(entry.episode)
            if world is not None and entry.made is None:
                result = w.ResetWorldResult(world=self._info(world))
                yield world.made.owner, entry.key, entry.request, result
            elif world is not None:
                branches.setdefault((world.made.owner, entry.key, entry.request), []).append(world)
        for (owner, key, request), worlds in branches.items():
            # A request whose branches were not all written was never answered; it is made again under its key.
            if len(worlds) == worlds[0].made.size:
                yield owner, key, request, w.BranchWorldResult(worlds=tuple(map(self._info, worlds)))

    def rejoin(self, episode: Episode, started: Started, *, running: bool) -> None:
        """Give an episode of an earlier process its stay, if its world is still there."""
        world = self._worlds.get(started.world or "")
        if world is None:
            return
        episode.stay = Stay(world, started.world_version)
        if running:
            world.writer = episode.id
        else:
            committed = [version.number for version in world.versions.values() if version.by == episode.id]
            episode.stay.committed = committed[0] if committed else None

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _branches(self, world: World, version: int | None, principal: Principal, count: int) -> Sequence[World]:
        """Return new worlds with the state of a version, which are not added yet."""
        state = _version_of(world, world.last if version is None else version)
        self._admit(principal.name)
        old = world.made
        definition = WorldMade(
            owner=principal.name, environment=old.environment, environment_version=old.environment_version,
            split=old.split, tasks=old.tasks, origin=(world.id, state.number), size=count,
        )  # fmt: skip
        branches = [World(self._new_id(), definition) for _ in range(count)]
        # Also the world that is branched was used, so it is not evicted while its bytes are shared.
        world.used = time.time()
        try:
            for branch in branches:
                if not await self._snapshots.in_lane(
                    branch.id, self._snapshots.store.share, world.id, branch.id, [state.digest]
                ):
                    raise WorldVersionNotFound(_gone(world, state.number), world=world.id)
                branch.last = 0
                branch.versions[0] = Version(0, state.digest, state.size, world.used, stored=state.stored)
        except BaseException:
            # All or none: a request gets all its branches, so those that were made are dropped.
            for branch in branches:
                self._drop_states(branch)
            raise
        return branches

    @contextmanager
    def _promise(self, owner: str, count: int) -> Iterator[None]:
        """Count worlds that are being made, until the block is left; then `_add` has counted those that were made."""
        self._promised[owner] += count
        try:
            yield
        finally:
            self._promised[owner] -= count
            if not self._promised[owner]:
                del self._promised[owner]

    def _admit(self, owner: str) -> None:
        """Refuse the worlds that are promised, if they are too many."""
        if self._owned[owner] + self._promised[owner] > self._limits.max_worlds:
            raise CapacityError(
                f"this token has {self._owned[owner]} worlds, and may have {self._limits.max_worlds}; delete some",
                limit="max_worlds",
            )
        if self._stored.total > self._limits.worlds_bytes:
            raise CapacityError(
                f"the worlds of this server have more than {self._limits.worlds_bytes} bytes; delete some",
                limit="worlds_bytes",
            )

    def _owned_by(self, world_id: str, principal: Principal) -> World:
        world = self._worlds.get(world_id)
        if world is None or not self._may_see(world, principal):
            excerpt = world_id[:64]
            raise WorldNotFound(
                f"this server does not know the world {excerpt!r}: it was deleted, was not used for long, belongs to "
                "another token, or is on another server",
                world=excerpt,
            )
        return world

    def _may_see(self, world: World, principal: Principal) -> bool:
        return world.made.owner == principal.name or Scope.ADMIN in principal.scopes

    def _info(self, world: World) -> w.WorldInfo:
        definition, origin = world.made, world.made.origin
        return w.WorldInfo(
            world=world.id, environment=definition.environment, split=definition.split, version=world.last,
            versions=tuple(
                w.WorldVersion(
                    version=version.number, bytes=version.size, created_at=version.at, episode=version.by,
                    task=version.task, reset_to=version.reset_to,
                )
                for version in world.versions.values()
            ),
            origin=None if origin is None else w.WorldOrigin(world=origin[0], version=origin[1]),
            busy=world.writer is not None, expires_at=world.used + self._limits.world_idle_seconds,
        )  # fmt: skip

    def _add(self, world: World) -> None:
        self._worlds[world.id] = world
        self._owned[world.made.owner] += 1
        for version in world.versions.values():
            self._stored.hold(version)

    def _commit(self, world: World, version: Version, key: str | None = None, request: bytes = b"") -> None:
        """Add a version to a world, and drop one that is too many."""
        version = replace(version, stored=world.place_of(version.digest))
        self._stored.hold(version)
        world.versions[version.number], world.last, world.used = version, version.number, version.at
        # In the same round of the event loop as the call's outcome and the end, so that all are one row of the journal.
        self._append(world, version, key=key, request=request)
        dropped = [world.versions.pop(number) for number in self._surplus(world)]
        for old in dropped:
            self._stored.release(old)
        unused = {old.digest for old in dropped} - {current.digest for current in world.versions.values()}
        if unused:
            self._snapshots.in_lane(world.id, self._snapshots.store.drop, world.id, unused)

    def _surplus(self, world: World) -> Sequence[int]:
        """Return the numbers of the versions that are too many: the oldest ones, without the first."""
        numbers = sorted(world.versions)
        return numbers[1 : max(1, len(numbers) - self._limits.world_versions)]

    def _append(
        self, world: World, version: Version, *, made: WorldMade | None = None, key: str | None = None,
        request: bytes = b"",
    ) -> None:  # fmt: skip
        if self._journal is not None:
            self._journal.append(
                WorldVersioned(
                    episode=world.id, version=version.number, digest=version.digest, size=version.size, at=version.at,
                    by=version.by, task=version.task, reset_to=version.reset_to, made=made, key=key, request=request,
                )
            )  # fmt: skip

    def _delete(self, world: World) -> None:
        del self._worlds[world.id]
        self._owned[world.made.owner] -= 1
        for version in world.versions.values():
            self._stored.release(version)
        if self._journal is not None:
            self._journal.append(WorldDeleted(world.id))
            # The owner's quota is free at once, the bytes in the journal only when a pass drops them.
            if self._journal.sizes is not None:
                self._journal.sizes.pop(world.id, None)
        self._drop_states(world)

    def _drop_states(self, world: World) -> None:
        self._snapshots.in_lane(world.id, self._snapshots.store.forget, world.id)


def _differs(world: WorldMade, requested: WorldMade) -> str | None:
    """Return why a task cannot be played in a world; None if it can."""
    if world.environment != requested.environment:
        return f"it is a world of environment {world.environment!r}"
    if world.environment_version != requested.environment_version:
        return f"it began in version {world.environment_version} of its environment; start a new one"
    if world.split != requested.split:
        return f"it is for tasks of the split {world.split!r}"
    if world.tasks != requested.tasks:
        return "it began with another task, which shares no world with this one; start a new one"
    return None


def _version_of(world: World, number: int) -> Version:
    version = world.versions.get(number)
    if version is None:
        raise WorldVersionNotFound(_gone(world, number), world=world.id)
    return version


def _gone(world: World, number: int) -> str:
    have = ", ".join(map(str, sorted(world.versions)))
    return f"world {world.id} has no version {number}, or no longer; it has {have}"


def _busy(world: World, advice: str) -> WorldBusy:
    return WorldBusy(f"{world.writer} plays in world {world.id}; {advice}", world=world.id, episode=world.writer)
