"""Verified runs in the database: what stays of them when they end, and when their account leaves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from postgres_server import PostgresServer
from sqlalchemy import select

from ludus.hub.blobs import Blobs
from ludus.hub.database.engine import Database, open_engine, sqlite_url
from ludus.hub.database.migrate import migrate
from ludus.hub.database.verified_tables import VerifiedAttempt, VerifiedCall, VerifiedRun
from ludus.hub.results.limits import ResultLimits
from ludus.hub.results.personal import PersonalResults
from ludus.hub.results.processes import ProcessLease
from ludus.hub.results.receipts import concluding
from ludus.hub.results.rollouts import RunRollouts
from ludus.hub.results.store import NewRun, Outcome, ResultStore
from ludus.hub.results.verified_store import MostOpen, Setup, VerifiedStore
from ludus.protocol.errors import CapacityError
from ludus.registry.types.results import BoardKey, Declared, DrawnTask, Opening, RunEpisode, VerifiedInfo
from ludus.registry.types.signing import digest_of
from ludus.registry.types.verified import CallRecord, HarnessOutput

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INFO = VerifiedInfo(harness="ludus 1", harness_sha256="a" * 64, host="models.example.org", model="m")
MOST = MostOpen(10, 10)
SETUP = Setup(INFO, "https://models.example.org/v1", "sealed-text", 1000)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    server: PostgresServer | None = request.getfixturevalue("postgres") if request.param == "postgres" else None
    found = Database(open_engine(server.new_url() if server is not None else sqlite_url(tmp_path / "hub.sqlite")))
    migrate(found.engine)
    yield found
    found.close()


def register(database: Database, results: ResultStore, store: VerifiedStore, most: MostOpen = MOST) -> str:
    """An open verified run of alice, with one episode that is being played."""
    task = DrawnTask(index=0, task="t", seeds=(1,))
    opening = Opening(secret="b" * 64, environment="e", split="s", count=1, tasks=(task,))
    new = NewRun(
        board=BoardKey(package="ada/locks", version="1.0.0", environment="e", split="s", level="verified"),
        sha256="c" * 64, principal="alice", by_publisher=False, declared=Declared(model="m"), tasks=1, samples=1,
        success_at=1.0, reward_range=(0.0, 1.0), created_at=NOW, deadline=NOW + timedelta(days=1), opening=opening,
        commitment=digest_of(opening), attach=store.attaching(SETUP, "alice", most),
    )  # fmt: skip
    row = RunEpisode(
        place=0, task="t", index=0, sample=0, seed=1, reward=None, value=0.0, end="not_begun", steps=None, attempts=0
    )
    key = results.register(new, [row])
    assert results.claim(key, NOW) is not None
    return key


def call(number: int = 1) -> CallRecord:
    return CallRecord(
        place=0,
        attempt=1,
        number=number,
        request="d" * 64,
        answer="e" * 64,
        status=200,
        input_tokens=5,
        output_tokens=2,
    )


def output() -> HarnessOutput:
    return HarnessOutput(place=0, attempt=1, ending="exit code 0", output="")


def rows(database: Database) -> list[int]:
    with database.reading() as session:
        tables = (VerifiedRun, VerifiedCall, VerifiedAttempt)
        return [len(session.scalars(select(table)).all()) for table in tables]


def finish(results: ResultStore, store: VerifiedStore, key: str) -> None:
    results.settle(key, 0, Outcome("completed", 1.0, 1.0, 1, 5, 2), NOW)
    results.finish(key, "closed", NOW, concluding(Ed25519PrivateKey.generate(), store.calls))
    store.forget_keys()


def test_a_run_keeps_its_key_until_it_ends_and_takes_no_calls_after(database: Database) -> None:
    results, store = ResultStore(database, ResultLimits()), VerifiedStore(database)
    key = register(database, results, store)
    store.forget_keys()
    assert store.setup(key) == SETUP
    assert store.add_attempt(key, output(), [call()])
    found = store.setup(key)
    assert found is not None
    assert found.spent == 7, "tokens of calls before a restart count"
    assert "sealed-text" not in repr(found)
    finish(results, store, key)
    assert store.setup(key) is None
    with database.reading() as session:
        (row,) = session.scalars(select(VerifiedRun))
        assert (row.sealed, row.base_url, row.host) == (None, None, "models.example.org")
    assert not store.add_attempt(key, output().model_copy(update={"attempt": 2}), [call(2)])
    assert store.calls(key) == [call()], "the signed root stays that of the calls"


def test_a_call_is_kept_before_it_is_sent_and_replaced_when_it_is_done_while_its_run_is_open(
    database: Database,
) -> None:
    results, store = ResultStore(database, ResultLimits()), VerifiedStore(database)
    key = register(database, results, store)
    begun = call().model_copy(update={"status": 0, "input_tokens": None, "output_tokens": None})
    assert store.keep_call(key, begun)
    assert store.calls(key) == [begun], "as it is if the hub is killed now"
    assert store.keep_call(key, call())
    assert store.calls(key) == [call()]
    assert store.keep_call(key, call(2))
    assert store.add_attempt(key, output(), [call(), call(2)])
    assert store.calls(key) == [call(), call(2)]
    finish(results, store, key)
    assert not store.keep_call(key, call(3))
    assert store.calls(key) == [call(), call(2)], "the signed root stays that of the calls"


def test_one_process_plays_a_run_until_it_has_ended(database: Database, tmp_path: Path) -> None:
    results, store = ResultStore(database, ResultLimits()), VerifiedStore(database)
    key = register(database, results, store)
    first, second = (ProcessLease(database, tmp_path / name, 3600.0) for name in "ab")
    first.begin()
    second.begin()
    assert store.driver(key, second.id) is None
    assert store.driver(key, first.id, take=True) is None
    assert store.driver(key, second.id, take=True) == first.id
    assert store.driver(key, first.id, take=True) is None
    first.end()
    assert store.driver(key, second.id, take=True) is None
    first.begin()
    assert store.driver(key, first.id) == second.id
    first.end()
    second.end()


@pytest.mark.parametrize(("most", "limit"), [(MostOpen(1, 9), "open_runs"), (MostOpen(9, 1), "open_runs_of_hub")])
def test_open_runs_are_counted_where_a_run_is_registered(database: Database, most: MostOpen, limit: str) -> None:
    results, store = ResultStore(database, ResultLimits()), VerifiedStore(database)
    store.may_open("alice", most)
    store.may_open("alice", most)  # as two requests at one time do, before either registers
    key = register(database, results, store, most)
    with pytest.raises(CapacityError) as refused:
        register(database, results, store, most)
    assert refused.value.data["limit"] == limit
    assert results.open_runs("verified") == [key]
    finish(results, store, key)
    register(database, results, store, most)


def test_an_export_names_the_harness_and_a_deletion_leaves_no_calls(database: Database, tmp_path: Path) -> None:
    results, store = ResultStore(database, ResultLimits()), VerifiedStore(database)
    blobs = Blobs(tmp_path / "blobs")
    personal = PersonalResults(database, blobs, RunRollouts(blobs, results, tmp_path / "indexes"))
    ended, still_open = (register(database, results, store) for _ in range(2))
    for key in (ended, still_open):
        store.add_attempt(key, output(), [call()])
    finish(results, store, ended)
    exported: list[dict[str, Any]] = personal.export("alice")
    assert [one["verified"]["host"] for one in exported] == ["models.example.org"] * 2
    assert "sealed-text" not in str(exported)
    assert rows(database) == [2, 2, 2]
    personal.delete("alice")
    assert rows(database) == [1, 0, 0]
    assert results.run(ended).by != "alice"
    assert results.receipt(ended) is None
