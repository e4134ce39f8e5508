"""A page of the registry reads what it shows, however many versions there are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from postgres_server import PostgresServer
from sqlalchemy import event, insert

from ludus.hub.database.engine import Database, open_engine, sqlite_url
from ludus.hub.database.migrate import migrate
from ludus.hub.database.tables import Owner, Package, Version
from ludus.hub.discovery.listing import Listing
from ludus.registry.types.packages import EnvironmentEntry, Manifest

MANY, PAGE = 3_000, 30
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database with 3,000 signed versions."""
    if kind == "sqlite":
        url = sqlite_url(tmp_path_factory.mktemp("paging") / "hub.sqlite")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    database = Database(open_engine(url))
    migrate(database.engine)
    manifest = Manifest(id="ada/x", version="1.0.0", environments=(EnvironmentEntry(name="x", source="x:X"),))
    times = [START + timedelta(minutes=number) for number in range(MANY)]
    with database.writing() as session:
        session.execute(insert(Owner), {"id": 1, "name": "ada", "skeleton": "ada", "created_at": START})
        session.execute(insert(Package), [
            {"id": number + 1, "owner_id": 1, "owner": f"ada{number // 10}", "name": f"p{number}",
             "skeleton": f"p{number}",
             "distribution": f"ada-p{number:05d}", "latest": "1.0.0", "summary": "{}", "created_at": when,
             "updated_at": when} for number, when in enumerate(times)
        ])  # fmt: skip
        session.execute(insert(Version), [
            {"package_id": number + 1, "version": "1.0.0", "filename": f"p{number}.whl", "sha256": f"{number:064x}",
             "size": 1, "metadata_sha256": f"{number:064x}", "manifest": manifest.model_dump_json(), "card": "",
             "signed": "{}", "uploaded_by": "ada", "uploaded_at": when, "changed_at": when}
            for number, when in enumerate(times)
        ])  # fmt: skip
    with database.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("ANALYZE")
    yield database
    database.close()


class Work:
    """Counts the queries of a block, and the rows that the database reads for them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.queries: list[tuple[str, object]] = []

    def __enter__(self) -> Work:
        event.listen(self._database.engine, "before_cursor_execute", self._note)
        return self

    def __exit__(self, *error: object) -> None:
        event.remove(self._database.engine, "before_cursor_execute", self._note)

    def _note(self, connection: object, cursor: object, statement: str, parameters: object, *rest: object) -> None:
        if statement != "BEGIN":
            self.queries.append((statement, parameters))

    def steps(self) -> int:
        """Return the instructions (SQLite) or rows (PostgreSQL) of all queries, by running them again."""
        total = 0
        with self._database.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            for statement, parameters in self.queries:
                if self._database.is_sqlite:
                    total += _instructions(raw, statement, parameters)
                else:
                    plan = raw.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).fetchone()[0]
                    total += _rows(plan[0]["Plan"])
        return total


def _instructions(raw: Any, statement: str, parameters: object) -> int:
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    raw.set_progress_handler(tick, 1)
    raw.execute(statement, parameters).fetchall()
    raw.set_progress_handler(None, 0)
    return count


def _rows(plan: dict[str, Any]) -> int:
    """Return the rows that all steps of a plan of PostgreSQL have read, those that a filter dropped included."""
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own) + sum(_rows(one) for one in plan.get("Plans", []))


PER_ROW = 60
"""More than SQLite's instructions and PostgreSQL's rows for each row of a page; reading all takes 100 times as much."""


@pytest.mark.parametrize(
    ("cursor", "since"),
    [
        (None, None), ("n:ada-p01500:1.0.0", None), ("n:ada-p02960:1.0.0", None),
        (None, START), (None, START + timedelta(minutes=2_900)),
        (f"t:{(START + timedelta(minutes=1_500)).timestamp():.0f}000000:1500", START),
    ],
    ids=["first", "middle", "last", "all changes", "last changes", "middle of changes"],
)  # fmt: skip
def test_a_page_costs_the_same_wherever_it_is(database: Database, cursor: str | None, since: datetime | None) -> None:
    with Work(database) as work:
        page, following = Listing(database).page(PAGE, cursor, changed_since=since)
    assert len(page) == PAGE
    assert following is not None
    assert len(work.queries) == 1
    assert work.steps() < PER_ROW * PAGE


@pytest.mark.parametrize("version", [None, "1.0.0"])
def test_one_version_costs_the_same_however_many_there_are(database: Database, version: str | None) -> None:
    with Work(database) as work:
        assert Listing(database).version("ada150", "p1500", version).id == "ada150/p1500"
    assert len(work.queries) == 2
    assert work.steps() < 3 * PER_ROW


def test_the_catalog_asks_only_for_the_last_change_while_nothing_changes(database: Database) -> None:
    with Work(database) as work:
        Listing(database).changed_at()
    assert work.steps() < PER_ROW


def test_reading_everything_is_what_the_limits_above_exclude(database: Database) -> None:
    with Work(database) as work:
        assert len(Listing(database).catalog()) == MANY
    assert work.steps() > 2 * PER_ROW * PAGE
