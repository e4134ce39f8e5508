"""A hub of the last landed version upgrades: every row survives, except those of features that were deleted since, and
the upgraded hub answers as that one did.

`tests/hub/landed/` holds what that version has written; see `landed_hub.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from hub_sites import as_page
from hubs import HubProcess, published, release
from landed_hub import (
    KINDS,
    LandedHub,
    Rows,
    answers_of,
    differences,
    digest_at,
    fill_database,
    landed_sql,
    load_landed,
    lost_rows,
    rows_in,
    wheels_in,
)
from lived_hub import COIN
from postgres_server import PostgresServer
from sqlalchemy import Engine

from ludus.hub.database import migrate as migrations
from ludus.hub.database.engine import open_engine, sqlite_url
from ludus.hub.database.migrate import MIGRATIONS, migrate, newest_revision, statements_of
from ludus.hub.parts.hub import DATABASE_FILE

DELETED = {
    "match_boards", "match_entrants", "match_log", "matches", "training_batches", "training_rollouts", "training_runs",
    "verified_attempts", "verified_calls", "verified_runs",
}  # fmt: skip
"""The tables that were deleted since that version."""

DATABASES = ("sqlite", pytest.param("postgres", marks=pytest.mark.suite("hub")))


@dataclass
class Loaded:
    """The database of that version, loaded; its hub's data folder; and its rows before the upgrade."""

    data: Path
    database: str | None
    engine: Engine
    rows: Rows


@pytest.fixture(params=DATABASES)
def kind(request: pytest.FixtureRequest) -> str:
    """The database."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def landed() -> LandedHub:
    return load_landed()


@pytest.fixture
def loaded(request: pytest.FixtureRequest, kind: str, landed: LandedHub, tmp_path: Path) -> Iterator[Loaded]:
    data, database = tmp_path / "data", None
    landed.write_files(data)
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.new_url()
    url = database or sqlite_url(data / DATABASE_FILE)
    fill_database(url, landed_sql(kind)[1])
    engine = open_engine(url)
    yield Loaded(data, database, engine, rows_in(engine))
    engine.dispose()


def test_every_row_of_the_last_landed_version_survives(loaded: Loaded) -> None:
    migrate(loaded.engine)
    after = rows_in(loaded.engine)
    assert lost_rows(kept_rows(loaded.rows), after) == []
    assert not DELETED & after.keys()


def kept_rows(rows: Rows) -> Rows:
    """Return the rows without what was deleted: some tables, the boards of verified runs, and a scope of tokens."""
    boards = {board["id"] for board in rows["result_boards"] if board["level"] == "verified"}
    runs = {run["id"] for run in rows["result_runs"] if run["board_id"] in boards}
    kept = {
        table: [row for row in some if row.get("board_id") not in boards and row.get("run_id") not in runs]
        for table, some in rows.items()
        if table not in DELETED
    }
    kept["result_boards"] = [board for board in rows["result_boards"] if board["id"] not in boards]
    kept["access_tokens"] = [
        token | {"scopes": " ".join(scope for scope in token["scopes"].split() if scope != "training")}
        for token in rows["access_tokens"]
    ]
    return kept


def test_an_upgraded_hub_answers_as_before_and_people_go_on(loaded: Loaded, landed: LandedHub) -> None:
    hub = HubProcess(loaded.data, "--no-seed", database=loaded.database)
    try:
        public = answers_of(hub, [*landed.public])
        assert list(differences(landed.public, public)) == []
        assert list(differences(landed.own, answers_of(hub, [*landed.own], landed.token))) == []
        assert len(landed.boards) == 3
        assert all(public[path]["rows"] for path in landed.boards)
        with hub.client(landed.token) as client:
            wheels = wheels_in({**landed.public, **landed.own})
            assert len(wheels) == 4
            assert {path: digest_at(client, path) for path in wheels} == wheels
            index = client.get("/index/simple/alice-coin/").text
            assert all(digest in index for path, digest in wheels.items() if "alice_coin" in path)
            published(client, release(COIN, "2.0.0"))
        sign_in(hub, landed)
    finally:
        assert hub.stop() == 0


def sign_in(hub: HubProcess, landed: LandedHub) -> None:
    """Sign in as the person of that version: in a browser, and for a token."""
    with hub.client() as client:
        form = as_page(client.get("/login", headers={"accept": "text/html"})).hidden("form_key")
        fields = {"form_key": form, "name": landed.name, "password": landed.password}
        assert client.post("/login", data=fields).status_code == 303
        assert landed.name in client.get("/account", headers={"accept": "text/html"}).text
        asked = {"account": landed.name, "password": landed.password, "name": "laptop", "scopes": ["read"]}
        assert client.post("/api/v1/login", json=asked).status_code == 201
        assert client.post("/api/v1/login", json={**asked, "password": "not this one"}).status_code == 401


# ── the dump ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_dump_has_rows_in_every_table_of_its_schema(loaded: Loaded, kind: str, tmp_path: Path) -> None:
    revision, _ = landed_sql(kind)
    engine = open_engine(sqlite_url(tmp_path / "empty.sqlite"))
    migrate(engine, revision)
    tables = rows_in(engine).keys()
    engine.dispose()
    assert len(tables) > 25
    assert loaded.rows.keys() == tables
    assert [table for table, rows in loaded.rows.items() if not rows] == []


def test_the_revision_of_both_dumps_leads_to_the_newest_one() -> None:
    revisions = [one.revision for one in ScriptDirectory(str(MIGRATIONS)).iterate_revisions("head", "base")]
    assert [landed_sql(kind)[0] in revisions for kind in KINDS] == [True, True]


def test_no_migration_was_changed_after_it_had_landed(tmp_path: Path) -> None:
    revision, sql = landed_sql("sqlite")
    made = []
    for name in ("landed", "migrated"):
        engine = open_engine(sqlite_url(tmp_path / f"{name}.sqlite"))
        if name == "landed":
            fill_database(str(engine.url), sql)
        else:
            migrate(engine, revision)
        with engine.connect() as connection:
            made.append(statements_of(connection))
        engine.dispose()
    assert made[0] == made[1]


# ── faults ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PLANTED = '''
"""A planted migration."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{newest}"


