"""Snapshots of episodes' states, for environments with `durable = "snapshot"`.

How this works:

* A snapshot has up to three parts: what the author's `snapshot` returns, the files of the sandbox's work directory (a
  tar archive), and the state of the episode's random generator.
* One is taken after `setup`, and one after every `snapshot_every` steps, as a part of the step: no other call of the
  episode runs meanwhile, and the step's answer leaves after the snapshot is on disk.
* `SnapshotStore` keeps each part once for each episode, in a file named by its SHA-256. A fork links the files of its
  origin instead of copying them. With a journal on disk the files lie next to it; otherwise in a temporary folder.
* An episode keeps `KEPT` snapshots; then every second one is dropped. From any step back to the nearest snapshot, calls
  are repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import InfrastructureFailed, Unsupported
from ludus.sandbox.model import Snapshot
from ludus.sandbox.stale import OWNER, remove_left_behind
from ludus.server.runtime import user_code
from ludus.server.runtime.episode import Call, Episode, StepRecord
from ludus.server.runtime.journal import Journal, Saved
from ludus.server.runtime.threads import Workers
from ludus.server.tasks.catalog import Published

log = logging.getLogger("ludus.server.runtime.snapshots")

KEPT: Final = 64
"""The most snapshots of one episode."""


class SnapshotStore:
    """Parts of snapshots as files, in one folder for each episode, named by their SHA-256.

    Args:
        folder: where to keep them; made when first used.
        syncs: whether a file must survive the loss of power.
    """

    def __init__(self, folder: Path, *, syncs: bool) -> None:
        self.folder = folder
        self._syncs = syncs

    def put(self, episode: str, data: bytes) -> str:
        """Keep a part and return its SHA-256; the same content is kept once."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(episode, digest)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".tmp")
            with unfinished.open("wb") as file:
                file.write(data)
                if self._syncs:
                    file.flush()
                    os.fsync(file.fileno())
            unfinished.rename(path)
            if self._syncs:
                _sync_folder(path.parent)
        return digest

    def get(self, episode: str, digest: str) -> bytes:
        """Return a part.

        Raises:
            InfrastructureFailed: it is not there, or was changed.
        """
        try:
            data = self._path(episode, digest).read_bytes()
        except OSError as error:
            raise InfrastructureFailed(f"a part of a snapshot of {episode} cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise InfrastructureFailed(f"a part of a snapshot of {episode} was changed on disk")
        return data

    def share(self, origin: str, episode: str, digests: Iterable[str]) -> None:
        """Give an episode the parts of another one, without copying them."""
        for digest in digests:
            path = self._path(episode, digest)
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.link(self._path(origin, digest), path)

    def drop(self, episode: str, digests: Iterable[str]) -> None:
        """Remove parts of an episode."""
        for digest in digests:
            self._path(episode, digest).unlink(missing_ok=True)

    def forget(self, episode: str) -> None:
        """Remove all parts of an episode."""
        shutil.rmtree(self.folder / episode, ignore_errors=True)

    def keep_only(self, episodes: Iterable[str]) -> None:
        """Remove the parts of all episodes except these."""
        kept = frozenset(episodes)
        if self.folder.is_dir():
            for left in self.folder.iterdir():
                if left.name not in kept:
                    shutil.rmtree(left, ignore_errors=True)

    def _path(self, episode: str, digest: str) -> Path:
        return self.folder / episode / digest


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
        folder = journal.snapshot_folder if journal is not None else None
        self._temporary: Path | None = None
        self._store = None if folder is None else SnapshotStore(folder, syncs=journal is not None and journal.syncs)

    def wanted(self, published: Published) -> bool:
        """Return whether snapshots of an environment's episodes are taken."""
        return published.cls.durable == "snapshot" and (self._survives or published.cls.forkable)

    @property
    def store(self) -> SnapshotStore:
        """Where the parts are kept."""
        if self._store is None:
            remove_left_behind()
            self._temporary = Path(tempfile.mkdtemp(prefix=f"{OWNER}-"))
            self._store = SnapshotStore(self._temporary, syncs=False)
        return self._store

    async def take(self, episode: Episode, step: int) -> Saved:
        """Save the state of an episode as it is after a step; nothing may change it meanwhile.

        Raises:
            UserCodeError: the author's `snapshot` failed.
            LudusError: the sandbox or the disk failed.
        """
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
        try:
            digests = await asyncio.to_thread(self._put, episode.id, parts)
        except OSError as error:
            raise InfrastructureFailed(f"a snapshot cannot be written: {error.strerror}") from None
        self.taken += 1
        self.bytes += sum(map(len, parts.values()))
        return Saved(episode.id, step, digests)

    def keep(self, episode: Episode, saved: Saved) -> None:
        """Note a snapshot of an episode, and drop every second one when there are many."""
        if episode.saved is None:
            episode.saved = {}
        episode.saved[saved.step] = saved
        if episode.journal is not None:
            episode.journal.append(saved)
        if len(episode.saved) > KEPT:
            steps = sorted(episode.saved)
            dropped = [episode.saved.pop(step) for step in steps[1:-1:2]]
            left = {digest for one in episode.saved.values() for digest in one.parts.values()}
            self.store.drop(episode.id, {digest for one in dropped for digest in one.parts.values()} - left)

    def nearest(self, saved: Mapping[int, Saved] | None, upto: int) -> Saved | None:
        """Return the last snapshot of a state up to a step; None if there is none."""
        steps = [step for step in saved or () if step <= upto]
        return saved[max(steps)] if saved is not None and steps else None

    async def restore(self, episode: Episode, saved: Saved) -> None:
        """Bring an episode that has been set up to the state of a snapshot, of its own or of its origin.

        Raises:
            EpisodeFailed: the author's `restore` failed, or a part is not there.
        """
        parts = await asyncio.to_thread(self._get, saved)
        instance = episode.instance
        if "rng" in parts:
            version, words, rest = json.loads(parts["rng"])
            instance._rng = random.Random(0)
            instance._rng.setstate((version, tuple(words), rest))
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
        saved = {step: one for step, one in (source.saved or {}).items() if step <= upto}
        digests = {digest for one in saved.values() for digest in one.parts.values()}
        try:
            await asyncio.to_thread(self.store.share, source.id, episode.id, digests)
        except OSError:
            raise Unsupported(f"episode {source.id} has ended, and its snapshots are dropped") from None
        episode.saved = {step: Saved(episode.id, step, one.parts) for step, one in saved.items()}

    def forget(self, episode: Episode) -> None:
        """Drop the snapshots of an episode that needs them no longer."""
        if episode.saved is not None:
            episode.saved = None
            asyncio.get_running_loop().run_in_executor(None, self.store.forget, episode.id)

    def keep_only(self, episodes: Iterable[str]) -> None:
        """Drop the snapshots that an earlier process left, except those of some episodes."""
        if self._store is not None:
            self._store.keep_only(episodes)

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    async def _run(self, episode: Episode, method: Any, *given: Any) -> Any:
        offload = episode.published.cls.blocking and not inspect.iscoroutinefunction(method)
        return await user_code.run(self._workers.share(episode.published.name), offload, method, *given)

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
            record.alone = True
            waiting = sum(1 for one in episode.queue or () if one.tool is not None)
            record.saved = await snapshots.take(episode, episode.asked - waiting)
        return result

    return save


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
