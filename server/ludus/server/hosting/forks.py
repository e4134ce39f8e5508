"""Forks: new episodes in the state that another one had after a step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from ludus.protocol import episodes as e
from ludus.protocol.errors import InvalidParams, LudusError, Unsupported
from ludus.server.auth.principal import Principal
from ludus.server.durability.journal import Journal
from ludus.server.recovery.repeating import Departed, rebuild, write_whole
from ludus.server.runtime.episode import Episode, EpisodeStore, StepRecord
from ludus.server.runtime.idempotency import IdempotencyCache
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.steps import StepRunner


class OpenGroup(Protocol):
    """Sets a group of episodes up, and adds it to the store; with `origin`, the noise key of another one, as a fork."""

    def __call__(
        self, params: e.StartParams, principal: Principal, digest: bytes, origin: str | None = None
    ) -> Awaitable[tuple[Episode, ...]]:
        """Return the group's episodes."""
        ...


class Forks:
    """Makes forks, once per key.

    Args:
        store: holds the episodes.
        runner: repeats steps.
        snapshots: restores states.
        journal: gets a fork when it is whole.
        open_group: sets the new episode up.
        close: ends it if it cannot be made.
        spawn: starts a task that the host owns.
        result_ttl_seconds: how long a fork's key is kept after its episode.
    """

    def __init__(
        self, store: EpisodeStore, runner: StepRunner, snapshots: Snapshots, journal: Journal | None,
        open_group: OpenGroup, close: Callable[[Episode], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]], result_ttl_seconds: float,
    ) -> None:  # fmt: skip
        self._runner = runner
        self._snapshots = snapshots
        self._journal = journal
        self._open_group = open_group
        self._close = close
        self.kept = IdempotencyCache[Episode](spawn, result_ttl_seconds, lambda episode: episode.id in store)

    async def make(self, source: Episode, params: e.ForkParams, principal: Principal) -> Episode:
        """Return a new episode in the state that another one had after a step.

        Raises:
            KeyConflict: the key was used for another fork.
            Unsupported: the class is not `forkable`, or the repeated steps gave something else.
            InvalidParams: the other episode has not finished that step.
        """
        # The last step is that of now, and not that of the time when the fork gets its turn.
        upto = len(source.records or ()) if params.step is None else params.step
        return await self.kept.do(
            principal.name, params.key, params, lambda digest: self._make(source, params.key, upto, principal, digest)
        )

    async def _make(self, source: Episode, key: str, upto: int, principal: Principal, digest: bytes) -> Episode:
        published = source.published
        if not published.cls.forkable:
            raise Unsupported(f"environment {published.name!r} is not forkable", environment=published.name)
        if source.stay is not None:
            raise Unsupported(
                f"episode {source.id} plays in world {source.stay.world.id}, which another one cannot do at the same "
                "time; start an episode in a branch of the world",
                episode=source.id,
            )
        if self._snapshots.enabled_for(published) and source.saved is None:
            raise Unsupported(f"episode {source.id} has ended, and its snapshots are dropped", episode=source.id)
        records = source.records or []
        if upto > len(records) or any(record.outcome is None for record in records[:upto]):
            raise InvalidParams(f"episode {source.id} has not finished step {upto}; it is at step {len(records)}")
        again = e.StartParams(
            environment=published.name, split=source.row.split, task=source.row.id, limits=source.limits,
            seed=source.seed if published.cls.seedable else None, secrets=dict(source.secrets or {}),
            tools=tuple(source.tools), key="fork/" + key,
        )  # fmt: skip
        (episode,) = await self._open_group(again, principal, digest, source.noise_key)
        try:
            await self._rebuild(source, episode, records[:upto])
        except LudusError:
            await self._close(episode)
            raise
        if self._journal is not None:
            write_whole(self._journal, episode, episode.started(again, key, digest, 1, fork=True))
        return episode

    async def _rebuild(self, source: Episode, episode: Episode, calls: list[StepRecord]) -> None:
        saved = self._snapshots.nearest(source.saved, len(calls))
        try:
            if saved is not None:
                await self._snapshots.adopt(source, episode, saved.step)
            await rebuild(self._runner, self._snapshots, episode, calls, saved, lambda past: f"fork/{past.number}")
        except Departed as departed:
            name = episode.published.name
            raise Unsupported(
                f"{departed}, so environment {name!r} is not deterministic; set `forkable = False`", environment=name
            ) from None
