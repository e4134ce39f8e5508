"""The uploaded trajectories of reported runs. They lie among the hub's blobs, and all who see a run may read them.

Next to the blobs the hub has an index for each file, which it makes again where it is missing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from ludus.hub.core.blobs import BlobStore, Incoming, check_digest
from ludus.hub.results.rollout_index import RolloutFile, attempt_of, first_problem, index_of, read_episode
from ludus.hub.results.store import ResultStore
from ludus.hub.settings.hub import MEGABYTE
from ludus.protocol.errors import InvalidParams, NotFound
from ludus.protocol.trajectory import Trajectory
from ludus.registry.types.results import RunEpisode, RunInfo

FILE_BYTES: Final = 32 * MEGABYTE
"""The largest file."""

INDEXES: Final = Path("cache", "rollouts")
"""The folder of indexes in the data folder of the hub."""


class RunRollouts:
    """Keeps and reads the uploaded trajectories. All methods that do not say `async` block.

    Args:
        blobs: where the files lie.
        store: the results in the database.
        folder: the folder of the indexes, which is created when it is used.

    Attributes:
        store: the results in the database.
    """

    def __init__(self, blobs: BlobStore, store: ResultStore, folder: Path) -> None:
        self._blobs = blobs
        self.store = store
        self._folder = folder
        self._indexing = threading.Lock()

    async def receive(self, pieces: AsyncIterator[bytes]) -> str:
        """Keep a file of trajectories, and return its digest.

        Raises:
            PayloadTooLarge: it is larger than `FILE_BYTES`, or has too many lines.
            InvalidParams: one of its lines is not a trajectory.
            HubUnavailable: the object store cannot be used.
        """
        with self._blobs.receiving(FILE_BYTES, "rollouts") as incoming:
            async for piece in pieces:
                incoming.write(piece)
            return await run_in_threadpool(self._keep, incoming)

    def digest(self, run: RunInfo) -> str:
        """Return the digest of the trajectories of a run.

        Raises:
            NotFound: there are none, or the run was removed.
        """
        found = self.store.rollouts(run.key) if run.removal is None else None
        if found is None:
            raise NotFound(f"the run {run.key[:40]} has no uploaded trajectories")
        return found

    def file(self, run: RunInfo) -> RolloutFile:
        """Return the file of a run with its index.

        Raises:
            NotFound: the run has no trajectories, or was removed.
            BlobMissing: the hub has lost the file.
            HubUnavailable: the object store cannot be used.
        """
        digest = self.digest(run)
        with contextlib.suppress(FileNotFoundError, ValidationError):
            return self._named(run, RolloutFile.model_validate_json(self._path(digest).read_bytes()))
        with self._indexing, self._blobs.local(digest) as path:  # one at a time: a file takes a second of CPU
            return self._named(run, self._index(digest, path))

    def episode(self, run: RunInfo, file: RolloutFile, number: int) -> Trajectory:
        """Return the episode of a line.

        Raises:
            NotFound: the file has no such episode, or the run was removed.
            BlobMissing: the hub has lost the file.
            HubUnavailable: the object store cannot be used.
        """
        with self._blobs.local(self.digest(run)) as path, path.open("rb") as lines:
            return read_episode(lines, file.line(number))

    def lines(self, run: RunInfo, rows: Iterable[RunEpisode]) -> dict[int, int]:
        """Return the line of the trajectory of each row, by the place of the row; empty if the run has no trajectories.

        Raises:
            BlobMissing: the hub has lost the file.
            HubUnavailable: the object store cannot be used.
        """
        if not run.rollouts or run.removal is not None:
            return {}
        attempts = self.file(run).attempts()
        found = ((row.place, attempts.get(attempt_of(row.task, row.sample))) for row in rows)
        return {place: line for place, line in found if line is not None}

    def remove_index(self, digest: str) -> None:
        """Remove the index of a file that is removed."""
        self._path(digest).unlink(missing_ok=True)

    def _keep(self, incoming: Incoming) -> str:
        incoming.flush()
        file = self._index(incoming.sha256, incoming.path)
        try:
            if (broken := first_problem(file.lines)) is not None:
                raise InvalidParams(f"line {broken.number} of the rollouts is not a trajectory: {broken.problem}")
            if not file.lines:
                raise InvalidParams("the file of rollouts is empty")
            return self._blobs.keep(incoming)
        except BaseException:
            self.remove_index(incoming.sha256)
            raise

    def _index(self, digest: str, path: Path) -> RolloutFile:
        """Make and keep the index of a file."""
        with path.open("rb") as file:
            lines = tuple(index_of(file))
        made = RolloutFile(id=digest[:16], name="", size=path.stat().st_size, kept_at=0.0, lines=lines)
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f"{secrets.token_hex(16)}.new"
        try:
            draft.write_text(made.model_dump_json(), encoding="utf-8")
            os.replace(draft, self._path(digest))
        finally:
            draft.unlink(missing_ok=True)
        return made

    def _named(self, run: RunInfo, file: RolloutFile) -> RolloutFile:
        return file.model_copy(update={"id": run.key, "name": f"Rollouts of {run.declared.model[:60]}"})

    def _path(self, digest: str) -> Path:
        return self._folder / f"{check_digest(digest)}.index"
