"""Which worker got which start, so that a start that is sent again reaches the same worker.

How this works: a start goes to the least busy worker. The choice is noted before the start is sent on, under a digest
of its owner and key. On a server with a journal the notes are also written down (`note_stores.py`), because the
episodes and the keys of their starts outlive the gateway there; a start is sent on once its note is written.

The notes are bounded in number and age. A start that is sent again after its note was dropped may run a second time, on
another worker; by then no client waits for its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from hashlib import blake2b

from ludus.server.workers.notes import KEPT_SECONDS, MOST_NOTES, Note, Notes
from ludus.server.workers.pool import Pool, Worker

__all__ = ["Placements"]


class Placements:
    """Chooses the worker of each start.

    Args:
        pool: the workers.
        notes: where notes are written; None to keep them in memory only.

    Raises:
        AuthoringError: the notes cannot be read.
    """

    def __init__(self, pool: Pool, notes: Notes | None = None) -> None:
        self._pool = pool
        self._notes: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._written = notes
        self._unwritten: dict[bytes, asyncio.Future[None]] = {}
        """The notes that are being written."""
        if notes is not None:
            for at, digest, worker in notes.read():
                self._notes[digest] = (worker, at)

    def place(self, owner: bytes, key: str, count: int) -> tuple[Worker, asyncio.Future[None] | None]:
        """Return the worker for a start: that of an earlier start with the same owner and key, else the least busy.

        Also return what to wait for before the start is sent on; None if its note is written. It raises a LudusError if
        the note cannot be written.

        Args:
            owner: what identifies the sender.
            key: the start's idempotency key.
            count: how many episodes it starts.
        """
        digest = blake2b(key.encode("utf-8", "replace"), digest_size=16, key=owner[:64]).digest()
        note = self._notes.get(digest)
        if note is not None and (earlier := self._pool.find(note[0])) is not None:
            return earlier, self._unwritten.get(digest)
        chosen = self._pool.least_busy(digest)
        chosen.note_start(count)
        return chosen, self._note(digest, chosen.name)

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

    @property
    def trouble(self) -> str | None:
        """Why starts cannot be noted at present; None if they can."""
        return self._written.trouble if self._written is not None else None

    def close(self) -> None:
        """Free what the notes hold. Closing twice is no error."""
        if self._written is not None:
            self._written.close()

    def _note(self, digest: bytes, worker: str) -> asyncio.Future[None] | None:
        now = time.time()
        self._notes[digest] = (worker, now)
        while len(self._notes) > MOST_NOTES or next(iter(self._notes.values()))[1] < now - KEPT_SECONDS:
            self._notes.popitem(last=False)
        if self._written is None or (written := self._written.write(Note(now, digest, worker))) is None:
            return None
        self._unwritten[digest] = written
        written.add_done_callback(lambda future: self._settle(digest, future))
        return written

    def _settle(self, digest: bytes, written: asyncio.Future[None]) -> None:
        """Forget that a note is being written, and the note, if that failed."""
        del self._unwritten[digest]
        if written.cancelled() or written.exception() is not None:
            self._notes.pop(digest, None)
