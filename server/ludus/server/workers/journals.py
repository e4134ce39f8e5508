"""The journals of workers: which there are, which belong to a worker, and their end."""

from __future__ import annotations

import shutil
from pathlib import Path

from ludus.server.durability.journals import open_database
from ludus.server.serving.serve import ServeError, journals_of_workers
from ludus.server.serving.settings import ServerSettings

ENDINGS = ("", "-wal", "-shm")
"""How the names of an SQLite database's files end."""


def file_of(journal: Path, worker: str) -> Path:
    """Return the journal file of a worker."""
    return journal.with_name(f"{journal.name}.{worker}")


def check_journals(settings: ServerSettings) -> None:
    """Refuse to start if there is a journal whose episodes workers would not serve, or no place for journals.

    Raises:
        ServeError: the message says what to change.
        JournalUnusable: the database cannot be used.
    """
    if settings.journal_url is not None:
        database = open_database(settings.journal_url)
        if "" in database.workers():
            raise _of_one_process(database.shown, "database")
    if (journal := settings.journal) is None:
        return
    if journal.is_dir():
        raise ServeError(f"{journal} is a folder; name a file in it, such as {journal / 'episodes.db'}")
    if journal.exists():
        raise _of_one_process(f"{journal}", "file")
    if not journal.parent.is_dir():
        raise ServeError(f"there is no folder {journal.parent} for the journals; make it, or name another file")


def workers_with_journals(settings: ServerSettings) -> list[str]:
    """Return the ids of the workers of earlier servers that have left journals.

    Raises:
        JournalUnusable: the database cannot be used.
    """
    if settings.journal is not None:
        return journals_of_workers(settings.journal)
    workers = open_database(settings.journal_url).workers() if settings.journal_url is not None else []
    return [name for name in workers if name.startswith("w") and name[1:].isdigit()]


def forget_journal(settings: ServerSettings, worker: str) -> None:
    """Remove the journal of a worker that has no episodes and no process.

    Raises:
        JournalUnusable: the database cannot be used.
    """
    if settings.journal_url is not None:
        open_database(settings.journal_url).forget(worker)
    if settings.journal is not None:
        file = file_of(settings.journal, worker)
        for ending in ENDINGS:
            file.with_name(file.name + ending).unlink(missing_ok=True)
        shutil.rmtree(file.with_name(file.name + ".snapshots"), ignore_errors=True)


def _of_one_process(journal: str, kind: str) -> ServeError:
    return ServeError(
        f"{journal} has the journal of a server without workers, whose episodes workers do not serve: name another "
        f"{kind}, or leave out --workers"
    )
