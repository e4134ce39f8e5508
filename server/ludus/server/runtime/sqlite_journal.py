"""A journal in an SQLite file: episodes survive the death of their server.

How this works:

* Entries go into one table that is only ever appended to. The event loop encodes entries and puts them into a list. At
  the end of its round, what has come is written as one row (a group commit); then the requests that waited for it are
  answered.
* A commit that may take long is made by a thread, which calls back into the event loop; what comes meanwhile is the
  next row. With `FULL` that is every commit. With `NORMAL`, which does not wait for the disk, it is the one after a
  commit that took longer than `SLOW_SECONDS` or failed, and the copying from SQLite's log into its file (a checkpoint).
  All others are made by the event loop itself, because handing a row over and back takes twice the CPU time of writing
  it.
* Entries of episodes that are forgotten are dropped by the thread, a part of the rows at a time, whenever the entries
  that have come since the last time are as many bytes as stayed then, and at least `GARBAGE_BYTES`.
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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import AuthoringError, LudusError, ShuttingDown
from ludus.server.runtime.journal import Entry, Evicted, OnDurable, SettledCall, Stored
from ludus.server.runtime.journal_codec import decode_all, encode, encode_call, split
from ludus.server.runtime.journal_counts import JournalCounts, JournalStats
from ludus.server.runtime.journal_garbage import Garbage, Pass

log = logging.getLogger("ludus.server.journal")

VERSION: Final = 1
"""The version of the file's format."""

PATIENCE_SECONDS: Final = 10.0
"""How long a failing transaction is tried again."""

RETRY_SECONDS: Final = 0.2

SLOW_SECONDS: Final = 0.005
"""If a commit by the event loop took longer than this, the next one is made by the thread."""

GARBAGE_BYTES: Final = 64 * 1024 * 1024
"""The least bytes of new entries after which those of forgotten episodes are dropped."""

CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
"""After so many bytes, they are copied from SQLite's log into its file."""

KEY_BYTES: Final = 32

Sync = Literal["normal", "full"]


class JournalUnusable(AuthoringError):
    """The journal's file cannot be used; the message says why and what to do."""


