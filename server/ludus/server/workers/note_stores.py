"""Where the notes of starts are written: a file next to the journals, or a table of their database."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import struct
import time
from pathlib import Path
from typing import Final

from ludus.protocol.errors import AuthoringError, ShuttingDown
from ludus.server.durability.journals import open_database
from ludus.server.workers.notes import KEPT_SECONDS, MOST_NOTES, Note, Notes

log = logging.getLogger("ludus.gateway")

RETRY_AFTER_SECONDS: Final = 1.0
"""After how many seconds a refused start may be sent again."""

_NOTE: Final = struct.Struct(">d16s16s")
"""The Unix time, the digest, and the worker's id, filled up with zero bytes."""


class NoteFile:
    """Notes in a file. One is written before `write` returns, but not flushed to the disk: it survives the death of the
    process and not the loss of power.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._in_file = 0
        self._failed = False

    def read(self) -> list[Note]:
        """Return the notes, and write the file again without those that are too old."""
        try:
            notes = self._read()
            self._rewrite(notes)
        except OSError as error:
            raise AuthoringError(f"cannot use {self._path}, where the starts are noted: {error.strerror}") from None
        return notes

    def write(self, note: Note) -> asyncio.Future[None] | None:
        """Write a note; return a future with the error if that fails."""
        try:
            self._append(_NOTE.pack(note.at, note.digest, note.worker.encode()))
        except OSError as error:
            if not self._failed:
                log.error("starts cannot be noted in %s: %s", self._path, error.strerror)
            self._failed = True
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            problem = f"the server cannot note the start ({error.strerror}); try again when there is room"
            refused.set_exception(ShuttingDown(problem, retryAfter=RETRY_AFTER_SECONDS))
            return refused
        self._failed = False
        if self._in_file > 2 * MOST_NOTES:
            try:
                self._rewrite(self._read())
            except OSError as error:
                log.warning("old notes stay in %s for now: %s", self._path, error.strerror)
                self._in_file -= MOST_NOTES  # tried again after as many further notes
        return None

    @property
    def trouble(self) -> str | None:
        """Why no note can be written at present; None if one can. After a failure, one without a meaning is tried."""
        if self._failed:
            try:
                self._append(_NOTE.pack(0.0, b"", b""))  # too old, so it is never read
            except OSError as error:
                return f"starts cannot be noted: {error.strerror}"
            self._failed = False
        return None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, record: bytes) -> None:
        """Append a record; of one that does not fit, nothing stays, because the next one must begin at its place.

        Raises:
            OSError: it does not fit, or the disk fails.
        """
        if self._file is None:
            return
        size = os.fstat(self._file).st_size
        whole_bytes = size - size % _NOTE.size
        if whole_bytes < size:
            os.ftruncate(self._file, whole_bytes)
        if os.write(self._file, record) < len(record):
            os.ftruncate(self._file, whole_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._in_file += 1

    def _read(self) -> list[Note]:
        data = self._path.read_bytes() if self._path.exists() else b""
        oldest = time.time() - KEPT_SECONDS
        # A record that was cut off by the death of the gateway belongs to a start that was never sent on.
        notes = (
            Note(at, digest, worker.rstrip(b"\0").decode("ascii", "replace"))
            for at, digest, worker in _NOTE.iter_unpack(data[: len(data) - len(data) % _NOTE.size])
            if at >= oldest
        )
        return list({note.digest: note for note in notes}.values())[-MOST_NOTES:]

    def _rewrite(self, notes: list[Note]) -> None:
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_bytes(b"".join(_NOTE.pack(note.at, note.digest, note.worker.encode()) for note in notes))
            new.replace(self._path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        self.close()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._in_file = len(notes)


def open_notes(journal: Path | None, journal_url: str | None) -> Notes | None:
    """Return the notes that belong to the journals of workers; None for a server without journals.

    Raises:
        JournalUnusable: the database of the journals cannot be used.
    """
    if journal_url is not None:
        database = open_database(journal_url)
        from ludus.server.workers.postgres_notes import NoteTable

        return NoteTable(database)
    return NoteFile(journal.with_name(f"{journal.name}.starts")) if journal is not None else None
