"""Reads an SQLite journal without changing it, also while a server writes it.

How this works:

* A server locks its journal, and even a reader of an SQLite file in WAL mode leaves files next to it. So the file and
  its log (`-wal`) are copied into a temporary folder, and the copy is read. This needs as much space there as the
  journal has.
* A copy of the log may end in the middle of a transaction, which SQLite then ignores: that transaction was not
  acknowledged when the copying began.
* A checkpoint writes pages of the log into the file. A copy that is made meanwhile is whole as long as SQLite does not
  overwrite the log from its beginning, because the log still has those pages. The header of the log then changes; if it
  is another one after the copying, the copy is made again.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ludus.server.durability.journal import JournalUnusable

VERSION: Final = 1
"""The version of the file's format."""

PATIENCE_SECONDS: Final = 10.0
"""How long a copy is tried. Each new attempt means that the server has overwritten its log in the meantime."""

_HEADER_BYTES: Final = 32

READ: Final = "SELECT seq, at, entries FROM batches WHERE seq > ? ORDER BY seq"
"""Reads the number, the time and the entries of the rows after one."""


def copied_rows(path: Path, after: int = 0) -> Iterator[tuple[int, float, bytes]]:
    """Yield the number, the time and the entries of a journal's rows after one, the oldest first.

    Raises:
        JournalUnusable: there is no such file, or it is no journal of this version.
        OSError: it cannot be copied.
    """
    if not path.is_file():
        raise JournalUnusable(f"there is no journal {path}; `ludus serve --journal FILE` writes one")
    with tempfile.TemporaryDirectory(prefix="ludus-journal-") as folder:
        copy = _copied(path, Path(folder))
        try:
            with closing(sqlite3.connect(copy, isolation_level=None)) as database:
                _check(database, path)
                yield from database.execute(READ, (after,))
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {path} cannot be read: {error}; restore it") from None


def unreadable(path: Path, seq: int, error: ValueError) -> JournalUnusable:
    """Return the error for a row that cannot be read."""
    return JournalUnusable(
        f"row {seq} of the journal {path} cannot be read ({error}); name another file, or restore this one"
    )


def _copied(path: Path, folder: Path) -> Path:
    """Return a whole copy of a journal's file, with its log next to it."""
    copy, log = folder / "journal.db", path.with_name(path.name + "-wal")
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        before = _state(path, log)
        shutil.copyfile(path, copy)
        copied_log = copy.with_name(copy.name + "-wal")
        copied_log.unlink(missing_ok=True)
        try:
            shutil.copyfile(log, copied_log)
        except FileNotFoundError:
            pass
        if _state(path, log) == before:
            return copy
    raise JournalUnusable(f"the journal {path} changes faster than it can be copied; try again, or copy it yourself")


def _state(path: Path, log: Path) -> object:
    """Return what stays the same as long as a copy of the file and then of its log is whole."""
    try:
        with log.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    if header:
        return header
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def _check(database: sqlite3.Connection, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise JournalUnusable(
            f"{path} is no journal of this version (its version is {version}, this one reads {VERSION}); "
            "use the version of ludus that wrote it"
        )
