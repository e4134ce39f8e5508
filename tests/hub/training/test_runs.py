"""Training runs: batches that are kept once, runs that are continued, and how a run stands."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hub_people import PeopleHub
from hubs import kind_of
from sqlalchemy import update
from training_hub import TrainingRun, opened, opening

from ludus.hub.database.training_tables import TrainingRun as Row
from ludus.hub.training import store


@pytest.fixture
def run(people: PeopleHub) -> TrainingRun:
    """A run of alice."""
    return opened(people.of("alice"), steps=100)


def age(people: PeopleHub, run: TrainingRun, seconds: float) -> None:
    """Let the hub have heard from a run some seconds ago."""
    with people.hub.database.writing() as session:
        heard = datetime.now(UTC) - timedelta(seconds=seconds)
        session.execute(update(Row).where(Row.key == run.key).values(heard_at=heard))


@pytest.mark.suite("hub", first=1)
def test_a_run_is_opened_once_under_a_key_and_belongs_to_its_account(people: PeopleHub) -> None:
    alice, body = people.of("alice"), opening(config={"lr": 1e-3}, environments=[{"name": "toss"}])
    first, second = (alice.post("/api/v1/training", json=body) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    found = first.json()
    assert (found["by"], found["visibility"], found["state"], found["config"]) == (
        "alice", "private", "running", {"lr": 1e-3},
    )  # fmt: skip
    assert people.of("bob").post("/api/v1/training", json=body).json()["key"] != found["key"]


def test_a_run_that_is_opened_twice_at_once_is_one_run(people: PeopleHub) -> None:
    alice = people.of("alice")
    for _ in range(4):
        body = opening()
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _, body=body: alice.post("/api/v1/training", json=body), range(4)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
        assert len({answer.json()["key"] for answer in answers}) == 1


def test_a_batch_that_is_sent_again_is_kept_once_and_answered_the_same(run: TrainingRun) -> None:
    batch = [(1, {"loss": 0.5}), (2, {"loss": 0.25})]
    answers = [run.send(batch, number=0) for _ in range(3)]
    assert {(answer.status_code, answer.text) for answer in answers} == {(200, '{"number":0,"points":2}')}
    assert (run.info()["points"], run.info()["nextBatch"]) == (2, 1)
    assert run.curves()["loss"]["mean"] == [0.5, 0.25]


def test_batches_that_are_sent_at_once_are_kept_once(run: TrainingRun) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: run.send([(1, {"loss": 1.0})], number=0), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert run.info()["points"] == 1


def test_a_gap_is_refused_with_the_number_that_is_expected(run: TrainingRun) -> None:
    run.steps(1, 3)
    answer = run.send([(9, {"loss": 1.0})], number=4)
    assert (answer.status_code, kind_of(answer)) == (409, "Conflict")
    assert answer.json()["error"]["data"]["expected"] == 1
    assert run.info()["points"] == 3


def test_other_content_under_the_same_number_is_refused(run: TrainingRun) -> None:
    run.steps(1, 3)
    answer = run.send([(1, {"loss": 1.0})], number=0)
    assert (kind_of(answer), answer.json()["error"]["data"]["expected"]) == ("Conflict", 1)
    assert "loss" not in run.curves()


def test_numbers_that_are_not_finite_are_kept_by_name_and_leave_the_curve(run: TrainingRun) -> None:
    values = [1.0, "NaN", "Infinity", "-Infinity", 2.0]
    assert run.send([(step, {"loss": value}) for step, value in enumerate(values)]).status_code == 200
    curve = run.curves()["loss"]
    assert (curve["mean"], curve["steps"], curve["notFinite"]) == ([1.0, 2.0], [0, 4], 3)
    sent = run.client.get(f"{run.path}/points").json()["batches"][0]["points"]
    assert [point["metrics"]["loss"] for point in sent] == values
    run.send([(9, {"loss": "NaN"})])
    assert (run.curves()["loss"]["latest"], run.curves()["loss"]["latestStep"]) == ("NaN", 9)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "true", '"1"', "null", "[1]", '"nan"'])
def test_what_is_no_number_is_refused(run: TrainingRun, value: str) -> None:
    body = f'{{"attempt": "attempt-1", "number": 0, "points": [{{"step": 1, "time": 1, "metrics": {{"a": {value}}}}}]}}'
    answer = run.client.post(f"{run.path}/points", content=body)
    assert (answer.status_code, kind_of(answer)) == (400, "InvalidParams")
    assert run.info()["points"] == 0


def test_a_continued_run_replaces_the_steps_after_its_checkpoint_and_shows_where(run: TrainingRun) -> None:
    run.steps(1, 37)
    later = run.again("attempt-2", 30)
    assert later.key == run.key
    assert later.info()["lastStep"] == 30
    later.send([(step, {"reward/mean": -1.0}) for step in range(31, 41)])
    info, curve = later.info(), later.curves()["reward/mean"]
    assert [one["step"] for one in info["restarts"]] == [30]
    assert curve["steps"] == list(range(1, 41))
    assert curve["mean"] == [float(step) for step in range(1, 31)] + [-1.0] * 10
    assert info["points"] == 47, "what was replaced is kept among the points"
    last = later.again("attempt-3", 10)
    last.steps(11, 12)
    assert last.curves()["reward/mean"]["mean"] == [float(step) for step in range(1, 13)]


def test_a_process_whose_run_another_one_has_continued_may_not_send(run: TrainingRun) -> None:
    run.steps(1, 2)
    later = run.again("attempt-2", 2)
    for answer in (
        run.send([(3, {"loss": 1.0})]), run.client.post(f"{run.path}/alive", json={"attempt": run.attempt}),
        run.client.post(f"{run.path}/end", json={"attempt": run.attempt}),
    ):  # fmt: skip
        assert (answer.status_code, kind_of(answer)) == (409, "Conflict")
        assert "another process" in answer.text
    assert later.info()["state"] == "running"


def test_a_run_ends_once_and_a_later_process_continues_it(run: TrainingRun) -> None:
    run.steps(1, 2)
    end = {"attempt": run.attempt, "state": "failed", "reason": "out of memory", "dropped": 3}
    first, second = (run.client.post(f"{run.path}/end", json=end).json() for _ in range(2))
    assert first == second
    assert (first["state"], first["reason"], first["dropped"]) == ("failed", "out of memory", 3)
    assert kind_of(run.send([(3, {"loss": 1.0})])) == "Conflict"
    later = run.again("attempt-2", 2)
    later.steps(3, 4)
    assert (later.info()["state"], later.info()["reason"], later.info()["endedAt"]) == ("running", "", None)


def test_a_run_without_a_sign_of_life_is_lost_until_it_is_heard_again(people: PeopleHub, run: TrainingRun) -> None:
    run.steps(1, 2)
    age(people, run, 170.0)
    assert run.info()["state"] == "running"
    age(people, run, 190.0)
    assert run.info()["state"] == "lost"
    assert "lost" in people.browser("alice").get(f"/training/{run.key}").text
    assert run.client.post(f"{run.path}/alive", json={"attempt": run.attempt}).json()["state"] == "running"
    age(people, run, 190.0)
    run.steps(3, 4)
    assert run.info()["state"] == "running"
    run.client.post(f"{run.path}/end", json={"attempt": run.attempt})
    age(people, run, 1e6)
    assert run.info()["state"] == "finished"


def test_curves_are_the_same_with_and_without_a_summary(
    people: PeopleHub, run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened(run.client)
    for batch in range(30):
        points = [(10 * batch + n, {"a": math.sin(batch + n), "b": 1.0 * n}) for n in range(10)]
        monkeypatch.setattr(store, "TAIL_VALUES", 50)
        assert run.send(points).status_code == 200
        monkeypatch.setattr(store, "TAIL_VALUES", 10**9)
        assert other.send(points).status_code == 200
    with people.hub.database.reading() as session:
        upto = {row.key: row.summary_upto for row in session.query(Row).where(Row.key.in_([run.key, other.key]))}
    assert (upto[run.key] > 20, upto[other.key]) == (True, 0)
    assert run.curves() == other.curves()


def test_curves_have_a_tag_and_an_unchanged_one_is_not_sent_again(run: TrainingRun) -> None:
    run.steps(1, 3)
    first = run.client.get(f"{run.path}/curves")
    again = run.client.get(f"{run.path}/curves", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    run.steps(4, 5)
    changed = run.client.get(f"{run.path}/curves", headers={"if-none-match": first.headers["etag"]})
    assert changed.json()["curves"][0]["steps"] == [1, 2, 3, 4, 5]


def test_points_are_read_page_by_page_as_they_were_sent(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAGE_BATCHES", 2)
    for step in range(5):
        run.steps(step, step)
    found: list[int] = []
    start: int | None = 0
    while start is not None:
        page = run.client.get(f"{run.path}/points", params={"from": start}).json()
        found += [point["step"] for batch in page["batches"] for point in batch["points"]]
        start = page["next"]
    assert found == [0, 1, 2, 3, 4]


def test_lists_have_own_and_public_runs_the_newest_first(people: PeopleHub) -> None:
    bob, carol = people.of("bob"), people.of("carol")
    hidden, shown = opened(bob), opened(bob, visibility="public")
    mine = opened(carol)
    keys = [one["key"] for one in carol.get("/api/v1/training").json()["runs"]]
    assert keys[:2] == [mine.key, shown.key]
    assert hidden.key not in keys
    assert [one["key"] for one in carol.get("/api/v1/training?own=true").json()["runs"]] == [mine.key]
