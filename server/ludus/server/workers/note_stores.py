"""Where the notes of starts are written: a file next to the journals, or a table of their database."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Final

from ludus.protocol.errors import AuthoringError
from ludus.server.runtime.journals import open_database
from ludus.server.workers.notes import KEPT_SECONDS, MOST_NOTES, Note, Notes

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

    def read(self) -> list[Note]:
        """Return the notes, and write the file again without those that are too old."""
        try:
            notes = self._read()
            self._rewrite(notes)
        except OSError as error:
            raise AuthoringError(f"cannot use {self._path}, where the starts are noted: {error.strerror}") from None
        return notes

    def write(self, note: Note) -> None:
        """Write a note."""
        if self._file is not None:
            os.write(self._file, _NOTE.pack(note.at, note.digest, note.worker.encode()))
            self._in_file += 1
            if self._in_file > 2 * MOST_NOTES:
                self._rewrite(self._read())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> list[Note]:
        data = self._path.read_bytes() if self._path.exists() else b""
        oldest = time.time() - KEPT_SECONDS
        # A record that was cut off by the death of the gateway belongs to a start that was never sent on.
        found = (
            Note(at, digest, worker.rstrip(b"\0").decode("ascii", "replace"))
            for at, digest, worker in _NOTE.iter_unpack(data[: len(data) - len(data) % _NOTE.size])
            if at >= oldest
        )
        return list({note.digest: note for note in found}.values())[-MOST_NOTES:]

    def _rewrite(self, notes: list[Note]) -> None:
        self.close()
        new = self._path.with_name(self._path.name + ".new")
        new.write_bytes(b"".join(_NOTE.pack(note.at, note.digest, note.worker.encode()) for note in notes))
        new.replace(self._path)
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
