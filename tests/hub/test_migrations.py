"""The schema of the database: migrations lead to the tables of the code, and back."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres_server import PostgresServer
from sqlalchemy import Engine, MetaData, inspect, select, text

from ludus.hub.database.engine import open_engine, sqlite_url
from ludus.hub.database.migrate import MIGRATIONS, migrate, newest_revision, statements_of
from ludus.hub.database.schema import METADATA


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    if kind == "sqlite":
        return sqlite_url(tmp_path / "hub.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_url()


def tables(engine: Engine) -> set[str]:
    return {name for name in inspect(engine).get_table_names() if not name.startswith("package_search_")}


@pytest.mark.suite("hub", first=1)
def test_migrations_go_forward_and_back(url: str) -> None:
    engine = open_engine(url)
    for _ in range(2):
        migrate(engine)
        assert tables(engine) == {*METADATA.tables, "package_search", "alembic_version"}
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
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_a_new_sqlite_database_is_what_the_migrations_make_and_needs_no_alembic(tmp_path: Path) -> None:
    new = tmp_path / "new.sqlite"
    program = f"""
import sys
from ludus.hub.database.engine import open_engine, sqlite_url
from ludus.hub.database.migrate import migrate

for _ in range(2):
    migrate(open_engine({sqlite_url(new)!r}))
assert "alembic" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    migrated, made = open_engine(sqlite_url(tmp_path / "migrated.sqlite")), []
    migrate(migrated, newest_revision())
    for engine in (open_engine(sqlite_url(new)), migrated):
        with engine.connect() as connection:
            made.append(statements_of(connection))
        engine.dispose()
    assert made[0] == made[1]


def test_hubs_that_start_at_once_migrate_once(url: str) -> None:
    engines = [open_engine(url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, engines))
    assert set(METADATA.tables) < tables(engines[0])
    for engine in engines:
        engine.dispose()


def revisions() -> list[str]:
    script = ScriptDirectory(str(MIGRATIONS))
    return [revision.revision for revision in reversed(list(script.walk_revisions()))]


def fill(engine: Engine) -> None:
    """Put a row into each table of the registry, at the first revision."""
    with engine.execution_options(ludus_writes=True).begin() as connection:
        for statement in (
            "INSERT INTO owners (id, name, skeleton, created_at) VALUES (1, 'ada', 'ada', :now)",
            "INSERT INTO publisher_keys (owner_id, key, added_at) VALUES (1, 'ed25519:x', :now)",
            "INSERT INTO packages (id, owner_id, owner, name, skeleton, distribution, latest, summary, created_at, "
            "updated_at) VALUES (1, 1, 'ada', 'maze', 'maze', 'ada-maze', '1.0.0', '{}', :now, :now)",
            "INSERT INTO maintainers (package_id, principal) VALUES (1, 'bob')",
            "INSERT INTO package_tags (tag, package_id) VALUES ('game', 1)",
            "INSERT INTO versions (id, package_id, version, filename, sha256, size, metadata_sha256, manifest, card, "
            "uploaded_by, uploaded_at) VALUES (1, 1, '1.0.0', 'w', 's', 9, 'm', '{}', 'card', 'ada', :now)",
        ):
            connection.execute(text(statement), {"now": "2026-01-02 03:04:05.000006"})


def rows(engine: Engine) -> dict[str, list[dict[str, object]]]:
    """Return the rows of all tables except those of the search index."""
    metadata = MetaData()
    metadata.reflect(engine)
    with engine.connect() as connection:
        return {
            table.name: [dict(row) for row in connection.execute(select(table)).mappings()]
            for table in metadata.sorted_tables
            if not table.name.startswith(("package_search", "alembic_version"))
        }


@pytest.mark.suite("hub", first=1)
def test_data_survives_every_revision_up_and_down(url: str) -> None:
    engine = open_engine(url)
    steps = revisions()
    migrate(engine, steps[0])
    fill(engine)
    seen = {steps[0]: rows(engine)}
    for revision in steps[1:]:
        migrate(engine, revision)
        seen[revision] = rows(engine)
        for table, before in seen[steps[0]].items():
            after = [{name: row[name] for name in before[0]} for row in seen[revision][table]]
            assert after == before, f"{revision} changed {table}"
    for revision in reversed(steps[:-1]):
        migrate(engine, revision)
        assert rows(engine) == seen[revision], f"going back to {revision}"
    migrate(engine)
    assert rows(engine) == seen[steps[-1]]
    engine.dispose()


def test_versions_of_before_have_changed_when_they_were_uploaded(url: str) -> None:
    engine = open_engine(url)
    migrate(engine, "0001")
    fill(engine)
    migrate(engine)
    (row,) = rows(engine)["versions"]
    assert row["changed_at"] == row["uploaded_at"]
    engine.dispose()


def by_id(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: str(row["id"]))


def old_hub(url: str, *versions: tuple[str, str | None], latest: str) -> Engine:
    """Return a database of before, with versions of one package and the reasons why they are yanked."""
    engine = open_engine(url)
    migrate(engine, "0014")
    fill(engine)
    with engine.execution_options(ludus_writes=True).begin() as connection:
        connection.execute(text("DELETE FROM versions"))
        connection.execute(text("UPDATE packages SET latest = :latest"), {"latest": latest})
        for number, (version, yanked) in enumerate(versions, 1):
            connection.execute(
                text(
                    "INSERT INTO versions (id, package_id, version, filename, sha256, size, metadata_sha256, manifest, "
                    "card, uploaded_by, uploaded_at, yanked) VALUES (:id, 1, :version, :file, :file, 9, 'm', '{}', '', "
                    "'ada', '2026-01-02 03:04:05.000006', :yanked)"
                ),
                {"id": number, "version": version, "file": f"wheel {number}", "yanked": yanked},
            )
    return engine


@pytest.mark.parametrize(
    ("versions", "latest", "kept"),
    [
        ((("1", None), ("1.0", None), ("1.0.0", None)), "1", {"1": "1"}),
        ((("1", "bad"), ("1.0", None), ("1.0.0", None)), "1.0.0", {"1.0.0": "1"}),
        ((("1", "bad"), ("1.0", None), ("1.0.0", None), ("2.0", None)), "2.0", {"1.0": "1", "2.0": "2"}),
        ((("1", "bad"), ("1.0", "bad"), ("2", None)), "2", {"1": "1", "2": "2"}),
    ],
    ids=["the first", "the latest", "not yanked", "all yanked"],
)
def test_of_equal_versions_of_an_older_hub_one_stays_and_no_row_is_lost(
    url: str, versions: tuple[tuple[str, str | None], ...], latest: str, kept: dict[str, str]
) -> None:
    engine = old_hub(url, *versions, latest=latest)
    before = by_id(rows(engine)["versions"])
    migrate(engine)
    after = by_id(rows(engine)["versions"])
    assert {row["version"]: row["identity"] for row in after if row["identity"] is not None} == kept
    assert [{name: row[name] for name in before[0]} for row in after] == before
    engine.dispose()
