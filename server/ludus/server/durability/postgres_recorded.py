"""Reads the journals of all workers of a database, without changing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import psycopg

from ludus.server.durability.codec import stored_in
from ludus.server.durability.journal import JournalUnusable, Stored
from ludus.server.durability.postgres import Database

PAGE_ROWS: Final = 64
"""How many rows are read at a time."""


def read_database(database: Database, sizes: Counter[str]) -> Iterator[Stored]:
    """Yield all entries of all workers, the oldest of each worker first.

    Args:
        database: the database.
        sizes: gets the bytes of each episode's entries.

    Raises:
        JournalUnusable: the database cannot be used, or has no journal of this version, or a row cannot be read.
    """
    try:
        with database.open_read_only() as connection, connection.cursor("rows") as rows:
            rows.itersize = PAGE_ROWS
            rows.execute("SELECT worker, seq, at, entries FROM ludus.batches ORDER BY worker, seq")
            for worker, seq, at, batch in rows:
                try:
                    yield from stored_in(batch, at, sizes)
                except ValueError as error:
                    raise unreadable(database, worker, seq, error) from None
    except psycopg.Error as error:
        raise database.unusable(error) from None


def read_rows(database: Database, worker: str, after: int) -> Iterator[tuple[int, float, bytes]]:
    """Yield the number, the time and the entries of a worker's rows after one, the oldest first.

    Raises:
        JournalUnusable: the database cannot be used, or has no journal of this version.
    """
    try:
        with database.open_read_only() as connection, connection.cursor("rows") as rows:
            rows.itersize = PAGE_ROWS
            rows.execute(
                "SELECT seq, at, entries FROM ludus.batches WHERE worker = %s AND seq > %s ORDER BY seq",
                (worker, after),
            )
            yield from rows
    except psycopg.Error as error:
        raise database.unusable(error) from None


def unreadable(database: Database, worker: str, seq: int, error: ValueError) -> JournalUnusable:
    """Return the error for a row that cannot be read."""
    whose = f" of worker {worker}" if worker else ""
    return JournalUnusable(
        f"row {seq}{whose} of the journal {database.shown} cannot be read ({error}); name another database, or "
        "restore this one"
    )
