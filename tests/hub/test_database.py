"""The database closes its connections, also those that a request still uses when the hub stops."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from ludus.hub.database.engine import Database, open_engine


def test_a_connection_in_use_is_closed_when_it_is_returned_after_the_database(tmp_path: Path) -> None:
    database = Database(open_engine(f"sqlite:///{tmp_path / 'hub.sqlite'}"))
    with database.reading() as session:
        used: Any = session.connection().connection.dbapi_connection
        database.close()
        assert session.execute(text("SELECT 1")).scalar_one() == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        used.execute("SELECT 1")


def test_connections_that_nothing_uses_are_closed_at_once(tmp_path: Path) -> None:
    database = Database(open_engine(f"sqlite:///{tmp_path / 'hub.sqlite'}"))
    with database.writing() as session:
        used: Any = session.connection().connection.dbapi_connection
    database.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        used.execute("SELECT 1")
