"""What journals have in common that write entries as rows: the event loop gathers entries, a thread writes them.

The event loop encodes entries and puts them into a list. At the end of its round, what has come becomes one row (a
group commit), which the thread writes; what comes meanwhile is the next row. When it is durable, the thread calls back
into the event loop, and the requests that waited for it are answered.

If a row cannot be written for long, the journal refuses: every request that waits, or comes later, is answered with
`ShuttingDown`, because an answer would be a promise that the next process does not know of. The host begins nothing
meanwhile that the journal must hold, so what waits in memory is bounded. Calls that were refused are undone
(`undoing.py`), and their entries dropped; all other entries are written first when that is possible again. If the
process ends before, the next one knows nothing of what was never acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import LudusError, ShuttingDown
from ludus.server.durability.codec import encode, encode_call, stored_in, without_undone
from ludus.server.durability.counts import JournalCounts, JournalStats
from ludus.server.durability.garbage import Garbage, Pass
from ludus.server.durability.journal import (
    Entry,
    Evicted,
    JournalUnusable,
    OnBroken,
    OnDurable,
    OnRefused,
    SettledCall,
    Stored,
)

log = logging.getLogger("ludus.server.journal")

GARBAGE_BYTES: Final = 64 * 1024 * 1024
"""The least bytes of new entries after which those of forgotten episodes are dropped."""

Row = tuple[int, float, bytes]
"""The number, the time and the entries of a row."""

Job = Callable[[], LudusError | None]
Callback = Callable[[int, LudusError | None], None]


class RowJournal(ABC):
    """The part of a journal that gathers entries and has them written as rows.

    Args:
        syncs: whether an entry is durable only once it survives the loss of power.
    """

    survives = True
    wants_asked = False

    def __init__(self, *, syncs: bool) -> None:
        self.syncs = syncs
        self.sizes: Counter[str] | None = None
        self._pieces: list[bytes] = []
        """What has come since the last row."""
        self._jobs: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
        """What the thread has to do, each with the number of entries that are written then."""
        self._busy = False
        """Whether the thread has something to do, or a row is written at the end of this round of the event loop."""
        self._garbage = Garbage()
        self._read = 0
        """The number of the last row of an earlier process that was read."""
        self._read_bytes = 0
        """The bytes of the rows that were read while another process wrote."""
        self._peeked = False
        """Whether it was read while another process wrote."""
        self._read_sizes = Counter[str]()
        """The bytes of the entries of each episode that were read."""
        self._since_pass = 0
        self._after_pass = 0
        """The bytes that the last pass has left."""
        self._pass: Pass | None = None
        """The pass that is under way."""
        self._failed_pass: Pass | None = None
        """A pass that failed; set by the thread."""
        self._appended = 0
        self._committed = 0
        self._waiting: deque[tuple[int, OnDurable]] = deque()
        self._patient: deque[tuple[int, OnDurable]] = deque()
        """What also waits through a refusal."""
        self.refusal: ShuttingDown | None = None
        self.on_refused: OnRefused = lambda refusal: {}
        self._revised = queue.SimpleQueue[bytes]()
        """For the thread: the row that was refused, without what was undone."""
        self._ended = False
        """Whether nothing is written any more."""
        self._on_broken: OnBroken | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._counts = JournalCounts()
        self._clock = time.time() - time.monotonic()
        """What makes the times of entries from a clock that is never set."""

    @abstractmethod
    def _write(self, at: float, entries: bytes) -> LudusError | None:
        """Write a row, in the thread; return the error if that failed for too long."""

    @abstractmethod
    def _drop_garbage(self, under_way: Pass) -> LudusError | None:
        """Do a part of a pass, in the thread."""

    @abstractmethod
    def _close(self) -> None:
        """Free what the journal holds. Nothing is written afterwards."""

    @abstractmethod
    def _rows_of_other(self, after: int) -> Iterable[Row]:
        """Return the rows after one, while another process may write."""

    @abstractmethod
    def _rows(self, after: int) -> Iterable[Row]:
        """Return the rows after one; the journal is open."""

    @abstractmethod
    def _bytes_of_rows(self, upto: int) -> int:
        """Return the bytes of the rows up to one; the journal is open."""

    @abstractmethod
    def _unreadable(self, seq: int, error: ValueError) -> JournalUnusable:
        """Return the error for a row that cannot be read."""

    @abstractmethod
    def _drop_others(self, episodes: frozenset[str], instead: bytes) -> None:
        """Drop the stored entries of all episodes except some, and append a row, all at once."""

    # ── what an earlier process left ───────────────────────────────────────────────────────────────────────────────

    def peek(self) -> Iterator[Stored]:
        """Yield what another process, which still writes, has appended since this was called last, oldest first.

        If it fails, all is yielded again, by the next call or by `stored`.

        Raises:
            JournalUnusable: it cannot be read.
            OSError: likewise.
        """
        try:
            yield from self._decoded(self._rows_of_other(self._read))
        except BaseException:
            self._forget_read()  # who asked may not have got all of it
            raise

    def keeps_what_was_peeked(self) -> bool:
        """Return whether the rows that `peek` read are unchanged; otherwise `stored` yields all.

        The other process may have dropped entries of episodes that were forgotten since.

        Raises:
            JournalUnusable: it cannot be read.
        """
        if self._bytes_of_rows(self._read) == self._read_bytes:
            return True
        self._forget_read()
        return False

    def stored(self) -> Iterator[Stored]:
        """Yield what earlier processes appended and `peek` did not yield, oldest first.

        Raises:
            JournalUnusable: an entry cannot be read.
        """
        # Set here and not by `peek`, because `keeps_what_was_peeked` may have found that what was peeked is gone.
        self._peeked = self._read > 0
        yield from self._decoded(self._rows(self._read))

    def compact(self, keep: Iterable[str], instead: Iterable[Entry] = ()) -> None:
        """Drop the stored entries of all episodes except these, and replace those of no episode, all at once.

        If this process has taken over from another one, it does so while it serves.

        Raises:
            JournalUnusable: it cannot be written.
        """
        episodes = frozenset(keep)
        self._garbage.forget_others(episodes, later=self._peeked)
        # After a takeover requests wait already, and rewriting all rows would take long; the passes drop them later.
        if not self._peeked:
            self._drop_others(episodes, b"".join(map(encode, instead)))
        if self.sizes is not None:
            self.sizes.update({episode: size for episode, size in self._read_sizes.items() if episode in episodes})
        self._read_sizes.clear()

    def _forget_read(self) -> None:
        self._garbage, self._read, self._read_bytes, self._read_sizes = Garbage(), 0, 0, Counter()

    def _decoded(self, rows: Iterable[Row]) -> Iterator[Stored]:
        """Yield the entries of rows, and note what they mean."""
        for seq, at, batch in rows:
            try:
                # A list, so that a row that cannot be read is found before any entry of it counts.
                entries = list(stored_in(batch, at, self._read_sizes))
            except ValueError as error:
                raise self._unreadable(seq, error) from None
            self._read, self._read_bytes = seq, self._read_bytes + len(batch)
            for stored in entries:
                self._garbage.note(stored.entry)
                yield stored

    # ── the event loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, url: str, on_broken: OnBroken) -> None:
        """Note what to call once the journal is broken."""
        self._loop = asyncio.get_running_loop()
        self._on_broken = on_broken
        if self.refusal is not None:
            on_broken(self.refusal)

    @property
    @abstractmethod
    def trouble(self) -> str | None:
        """Why the last attempt to write failed, for operators; None if it did not."""

    def stats(self) -> JournalStats:
        """Return its state and counts for `/metrics`."""
        return JournalStats(self._counts, self._appended - self._committed, self.refusal is not None)

    def append(self, entry: Entry) -> None:
        """Append an entry, which becomes durable a little later."""
        if not self._ended:
            self._garbage.note(entry)
            self._pieces.append(piece := encode(entry))
            if self.sizes is not None and entry.episode:
                self.sizes[entry.episode] += len(piece)
            self._appended += 1
            # One row at a time: while the thread writes, entries gather, and `_go_on` makes the next row of them.
            if not self._busy:
                self._write_soon()

    def append_call(self, episode: str, call: SettledCall, outcome: StepResult | LudusError) -> bytes | None:
        """Append a call together with its outcome, and return the outcome as it is sent, if that was made."""
        if self._ended:
            return None
        pieces, encoded = encode_call(episode, call, outcome)
        self._pieces += pieces
        if self.sizes is not None:
            self.sizes[episode] += sum(map(len, pieces))
        self._appended += 1
        if not self._busy:
            self._write_soon()
        return encoded

    def when_durable(self, callback: OnDurable) -> None:
        """Call `callback` once all entries appended so far are durable, or with the error that prevents it."""
        # During a refusal nothing waits: the caller must not promise what may never be written.
        if self.refusal is not None or self._committed == self._appended:
            callback(self.refusal)
        else:
            self._waiting.append((self._appended, callback))

    def when_written(self, callback: OnDurable) -> None:
        """Call `callback` once all entries appended so far are durable, or with the error if they never will be."""
        if self._ended or self._committed == self._appended:
            callback(self.refusal)
        else:
            self._patient.append((self._appended, callback))

    def evict(self, episode: str) -> None:
        """Note that an episode is forgotten, so that its entries are dropped later."""
        self.append(Evicted(episode))
        if self.sizes is not None:
            self.sizes.pop(episode, None)

    def close(self) -> None:
        """Write what is left, and free what the journal holds. Closing twice is no error."""
        if self._pieces:
            self._hand_over()
        # The thread is joined before the file is closed, because its last row may still be on the way.
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._close()
        self.refusal = self.refusal or ShuttingDown("the server stops; send the request again")
        self._ended = True

    def _write_soon(self) -> None:
        self._busy = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._write_pieces)

    def _write_pieces(self) -> None:
        """Have all entries that have come written as one row."""
        if self._pieces:  # unless the journal was closed in between
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the thread all entries that have come."""
        # Joined here and not in the thread: entries that come from now on belong to the next row.
        entries, self._pieces = b"".join(self._pieces), []
        self._count(len(entries))
        self._give(self._appended, partial(self._write, self._now(), entries))

    def _now(self) -> float:
        """Return the Unix time, without the jumps of a clock that is set while this process runs."""
        return self._clock + time.monotonic()

    def _count(self, written: int) -> None:
        """Count the bytes of a row."""
        self._since_pass += written

    def _give(self, appended: int, job: Job) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ludus-journal", daemon=True)
            self._thread.start()
        self._jobs.put((appended, job))

    def _tidy(self) -> bool:
        """Let the thread drop a part of the garbage, if that is due; return whether it is."""
        failed, self._failed_pass = self._failed_pass, None
        if failed is not None:
            self._garbage.put_back(failed)
        if self._pass is None and self._since_pass >= max(GARBAGE_BYTES, self._after_pass):
            self._since_pass = 0
            self._pass = self._garbage.begin()
        if self._pass is None:
            return False
        self._give(0, partial(self._drop_garbage, self._pass))
        return True

    def _acknowledge(self, appended: int, error: LudusError | None) -> None:
        """Answer what waited for the entries up to one of them."""
        # The jobs that drop garbage come with 0, and must not take back what is committed.
        self._committed = max(self._committed, appended)
        if error is not None:
            self._give_up(error)
        # A callback may append entries and wait for them, so the queue is looked at again after each.
        while self._waiting and self._waiting[0][0] <= self._committed:
            self._waiting.popleft()[1](error)
        while self._patient and self._patient[0][0] <= self._committed:
            self._patient.popleft()[1](error)

    def _give_up(self, error: LudusError) -> None:
        """Write nothing any more."""
        ended, self._ended = self._ended, True
        self.refusal = error if isinstance(error, ShuttingDown) else ShuttingDown(error.message)
        # Everything that waits is answered with the error now, and nothing may wait any more.
        self._committed = self._appended
        self._pieces = []
        if not ended and self._on_broken is not None:
            self._on_broken(self.refusal)

    def _refuse(self, row: bytes, _: int, error: LudusError | None) -> None:
        """Answer what waits with the error that keeps a row from being written; the thread goes on trying.

        The thread waits for the row that it is to try from now on, which is without what was undone.
        """
        if not self._ended and isinstance(error, ShuttingDown):
            self.refusal = error
            waiting, self._waiting = self._waiting, deque()
            for _, callback in waiting:
                callback(error)
            # After the waiters were answered: what is undone are the calls whose outcomes they were just refused.
            row = self._undo(row)
        self._revised.put(row)

    def undo(self) -> None:
        """Undo what was refused since the refusal began."""
        self._undo(b"")

    def _undo(self, row: bytes) -> bytes:
        """Undo what was refused; return a row that is not written without that."""
        if self.refusal is None or self._ended or not (undone := self.on_refused(self.refusal)):
            return row
        # What has gathered since the row that is refused may hold outcomes of the same calls.
        self._pieces = [without_undone(b"".join(self._pieces), undone, self.sizes)]
        return without_undone(row, undone, self.sizes)

    def _go_on(self, appended: int, error: LudusError | None) -> None:
        """Answer what waited for a row of the thread, and write what has come meanwhile."""
        if appended and error is None and not self._ended:
            self.refusal = None
        self._acknowledge(appended, error)
        if self._thread is None or error is not None:
            self._busy = False
        elif appended and self._tidy():  # a part of the garbage after each row, so that rows do not wait for all of it
            return
        elif self._pieces:
            self._write_pieces()
        else:
            self._busy = self._tidy()

    # ── the thread ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _serve(self) -> None:
        error: LudusError | None = None
        while (item := self._jobs.get()) is not None:
            appended, job = item
            error = error or job()
            self._call(self._go_on, appended, error)

    def _call(
        self, function: Callable[[int, LudusError | None], None], appended: int, error: LudusError | None
    ) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, appended, error)
        except RuntimeError:
            log.debug("the event loop has ended before its requests were answered")
