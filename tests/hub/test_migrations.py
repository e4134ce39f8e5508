"""The schema of the database: migrations lead to the tables of the code, and back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from postgres_server import PostgresServer
from sqlalchemy import Engine, inspect

from ludus.hub.database import result_tables  # noqa: F401  # its tables belong to the schema, too
from ludus.hub.database.engine import open_engine, sqlite_url
from ludus.hub.database.migrate import migrate
from ludus.hub.database.tables import Table


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    if kind == "sqlite":
        return sqlite_url(tmp_path / "hub.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_url()


def tables(engine: Engine) -> set[str]:
    return {name for name in inspect(engine).get_table_names() if not name.startswith("package_search_")}


def test_migrations_go_forward_and_back(url: str) -> None:
    engine = open_engine(url)
    for _ in range(2):
        migrate(engine)
        assert tables(engine) == {*Table.metadata.tables, "package_search", "alembic_version"}
        migrate(engine)
        migrate(engine, "base")
        assert tables(engine) == {"alembic_version"}
    engine.dispose()


def test_migrations_make_the_tables_of_the_code(url: str) -> None:
    engine = open_engine(url)
    migrate(engine)

    def ours(item: object, name: str | None, kind: str, *rest: object) -> bool:
        return not (kind == "table" and (name or "").startswith("package_search"))

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours})
        assert compare_metadata(context, Table.metadata) == []
    engine.dispose()


def test_hubs_that_start_at_once_migrate_once(url: str) -> None:
    engines = [open_engine(url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, engines))
    assert set(Table.metadata.tables) < tables(engines[0])
    for engine in engines:
        engine.dispose()