def upgrade() -> None:
    """Change the schema."""
    {step}
'''


@pytest.mark.suite("hub", first=2)
@pytest.mark.parametrize(
    ("step", "lost"),
    [
        ('op.add_column("owners", sa.Column("more", sa.Text)); op.create_table("t", sa.Column("a", sa.Text))', []),
        ('op.drop_column("audit_events", "address")', ["audit_events.address"]),
        ('op.execute("UPDATE versions SET yanked = NULL")', ["versions.yanked"]),
        ('op.execute("UPDATE result_lines SET mean = mean / 2 WHERE mean > 0.7")', ["result_lines.mean"]),
        ('op.execute("DELETE FROM account_identities")', ["account_identities: 0 of 1 rows"]),
        ('op.drop_table("invitations")', ["invitations"]),
        ('op.alter_column("readers", "principal", new_column_name="reader")', ["readers.principal"]),
    ],
    ids=[
        "adds only",
        "drops a column",
        "empties a column",
        "changes figures",
        "drops rows",
        "drops a table",
        "renames",
    ],
)
def test_a_migration_that_loses_something_is_found(
    landed: LandedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, lost: list[str]
) -> None:
    engine = open_engine(sqlite_url(tmp_path / "hub.sqlite"))
    fill_database(str(engine.url), landed_sql("sqlite")[1])
    migrate(engine)
    before = rows_in(engine)
    folder, newest = tmp_path / "migrations", newest_revision()
    shutil.copytree(MIGRATIONS, folder)
    (folder / "versions" / "9999_planted.py").write_text(PLANTED.format(newest=newest, step=step))
    monkeypatch.setattr(migrations, "MIGRATIONS", folder)
    migrate(engine)
    assert lost_rows(before, rows_in(engine)) == lost
    engine.dispose()
