"""Matches and accounts: private packages, scopes of tokens, what stays of a person who leaves, and backups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hub_people import PASSWORD, PeopleHub, people_hub, publish_private
from hubs import kind_of, published
from match_hub import auction_release, entrant_params
from postgres_server import PostgresServer
from sqlalchemy import select

from ludus.hub.database.engine import Database
from ludus.hub.database.match_tables import Match, MatchBoardRow, MatchEntrant, MatchLogLine
from ludus.hub.operation.backup import write_backup
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup
from ludus.hub.results.matches.rating import rate_board
from ludus.hub.results.matches.reading import read_board, read_matches
from ludus.hub.results.matches.store import MatchStore, NewEntrant, SeatOutcome
from ludus.registry.types.matches import MatchBoardKey, MatchOpening
from ludus.registry.types.people import HubScope
from ludus.registry.types.results import Declared

PRIVATE, PUBLIC = "alice/private-game", "alice/public-game"


@pytest.fixture(params=["sqlite", "postgres"])
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PeopleHub]:
    """A hub with a private and a public package of alice."""
    url = None
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    with people_hub(tmp_path, url) as hub:
        publish_private(hub.of("alice"), auction_release(PRIVATE))
        published(hub.of("alice"), auction_release(PUBLIC))
        yield hub


def store_of(people: PeopleHub) -> MatchStore:
    found: MatchStore = people.app.state.match_store
    return found


def entrant(people: PeopleHub, who: str, package: str = PUBLIC, model: str = "m") -> str:
    """Register an entrant, as if the package's endpoint had said that it has two seats."""
    now = datetime.now(UTC)
    return store_of(people).register(
        NewEntrant(
            board=MatchBoardKey(package=package, version="1.0.0", environment="auction", split="test"),
            sha256="0" * 64, seats=("red", "blue"), opponents=(), principal=who, by_publisher=False,
            declared=Declared(model=model, harness="h"), matches=9, created_at=now, deadline=now + timedelta(days=1),
        )
    )  # fmt: skip


def opening(*entrants: str) -> MatchOpening:
    return MatchOpening(
        secret="0a" * 32, environment="auction", split="test", count=30, index=3, task="t", seed=None,
        entrants=(entrants[0], entrants[1]), balances=(0, 0),
    )  # fmt: skip


def match(people: PeopleHub, first: str, second: str, score: float) -> str:
    """Write a match that has ended."""
    store, now = store_of(people), datetime.now(UTC)
    key = store.open_match(opening(first, second), now)
    store.settle(key, score, SeatOutcome(score, "completed"), SeatOutcome(1 - score, "completed"), now)
    with store.database.reading() as session:
        board = session.scalars(select(Match.board_id).where(Match.key == key)).one()
    assert rate_board(store.database, board)
    return key


@pytest.mark.suite("hub", first=1)
def test_entrants_on_a_private_package_are_absent_for_strangers(people: PeopleHub) -> None:
    key, other = entrant(people, "alice", PRIVATE), entrant(people, "carol", PRIVATE)
    played = match(people, key, other, 1.0)
    alice, bob, absent = people.of("alice"), people.of("bob"), "A" * len(key)
    for path in ("/api/v1/entrants/KEY", "/api/v1/entrants/KEY/matches", "/api/v1/entrants/KEY/receipt",
                 "/api/v1/matches/KEY", "/entrants/KEY", "/matches/KEY"):  # fmt: skip
        about = played if "/matches/KEY" in path else key
        answers = [bob.get(path.replace("KEY", one)) for one in (about, absent)]
        texts = [answer.text.replace(one, "KEY") for answer, one in zip(answers, (about, absent), strict=True)]
        assert texts[0] == texts[1], path
        assert answers[0].status_code == answers[1].status_code == 404, path
        assert alice.get(path.replace("KEY", about)).status_code == 200, path
    for path in ("/next", "/withdraw", f"/matches/{played}/end", "/remove"):
        body = {"reason": "x"} if path == "/remove" else {}
        answers = [bob.post(f"/api/v1/entrants/{one}{path}", json=body) for one in (key, absent)]
        texts = [answer.text.replace(one, "KEY") for answer, one in zip(answers, (key, absent), strict=True)]
        assert texts[0] == texts[1], path
    assert alice.post(f"/api/v1/entrants/{key}/withdraw").status_code == 200
    assert alice.post(f"/api/v1/entrants/{key}/remove", json={"reason": "a mistake"}).status_code == 200
    log = "/api/v1/results/removed-entrants"
    assert (alice.get(log).json()["total"], bob.get(log).json()["total"]) == (1, 0)
    assert "a mistake" not in bob.get("/results/log", headers={"accept": "text/html"}).text


