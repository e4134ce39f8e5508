"""Results and accounts: private packages, the scope of tokens, and what stays of a person who leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hub_people import PASSWORD, PeopleHub, people_hub, publish_private
from hubs import kind_of, published
from postgres_server import PostgresServer
from results_hub import locks_release, submission
from sqlalchemy import update

from ludus.hub.app import parts_of
from ludus.hub.database.result_tables import ResultRun
from ludus.hub.results.store import ResultStore
from ludus.registry.types.people import HubScope

PRIVATE, PUBLIC = "alice/private-locks", "alice/public-locks"


@pytest.fixture(params=["sqlite", "postgres"])
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PeopleHub]:
    """A hub with a private and a public package of alice."""
    url = None
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    with people_hub(tmp_path, url) as hub:
        for name in (PRIVATE, PUBLIC):
            one = locks_release(name)
            answer = publish_private(hub.of("alice"), one) if name == PRIVATE else published(hub.of("alice"), one)
            assert getattr(answer, "status_code", 201) == 201
        yield hub


def submitted(client: httpx.Client, package: str, *rewards: float) -> Any:
    """The run of an upload."""
    where = f"/api/v1/environments/{package}/versions/1.0.0"
    digest = client.get(where).json()["sha256"]
    answer = client.post(f"{where}/results", content=json.dumps(submission(digest, *rewards)))
    assert answer.status_code == 201, answer.text
    return answer.json()


def board(client: httpx.Client, package: str) -> list[Any]:
    """The rows of the board of reported results."""
    query = {"environment": "locks", "split": "test", "level": "reported"}
    answer = client.get(f"/api/v1/environments/{package}/versions/1.0.0/board", params=query)
    return list(answer.json()["rows"])


@pytest.mark.suite("hub", first=1)
def test_runs_on_a_private_package_are_absent_for_strangers(people: PeopleHub) -> None:
    alice, bob = people.of("alice"), people.of("bob")
    run = submitted(alice, PRIVATE, 1.0, 0.0)["key"]
    absent = "A" * len(run)
    for path in ("", "/receipt", "/rollouts", "/rows"):
        answers = [bob.get(f"/api/v1/runs/{key}{path}") for key in (run, absent)]
        texts = [answer.text.replace(key, "KEY") for answer, key in zip(answers, (run, absent), strict=True)]
        assert texts[0] == texts[1]
        assert answers[0].status_code == answers[1].status_code == 404
    assert bob.get(f"/results/{run}").status_code == bob.get(f"/results/{absent}").status_code == 404
    assert alice.get(f"/api/v1/runs/{run}").status_code == 200
    assert alice.post(f"/api/v1/runs/{run}/remove", json={"reason": "a mistake"}).status_code == 200
    assert alice.get("/api/v1/results/log").json()["total"] == 1
    assert bob.get("/api/v1/results/log").json() == people.as_(None).get("/api/v1/results/log").json()
    assert bob.get("/api/v1/results/log").json()["total"] == 0


def test_a_token_needs_the_scope_results(people: PeopleHub) -> None:
    where = f"/api/v1/environments/{PUBLIC}/versions/1.0.0"
    digest = people.as_(None).get(where).json()["sha256"]
    upload = json.dumps(submission(digest, 1.0))
    for client in (
        people.of("bob", [HubScope.READ, HubScope.RUN]),
        people.of("bob", [HubScope.RESULTS], packages=("bob/other",)),
    ):
        answer = client.post(f"{where}/results", content=upload)
        assert (answer.status_code, kind_of(answer)) == (403, "Forbidden")
    assert kind_of(people.as_(None).post(f"{where}/results", content=upload)) == "Unauthenticated"
    limited = people.of("bob", [HubScope.RESULTS], packages=(PUBLIC,))
    assert limited.post(f"{where}/results", content=upload).status_code == 201


def test_an_export_has_the_runs_and_a_deleted_account_leaves_its_boards(people: PeopleHub) -> None:
    bob, carol = people.of("bob"), people.of("carol")
    runs = [submitted(bob, PUBLIC, *[1.0] * count)["key"] for count in (1, 2)]
    submitted(carol, PUBLIC, 0.0)
    assert {row["by"] for row in board(carol, PUBLIC)} == {"bob", "carol"}
    exported = people.hub.people.data.export(people.account("bob"), "bob")["results"]
    assert [one["run"] for one in exported] == runs
    people.hub.people.data.delete("bob", PASSWORD)
    people.hub.people.data.delete("carol", PASSWORD)
    stranger = people.as_(None)
    assert board(stranger, PUBLIC) == []
    for run in runs:
        shown = stranger.get(f"/api/v1/runs/{run}")
        assert shown.json()["removal"]["reason"] == "the account was deleted"
        assert "bob" not in shown.text
    log = stranger.get("/api/v1/results/log")
    assert log.json()["total"] == 3
    assert "bob" not in log.text


def test_a_receipt_names_its_account_and_goes_with_it(people: PeopleHub) -> None:
    run = submitted(people.of("bob"), PUBLIC, 1.0)["key"]
    signed = '{"statement": {"by": "bob"}}'  # what a receipt holds does not matter here
    with people.hub.database.writing() as session:
        session.execute(update(ResultRun).where(ResultRun.key == run).values(receipt=signed))
    store: ResultStore = parts_of(people.app).results.store
    assert store.receipt(run) == signed
    people.hub.people.data.delete("bob", PASSWORD)
    assert store.receipt(run) is None


@pytest.mark.suite("hub", first=1)
def test_results_on_private_packages_go_with_the_account_of_their_owner(people: PeopleHub) -> None:
    alice = people.of("alice")
    hidden, shown = submitted(alice, PRIVATE, 1.0)["key"], submitted(alice, PUBLIC, 1.0)["key"]
    people.hub.people.data.delete("alice", PASSWORD)
    root = people.of("root")
    assert root.get(f"/api/v1/runs/{hidden}").status_code == 404
    assert root.get(f"/api/v1/runs/{shown}").json()["removal"] is not None
    assert root.get("/api/v1/results/log").json()["total"] == 1
