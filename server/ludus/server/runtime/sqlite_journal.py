"""A journal in an SQLite file: episodes survive the death of their server.

How this works:

* Entries go into one table that is only ever appended to, by a thread of its own. The event loop encodes entries and
  puts them into a list; the thread gets the list at the end of a round of the loop, and writes it as one row (a group
  commit). What comes meanwhile is the next row.
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
import queue
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from ludus.protocol.errors import AuthoringError, LudusError, ShuttingDown
from ludus.server.runtime.journal import Asked, Entry, Evicted, OnDurable, Settled, Stored
from ludus.server.runtime.journal_codec import decode_all, encode, encode_call, split

log = logging.getLogger("ludus.server.journal")

VERSION: Final = 1
"""The version of the file's format."""

PATIENCE_SECONDS: Final = 10.0
"""How long a failing transaction is tried again."""

RETRY_SECONDS: Final = 0.2
KEY_BYTES: Final = 32

Sync = Literal["normal", "full"]


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
        self.syncs = sync == "full"
        self.snapshot_folder = path.with_name(path.name + ".snapshots")
        self._asked: dict[tuple[str, str], Asked] = {}
        """Calls without an outcome, by episode and key."""
        self._entries: list[bytes] = []
        self._batches: queue.SimpleQueue[tuple[float, list[bytes]] | None] = queue.SimpleQueue()
        self._handed_over = False
        """Whether the thread has entries, or gets them in this round of the event loop."""
        self._appended = 0
        self._committed = 0
        self._waiting: deque[tuple[int, OnDurable]] = deque()
        self._broken: ShuttingDown | None = None
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

    def stored(self) -> Iterator[Stored]:
        """Yield what earlier processes appended, oldest first.

        Raises:
            JournalUnusable: an entry cannot be read.
        """
        try:
            for seq, at, batch in self._database.execute("SELECT seq, at, entries FROM batches ORDER BY seq"):
                try:
                    yield from [Stored(at, entry) for entry in decode_all(batch)]
                except ValueError as error:
                    raise JournalUnusable(
                        f"row {seq} of the journal {self.path} cannot be read ({error}); name another file, or restore "
                        "this one"
                    ) from None
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be read: {error}; restore it") from None

    def compact(self, keep: Iterable[str], instead: Iterable[Entry] = ()) -> None:
        """Drop the stored entries of all episodes except these, and replace those of no episode, all at once."""
        database, kept = self._database, frozenset(keep)
        try:
            database.execute("BEGIN IMMEDIATE")
            for (seq,) in database.execute("SELECT seq FROM batches").fetchall():
                (batch,) = database.execute("SELECT entries FROM batches WHERE seq = ?", (seq,)).fetchone()
                rest = b"".join(whole for _, episode, _, _, whole in split(batch) if episode in kept)
                if not rest:
                    database.execute("DELETE FROM batches WHERE seq = ?", (seq,))
                elif len(rest) < len(batch):
                    database.execute("UPDATE batches SET entries = ? WHERE seq = ?", (rest, seq))
            if replaced := b"".join(map(encode, instead)):
                database.execute("INSERT INTO batches (at, entries) VALUES (?, ?)", (time.time(), replaced))
            database.execute("COMMIT")
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be written: {error}") from None

    # ── appending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, entry: Entry) -> None:
        """Append an entry, which becomes durable a little later.

        A call is written with its outcome, in one row: without an outcome, it was never answered. Calls that are
        marked `ahead` are written at once.
        """
        if self._broken is not None:
            return
        match entry:
            case Asked(ahead=False):
                self._asked[entry.episode, entry.key] = entry
                return
            case Settled() if (asked := self._asked.pop((entry.episode, entry.key), None)) is not None:
                self._entries.append(encode_call(asked, entry))
            case _:
                self._entries.append(encode(entry))
        self._appended += 1
        if not self._handed_over:
            self._handed_over = True
            if self._thread is None:
                self._start()
            assert self._loop is not None
            self._loop.call_soon(self._hand_over)

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
        if self._thread is not None:
            self._hand_over()
            self._batches.put(None)
            self._thread.join()
            self._thread = None
        self._database.close()

    def _hand_over(self) -> None:
        """Give the thread all entries that have come."""
        entries, self._entries = self._entries, []
        self._batches.put((time.time(), entries))

    # ── the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_all, name="ludus-journal", daemon=True)
        self._thread.start()

    def _write_all(self) -> None:
        error: LudusError | None = None
        while (batch := self._batches.get()) is not None:
            at, entries = batch
            if error is None and entries:
                error = self._write(at, b"".join(entries))
            self._call(len(entries), error)

    def _write(self, at: float, entries: bytes) -> LudusError | None:
        """Write a row; return the error if that failed for too long."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._database.execute("INSERT INTO batches (at, entries) VALUES (?, ?)", (at, entries))
                return None
            except sqlite3.Error as error:
                log.warning("the journal %s cannot be written: %s", self.path, error)
                if time.monotonic() >= give_up:
                    return ShuttingDown(f"the server cannot write its journal ({error}); try again when it is back")
                time.sleep(RETRY_SECONDS)

    def _call(self, written: int, error: LudusError | None) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._wake_waiting, written, error)
        except RuntimeError:
            log.debug("the event loop has ended before %d entries were acknowledged", written)

    def _wake_waiting(self, written: int, error: LudusError | None) -> None:
        """Answer what waited for a batch, and hand over the next one."""
        self._committed += written
        if error is not None:
            self._broken = ShuttingDown(error.message)
            self._committed = self._appended
        while self._waiting and self._waiting[0][0] <= self._committed:
            self._waiting.popleft()[1](error)
        if self._entries and self._thread is not None:
            self._hand_over()
        else:
            self._handed_over = False