class SqliteJournal:
    """A journal in an SQLite file, which is made if it is not there.

    Args:
        path: the file.
        sync: `normal` survives the death of the process, `full` also the loss of power.
        opened: whether to open it at once, and not when `open` is called.

    Raises:
        JournalUnusable: the file is not a journal of this version, another server uses it, or it cannot be written.
    """

    survives = True
    wants_asked = False

    def __init__(self, path: Path, sync: Sync = "normal", *, opened: bool = True) -> None:
        self.path = path
        self._sync: Sync = sync
        self.syncs = sync == "full"
        self.sizes: Counter[str] | None = None
        self.snapshot_folder = path.with_name(path.name + ".snapshots")
        self._counts = JournalCounts()
        self._pieces: list[bytes] = []
        """What has come since the last row."""
        self._jobs: queue.SimpleQueue[tuple[int, Callable[[], LudusError | None]] | None] = queue.SimpleQueue()
        """What the thread has to do, each with the number of entries that are written then."""
        self._busy = False
        """Whether the thread has something to do, or a row is written at the end of this round of the event loop."""
        self._by_thread = self.syncs
        """Whether the thread writes the next row."""
        self._since_checkpoint = 0
        self._garbage = Garbage()
        self._since_pass = 0
        self._after_pass = 0
        """The bytes that the last pass has left."""
        self._pass: Pass | None = None
        """The pass that is under way."""
        self._appended = 0
        self._committed = 0
        self._waiting: deque[tuple[int, OnDurable]] = deque()
        self._broken: ShuttingDown | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._clock = time.time() - time.monotonic()
        """What makes the times of entries from a clock that is never set."""
        self._opened: sqlite3.Connection | None = None
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
                database.execute("PRAGMA locking_mode=EXCLUSIVE")
                self._check(database)
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(f"PRAGMA synchronous={sync.upper()}")
                database.execute("PRAGMA wal_autocheckpoint=0")
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

    def stats(self) -> JournalStats:
        """Return its state and counts for `/metrics`."""
        return JournalStats(self._counts, self._appended - self._committed, self._broken is not None)

    # ── what an earlier process left ───────────────────────────────────────────────────────────────────────────────

    def stored(self) -> Iterator[Stored]:
        """Yield what earlier processes appended, oldest first.

        Raises:
            JournalUnusable: an entry cannot be read.
        """
        try:
            for seq, at, batch in self._database.execute("SELECT seq, at, entries FROM batches ORDER BY seq"):
                try:
                    entries = list(decode_all(batch))
                except ValueError as error:
                    raise JournalUnusable(
                        f"row {seq} of the journal {self.path} cannot be read ({error}); name another file, or restore "
                        "this one"
                    ) from None
                for entry in entries:
                    self._garbage.note(entry)
                    yield Stored(at, entry)
        except sqlite3.Error as error:
            raise JournalUnusable(f"the journal {self.path} cannot be read: {error}; restore it") from None

    def compact(self, keep: Iterable[str], instead: Iterable[Entry] = ()) -> None:
        """Drop the stored entries of all episodes except these, and replace those of no episode, all at once."""
        database, kept = self._database, frozenset(keep)
        self._garbage.forget_others(kept)
        try:
            database.execute("BEGIN IMMEDIATE")
            for (seq,) in database.execute("SELECT seq FROM batches").fetchall():
                (batch,) = database.execute("SELECT entries FROM batches WHERE seq = ?", (seq,)).fetchone()
                wholes = [(episode, whole) for _, episode, _, _, whole in split(batch) if episode in kept]
                rest = b"".join(whole for _, whole in wholes)
                if self.sizes is not None:
                    for episode, whole in wholes:
                        self.sizes[episode] += len(whole)
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
        """Append an entry, which becomes durable a little later."""
        if self._broken is None:
            self._garbage.note(entry)
            self._pieces.append(piece := encode(entry))
            if self.sizes is not None and entry.episode:
                self.sizes[entry.episode] += len(piece)
            self._appended += 1
            if not self._busy:
                self._write_soon()

    def append_call(self, episode: str, call: SettledCall, outcome: StepResult | LudusError) -> bytes | None:
        """Append a call together with its outcome, and return the outcome as it is sent, if that was made."""
        if self._broken is not None:
            return None
        pieces, sent = encode_call(episode, call, outcome)
        self._pieces += pieces
        if self.sizes is not None:
            self.sizes[episode] += sum(map(len, pieces))
        self._appended += 1
        if not self._busy:
            self._write_soon()
        return sent

    def _write_soon(self) -> None:
        self._busy = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._write_pieces)

    def when_durable(self, callback: OnDurable) -> None:
        """Call `callback` once all entries appended so far are on disk, or with the error that prevents it."""
        if self._broken is not None or self._committed == self._appended:
            callback(self._broken)
        else:
            self._waiting.append((self._appended, callback))

    def evict(self, episode: str) -> None:
        """Note that an episode is forgotten, so that its entries are dropped later."""
        self.append(Evicted(episode))
        if self.sizes is not None:
            self.sizes.pop(episode, None)

    def close(self) -> None:
        """Write what is left, and close the file. Closing twice is no error."""
        if self._pieces:
            self._hand_over()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        if self._opened is not None:
            self._opened.close()
        self._broken = self._broken or ShuttingDown("the server stops; send the request again")

    def _write_pieces(self) -> None:
        """Write all entries that have come as one row, or let the thread do it."""
        if not self._pieces:  # the journal was closed in between
            return
        if self._by_thread:
            self._hand_over()
            return
        entries, appended = b"".join(self._pieces), self._appended
        began = time.perf_counter()
        try:
            self._insert(self._now(), entries)
        except sqlite3.Error:
            self._hand_over()  # the thread tries again, and says why it cannot
            return
        self._pieces = []
        self._by_thread = time.perf_counter() - began > SLOW_SECONDS
        self._busy = self._tidy(len(entries))
        self._acknowledge(appended, None)

    def _tidy(self, written: int = 0) -> bool:
        """Let the thread copy the log or drop a part of the garbage, if that is due; return whether it is."""
        self._since_checkpoint += written
        self._since_pass += written
        if self._pass is None and self._since_pass >= max(GARBAGE_BYTES, self._after_pass):
            self._since_pass = 0
            self._pass = self._garbage.begin()
        if self._since_checkpoint >= CHECKPOINT_BYTES:
            self._since_checkpoint = 0
            self._give(0, self._checkpoint)
        elif self._pass is not None:
            self._give(0, partial(self._drop_garbage, self._pass))
        else:
            return False
        return True

    def _hand_over(self) -> None:
        """Give the thread all entries that have come."""
        entries, self._pieces = b"".join(self._pieces), []
        self._since_checkpoint += len(entries)
        self._since_pass += len(entries)
        self._give(self._appended, partial(self._write, self._now(), entries))

    def _give(self, appended: int, job: Callable[[], LudusError | None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ludus-journal", daemon=True)
            self._thread.start()
        self._jobs.put((appended, job))

    def _now(self) -> float:
        """Return the Unix time, without the jumps of a clock that is set while this process runs."""
        return self._clock + time.monotonic()

    def _insert(self, at: float, entries: bytes) -> None:
        began = time.perf_counter()
        self._database.execute("INSERT INTO batches (at, entries) VALUES (?, ?)", (at, entries))
        self._counts.commit(len(entries), time.perf_counter() - began)

    def _acknowledge(self, appended: int, error: LudusError | None) -> None:
        """Answer what waited for the entries up to one of them."""
        self._committed = max(self._committed, appended)
        if error is not None:
            self._broken = ShuttingDown(error.message)
            self._committed = self._appended
        while self._waiting and self._waiting[0][0] <= self._committed:
            self._waiting.popleft()[1](error)

    # ── the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        error: LudusError | None = None
        while (given := self._jobs.get()) is not None:
            appended, job = given
            error = error or job()
            self._call(appended, error)

    def _drop_garbage(self, under_way: Pass) -> None:
        more = False
        try:
            more = under_way.do_part(self._database)
        except sqlite3.Error as error:
            log.warning("entries of forgotten episodes stay in the journal %s for now: %s", self.path, error)
        if not more:
            self._after_pass, self._pass = under_way.left, None

    def _checkpoint(self) -> None:
        try:
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            log.warning("the log of the journal %s cannot be copied into the file yet: %s", self.path, error)

    def _write(self, at: float, entries: bytes) -> LudusError | None:
        """Write a row; return the error if that failed for too long."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._insert(at, entries)
                return None
            except sqlite3.Error as error:
                log.warning("the journal %s cannot be written: %s", self.path, error)
                if time.monotonic() >= give_up:
                    return ShuttingDown(f"the server cannot write its journal ({error}); try again when it is back")
                time.sleep(RETRY_SECONDS)

    def _call(self, appended: int, error: LudusError | None) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._go_on, appended, error)
        except RuntimeError:
            log.debug("the event loop has ended before its requests were answered")

    def _go_on(self, appended: int, error: LudusError | None) -> None:
        """Answer what waited for a row of the thread, and write what has come meanwhile."""
        self._acknowledge(appended, error)
        self._by_thread = self.syncs
        if self._thread is None or error is not None:
            self._busy = False
        elif appended and self._tidy():  # a part of the garbage after each row, so that rows do not wait for all of it
            return
        elif self._pieces:
            self._write_pieces()
        else:
            self._busy = self._tidy()
