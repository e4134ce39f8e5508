"""The stores of journals, which tests open, look into and damage: an SQLite file, and a PostgreSQL database."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

from postgres_server import PostgresServer, name_of

from ludus.server.durability.journal import Journal, Sync
from ludus.server.durability.journals import open_journal

KINDS = ("sqlite", "postgres")


class Store(Protocol):
    """Where a journal is."""

    name: str
    """What `--journal` takes."""

    def open(self, sync: Sync = "normal", worker: str | None = None) -> Journal:
        """Open the journal in this process."""
        ...

    def rows(self) -> list[bytes]:
        """The entries of each row."""
        ...

    def add_row(self, seq: int, entries: bytes) -> None:
        """Add a row."""
        ...

    def age(self, seconds: float) -> None:
        """Let all rows be older."""
        ...

    def parts(self) -> Counter[str]:
        """The number of parts of snapshots, by episode."""
        ...

    def spoil_parts(self, episode: str) -> None:
        """Change the parts of an episode."""
        ...


class SqliteStore:
    """An SQLite file."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path
        self._snapshots = path.with_name(path.name + ".snapshots")

    def open(self, sync: Sync = "normal", worker: str | None = None) -> Journal:
        journal = open_journal(self.path, None, sync, worker)
        assert journal is not None
        return journal

    def rows(self) -> list[bytes]:
        with closing(sqlite3.connect(self.path)) as database:
            return [entries for (entries,) in database.execute("SELECT entries FROM batches ORDER BY seq")]

    def add_row(self, seq: int, entries: bytes) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            database.execute("INSERT INTO batches VALUES (?, 0.0, ?)", (seq, entries))

    def age(self, seconds: float) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            database.execute("UPDATE batches SET at = at - ?", (seconds,))

    def parts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for folder in self._snapshots.iterdir() if self._snapshots.is_dir() else ():
            with suppress(FileNotFoundError):  # the server removes folders meanwhile
                found[folder.name] = len(list(folder.iterdir()))
        return found

    def spoil_parts(self, episode: str) -> None:
        for path in (self._snapshots / episode).iterdir():
            path.write_bytes(b"something else")


class PostgresStore:
    """A database of its own."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = server.new_url()

    def sql(self, statement: str) -> str:
        """Run a statement, and return what it answers."""
        return self.server.sql(statement, name_of(self.name))

    def open(self, sync: Sync = "normal", worker: str | None = None) -> Journal:
        if sync == "full":
            self.server.flush(on=True)
        journal = open_journal(None, self.name, sync, worker)
        assert journal is not None
        return journal

    def rows(self) -> list[bytes]:
        found = self.sql("SELECT encode(entries, 'hex') FROM ludus.batches ORDER BY worker, seq")
        return [bytes.fromhex(line) for line in found.splitlines()]

    def add_row(self, seq: int, entries: bytes) -> None:
        self.sql(f"INSERT INTO ludus.batches VALUES ('', {seq}, 0, '\\x{entries.hex()}')")

    def age(self, seconds: float) -> None:
        self.sql(f"UPDATE ludus.batches SET at = at - {seconds}")

    def parts(self) -> Counter[str]:
        found = self.sql("SELECT episode || ' ' || count(*) FROM ludus.parts GROUP BY episode")
        return Counter({name: int(count) for name, count in map(str.split, found.splitlines())})

    def spoil_parts(self, episode: str) -> None:
        those = f"SELECT sha256 FROM ludus.parts WHERE episode = '{episode}'"
        self.sql(f"UPDATE ludus.blobs SET data = '\\x00' WHERE sha256 IN ({those})")


def digest_of(data: bytes) -> str:
    """The name of a part."""
    return hashlib.sha256(data).hexdigest()
