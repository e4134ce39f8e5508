"""Finds the journal that the settings of a server name: a file, or a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ludus.common.distribution import DISTRIBUTION
from ludus.server.durability.journal import Journal, JournalUnusable, Sync

if TYPE_CHECKING:  # imported where needed: only a journal in a database needs the package psycopg
    from ludus.server.durability.postgres import Database


def open_database(url: str, sync: Sync = "normal") -> Database:
    """Return the database of a URL, which is not yet connected to.

    Raises:
        JournalUnusable: the package is missing, or the URL is not one.
    """
    try:
        from ludus.server.durability.postgres import Database
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] == "ludus":
            raise
        raise JournalUnusable(
            "a journal in PostgreSQL needs the package psycopg; install it with: "
            f"pip install '{DISTRIBUTION}[postgres]'"
        ) from None
    return Database(url, sync)


def journal_of(file: Path | None, url: str | None, sync: Sync, worker: str | None) -> Journal | None:
    """Return the journal of a server process, which is not open yet; None for a server without one.

    Args:
        file: the file of the journal.
        url: the URL of the database that has the journal instead.
        sync: what the journal survives.
        worker: the worker id of the process, of which the database has one journal each.

    Raises:
        JournalUnusable: the package for the database is missing, or the URL is not one.
    """
    if url is not None:
        database = open_database(url, sync)
        from ludus.server.durability.postgres_journal import PostgresJournal

        return PostgresJournal(database, worker or "", opened=False)
    if file is None:
        return None
    from ludus.server.durability.sqlite_journal import SqliteJournal

    return SqliteJournal(file, sync, opened=False)


def open_journal(file: Path | None, url: str | None, sync: Sync, worker: str | None) -> Journal | None:
    """Return the journal of a server process, and open it; see `journal_of`.

    Raises:
        JournalUnusable: it cannot be used.
    """
    journal = journal_of(file, url, sync, worker)
    if journal is not None:
        journal.open()
    return journal
