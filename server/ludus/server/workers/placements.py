"""Which worker got which start, so that a start that is sent again reaches the same worker.

How this works: a start goes to the least busy worker. The choice is noted before the start is sent on, under a digest
of its owner and key. On a server with a journal the notes are also appended to a file, because the episodes and the
keys of their starts outlive the gateway there. A note is written before its start leaves, but not flushed to the disk:
it survives the death of the process and not the loss of power.

The notes are bounded in number and age. A start that is sent again after its note was dropped may run a second time, on
another worker; by then no client waits for its answer.
"""

from __future__ import annotations

import os
import struct
import time
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from typing import Final

from ludus.protocol.errors import AuthoringError
from ludus.server.workers.pool import Pool, Worker

KEPT_SECONDS: Final = 24 * 3600.0
"""How long a note is kept."""

MOST_NOTES: Final = 200_000
"""The most notes; the oldest are dropped first."""

_NOTE: Final = struct.Struct(">d16s16s")
"""The Unix time, the digest, and the worker's id, filled up with zero bytes."""


class Placements:
    """Chooses the worker of each start.

    Args:
        pool: the workers.
        path: the file of the notes; None to keep them in memory only.

    Raises:
        AuthoringError: the file cannot be used.
    """

    def __init__(self, pool: Pool, path: Path | None = None) -> None:
        self._pool = pool
        self._path = path
        self._notes: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._file: int | None = None
        self._in_file = 0
        if path is not None:
            try:
                self._read(path)
                self._rewrite(path)
            except OSError as error:
                raise AuthoringError(f"cannot use {path}, where the starts are noted: {error.strerror}") from None

    def place(self, owner: bytes, key: str, count: int) -> Worker:
        """Return the worker for a start: that of an earlier start with the same owner and key, else the least busy.

        Args:
            owner: what identifies the sender.
            key: the start's idempotency key.
            count: how many episodes it starts.
        """
        digest = blake2b(key.encode("utf-8", "replace"), digest_size=16, key=owner[:64]).digest()
        note = self._notes.get(digest)
        if note is not None and (earlier := self._pool.find(note[0])) is not None:
            return earlier
        chosen = self._pool.least_busy(digest)
        chosen.note_start(count)
        self._note(digest, chosen.name)
        return chosen

    def pin(self, session: str) -> Worker:
        """Return the worker of a session whose id its client made up: always the same one, as long as that is there.

        This is for a number of workers that changes: with it, the worker that the hash of an id gives changes, too.
        """
        key = session.encode("utf-8", "replace")
        digest = blake2b(key, digest_size=16, key=b"session").digest()
        note = self._notes.get(digest)
        if note is not None and (earlier := self._pool.find(note[0])) is not None:
            return earlier
        chosen = self._pool.by_hash(key, self._pool.candidates())
        self._note(digest, chosen.name)
        return chosen

    def close(self) -> None:
        """Close the file. Closing twice is no error."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _note(self, digest: bytes, worker: str) -> None:
        now = time.time()
        self._notes[digest] = (worker, now)
        while len(self._notes) > MOST_NOTES or next(iter(self._notes.values()))[1] < now - KEPT_SECONDS:
            self._notes.popitem(last=False)
        if self._file is not None and self._path is not None:
            os.write(self._file, _NOTE.pack(now, digest, worker.encode()))
            self._in_file += 1
            if self._in_file > 2 * MOST_NOTES:
                self._rewrite(self._path)

    def _read(self, path: Path) -> None:
        data = path.read_bytes() if path.exists() else b""
        oldest = time.time() - KEPT_SECONDS
        # A record that was cut off by the death of the gateway belongs to a start that was never sent on.
        for at, digest, worker in _NOTE.iter_unpack(data[: len(data) - len(data) % _NOTE.size]):
            if at >= oldest:
                self._notes[digest] = (worker.rstrip(b"\0").decode("ascii", "replace"), at)

    def _rewrite(self, path: Path) -> None:
        """Write the file again, without the notes that were dropped."""
        self.close()
        new = path.with_name(path.name + ".new")
        notes = list(self._notes.items())[-MOST_NOTES:]
        new.write_bytes(b"".join(_NOTE.pack(at, digest, worker.encode()) for digest, (worker, at) in notes))
        new.replace(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._in_file = len(notes)
