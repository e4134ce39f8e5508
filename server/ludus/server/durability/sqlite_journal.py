"""A journal in an SQLite file: episodes survive the death of their server.

How this works:

* Entries go into one table that is only ever appended to. The event loop encodes entries and puts them into a list. At
  the end of its round, what has come is written as one row (a group commit); then the requests that waited for it are
  answered.
* The event loop itself commits a row, because handing it over to a thread and back takes more CPU time than writing it,
  and even than an fsync of a fast disk. What may take long is done by a thread, which calls back into the event loop;
  what comes meanwhile is the next row. That is a row after one that took longer than `SLOW_SECONDS` or failed, and the
  copying from SQLite's log into its file (a checkpoint). So a slow disk delays only the requests that wait for it.
* Entries of episodes that are forgotten are dropped by the thread, a part of the rows at a time, whenever the entries
  that have come since the last time are as many bytes as stayed then, and at least `GARBAGE_BYTES`.
* If a transaction fails (the disk is full), the thread tries again until it succeeds or the server stops. After
  `PATIENCE_SECONDS` the journal refuses what waits and what comes (`rows.py`), until the row is written.
* The file is locked as long as the server runs, so that two servers never write one journal.
* `synchronous=NORMAL` survives the death of the process (`kill -9`); `FULL` survives the loss of power, too, and costs
  an fsync for each group commit.
"""

from __future__ import annotations

import logging
import queue
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ludus.protocol.errors import LudusError, ShuttingDown
from ludus.server.durability.codec import split
from ludus.server.durability.garbage import Pass
from ludus.server.durability.journal import JournalUnusable, OnBroken, Sync
from ludus.server.durability.rows import Row, RowJournal
from ludus.server.durability.snapshot_store import SnapshotFolder
from ludus.server.durability.sqlite_copies import READ, VERSION, copied_rows, unreadable

log = logging.getLogger("ludus.server.journal")

PATIENCE_SECONDS: Final = 10.0
"""How long requests wait for a failing transaction."""

RETRY_SECONDS: Final = 0.2
"""The time between two attempts."""

RETRY_AFTER_SECONDS: Final = 1.0
"""After how many seconds a refused request may be sent again."""

LOG_SECONDS: Final = 10.0
"""The least time between two messages about a transaction that keeps failing."""

SLOW_SECONDS: Final = 0.002
"""If a commit took longer than this, the next one is made by the thread."""

CHECKPOINT_BYTES: Final[dict[Sync, int]] = {"normal": 16 * 1024 * 1024, "full": 4 * 1024 * 1024}
"""After so many bytes, they are copied from SQLite's log into its file, and the log is written from its begin again.

An fsync of a log that grows takes twice the CPU time, because the file system has to write its size, too. While the log
is overwritten, a copy of the journal has to be made again, so it is longer where nothing is gained.
"""

KEY_BYTES: Final = 32


