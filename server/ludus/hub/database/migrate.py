"""Bring the database's schema to a revision, forward or back, by the migrations in `migrations/versions`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine

from ludus.hub.database.engine import available

LOCK: Final = 7_358_001
"""The id of the advisory lock that processes hold in PostgreSQL while they migrate."""

MIGRATIONS: Final = Path(__file__).parent / "migrations"
"""The folder of the migrations."""


logging.getLogger("alembic").setLevel(logging.WARNING)  # it reports each step


def migrate(engine: Engine, revision: str = "head") -> None:
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
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    current = MigrationContext.configure(connection).get_current_revision()
    down = revision == "base" or (current is not None and revision != "head" and revision < current)
    (command.downgrade if down else command.upgrade)(config, revision)
