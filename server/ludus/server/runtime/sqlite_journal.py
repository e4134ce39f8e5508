"""A journal in an SQLite file: episodes survive the death of their server.

How this works:

* Entries go into one table that is only ever appended to, by a thread of its own. The event loop encodes an entry,
  puts it into a list and wakes the thread; the thread writes all that has come meanwhile in one transaction (a group
  commit).
* After the commit, the thread calls back into the event loop, which answers the requests that waited for it.
* If a transaction fails (the disk is full), the thread tries again for `PATIENCE_SECONDS`. Then the journal is broken:
  every request that waits, or comes later, is answered with `ShuttingDown`, because an answer would be a promise that
  the next process does not know of.
* The file is locked as long as the server runs, so that two servers never write one journal.
* `synchronous=NORMAL` survives the death of the process (`kill -9`); `FULL` survives the loss of power, too, and costs
  an fsync for each group commit.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from ludus.protocol.errors import AuthoringError, LudusError, ShuttingDown
from ludus.server.runtime.journal import Entry, Evicted, OnDurable, Stored
from ludus.server.runtime.journal_codec import decode, encode

log = logging.getLogger("ludus.server.journal")

VERSION: Final = 1
"""The version of the file's format."""

PATIENCE_SECONDS: Final = 10.0
"""How long a failing transaction is tried again."""

RETRY_SECONDS: Final = 0.2
KEY_BYTES: Final = 32

Sync = Literal["normal", "full"]
Row = tuple[float, str, int, bytes]


class JournalUnusable(AuthoringError):
    """The journal's file cannot be used; the message says why and what to do."""


class SqliteJournal:
    """A journal in an SQLite file, which is made if it is not there.

    Args:
        path: the file.
        sync: `normal` survives the death of the process, `full` also the loss of power.

    Raises:
        JournalUnusable: the file is not a journal of this version, another server uses it, or it cannot be written.
    """

    survives = True

    def __init__(self, path: Path, sync: Sync = "normal") -> None:
        self.path = path
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._rows: list[Row] = []
        self._appended = 0
        self._committed = 0
        self._waiting: deque[tuple[int, OnDurable]] = deque()
        self._broken: ShuttingDown | None = None
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._database = self._open(sync)

    def _open(self, sync: Sync) -> sqlite3.Connection:
        try:
            database = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
            try:
                database.execute("PRAGMA locking_mode=EXCLUSIVE")
                self._check(database)
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(f"PRAGMA synchronous={sync.upper()}")
                self._prepare(database)
            except BaseException:
                database.close()
                raise
        except sqlite3.Error as error:
            why = "another server uses it" if "locked" in str(error) else str(error)
            raise JournalUnusable(f"the journal {self.path} cannot be used: {why}; name another file") from None
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
            "CREATE TABLE IF NOT EXISTS entries (seq INTEGER PRIMARY KEY, at REAL NOT NULL, episode TEXT NOT NULL, "
            "kind INTEGER NOT NULL, body BLOB NOT NULL)"
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

    def stored(self) -> Iterator[Stored]:
        """Yield what earlier processes appended, oldest first.

        Raises:
            JournalUnusable: an entry cannot be read.
        """
        try:
            for seq, at, episode, kind, body in self._database.execute(
                "SELECT seq, at, episode, kind, body FROM entries ORDER BY seq"
            ):
                try:
                    yield Stored(at, decode(kind, episode, body))
                except ValueError as error:
                    raise JournalUnusable(
                        f"entry {seq} of the journal {self.path} cannot be read ({error}); name another file, or "
                        "restore this one"
                    ) from None
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be read: {error}; restore it") from None

    def compact(self, keep: Iterable[str]) -> None:
        """Drop the stored entries of all episodes except these."""
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            database.execute("CREATE TEMP TABLE kept (episode TEXT PRIMARY KEY)")
            database.executemany("INSERT OR IGNORE INTO kept VALUES (?)", ((episode,) for episode in keep))
            database.execute("DELETE FROM entries WHERE episode NOT IN (SELECT episode FROM kept)")
            database.execute("DROP TABLE kept")
            database.execute("COMMIT")
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be written: {error}") from None

    # ── appending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, entry: Entry) -> None:
        """Append an entry, which becomes durable a little later."""
        if self._broken is not None:
            return
        kind, body = encode(entry)
        if self._thread is None:
            self._start()
        with self._lock:
            self._rows.append((time.time(), entry.episode, kind, body))
        self._appended += 1
        self._wake.set()

    def when_durable(self, callback: OnDurable) -> None:
        """Call `callback` once all entries appended so far are on disk, or with the error that prevents it."""
        if self._broken is not None or self._committed == self._appended:
            callback(self._broken)
        else:
            self._waiting.append((self._appended, callback))

    def evict(self, episode: str) -> None:
        """Note that an episode is forgotten; the next process drops its entries."""
        self.append(Evicted(episode))

    def close(self) -> None:
        """Write what is left, and close the file. Closing twice is no error."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._database.close()

    # ── the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_all, name="ludus-journal", daemon=True)
        self._thread.start()

    def _write_all(self) -> None:
        written = 0
        while True:
            self._wake.wait()
            self._wake.clear()
            closing = self._closing  # read before the rows, because no row comes after it
            with self._lock:
                rows, self._rows = self._rows, []
            if rows:
                error = self._write(rows)
                written += len(rows)
                self._call(written, error)
                if error is not None:
                    return
            if closing:
                return

    def _write(self, rows: list[Row]) -> LudusError | None:
        """Write rows in one transaction; return the error if that failed for too long."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT INTO entries (at, episode, kind, body) VALUES (?, ?, ?, ?)", rows)
                self._database.execute("COMMIT")
                return None
            except sqlite3.Error as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                log.warning("the journal %s cannot be written: %s", self.path, error)
                if self._closing or time.monotonic() >= give_up:
                    return ShuttingDown(f"the server cannot write its journal ({error}); try again when it is back")
                time.sleep(RETRY_SECONDS)

    def _call(self, written: int, error: LudusError | None) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._wake_waiting, written, error)
        except RuntimeError:
            log.debug("the event loop has ended before %d entries were acknowledged", written)

    def _wake_waiting(self, written: int, error: LudusError | None) -> None:
        if error is not None:
            self._broken = ShuttingDown(error.message)
            written = self._appended
        self._committed = written
        while self._waiting and self._waiting[0][0] <= written:
            self._waiting.popleft()[1](error)