class SqliteJournal(RowJournal):
    """A journal in an SQLite file, which is made if it is not there.

    Args:
        path: the file.
        sync: `normal` survives the death of the process, `full` also the loss of power.
        opened: whether to open it at once, and not when `open` is called.

    Raises:
        JournalUnusable: the file is not a journal of this version, another server uses it, or it cannot be written.
    """

    def __init__(self, path: Path, sync: Sync = "normal", *, opened: bool = True) -> None:
        super().__init__(syncs=sync == "full")
        self.path = path
        self._sync: Sync = sync
        self.snapshot_store = SnapshotFolder(path.with_name(path.name + ".snapshots"), syncs=self.syncs)
        self._slow = False
        """Whether the last commit was slow, so that the thread writes the next row."""
        self._since_checkpoint = 0
        self._opened: sqlite3.Connection | None = None
        self._trouble: str | None = None
        self._closing = False
        if opened:
            self.open()

    def open(self) -> None:
        """Open the file, and lock it. Opening twice is no error.

        Raises:
            JournalUnusable: see the class.
        """
        if self._opened is None:
            self._opened = self._open(self._sync)

    @property
    def _database(self) -> sqlite3.Connection:
        assert self._opened is not None, "the journal is not open"
        return self._opened

    def _open(self, sync: Sync) -> sqlite3.Connection:
        try:
            database = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
            try:
                # Before the first read: in this mode, the file stays locked from the first access on, also between
                # transactions.
                database.execute("PRAGMA locking_mode=EXCLUSIVE")
                self._check(database)
                # Changes the file, so only after `_check`: the file may be the database of another program.
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(f"PRAGMA synchronous={sync.upper()}")
                # SQLite would copy its log in the middle of a commit, which the event loop waits for; `_checkpoint`
                # does it.
                database.execute("PRAGMA wal_autocheckpoint=0")
                self._prepare(database)
            except BaseException:
                database.close()
                raise
        except sqlite3.Error as error:
            cause = "another server uses it" if "locked" in str(error) else str(error)
            raise JournalUnusable(f"the journal {self.path} cannot be used: {cause}; name another file") from None
        return database

    def _check(self, database: sqlite3.Connection) -> None:
        """Refuse a file that is something else, before anything is written to it."""
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version != VERSION and (version or tables):
            raise JournalUnusable(
                f"{self.path} is no journal of this version (its version is {version}, this server writes {VERSION}); "
                "name another file"
            )

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("BEGIN IMMEDIATE")
        database.execute("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
        database.execute(
            "CREATE TABLE IF NOT EXISTS batches (seq INTEGER PRIMARY KEY, at REAL NOT NULL, entries BLOB NOT NULL)"
        )
        database.execute("INSERT OR IGNORE INTO meta VALUES ('key', ?)", (secrets.token_bytes(KEY_BYTES),))
        database.execute(f"PRAGMA user_version={VERSION}")
        database.execute("COMMIT")

    @property
    def key(self) -> bytes:
        """A random key that stays the same as long as the file: play capabilities signed with it stay valid."""
        (value,) = self._database.execute("SELECT value FROM meta WHERE name = 'key'").fetchone()
        return bytes(value)

    # ── what an earlier process left ───────────────────────────────────────────────────────────────────────────────

    def _rows_of_other(self, after: int) -> Iterator[Row]:
        return copied_rows(self.path, after)

    def _rows(self, after: int) -> Iterator[Row]:
        try:
            yield from self._database.execute(READ, (after,))
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be read: {error}; restore it") from None

    def _bytes_of_rows(self, upto: int) -> int:
        try:
            (total,) = self._database.execute(
                "SELECT coalesce(sum(length(entries)), 0) FROM batches WHERE seq <= ?", (upto,)
            ).fetchone()
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be read: {error}; restore it") from None
        return int(total)

    def _unreadable(self, seq: int, error: ValueError) -> JournalUnusable:
        return unreadable(self.path, seq, error)

    def _drop_others(self, episodes: frozenset[str], instead: bytes) -> None:
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            # The numbers first and then one row at a time: rows are changed meanwhile, and all entries together may not
            # fit into memory.
            for (seq,) in database.execute("SELECT seq FROM batches").fetchall():
                (batch,) = database.execute("SELECT entries FROM batches WHERE seq = ?", (seq,)).fetchone()
                remaining = b"".join(entry for _, episode, _, _, entry in split(batch) if episode in episodes)
                if not remaining:
                    database.execute("DELETE FROM batches WHERE seq = ?", (seq,))
                elif len(remaining) < len(batch):
                    database.execute("UPDATE batches SET entries = ? WHERE seq = ?", (remaining, seq))
            if instead:
                database.execute("INSERT INTO batches (at, entries) VALUES (?, ?)", (time.time(), instead))
            database.execute("COMMIT")
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be written: {error}") from None

    # ── appending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, url: str, on_broken: OnBroken) -> None:
        """Do nothing: when the disk is full, the server goes on with what needs no writing."""

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to write failed, for operators; None if it did not."""
        return self._trouble

    def close(self) -> None:
        """Write what is left, and free what the journal holds. Closing twice is no error."""
        self._closing = True  # a transaction that has failed for long is not tried again
        super().close()

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _write_pieces(self) -> None:
        """Write all entries that have come as one row, or let the thread do it."""
        if not self._pieces:  # the journal was closed in between
            return
        # While the thread works, `_busy` keeps this method from being called: rows stay in order, and both can use one
        # connection.
        if self._slow:
            self._hand_over()
            return
        entries, appended = b"".join(self._pieces), self._appended
        try:
            self._insert(self._now(), entries)
        except sqlite3.Error:
            self._hand_over()  # the thread tries again, and says why it cannot
            return
        self._pieces = []
        self._count(len(entries))
        # Before the callbacks: they append entries, and must find whether the thread already has something to do.
        self._busy = self._tidy()
        self._acknowledge(appended, None)

    def _count(self, written: int) -> None:
        super()._count(written)
        self._since_checkpoint += written

    def _tidy(self) -> bool:
        """Let the thread copy the log or drop a part of the garbage, if that is due; return whether it is."""
        if self._since_checkpoint < CHECKPOINT_BYTES[self._sync]:
            return super()._tidy()
        self._since_checkpoint = 0
        self._give(0, self._checkpoint)
        return True

    def _insert(self, at: float, entries: bytes) -> None:
        began = time.perf_counter()
        self._database.execute("INSERT INTO batches (at, entries) VALUES (?, ?)", (at, entries))
        seconds = time.perf_counter() - began
        # Also measured in the thread, so that rows return to the event loop once the disk is fast again.
        self._slow = seconds > SLOW_SECONDS
        self._counts.commit(len(entries), seconds)

    # ── the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _drop_garbage(self, under_way: Pass) -> None:
        more = False
        try:
            more = under_way.do_part(_Rows(self._database))
        except sqlite3.Error as error:
            self._failed_pass = under_way
            log.warning("entries of forgotten episodes stay in the journal %s for now: %s", self.path, error)
        if not more:
            self._after_pass, self._pass = under_way.remaining_bytes, None

    def _checkpoint(self) -> None:
        try:
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            log.warning("the log of the journal %s cannot be copied into the file yet: %s", self.path, error)

    def _write(self, at: float, entries: bytes) -> LudusError | None:
        """Write a row, however long that takes; return the error if the server stops meanwhile."""
        began = time.monotonic()
        logged, refused = -LOG_SECONDS, False
        while (error := self._attempt(at, entries)) is not None:
            now = time.monotonic()
            if now >= logged + LOG_SECONDS:
                log.warning("the journal %s cannot be written, and is tried again: %s", self.path, error)
                logged = now
            if now >= began + PATIENCE_SECONDS:
                refusal = ShuttingDown(
                    f"the server cannot write its journal ({error}); try again when it is back",
                    retryAfter=RETRY_AFTER_SECONDS,
                )
                if self._closing:
                    return refusal
                if not refused:
                    refused = True
                    # Once for each row: the event loop answers with the row to try from now on, and later attempts need
                    # no other.
                    self._call(partial(self._refuse, entries), 0, refusal)
                    if (revised := self._await_revised()) is None:
                        return refusal
                    entries = revised
            time.sleep(RETRY_SECONDS)
        if logged > 0:
            seconds = time.monotonic() - began
            log.warning("the journal %s is written again, after %.1f s; no entry is lost", self.path, seconds)
        return None

    def _await_revised(self) -> bytes | None:
        """Wait until the event loop has undone what it refused; return the row to try now, None if the server stops."""
        while True:
            try:
                return self._revised.get(timeout=RETRY_SECONDS)
            except queue.Empty:
                if self._closing:
                    return None

    def _attempt(self, at: float, entries: bytes) -> sqlite3.Error | None:
        """Write a row; return the error if that fails."""
        try:
            self._insert(at, entries)
        except sqlite3.Error as error:
            self._trouble = str(error)
            return error
        self._trouble = None
        return None


class _Rows:
    """The rows of a file, for dropping entries."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def last(self) -> int:
        """Return the number of the last row."""
        (seq,) = self._database.execute("SELECT coalesce(max(seq), 0) FROM batches").fetchone()
        return int(seq)

    def some(self, after: int, upto: int, size: int) -> list[tuple[int, bytes]]:
        """Return rows in order, until they have so many bytes."""
        page: list[tuple[int, bytes]] = []
        rows = self._database.execute(
            "SELECT seq, entries FROM batches WHERE seq > ? AND seq <= ? ORDER BY seq", (after, upto)
        )
        for seq, entries in rows:
            page.append((seq, entries))
            size -= len(entries)
            if size <= 0:
                break
        # A cursor that is not read to its end keeps a read transaction open, and the log could not be overwritten.
        rows.close()
        return page

    def replace(self, rows: Mapping[int, bytes]) -> None:
        """Replace rows, and delete those that are empty now, all at once."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for seq, entries in rows.items():
                if entries:
                    self._database.execute("UPDATE batches SET entries = ? WHERE seq = ?", (entries, seq))
                else:
                    self._database.execute("DELETE FROM batches WHERE seq = ?", (seq,))
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
