"""Reads what a journal holds, without changing it, also while a server writes it.

How this works:

* A server locks its journal, and even a reader of an SQLite file in WAL mode leaves files next to it. So the file and
  its log (`-wal`) are copied into a temporary folder, and the copy is read. This needs as much space there as the
  journal has.
* A copy of the log may end in the middle of a transaction, which SQLite then ignores: that transaction was not
  acknowledged when the copying began.
* A checkpoint writes pages of the log into the file. A copy that is made meanwhile is whole as long as SQLite does not
  overwrite the log from its beginning, because the log still has those pages. The header of the log then changes; if it
  is another one after the copying, the copy is made again.
* A journal in a database is read in one transaction, which sees one state of it (`postgres_recorded.py`).
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ludus.protocol.rewards import Reward, total
from ludus.server.runtime.database_urls import is_database
from ludus.server.runtime.journal import JournalUnusable, Reported, Stored, Tallied
from ludus.server.runtime.journal_codec import stored_in
from ludus.server.runtime.journals import open_database
from ludus.server.runtime.recovery import History, read_histories
from ludus.server.runtime.sqlite_journal import VERSION

ATTEMPTS: Final = 20
"""How often a copy is tried. Each new attempt means that the server has overwritten its log in the meantime."""

_HEADER_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Recorded:
    """One episode of a journal."""

    history: History
    size: int
    """The bytes of its entries."""

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.history.started.episode

    @property
    def end(self) -> str:
        """How it ended; `running` if it had not."""
        return "running" if self.history.ended is None else str(self.history.ended.reason)

    @property
    def steps(self) -> int:
        """The number of calls with an outcome, without the final message."""
        return sum(1 for one in self.history.asked if one.tool is not None and one.key in self.history.settled)

    @property
    def reward(self) -> Reward:
        """The sum of its rewards so far."""
        return total(entry.reward for settled in self.history.settled.values() for entry in settled.entries)


def read_recorded(journal: Path | str) -> list[Recorded]:
    """Return the episodes of a journal in the order of their starts.

    Args:
        journal: its file, or the URL of its database, where those of all workers are read.

    Raises:
        JournalUnusable: there is no such journal, or it is not of this version, or a part of it cannot be read.
        OSError: it cannot be copied.
    """
    sizes = Counter[str]()
    stored: Iterator[Stored]
    if isinstance(journal, str) and is_database(journal):
        database = open_database(journal)
        from ludus.server.runtime.postgres_recorded import read_database

        stored = read_database(database, sizes)
    else:
        stored = read_stored(Path(journal), sizes)
    histories = read_histories(stored, list[Reported | Tallied]())
    return [Recorded(history, sizes[name]) for name, history in histories.items()]


def read_stored(path: Path, sizes: Counter[str] | None = None) -> Iterator[Stored]:
    """Yield all entries of a journal, oldest first.

    Args:
        path: the journal.
        sizes: gets the bytes of each episode's entries.

    Raises:
        JournalUnusable: there is no such file, or it is no journal of this version, or a part of it cannot be read.
        OSError: it cannot be copied.
    """
    if not path.is_file():
        raise JournalUnusable(f"there is no journal {path}; `ludus serve --journal FILE` writes one")
    with tempfile.TemporaryDirectory(prefix="ludus-replay-") as folder:
        copy = _copied(path, Path(folder))
        try:
            with closing(sqlite3.connect(copy, isolation_level=None)) as database:
                _check(database, path)
                yield from _stored(database, path, Counter() if sizes is None else sizes)
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {path} cannot be read: {error}; restore it") from None


def find_recorded(episodes: Sequence[Recorded], prefix: str) -> Recorded:
    """Return the episode with an id, or the only one whose id begins so; the `e_` may be left out.

    Raises:
        ValueError: there is none, or there are several.
    """
    found = [one for one in episodes if one.id == prefix] or [
        one for one in episodes if one.id.startswith((prefix, f"e_{prefix}"))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"the journal has no episode {prefix!r}; without an episode, its {len(episodes)} are listed")
    some = ", ".join(one.id for one in found[:3]) + (", …" if len(found) > 3 else "")
    raise ValueError(f"{len(found)} episodes begin with {prefix!r} ({some}); give more characters")


def _copied(path: Path, folder: Path) -> Path:
    """Return a whole copy of a journal's file, with its log next to it."""
    copy, log = folder / "journal.db", path.with_name(path.name + "-wal")
    for _ in range(ATTEMPTS):
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
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _check(database: sqlite3.Connection, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise JournalUnusable(
            f"{path} is no journal of this version (its version is {version}, this one reads {VERSION}); "
            "use the version of ludus that wrote it"
        )


def _stored(database: sqlite3.Connection, path: Path, sizes: Counter[str]) -> Iterator[Stored]:
    """Yield all entries, oldest first."""
    for seq, at, batch in database.execute("SELECT seq, at, entries FROM batches ORDER BY seq"):
        try:
            yield from stored_in(batch, at, sizes)
        except ValueError as error:
            raise JournalUnusable(
                f"row {seq} of the journal {path} cannot be read ({error}); restore the file"
            ) from None
