"""Snapshots of episodes' states, for environments with `durable = "snapshot"`.

How this works:

* A snapshot has up to three parts: what the author's `snapshot` returns, the files of the sandbox's work directory (a
  tar archive), and the state of the episode's random generator.
* One is taken after `setup`, and one after every `snapshot_every` steps, as a part of the step: no other call of the
  episode runs meanwhile, and the step's answer leaves after the snapshot is on disk.
* A `SnapshotStore` keeps each part once for each episode, by its SHA-256. The store of the journal is used, so that
  parts are as durable as entries; without one, they are files in a temporary folder.
* An episode keeps `KEPT` snapshots; then every second one is dropped. From any step back to the nearest snapshot, calls
  are repeated.
* What the store does for one episode happens in the order in which it was begun, because one thread does it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar
from zlib import crc32

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import LudusError, ShuttingDown, Unsupported
from ludus.sandbox.core.errors import CAUSED_INSIDE
from ludus.sandbox.core.model import Snapshot
from ludus.sandbox.core.stale import OWNER, remove_left_behind
from ludus.server.durability.journal import Journal, Saved, committed
from ludus.server.durability.snapshot_store import PartNotWritten, SnapshotFolder, SnapshotStore
from ludus.server.execution import user_code
from ludus.server.execution.threads import Workers
from ludus.server.runtime.episode import Call, Episode, StepRecord
from ludus.server.tasks.catalog import Published

log = logging.getLogger("ludus.server.runtime.snapshots")

KEPT: Final = 64
"""The most snapshots of one episode."""

LANES: Final = 4
"""How many threads use the store."""

T = TypeVar("T")


class Snapshots:
    """Takes and restores snapshots.

    Args:
        journal: with one that survives the process, every environment that declares snapshots gets them; without,
            only those that can be forked.
        workers: threads for authors' methods that block.
    """

    def __init__(self, journal: Journal | None, workers: Workers) -> None:
        self._survives = journal is not None and journal.survives
        self._workers = workers
        self.taken = 0
        """Snapshots that were taken."""
        self.bytes = 0
        """The bytes of their parts."""
        self._journal = journal
        self._temporary: Path | None = None
        self._store = journal.snapshot_store if journal is not None else None
        self._closed = False
        self._lanes = [ThreadPoolExecutor(1, "ludus-snapshots") for _ in range(LANES)]

    def enabled_for(self, published: Published) -> bool:
        """Return whether snapshots of an environment's episodes are taken."""
        return published.cls.durable == "snapshot" and (self._survives or published.cls.forkable)

    @property
    def store(self) -> SnapshotStore:
        """Where the parts are kept."""
        if self._store is None:
            remove_left_behind()
            self._temporary = Path(tempfile.mkdtemp(prefix=f"{OWNER}-"))
            self._store = SnapshotFolder(self._temporary, syncs=False)
        return self._store

    async def take(self, episode: Episode, step: int) -> Saved:
        """Save the state of an episode as it is after a step; nothing may change it meanwhile.

        Raises:
            UserCodeError: the author's `snapshot` failed.
            LudusError: the sandbox or the disk failed.
        """
        await committed(self._journal, None)  # the snapshot before this one, which `keep` leaves in the store
        # The sandbox and the generator are saved after the author's method, which may still write files or draw
        # numbers.
        parts: dict[str, bytes] = {}
        instance = episode.instance
        state = await self._run(episode, instance.snapshot)
        if not isinstance(state, bytes):
            wrong = TypeError(f"snapshot must return bytes, not {type(state).__name__}")
            raise user_code.UserCodeError(wrong, "snapshot") from wrong
        parts["state"] = state
        if episode.sandboxes is not None:
            if episode.sandboxes.plays_cassettes:
                raise Unsupported("a sandbox with a cassette cannot be saved, because the cassette's place is not")
            parts["files"] = (await episode.sandboxes.agent.snapshot()).data
        if instance._rng is not None:
            parts["rng"] = json.dumps(instance._rng.getstate()).encode()
        digests = await self.in_lane(episode.id, self._put, episode.id, parts)
        self.taken += 1
        self.bytes += sum(map(len, parts.values()))
        return Saved(episode.id, step, digests)

    def keep(self, episode: Episode, saved: Saved) -> None:
        """Note a snapshot of an episode, and drop every second one when there are many."""
        if episode.saved is None:
            episode.saved = {}
        episode.saved[saved.step] = saved
        # With the journal in its order: the entry must stand after that of the call, and parts that an entry names are
        # in the store before (`take` has waited for them).
        if episode.journal is not None:
            episode.journal.append(saved)
        if len(episode.saved) > KEPT:
            steps = sorted(episode.saved)
            dropped = [episode.saved.pop(step) for step in steps[1:-2:2]]  # the last one is not yet durable
            used = {digest for snapshot in episode.saved.values() for digest in snapshot.parts.values()}
            unused = {digest for snapshot in dropped for digest in snapshot.parts.values()} - used
            self.in_lane(episode.id, self.store.drop, episode.id, unused)

    def nearest(self, saved: Mapping[int, Saved] | None, upto: int) -> Saved | None:
        """Return the last snapshot of a state up to a step; None if there is none."""
        steps = [step for step in saved or () if step <= upto]
        return saved[max(steps)] if saved is not None and steps else None

    async def restore(self, episode: Episode, saved: Saved) -> None:
        """Bring an episode that has been set up to the state of a snapshot, of its own or of its origin.

        Raises:
            EpisodeFailed: the author's `restore` failed, or a part is not there.
        """
        parts = await self.in_lane(saved.episode, self._get, saved)
        instance = episode.instance
        if "rng" in parts:
            version, words, gauss_next = json.loads(parts["rng"])
            # The generator is restored before the author's `restore`, so that what `restore` draws is drawn as in any
            # repeat.
            instance._rng = random.Random(0)
            instance._rng.setstate((version, tuple(words), gauss_next))
        if "files" in parts and episode.sandboxes is not None:
            await episode.sandboxes.agent.restore(Snapshot(parts["files"]))
        try:
            await self._run(episode, instance.restore, parts["state"])
        except user_code.UserCodeError as error:
            raise user_code.failure("restore", episode.id, episode.published.name, error) from None

    async def adopt(self, source: Episode, episode: Episode, upto: int) -> None:
        """Give a fork the snapshots that its origin has of states up to a step.

        Raises:
            Unsupported: the origin has dropped them, because it has ended.
        """
        saved = {step: snapshot for step, snapshot in (source.saved or {}).items() if step <= upto}
        digests = {digest for snapshot in saved.values() for digest in snapshot.parts.values()}
        if not await self.in_lane(episode.id, self.store.share, source.id, episode.id, digests):
            raise Unsupported(f"episode {source.id} has ended, and its snapshots are dropped")
        episode.saved = {step: Saved(episode.id, step, snapshot.parts) for step, snapshot in saved.items()}

    def forget(self, episode: Episode) -> None:
        """Drop the snapshots of an episode that needs them no longer."""
        if episode.saved is not None:
            episode.saved = None

            def forget(error: LudusError | None) -> None:
                if error is None and not self._closed:
                    self.in_lane(episode.id, self.store.forget, episode.id)

            if self._journal is None:
                forget(None)
            else:  # only once its end is durable: otherwise the next process needs them
                self._journal.when_written(forget)

    def keep_only(self, episodes: Iterable[str]) -> None:
        """Drop the snapshots that an earlier process left, except those of some episodes."""
        if self._store is not None:
            self._store.keep_only(episodes)

    def close(self) -> None:
        """End the threads, and remove the temporary folder, if there is one."""
        self._closed = True
        for lane in self._lanes:
            lane.shutdown()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    async def _run(self, episode: Episode, method: Any, *arguments: Any) -> Any:
        offload = episode.published.cls.blocking and not inspect.iscoroutinefunction(method)
        return await user_code.run(
            self._workers.share(episode.published.name).at(episode.home), offload, method, *arguments
        )

    def in_lane(self, episode: str, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Let the store do something for an episode, after what it was given for this episode before."""
        lane = self._lanes[crc32(episode.encode()) % LANES]
        return asyncio.get_running_loop().run_in_executor(lane, function, *arguments)

    def _put(self, episode: str, parts: Mapping[str, bytes]) -> dict[str, str]:
        return {name: self.store.put(episode, data) for name, data in parts.items()}

    def _get(self, saved: Saved) -> dict[str, bytes]:
        return {name: self.store.get(saved.episode, digest) for name, digest in saved.parts.items()}


def saving(call: Call, snapshots: Snapshots, every: int) -> Call:
    """Wrap a call: take a snapshot after every so many steps, while no other call of the episode runs."""

    async def save(episode: Episode, record: StepRecord) -> StepResult:
        result = await call(episode, record)
        due = record.past is None and record.number % every == 0 and not result.ended
        if due and record.outcome is None and episode.active == [record]:
            # Set before the first await: no call may start while the state is read (`_may_overlap` looks at it).
            record.alone = True
            waiting = sum(1 for queued in episode.queue or () if queued.tool is not None)
            try:
                record.saved = await snapshots.take(episode, episode.asked - waiting)
            except (PartNotWritten, ShuttingDown) as error:
                log.warning("episode %s has no snapshot after step %d: %s", episode.id, record.number, error.message)
            except user_code.UserCodeError as error:
                if not isinstance(error.cause, CAUSED_INSIDE):
                    raise
                # The agent has removed what the author saves, for example. The snapshot before this one stays.
                log.warning("episode %s has no snapshot after step %d: %s", episode.id, record.number, error.cause)
        return result

    return save