def test_a_token_needs_the_scope_results_and_the_package(people: PeopleHub) -> None:
    where = f"/api/v1/environments/{PUBLIC}/versions/1.0.0/entrants"
    for client in (people.of("bob", [HubScope.READ, HubScope.RUN]),
                   people.of("bob", [HubScope.RESULTS], packages=("bob/other",))):  # fmt: skip
        assert kind_of(client.post(where, json=entrant_params())) == "Forbidden"
    assert kind_of(people.as_(None).post(where, json=entrant_params())) == "Unauthenticated"
    people.app.state.play_address = lambda *where: None
    assert kind_of(people.of("bob", [HubScope.RESULTS]).post(where, json=entrant_params())) == "Unsupported"
    key = entrant(people, "bob")
    limited = people.of("bob", [HubScope.RESULTS], packages=("bob/other",))
    assert kind_of(limited.post(f"/api/v1/entrants/{key}/withdraw")) == "Forbidden"


def test_an_export_has_the_entrants_and_a_deleted_account_leaves_its_boards(people: PeopleHub) -> None:
    bob, again, carol = entrant(people, "bob"), entrant(people, "bob", model="n"), entrant(people, "carol")
    played = match(people, bob, carol, 1.0)
    exported = people.hub.people.data.export(people.account("bob"), "bob")["matches"]
    assert [one["entrant"] for one in exported] == [bob, again]
    people.hub.people.data.delete("bob", PASSWORD)
    stranger = people.as_(None)
    for path in (f"/api/v1/entrants/{bob}", f"/api/v1/matches/{played}", f"/entrants/{carol}",
                 "/api/v1/results/removed-entrants", f"/api/v1/entrants/{carol}/receipt"):  # fmt: skip
        answer = stranger.get(path)
        assert answer.status_code == 200, path
        assert "bob" not in answer.text, path
    assert stranger.get(f"/api/v1/entrants/{bob}").json()["removal"]["reason"] == "the account was deleted"
    shown = stranger.get(f"/api/v1/entrants/{carol}").json()
    assert (shown["losses"], shown["by"]) == (1, "carol")
    people.hub.people.data.delete("carol", PASSWORD)
    assert "carol" not in stranger.get(f"/api/v1/entrants/{carol}").text


def test_matches_on_private_packages_go_with_the_account_of_their_owner(people: PeopleHub) -> None:
    key = entrant(people, "alice", PRIVATE)
    match(people, key, entrant(people, "carol", PRIVATE), 1.0)
    people.hub.people.data.delete("alice", PASSWORD)
    assert people.of("root").get(f"/api/v1/entrants/{key}").status_code == 404
    with store_of(people).database.reading() as session:
        for table in (Match, MatchEntrant, MatchBoardRow, MatchLogLine):
            assert session.scalars(select(table)).all() == []


@pytest.mark.suite("hub", first=1)
def test_the_hub_goes_on_when_a_board_vanishes_while_a_match_is_played(people: PeopleHub) -> None:
    key = entrant(people, "alice", PRIVATE)
    played = store_of(people).open_match(opening(key, entrant(people, "carol", PRIVATE)), datetime.now(UTC))
    people.hub.people.data.delete("alice", PASSWORD)
    with pytest.raises(Exception, match="no match"):
        store_of(people).void(played, datetime.now(UTC), is_charged=True)
    asyncio.run(people.app.state.matches.rate())


@pytest.mark.suite("hub")
def test_a_backup_has_the_matches(people: PeopleHub, tmp_path: Path) -> None:
    bob, carol = entrant(people, "bob"), entrant(people, "carol")
    match(people, bob, carol, 0.5)
    settings, key = people.hub.settings, MatchBoardKey(
        package=PUBLIC, version="1.0.0", environment="auction", split="test"
    )  # fmt: skip
    before = read_board(people.hub.database, key), read_matches(people.hub.database, bob, 1)
    with open_parts(settings.data, settings.database_url) as parts:
        backup = write_backup(parts, tmp_path / "hub.tar")[0]
    with open_parts(tmp_path / "restored", new=True) as parts:
        restore_backup(parts, backup)
        restored = Database(parts.engine)
        assert (read_board(restored, key), read_matches(restored, bob, 1)) == before
