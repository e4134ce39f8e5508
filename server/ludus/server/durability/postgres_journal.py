"""A journal in a PostgreSQL database: episodes survive the death of their server, and of its machine.

How this works:

* One thread writes rows (`rows.py`), each with one statement, which is a transaction of its own. A row has the
  next number of its worker. The requests that waited for it are answered after its commit.
* The worker's lease (`postgres_lease.py`) makes this process the only writer.
* If a connection breaks while a row is committed, the row may be there or not. The statement is sent again with the
  same number, and does nothing where the row is there already; so a row is never lost and never written twice.
* While the database is away, rows wait and are tried again for `PATIENCE_SECONDS`. Then the journal is broken.
* A broken journal ends its process (`begin`), because another process, or a later one, has to go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, LiteralString

import psycopg

from ludus.protocol.errors import LudusError, ShuttingDown
from ludus.server.durability.codec import split
from ludus.server.durability.garbage import Pass
from ludus.server.durability.journal import JournalUnusable, OnBroken, OnDurable
from ludus.server.durability.postgres import Database, Link, reason
from ludus.server.durability.postgres_lease import FENCED, Lease, LeaseLost
from ludus.server.durability.postgres_recorded import read_rows, unreadable
from ludus.server.durability.postgres_snapshots import PostgresSnapshots
from ludus.server.durability.rows import Row, RowJournal

log = logging.getLogger("ludus.server.journal")

PAGE_ROWS: Final = 64
"""How many rows are read at a time."""

_INSERT: Final[LiteralString] = FENCED + (
    "INSERT INTO ludus.batches (worker, seq, at, entries)"
    " SELECT %(worker)s, %(seq)s, %(at)s, %(entries)b FROM lease ON CONFLICT DO NOTHING"
)
_READ: Final[LiteralString] = (
    "SELECT seq, at, entries FROM ludus.batches WHERE worker = %(worker)s AND seq > %(after)s AND seq <= %(upto)s"
    " ORDER BY seq LIMIT %(rows)s"
)
_REPLACE: Final[LiteralString] = FENCED + (
    "UPDATE ludus.batches SET entries = new.entries FROM lease,"
    " unnest(%(seqs)s::bigint[], %(entries)s::bytea[]) AS new (seq, entries)"
    " WHERE worker = %(worker)s AND batches.seq = new.seq"
)
_DELETE: Final[LiteralString] = FENCED + (
    "DELETE FROM ludus.batches USING lease WHERE worker = %(worker)s AND seq = ANY(%(seqs)s::bigint[])"
)
_BYTES: Final[LiteralString] = (
    "SELECT coalesce(sum(octet_length(entries)), 0)::bigint FROM ludus.batches"
    " WHERE worker = %(worker)s AND seq <= %(upto)s"
)
_LAST: Final[LiteralString] = "SELECT coalesce(max(seq), 0) FROM ludus.batches WHERE worker = %(worker)s"


class PostgresJournal(RowJournal):
    """The journal of one worker in a database.

    Args:
        database: the database.
        worker: the worker's id; empty for a server without one.
        opened: whether to open it at once, and not when `open` is called.

    Raises:
        JournalUnusable: the database cannot be used, or another process keeps the worker's lease.
    """

    def __init__(self, database: Database, worker: str = "", *, opened: bool = True) -> None:
        super().__init__(syncs=database.sync == "full")
        self.key: bytes | None = None
        self._database = database
        self._lease = Lease(database, worker)
        self._link = database.link()
        self._stored_rows = Rows(self._link, self._lease)
        self._seq = 0
        self.snapshot_store = PostgresSnapshots(database, self._lease)
        if opened:
            self.open()

    def open(self) -> None:
        """Make the tables where they are missing, and take the lease. Opening twice is no error.

        Raises:
            JournalUnusable: see the class.
        """
        if self.key is not None:
            return
        try:
            key = self._database.prepare()
            # The lease comes before the last number: the process that held it may write rows until then.
            self._lease.take()
            self._seq = self._stored_rows.last()
        except psycopg.Error as error:
            self._database.close()
            raise self._database.unusable(error) from None
        except BaseException:
            # Another process may hold the lease (`JournalUnusable`).
            self._database.close()
            raise
        self.key = key
        self._lease.keep(self._lease_lost)

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to write failed, or to renew the lease, for operators; None if neither did."""
        return self._link.trouble or self._lease.trouble

    def begin(self, url: str, on_broken: OnBroken) -> None:
        """Note where the server listens, and what to call once the journal is broken."""
        self._lease.url = url
        super().begin(url, on_broken)

    # ── what an earlier process left ───────────────────────────────────────────────────────────────────────────────

    def _rows_of_other(self, after: int) -> Iterator[Row]:
        return read_rows(self._database, self._lease.worker, after)

    def _rows(self, after: int) -> Iterator[Row]:
        try:
            for page in self._stored_rows.pages(after, self._seq):
                yield from page
        except psycopg.Error as error:
            raise self._database.unusable(error) from None

    def _bytes_of_rows(self, upto: int) -> int:
        try:
            return self._stored_rows.size(upto)
        except psycopg.Error as error:
            raise self._database.unusable(error) from None

    def _unreadable(self, seq: int, error: ValueError) -> JournalUnusable:
        return unreadable(self._database, self._lease.worker, seq, error)

    def _drop_others(self, episodes: frozenset[str], instead: bytes) -> None:
        try:
            with self._link.transaction():
                for page in self._stored_rows.pages(0, self._seq):
                    self._compact_page(page, episodes)
                if instead:  # once: outside this transaction, it would be too much
                    parameters = {
                        **self._stored_rows.fence,
                        "seq": self._seq + 1,
                        "at": time.time(),
                        "entries": instead,
                    }
                    self._link.run(_INSERT, parameters)
                    self._seq += 1
        except psycopg.Error as error:
            raise self._database.unusable(error) from None

    def _compact_page(self, page: list[Row], episodes: frozenset[str]) -> None:
        changed: dict[int, bytes] = {}
        for seq, _, batch in page:
            remaining = b"".join(entry for _, episode, _, _, entry in split(batch) if episode in episodes)
            if len(remaining) < len(batch):
                changed[seq] = remaining
        self._stored_rows.replace(changed)

    # ── the event loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def when_durable(self, callback: OnDurable) -> None:
        """Call `callback` once all entries appended so far are durable, or with the error that prevents it.

        If another process may have taken over, an answer may be old even if nothing is to be written: then the thread
        checks the lease first, as if it wrote a row without entries.
        """
        if self._committed == self._appended and self.refusal is None and not self._lease.fresh:
            # An empty entry makes a row, whose job checks the lease and then answers what waits, like any other.
            self._pieces.append(b"")
            self._appended += 1
            if not self._busy:
                self._write_soon()
        super().when_durable(callback)

    def _close(self) -> None:
        self._database.closing.set()
        # After the last row, because another process may write from then on; before the connections close, which it
        # needs.
        self._lease.release()
        self._database.close()

    def close(self) -> None:
        """Write what is left, and free the lease. Closing twice is no error."""
        self._database.closing.set()  # what cannot be written at once is not tried again
        super().close()

    # ── other threads ──────────────────────────────────────────────────────────────────────────────────────────────

    def _lease_lost(self, error: LeaseLost) -> None:
        log.error("%s", error.message)
        if self._loop is None:
            # Lost before the server listens: there is no event loop yet, and nothing waits.
            self.refusal, self._ended = error, True
        else:
            self._call(self._acknowledge, 0, error)

    def _write(self, at: float, entries: bytes) -> LudusError | None:
        """Write a row; return the error if that failed for too long."""
        try:
            if entries:
                self._insert(at, entries)
            else:
                self._lease.check(self._link)
        except LeaseLost as error:
            return error
        except psycopg.Error as error:
            log.error("the journal %s is given up: %s", self._database.shown, reason(error))
            return ShuttingDown(f"the server cannot write its journal ({reason(error)}); try again when it is back")
        return None

    def _insert(self, at: float, entries: bytes) -> None:
        """Write a row once.

        Raises:
            LeaseLost: another process has taken over.
            psycopg.Error: the database is away for too long.
        """
        seq, until = self._seq + 1, time.monotonic() + self._database.patience
        parameters = {**self._stored_rows.fence, "seq": seq, "at": at, "entries": entries}
        began = time.perf_counter()
        # No row: either the lease is lost, which `check` raises, or the row is there already.
        while not self._link.run_patiently(_INSERT, parameters, until).rowcount:
            self._lease.check(self._link, until)
            written = self._link.run_patiently(_READ, {**self._stored_rows.page, "after": seq - 1, "upto": seq}, until)
            if written.fetchone() is not None:  # an earlier attempt was committed, and its answer was lost
                break
        self._seq = seq
        self._counts.commit(len(entries), time.perf_counter() - began)

    def _drop_garbage(self, under_way: Pass) -> None:
        more = False
        try:
            more = under_way.do_part(self._stored_rows)
        except psycopg.Error as error:
            self._failed_pass = under_way
            log.warning(
                "entries of forgotten episodes stay in the journal %s for now: %s", self._database.shown, reason(error)
            )
        if not more:
            self._after_pass, self._pass = under_way.remaining_bytes, None


