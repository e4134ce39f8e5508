"""The PostgreSQL database of journals: connections to it, its tables, and what its errors mean.

How this works:

* All tables are in the schema `ludus`, which is made where it is missing. One database holds the journals of many
  workers; each row names its worker.
* `Link` is one connection, which is made again when it has broken. A statement that failed is sent again until its
  patience ends, so each statement must do no harm when it runs twice.
* A statement of a database that answers nothing (its machine is away, its processes are stopped) would wait forever.
  One thread looks at all links every second, and cuts those that have waited for `STATEMENT_SECONDS`.
* Every connection commits as `synchronous_commit` says: `local` waits until the database has the commit on its disk,
  `on` also until its synchronous standbys have it. `off` would lose acknowledged rows with the database's processes,
  which hold them in memory for a while.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, LiteralString

import psycopg
import psycopg.sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ludus.server.durability.database_urls import without_password
from ludus.server.durability.journal import JournalUnusable, Sync

log = logging.getLogger("ludus.server.journal")

VERSION: Final = 1
"""The version of the schema."""

PATIENCE_SECONDS: Final = 120.0
"""How long a failing statement is tried again while the server runs."""

RETRY_SECONDS: Final = 0.2

STATEMENT_SECONDS: Final = 30.0
"""How long one statement may wait for its answer."""

CLOSING_SECONDS: Final = 5.0
"""The same once the journal closes."""

IDLE_TRANSACTION: Final = "5s"
"""How long the database lets a client that has stopped keep a transaction open."""

KEY_BYTES: Final = 32

_LOOK_SECONDS: Final = 1.0
_MAKING: Final = 0x6C75647573
"""The number of the lock that is held while the tables are made."""

_DEFAULTS: Final[Mapping[str, str]] = {
    "application_name": "ludus", "connect_timeout": "5", "keepalives_idle": "5", "keepalives_interval": "2",
    "keepalives_count": "3", "tcp_user_timeout": "10000",
}  # fmt: skip
"""What a URL may change: a connection that leads nowhere is found within about ten seconds."""

_TABLES: Final[tuple[LiteralString, ...]] = (
    "CREATE TABLE IF NOT EXISTS ludus.meta (name text PRIMARY KEY, value bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ludus.leases (worker text PRIMARY KEY, epoch bigint NOT NULL, holder text NOT NULL,"
    " url text NOT NULL, backend integer NOT NULL, backend_start timestamptz NOT NULL, expires timestamptz NOT NULL)",
    "CREATE TABLE IF NOT EXISTS ludus.batches (worker text, seq bigint, at double precision NOT NULL,"
    " entries bytea NOT NULL, PRIMARY KEY (worker, seq))",
    "CREATE TABLE IF NOT EXISTS ludus.blobs (worker text, sha256 text, data bytea NOT NULL,"
    " PRIMARY KEY (worker, sha256))",
    "CREATE TABLE IF NOT EXISTS ludus.parts (worker text, sha256 text, episode text,"
    " PRIMARY KEY (worker, sha256, episode))",
    "CREATE INDEX IF NOT EXISTS parts_of_episode ON ludus.parts (worker, episode)",
    "CREATE TABLE IF NOT EXISTS ludus.starts (digest bytea PRIMARY KEY, worker text NOT NULL,"
    " at double precision NOT NULL)",
)

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]


class Database:
    """The database at a URL.

    Args:
        url: its URL.
        sync: what commits survive.

    Raises:
        JournalUnusable: the URL is not one.
    """

    def __init__(self, url: str, sync: Sync = "normal") -> None:
        self.shown = without_password(url)
        """The URL without its password."""
        self.sync: Final = sync
        try:
            settings = {name: str(value) for name, value in conninfo_to_dict(url).items()}
            self._conninfo = make_conninfo(**{**_DEFAULTS, **settings})
        except psycopg.Error:  # whose message may have the password
            raise JournalUnusable(
                f"{self.shown} is no URL of PostgreSQL; write postgresql://USER@HOST:PORT/DATABASE, with the special "
                "characters of a name or a password percent-encoded"
            ) from None
        self.patience = PATIENCE_SECONDS
        """How long a failing statement is tried again."""
        self.closing = threading.Event()
        """Whether what fails is not tried again."""
        self._closed = threading.Event()
        self._links: list[Link] = []
        self._watcher: threading.Thread | None = None

    def connect(self) -> Connection:
        """Return a new connection, on which each statement is a transaction of its own.

        Raises:
            psycopg.Error: the database cannot be reached, or refuses; or the journal is closed.
        """
        if self._closed.is_set():
            raise psycopg.OperationalError("the journal is closed")
        # With autocommit: each statement is to be durable when it returns.
        connection = psycopg.connect(self._conninfo, autocommit=True)
        try:
            connection.execute(
                "SELECT set_config('synchronous_commit', %s, false),"
                " set_config('idle_in_transaction_session_timeout', %s, false)",
                ("on" if self.sync == "full" else "local", IDLE_TRANSACTION),
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def prepare(self) -> bytes:
        """Make the tables where they are missing, and return the key that all servers of this database share.

        Raises:
            JournalUnusable: the database cannot be used; the message says why.
        """
        try:
            with self.connect() as connection:
                self._make_tables(connection)
                key = self._check_version(connection)
                self._check_flushing(connection)
        except psycopg.Error as error:
            raise self.unusable(error) from None
        return key

    def workers(self) -> list[str]:
        """Return the ids of the workers that have episodes, after making the tables where they are missing.

        Raises:
            JournalUnusable: the database cannot be used; the message says why.
        """
        self.prepare()
        try:
            with self.connect() as connection:
                rows = connection.execute(
                    "SELECT worker FROM ludus.leases AS one WHERE EXISTS"
                    " (SELECT FROM ludus.batches AS row WHERE row.worker = one.worker) ORDER BY worker"
                ).fetchall()
        except psycopg.Error as error:
            raise self.unusable(error) from None
        return [worker for (worker,) in rows]

    def forget(self, worker: str) -> None:
        """Delete the journal of a worker that has no process any more.

        Raises:
            JournalUnusable: the database cannot be used; the message says why.
        """
        try:
            with self.connect() as connection, connection.transaction():
                for table in ("batches", "parts", "blobs", "leases"):
                    connection.execute(
                        psycopg.sql.SQL("DELETE FROM ludus.{} WHERE worker = %s").format(psycopg.sql.Identifier(table)),
                        [worker],
                    )
        except psycopg.Error as error:
            raise self.unusable(error) from None

    def open_read_only(self) -> Connection:
        """Return a connection in a transaction that sees one state of the database and changes nothing.

        Raises:
            JournalUnusable: the database cannot be used, or has no journal; the message says why.
        """
        try:
            connection = self.connect()
            try:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                if not _has_tables(connection)[0]:
                    raise JournalUnusable(
                        f"the database {self.shown} has no journal; `ludus serve --journal URL` writes one"
                    )
                self._check_version(connection)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise self.unusable(error) from None
        return connection

    def unusable(self, error: psycopg.Error) -> JournalUnusable:
        """Return the error that says why the database cannot be used, and what to do."""
        return JournalUnusable(f"the journal {self.shown} cannot be used: {reason(error)}; {_advice(error)}")

    def link(self) -> Link:
        """Return a link, which connects when it is first used."""
        self._links.append(link := Link(self))
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="ludus-database", daemon=True)
            self._watcher.start()
        return link

    def close(self) -> None:
        """Close all links; statements that still wait fail. Closing twice is no error."""
        self.closing.set()
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        for link in self._links:
            # Another thread may wait on a link. Closed under it, the connection would be freed while it is used; cut,
            # its statement fails there.
            if link.busy_since is None:
                link.close()
            else:
                link.cut()

    def _make_tables(self, connection: Connection) -> None:
        has_journal, has_any = _has_tables(connection)
        if has_journal:
            return
        if has_any:
            raise JournalUnusable(
                f"the schema ludus of {self.shown} holds the tables of another program; name another database"
            )
        with connection.transaction():
            # CREATE … IF NOT EXISTS is not safe against another session that does the same at that moment.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            if connection.execute("SELECT to_regnamespace('ludus')").fetchone() == (None,):
                connection.execute("CREATE SCHEMA ludus")  # IF NOT EXISTS needs the right even if it exists
            for statement in _TABLES:
                connection.execute(statement)
            for name, value in (("version", b"%d" % VERSION), ("key", secrets.token_bytes(KEY_BYTES))):
                connection.execute("INSERT INTO ludus.meta VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, value))

    def _check_version(self, connection: Connection) -> bytes:
        """Return the shared key of a schema of this version."""
        meta: dict[str, bytes] = dict(connection.execute("SELECT name, value FROM ludus.meta").fetchall())
        version = meta.get("version", b"none").decode("utf-8", "replace")
        if version != str(VERSION) or "key" not in meta:
            raise JournalUnusable(
                f"the journal {self.shown} is not of this version (its version is {version}, this server writes "
                f"{VERSION}); name another database, or use the version of ludus that wrote it"
            )
        return meta["key"]

    def _check_flushing(self, connection: Connection) -> None:
        row = connection.execute("SELECT current_setting('fsync')").fetchone()
        if self.sync == "full" and row != ("on",):
            raise JournalUnusable(
                f"the database {self.shown} runs with fsync = off, so that its commits do not survive the loss of "
                "power: set fsync = on there, or serve with --journal-sync normal"
            )

    def _watch(self) -> None:
        """Cut links that have waited for too long."""
        while not self._closed.wait(_LOOK_SECONDS):
            limit = CLOSING_SECONDS if self.closing.is_set() else STATEMENT_SECONDS
            oldest = time.monotonic() - limit
            # A copy: other threads make links meanwhile.
            for link in list(self._links):
                if link.busy_since is not None and link.busy_since < oldest:
                    link.cut()


class Link:
    """One connection at a time, for one thread at a time.

    Args:
        database: what to connect to.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self.busy_since: float | None = None
        """When its statement was sent; None while it has none."""
        self.trouble: str | None = None
        """Why its last statement failed; None if it did not."""

    def run(self, statement: LiteralString, parameters: Mapping[str, Any] | None = None) -> Cursor:
        """Run a statement once.

        Raises:
            psycopg.Error: it failed; the next one gets another connection.
        """
        self.busy_since = time.monotonic()
        try:
            if self._connection is None:
                self._connection = self._database.connect()
                # Again, because connecting has limits of its own, and its time must not count for the statement.
                self.busy_since = time.monotonic()
            cursor = self._connection.execute(statement, parameters, prepare=True, binary=True)
        except psycopg.Error as error:
            self.trouble = reason(error)
            # The connection may be in any state after an error; the next statement gets a new one.
            self.close()
            raise
        else:
            self.trouble = None
            return cursor
        finally:
            self.busy_since = None

    def run_patiently(
        self, statement: LiteralString, parameters: Mapping[str, Any] | None = None, until: float | None = None
    ) -> Cursor:
        """Run a statement, and again while it fails.

        Args:
            statement: what to run; it may run twice.
            parameters: its parameters.
            until: the monotonic time until which it is tried again; by default until the patience ends.

        Raises:
            psycopg.Error: it still fails, or the journal closes and it failed twice.
        """
        until = time.monotonic() + self._database.patience if until is None else until
        next_warning, attempts = -1.0, 0
        while True:
            attempts += 1
            try:
                return self.run(statement, parameters)
            except psycopg.Error as error:
                now = time.monotonic()
                ending = self._database.closing.is_set() and attempts > 1  # the first connection may be an old one
                if now >= until or ending:
                    raise
                if now >= next_warning:
                    log.warning("the journal %s cannot be used for now: %s", self._database.shown, reason(error))
                    next_warning = now + 10.0
            self._database.closing.wait(RETRY_SECONDS)

    def transaction(self) -> contextlib.AbstractContextManager[psycopg.Transaction]:
        """Return the context of a transaction of several statements."""
        if self._connection is None:
            self._connection = self._database.connect()
        return self._connection.transaction()

    def cut(self) -> None:
        """Make the statement that waits fail; called from another thread."""
        with contextlib.suppress(psycopg.Error, OSError, AttributeError):
            # A copy of the descriptor: libpq in the other thread still uses its own, and only a shutdown wakes it. The
            # connection may also be gone at this moment, which is what the statement is to learn anyway.
            with socket.socket(fileno=os.dup(self._connection.fileno())) as copy:  # type: ignore[union-attr]
                copy.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next statement makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def reason(error: psycopg.Error) -> str:
    """Return what an error says, on one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    message = next((line for line in lines if line), type(error).__name__)
    return message.removeprefix("connection failed: ").rstrip(".")


def _advice(error: psycopg.Error) -> str:
    """Return what to do about an error."""
    message = str(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return "give the user the right to make a schema there, or make the schema ludus and let the user own it"
    if "does not exist" in message:
        return "make it with createdb or createuser, or name another one"
    if "authentication" in message or "password" in message:
        return "check the user, and the password in the URL, in PGPASSWORD or in the file .pgpass"
    return "check that the database runs, and its host and port"


def _has_tables(connection: Connection) -> tuple[bool, bool]:
    """Return whether there are tables of journals, and whether there is anything in their schema."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'ludus' AND tablename = 'meta'),"
        " EXISTS (SELECT FROM pg_tables WHERE schemaname = 'ludus')"
    ).fetchone()
    assert row is not None
    return bool(row[0]), bool(row[1])
