"""Rates that processes of a hub share through the database: sign-ins, wrong tokens and registrations."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from hub_people import people_hub
from postgres_server import PostgresServer
from sqlalchemy import select

from ludus.hub.core import shared_rates
from ludus.hub.core.rates import Rates, RateSettings
from ludus.hub.core.shared_rates import Event, SharedCounts, TooMany
from ludus.hub.database.engine import Database, open_engine, sqlite_url
from ludus.hub.database.migrate import migrate
from ludus.hub.database.tables import RateCount
from ludus.hub.settings.people import PeopleSettings
from ludus.protocol.errors import CapacityError

SETTINGS = RateSettings(wrong_tokens_minute=6, logins_of_pair=3, logins_of_address=5, address_minute=2)


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    if kind != "postgres":
        return sqlite_url(tmp_path / "hub.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture
def databases(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Database]]:
    """The same database as two processes see it, at the beginning of a period."""
    monkeypatch.setattr(shared_rates, "database_time", lambda session: 900_000.0)
    found = [Database(open_engine(url)) for _ in range(2)]
    migrate(found[0].engine)
    yield found
    for one in found:
        one.close()


def refusal(rates: Rates, name: str, *key: str) -> str:
    """The name of the rate that refuses an event; empty if it is counted."""
    try:
        rates.hit(name, *key)
    except CapacityError as error:
        return str(error.data["limit"])
    return ""


@pytest.mark.suite("hub", first=1)
def test_wrong_tokens_count_together_and_requests_for_each_process(databases: list[Database]) -> None:
    first, second = (Rates(SETTINGS, SharedCounts(one)) for one in databases)
    assert [refusal(one, "wrong", "1.2.3.4") for one in (first, second) * 3] == [""] * 6
    assert [refusal(one, "wrong", "1.2.3.4") for one in (first, second)] == ["wrong", "wrong"]
    assert refusal(second, "wrong", "1.2.3.5") == "", "another address may"
    assert [refusal(one, "address", "1.2.3.4") for one in (first, second) * 3] == [""] * 4 + ["address"] * 2


def test_sign_ins_count_together_by_name_and_address(databases: list[Database]) -> None:
    first, second = (Rates(SETTINGS, SharedCounts(one)) for one in databases)
    for rates in (first, second, first):
        rates.login("alice", "1.2.3.4")
    with pytest.raises(CapacityError) as refused:
        second.login("alice", "1.2.3.4")
    assert refused.value.data["limit"] == "login_pair"
    assert refused.value.data["retryAfter"] >= 1
    first.login("bob", "1.2.3.4")
    second.login("carol", "1.2.3.4")
    with pytest.raises(CapacityError) as refused:
        first.login("dave", "1.2.3.4")
    assert refused.value.data["limit"] == "login_address"


def test_as_many_as_possible_pass_when_all_come_at_once(databases: list[Database]) -> None:
    event = Event(("wrong", "x"), 10, 60)

    def passes(number: int) -> bool:
        try:
            counts[number % 2].hit([event])
        except TooMany:
            return False
        return True

    counts = [SharedCounts(one) for one in databases]
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(passes, range(30))) == 10


def test_the_period_before_counts_by_its_share_and_rows_go_when_it_has_ended(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, event = SharedCounts(databases[0]), Event(("wrong", "1.2.3.4"), 8, 60)
    counts.hit([event] * 8)
    with pytest.raises(TooMany):
        counts.hit([event])
    monkeypatch.setattr(shared_rates, "database_time", lambda session: 900_000.0 + 60 + 30)
    counts.hit([event] * 4)
    with pytest.raises(TooMany):
        counts.hit([event])
    with databases[0].reading() as session:
        keys = list(session.scalars(select(RateCount.key)))
    assert len(keys) == 2
    assert "1.2.3.4" not in str(keys)
    monkeypatch.setattr(shared_rates, "database_time", lambda session: 900_000.0 + 600)
    monkeypatch.setattr(shared_rates, "SWEEP_SECONDS", 0.0)
    counts.hit([Event(("other",), 1, 60)])
    with databases[0].reading() as session:
        assert len(list(session.scalars(select(RateCount.key)))) == 1


def test_a_refused_sign_in_counts_for_none_of_its_rates(databases: list[Database]) -> None:
    counts = SharedCounts(databases[0])
    address, pair = Event(("a",), 3, 60), Event(("p",), 1, 60)
    counts.hit([address, pair])
    for _ in range(5):
        with pytest.raises(TooMany):
            counts.hit([address, pair])
    counts.hit([address] * 2)


def test_while_the_database_is_away_each_process_counts_alone() -> None:
    nowhere = Database(open_engine("postgresql://nobody@127.0.0.1:1/none"))
    rates = Rates(RateSettings(wrong_tokens_minute=2), SharedCounts(nowhere))
    assert [refusal(rates, "wrong", "1.2.3.4") for _ in range(3)] == ["", "", "wrong"]
    nowhere.close()


@pytest.mark.suite("hub", first=1)
def test_two_hubs_give_an_attacker_no_more_guesses_than_one(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_rates, "database_time", lambda session: 900_000.0)
    database = request.getfixturevalue("postgres").new_url() if kind == "postgres" else f"sqlite:///{tmp_path / 'h'}"
    people = PeopleSettings(rates=RateSettings(wrong_tokens_minute=4, logins_of_pair=4))

    def guess(client: httpx.Client) -> int:
        body = {"account": "alice", "password": "a wrong password", "name": "x", "scopes": ["read"]}
        return client.post("/api/v1/login", json=body).status_code

    with (
        people_hub(tmp_path / "a", database, ("alice",), people=people) as one,
        people_hub(tmp_path / "b", database, (), people=people, administrator=None) as two,
    ):
        clients = [one.as_("ludus_hub_wrong"), two.as_("ludus_hub_wrong")] * 3
        assert [client.get("/api/v1/environments").status_code for client in clients] == [401] * 4 + [429] * 2
        assert [guess(hub.client) for hub in (one, two) * 3] == [401] * 4 + [429] * 2
        assert two.of("alice").get("/api/v1/environments").status_code == 200, "a valid token goes on"
