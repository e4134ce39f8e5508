"""Notes of starts in a table of the journals' database.

How this works: a thread writes all notes that have come since its last statement with one statement, and then lets
their starts be sent on. While the database is away, they wait.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Final, LiteralString

import psycopg

from ludus.protocol.errors import ShuttingDown
from ludus.server.durability.postgres import Database, reason
from ludus.server.workers.notes import KEPT_SECONDS, MOST_NOTES, Note

log = logging.getLogger("ludus.gateway")

CLEANING_SECONDS: Final = 3600.0
"""The time between two removals of notes that are too old."""

_WRITE: Final[LiteralString] = (
    "INSERT INTO ludus.starts (at, digest, worker) SELECT * FROM"
    " unnest(%(at)s::double precision[], %(digests)s::bytea[], %(workers)s::text[])"
    " ON CONFLICT (digest) DO UPDATE SET at = excluded.at, worker = excluded.worker"
)

_Waiting = tuple[Note, "asyncio.Future[None]"]


class NoteTable:
    """Notes in a database.

    Args:
        database: the database.

    Raises:
        JournalUnusable: it cannot be used.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._link = database.link()
        self._given: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._cleaned = 0.0
        try:
            database.prepare()
        except BaseException:
            database.close()
            raise

    def read(self) -> list[Note]:
        """Return the notes that are not too old, oldest first."""
        try:
            self._clean()
            rows = self._link.run(
                "SELECT at, digest, worker FROM (SELECT * FROM ludus.starts ORDER BY at DESC LIMIT %(most)s) AS latest"
                " ORDER BY at",
                {"most": MOST_NOTES},
            )
        except psycopg.Error as error:
            raise self._database.unusable(error) from None
        return [Note(at, bytes(digest), worker) for at, digest, worker in rows.fetchall()]

    def write(self, note: Note) -> asyncio.Future[None]:
        """Let the thread write a note."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ludus-notes", daemon=True)
            self._thread.start()
        self._given.put((note, written))
        return written

    @property
    def trouble(self) -> None:
        """Return None: the journals of the workers are in the same database, and say whether it can be used."""

    def close(self) -> None:
        """End the thread, and close the connection."""
        self._database.closing.set()
        if self._thread is not None:
            self._given.put(None)
            self._thread.join()
            self._thread = None
        self._database.close()

    def _serve(self) -> None:
        while (note := self._given.get()) is not None:
            waiting = [note]
            ended = False
            while not self._given.empty() and not ended:
                if (next_note := self._given.get()) is None:
                    ended = True
                else:
                    waiting.append(next_note)
            self._write(waiting)
            if ended:
                return

    def _write(self, waiting: Sequence[_Waiting]) -> None:
        notes = list({note.digest: note for note, _ in waiting}.values())
        parameters = {
            "at": [note.at for note in notes], "digests": [note.digest for note in notes],
            "workers": [note.worker for note in notes],
        }  # fmt: skip
        error: ShuttingDown | None = None
        try:
            self._link.run_patiently(_WRITE, parameters)
            if time.monotonic() > self._cleaned + CLEANING_SECONDS:
                self._clean()
        except psycopg.Error as failed:
            log.error("starts cannot be noted in %s: %s", self._database.shown, reason(failed))
            error = ShuttingDown(f"the server cannot note the start ({reason(failed)}); try again when it is back")
        for _, written in waiting:
            try:
                written.get_loop().call_soon_threadsafe(_settle, written, error)
            except RuntimeError:
                log.debug("the event loop has ended before its starts were sent on")

    def _clean(self) -> None:
        self._link.run("DELETE FROM ludus.starts WHERE at < %(oldest)s", {"oldest": time.time() - KEPT_SECONDS})
        self._cleaned = time.monotonic()


def _settle(written: asyncio.Future[None], error: ShuttingDown | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