class Rows:
    """The rows of one worker.

    Args:
        link: a link to the database.
        lease: the worker's lease.
    """

    def __init__(self, link: Link, lease: Lease) -> None:
        self._link = link
        self._lease = lease

    @property
    def fence(self) -> dict[str, Any]:
        """The parameters of `FENCED`."""
        return {"worker": self._lease.worker, "epoch": self._lease.epoch}

    @property
    def page(self) -> dict[str, Any]:
        """The parameters of a page of rows, without those that say which."""
        return {"worker": self._lease.worker, "rows": PAGE_ROWS}

    def pages(self, after: int, upto: int) -> Iterator[list[Row]]:
        """Yield the number, the time and the entries of the rows after one and up to one, some at a time."""
        while rows := self._link.run(_READ, {**self.page, "after": after, "upto": upto}).fetchall():
            yield rows
            after = rows[-1][0]

    def last(self) -> int:
        """Return the number of the last row."""
        row = self._link.run(_LAST, {"worker": self._lease.worker}).fetchone()
        assert row is not None
        return int(row[0])

    def size(self, upto: int) -> int:
        """Return the bytes of the rows up to one."""
        row = self._link.run(_BYTES, {"worker": self._lease.worker, "upto": upto}).fetchone()
        assert row is not None
        return int(row[0])

    def some(self, after: int, upto: int, size: int) -> list[tuple[int, bytes]]:
        """Return some rows, in order; how many does not depend on their bytes."""
        rows = self._link.run(_READ, {**self.page, "after": after, "upto": upto}).fetchall()
        return [(seq, entries) for seq, _, entries in rows]

    def replace(self, rows: Mapping[int, bytes]) -> None:
        """Replace rows, and delete those that are empty now. Both can be done again."""
        changed = {seq: entries for seq, entries in rows.items() if entries}
        if changed:
            self._link.run(_REPLACE, {**self.fence, "seqs": list(changed), "entries": list(changed.values())})
        if deleted := [seq for seq in rows if seq not in changed]:
            self._link.run(_DELETE, {**self.fence, "seqs": deleted})
