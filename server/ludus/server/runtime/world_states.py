"""The states of worlds: bytes in the store of snapshots, and what the author's methods make of them."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from ludus.protocol.episodes import StepResult
from ludus.sandbox.core.errors import CAUSED_INSIDE
from ludus.server.execution import user_code
from ludus.server.execution.threads import Workers
from ludus.server.runtime.episode import Call, Episode, StepRecord
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.world_versions import COMMITTING, Version

log = logging.getLogger("ludus.server.worlds.worlds")


class WorldStates:
    """Makes worlds of bytes and bytes of worlds, with the author's methods.

    Args:
        workers: threads for methods that block.
        snapshots: keeps the bytes.
        world_bytes: the most bytes that a new world may have.
    """

    def __init__(self, workers: Workers, snapshots: Snapshots, world_bytes: int) -> None:
        self._workers = workers
        self._snapshots = snapshots
        self._world_bytes = world_bytes

    async def give(self, episode: Episode) -> None:
        """Give an episode that is being set up its own copy of its world.

        Raises:
            UserCodeError: the author's method failed, or a new world is too large.
            InfrastructureFailed: the state is gone, or cannot be written.
        """
        instance, stay = episode.instance, episode.stay
        if stay is None or stay.begins_with is None:
            instance.world = await self._run(episode, instance.new_world)
            instance._rng = None  # a world that is loaded draws nothing
            if stay is None:
                return
            state = await self.take(episode)
            if state.size > self._world_bytes:
                raise user_code.UserCodeError(
                    ValueError(f"a new world has {state.size} bytes, and `world_bytes` is {self._world_bytes}"),
                    "new_world",
                )
            stay.world.versions[0], stay.world.last = state, 0
        version = stay.begins_with
        assert version is not None
        world = stay.world.id
        saved = await self._snapshots.in_lane(world, self._snapshots.store.get, world, version.digest)
        instance.world = await self._run(episode, instance.load_world, saved)

    async def take(self, episode: Episode) -> Version:
        """Keep the state that an episode's world has now. It becomes a version when the episode leaves the world.

        Raises:
            UserCodeError: the author's method failed.
            InfrastructureFailed: the state cannot be written.
        """
        assert episode.stay is not None
        saved = await self._run(episode, episode.instance.save_world)
        if not isinstance(saved, bytes):
            wrong = TypeError(f"save_world must return bytes, not {type(saved).__name__}")
            raise user_code.UserCodeError(wrong, "save_world") from wrong
        world = episode.stay.world.id
        if len(saved) > self._world_bytes:  # `leave` refuses it
            return Version(0, sha256(saved).hexdigest(), len(saved), time.time())
        digest = await self._snapshots.in_lane(world, self._snapshots.store.put, world, saved)
        return Version(0, digest, len(saved), time.time())

    def leaving_state(self, call: Call) -> Call:
        """Wrap a call: with the result that ends an episode well, keep the state that it leaves."""

        async def leave(episode: Episode, record: StepRecord) -> StepResult:
            result = await call(episode, record)
            ends = result.end_reason in COMMITTING and record.past is None and record.outcome is None
            if ends and episode.stay is not None:
                try:
                    record.final_version = await self.take(episode)
                except user_code.UserCodeError as error:
                    if not isinstance(error.cause, CAUSED_INSIDE):
                        raise
                    # The agent has removed what the author saves, for example. Unscored, it would choose so.
                    log.warning(
                        "world %s has no new version: what episode %s left cannot be saved: %s",
                        episode.stay.world.id, episode.id, error.cause,
                    )  # fmt: skip
            return result

        return leave

    async def _run(self, episode: Episode, method: Callable[..., Any], *arguments: Any) -> Any:
        offload = episode.published.cls.blocking and not inspect.iscoroutinefunction(method)
        return await user_code.run(
            self._workers.share(episode.published.name).at(episode.home), offload, method, *arguments
        )
