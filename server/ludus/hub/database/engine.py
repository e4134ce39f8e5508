"""Connections to the hub's database.

SQLite runs in WAL mode with `synchronous=FULL`, so that an answered upload survives a loss of power. Its transactions
that write begin with `BEGIN IMMEDIATE`: one that begins by reading could not be promoted while another one writes.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DatabaseError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from ludus.common.distribution import missing_extra
from ludus.registry.types.errors import HubUnavailable

BUSY_SECONDS: Final = 30.0
"""How long a transaction of SQLite waits for another one that writes, and how long one waits for a connection."""

IDLE_SECONDS: Final = 30.0
"""How long a session of PostgreSQL may do nothing in a transaction. A process that is paused or cut off in the midst of
one would otherwise hold its locks, and others would wait for it forever."""

CONNECTIONS: Final = 20
"""The most connections to the database."""

_WRITES: Final = "ludus_writes"


def sqlite_url(file: Path) -> str:
    """Return the URL of a SQLite file."""
    return f"sqlite:///{file}"


def open_engine(url: str) -> Engine:
    """Return an engine for a database URL.

    Raises:
        ModuleNotFoundError: the URL is of PostgreSQL and its driver is not installed; the message has the pip command.
    """
    if url.startswith(("postgres://", "postgresql://")):
        return _open_postgres("postgresql+psycopg://" + url.partition("://")[2])
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_timeout=BUSY_SECONDS,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _open_postgres(url: str) -> Engine:
    try:
        import psycopg  # noqa: F401  # for the message
    except ModuleNotFoundError as error:
        raise missing_extra(error, "hub,postgres") from None
    engine = create_engine(
        url, pool_size=CONNECTIONS, max_overflow=0, pool_timeout=BUSY_SECONDS, pool_pre_ping=True, pool_recycle=3600,
        connect_args={"connect_timeout": 10},
    )  # fmt: skip
    event.listen(engine, "connect", _prepare_postgres)
    return engine


def _prepare_postgres(connection: Any, record: object) -> None:
    """Let the server answer with times in UTC, whatever zone it or the database is set to, and end stuck sessions."""
    connection.execute("SET TIME ZONE 'UTC'")
    connection.execute(f"SET idle_in_transaction_session_timeout = {int(1000 * IDLE_SECONDS)}")
    connection.commit()


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # otherwise the driver begins transactions itself
    _use_wal(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "cache_size=-32000"):
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: Any) -> None:
    """Switch to the write-ahead log. While another process does so, SQLite refuses at once and does not wait."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Database:
    """Sessions of one database.

    Args:
        engine: from `open_engine`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{_WRITES: True})

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session that only reads.

        Raises:
            HubUnavailable: the database cannot be used.
        """
        with available(), Session(self.engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Yield a session; its transaction is committed when the block ends, and rolled back when it raises.

        Raises:
            HubUnavailable: the database cannot be used.
            IntegrityError: another transaction has committed something that contradicts this one.
        """
        with available(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def lock_name(self, session: Session, kind: int, name: str) -> None:
        """Hold the lock of a name until a writing transaction ends; others that lock the same name wait.

        SQLite needs none: there, all transactions that write wait for each other.

        Args:
            session: the transaction.
            kind: what the name is of, which is the first half of an advisory lock in PostgreSQL.
            name: the name.
        """
        if not self.is_sqlite:
            session.execute(select(func.pg_advisory_xact_lock(kind, zlib.crc32(name.encode()) - 2**31)))

    def close(self) -> None:
        """Close all connections; those in use as soon as they are returned.

        After `dispose`, a connection in use returns to a pool that nothing closes any more.
        """
        event.listen(self.engine.pool, "checkin", _close_returned)
        self.engine.dispose()


def _close_returned(connection: object, record: ConnectionPoolEntry) -> None:
    record.invalidate()


@contextmanager
def available() -> Iterator[None]:
    """Turn the errors of a database that cannot be used into one that says so.

    Raises:
        HubUnavailable: the database cannot be reached, is locked, full or damaged.
    """
    try:
        yield
    except (DatabaseError, PoolTimeout) as error:
        if isinstance(error, IntegrityError | DataError | ProgrammingError):
            raise
        cause = str(error.orig if isinstance(error, DBAPIError) else error).strip().partition("\n")[0]
        raise HubUnavailable(f"the hub's database cannot be used now: {cause}; try again", retryAfter=2.0) from error
