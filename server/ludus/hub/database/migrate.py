"""Bring the database's schema to a revision, forward or back, by the migrations in `migrations/versions`.

A new SQLite database gets the newest schema at once, from `migrations/newest_sqlite.sql`, which
`scripts/generate_hub_schema.py` writes down from the migrations. Alembic, which takes long to import, is then not
needed, and neither is it where the schema is the newest one already.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, inspect

from ludus.hub.database.engine import available

LOCK: Final = 7_358_001
"""The id of the advisory lock that processes hold in PostgreSQL while they migrate."""

MIGRATIONS: Final = Path(__file__).parent / "migrations"
"""The folder of the migrations."""

NEWEST_SQLITE: Final = MIGRATIONS / "newest_sqlite.sql"
"""The statements that make the newest schema in SQLite, each ended by an empty line."""

NEWEST: Final = "head"
_VERSIONS: Final = "alembic_version"
_SHADOW: Final = re.compile(r"package_search_\w+")
"""The tables that SQLite makes itself for its full-text index."""


logging.getLogger("alembic").setLevel(logging.WARNING)  # it reports each step, and its parts as it is imported


def migrate(engine: Engine, revision: str = NEWEST) -> None:
    """Bring the schema to a revision: `head` for the newest, `base` for none, or a revision's id.

    Several hubs may start at once: one migrates, and the others wait.

    Raises:
        HubUnavailable: the database cannot be used.
    """
    with available(), engine.execution_options(ludus_writes=True).begin() as connection:
        migrate_in(connection, revision)


def migrate_in(connection: Connection, revision: str) -> None:
    """Do the same in a transaction of the caller, which has begun as one that writes.

    Raises:
        alembic.util.CommandError: there is no such revision.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
    current = _current(connection)
    if revision == NEWEST and current == newest_revision():
        return
    if revision == NEWEST and connection.dialect.name == "sqlite" and not inspect(connection).get_table_names():
        for statement in NEWEST_SQLITE.read_text("utf-8").split("\n\n"):
            connection.exec_driver_sql(statement)
        return
    _run(connection, revision, current)


def newest_revision() -> str:
    """Return the id of the newest revision, with which the name of its file begins."""
    return max(path.name for path in (MIGRATIONS / "versions").glob("[0-9]*.py")).partition("_")[0]


def statements_of(connection: Connection) -> list[str]:
    """Return the statements that make the schema of an SQLite database, and its revision.

    Tables have the order in which they were made; indexes, whose order differs from time to time, follow by name.
    """
    rows = connection.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL "
        "ORDER BY type = 'index', CASE type WHEN 'index' THEN name END, rowid"
    )
    made = [re.sub(r"\s*\n\s*", "\n", sql.strip()) for name, sql in rows if not _SHADOW.fullmatch(name)]
    return [*made, f"INSERT INTO {_VERSIONS} (version_num) VALUES ('{_current(connection)}')"]


def _current(connection: Connection) -> str | None:
    """Return the revision of the schema; None if it has none."""
    if not inspect(connection).has_table(_VERSIONS):
        return None
    found: str | None = connection.exec_driver_sql(f"SELECT version_num FROM {_VERSIONS}").scalar()
    return found


def _run(connection: Connection, revision: str, current: str | None) -> None:
    """Run the migrations to a revision."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    down = revision == "base" or (current is not None and revision != NEWEST and revision < current)
    (command.downgrade if down else command.upgrade)(config, revision)
