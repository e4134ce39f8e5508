"""Attacks on training runs: other accounts, replays, floods, false clocks, HTML and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_people import PeopleHub, people_hub, statements
from hubs import kind_of
from training_hub import TrainingRun, opened, opening, trajectory

from ludus.hub.people import access_tokens
from ludus.hub.people.rates import RateSettings
from ludus.hub.people.settings import PeopleSettings
from ludus.hub.training.columns import Value
from ludus.hub.training.curves import BUCKETS, Curves
from ludus.hub.training.limits import TrainingLimits
from ludus.registry.types.people import HubScope
from ludus.registry.types.training import BATCH_POINTS, METRICS

HTML = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def run(people: PeopleHub) -> TrainingRun:
    """A private run of alice with two points."""
    found = opened(people.of("alice"))
    found.steps(1, 2)
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    """A hub with small limits."""
    limits = TrainingLimits(
        runs=2, account_bytes=400_000, run_points=100, run_values=1_000, attempts=3, batch_bytes=20_000, rollouts=2
    )
    rates = PeopleSettings(rates=RateSettings(training_minute=150))
    with people_hub(tmp_path_factory.mktemp("small"), None, training=limits, people=rates) as hub:
        yield hub


def requests_of(key: str) -> list[tuple[str, str, Any]]:
    """A request for each route of a run."""
    api, page = f"/api/v1/training/{key}", f"/training/{key}"
    points = {"attempt": "attempt-1", "number": 1, "points": [{"step": 1, "time": 1, "metrics": {"a": 1}}]}
    return [
        ("GET", api, None), ("GET", f"{api}/points", None), ("GET", f"{api}/curves", None),
        ("GET", f"{api}/rollouts", None), ("POST", f"{api}/points", points), ("DELETE", api, None),
        ("POST", f"{api}/alive", {"attempt": "attempt-1"}), ("POST", f"{api}/end", {"attempt": "attempt-1"}),
        ("PUT", f"{api}/visibility", {"visibility": "public"}),
        ("POST", f"{api}/rollouts", {"attempt": "attempt-1", "step": 1, "trajectory": trajectory()}),
        ("GET", page, None), ("GET", f"{page}?chart=loss", None), ("GET", f"{page}/part", None),
        ("GET", f"{page}/rollouts", None), ("GET", f"{page}/rollouts/1", None),
        ("GET", f"{page}/rollouts/1/images/0", None), ("GET", f"/training/compare?run={key}&run={'x' * 22}", None),
        ("POST", f"{page}/delete", None), ("POST", f"{page}/visibility", None),
    ]  # fmt: skip


@pytest.mark.suite("hub", first=1)
def test_a_private_run_is_absent_for_everyone_else_by_the_same_statements(
    people: PeopleHub, run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_tokens, "FRESH_SECONDS", 0.0)  # look tokens up, every time
    absent = "A" * 22
    others = {
        "no token": people.as_(None), "bob": people.of("bob"), "bob's browser": people.browser("bob"),
        "alice's token without the scopes": people.of("alice", [HubScope.PUBLISH]),
        "alice's token for one package": people.of("alice", [HubScope.READ, HubScope.TRAINING], ("alice/other",)),
    }  # fmt: skip
    for who, client in others.items():
        client.get("/api/v1/training")  # which notes when the token was used
        for (method, path, body), (_, other, _) in zip(requests_of(run.key), requests_of(absent), strict=True):
            with statements(people.hub) as of_private:
                found = client.request(method, path, json=body)
            with statements(people.hub) as of_absent:
                missing = client.request(method, other, json=body)
            case = (who, method, path)
            assert found.status_code in (401, 403, 404, 422, 413, 303), case
            assert (found.status_code, found.text.replace(run.key, absent)) == (missing.status_code, missing.text), case
            assert of_private == of_absent, case
        assert run.key not in client.get("/api/v1/training").text
        assert run.key not in client.get("/training").text
    assert run.info()["points"] == 2


def test_another_account_reads_a_public_run_and_changes_nothing(people: PeopleHub, run: TrainingRun) -> None:
    bob = people.of("bob")
    assert run.client.put(f"{run.path}/visibility", json={"visibility": "public"}).status_code == 200
    answers = {(method, path): bob.request(method, path, json=body) for method, path, body in requests_of(run.key)}
    changing = [answer for (method, path), answer in answers.items() if method != "GET" and path.startswith("/api/")]
    assert {kind_of(answer) for answer in changing} == {"Forbidden"}
    assert answers["GET", f"{run.path}/curves"].status_code == 200
    page = people.browser("bob").get(f"/training/{run.key}").text
    assert "form_key" not in page, "no form for others"
    assert run.info()["points"] == 2
    assert people.as_(None).get(run.path).status_code == 200


@pytest.mark.suite("hub", first=1)
@pytest.mark.parametrize("scopes", [[HubScope.READ], [HubScope.RESULTS], [HubScope.PUBLISH], [HubScope.RUN]])
def test_reporting_needs_the_scope_training(people: PeopleHub, run: TrainingRun, scopes: list[HubScope]) -> None:
    client = people.of("alice", scopes)
    assert kind_of(client.post("/api/v1/training", json=opening())) == "Forbidden"
    client = people.of("alice", [HubScope.TRAINING], ("alice/words",))
    assert kind_of(client.post("/api/v1/training", json=opening())) == "Forbidden"
    assert kind_of(people.as_(None).post("/api/v1/training", json=opening())) == "Unauthenticated"


def test_a_browser_cookie_alone_reports_and_deletes_nothing(people: PeopleHub, run: TrainingRun) -> None:
    browser = people.browser("alice")
    browser.headers["accept"] = "application/json"
    for method, path, body in requests_of(run.key):
        if method != "GET":
            assert browser.request(method, path, json=body).status_code in (401, 403, 413), path
    assert run.info()["points"] == 2


def test_names_with_html_are_shown_as_text(people: PeopleHub) -> None:
    run = opened(
        people.of("alice"), name=HTML, trainer=HTML, config={HTML: HTML}, environments=[{"name": HTML}],
    )  # fmt: skip
    for step in (1, 2):
        assert run.send([(step, {HTML: float(step), "reward/mean": float(step), "a\u202eb": 1.0})]).status_code == 200
    run.client.post(f"{run.path}/rollouts", json={"attempt": run.attempt, "step": 1, "trajectory": trajectory(HTML)})
    other = opened(people.of("alice"), name=HTML)
    other.steps(1, 3)
    run.client.post(f"{run.path}/end", json={"attempt": run.attempt, "state": "failed", "reason": HTML})
    browser = people.browser("alice")
    for path in (
        "/training", f"/training/{run.key}", f"/training/{run.key}?chart={HTML}", f"/training/{run.key}/part",
        f"/training/compare?run={run.key}&run={other.key}", f"/training/{run.key}/rollouts",
        f"/training/{run.key}/rollouts/1", "/account",
    ):  # fmt: skip
        page = browser.get(path)
        assert page.status_code == 200, path
        assert "<script>alert" not in page.text, path
        assert "<img" not in page.text, path
        assert "\u202e" not in page.text, path
        assert "&lt;script&gt;" in page.text, path


@pytest.mark.parametrize("name", ["", "x" * 121, "a\nb", "a\x00b", "a\x1b[2Jb"])
def test_names_of_metrics_are_bounded_and_on_one_line(run: TrainingRun, name: str) -> None:
    assert kind_of(run.send([(3, {name: 1.0})])) == "InvalidParams"


def test_metrics_are_bounded_in_number(run: TrainingRun) -> None:
    assert kind_of(run.send([(3, {f"m{n}": 1.0 for n in range(METRICS + 1)})])) == "InvalidParams"
    assert kind_of(run.send([(n, {"loss": 1.0}) for n in range(BATCH_POINTS + 1)])) == "InvalidParams"
    assert kind_of(run.send([])) == "InvalidParams"
    half = {f"a{n}": 1.0 for n in range(METRICS - 1)}
    assert run.send([(3, half)]).status_code == 200
    answer = run.send([(4, {"one more": 1.0})])
    assert (kind_of(answer), answer.json()["error"]["data"]["limit"]) == ("CapacityError", "metrics")
    assert run.send([(4, half)]).status_code == 200


@pytest.mark.parametrize(
    ("step", "when"), [(-1, 1.0), (2**53, 1.0), (1.5, 1.0), (1, -1.0), (1, 1e12), (1, "Infinity"), ("one", 1.0)]
)
def test_impossible_steps_and_times_are_refused(run: TrainingRun, step: Any, when: Any) -> None:
    point = {"step": step, "time": when, "metrics": {"a": 1.0}}
    body = {"attempt": run.attempt, "number": run.number, "points": [point]}
    assert kind_of(run.client.post(f"{run.path}/points", json=body)) == "InvalidParams"


def test_a_false_clock_of_the_sender_changes_nothing_that_the_hub_says(run: TrainingRun) -> None:
    heard = [run.info()["heardAt"]]
    for when in (0.0, 4e9, 1.0):
        body = {"attempt": run.attempt, "number": run.number, "points": [
            {"step": run.number + 5, "time": when, "metrics": {"a": 1.0}}]}  # fmt: skip
        assert run.client.post(f"{run.path}/points", json=body).status_code == 200
        run.number += 1
        heard.append(run.info()["heardAt"])
    assert heard == sorted(heard)
    assert {time[:3] for time in heard} == {heard[0][:3]}, "neither 1970 nor 2096"


def test_replays_of_earlier_requests_add_nothing(run: TrainingRun) -> None:
    body = {**opening(run.sender_key)}
    for _ in range(3):
        assert run.client.post("/api/v1/training", json=body).json()["restarts"] == []
        assert run.send([(1, {"reward/mean": 1.0}), (2, {"reward/mean": 2.0})], number=0).status_code == 200
    later = run.again("attempt-2", 1)
    later.steps(2, 3)
    assert kind_of(run.send([(1, {"reward/mean": 1.0}), (2, {"reward/mean": 2.0})], number=0)) == "Conflict"
    assert later.info()["points"] == 4
    sample = {"attempt": "attempt-2", "step": 1, "trajectory": trajectory()}
    for _ in range(3):
        assert run.client.post(f"{run.path}/rollouts", json=sample).json()["rollouts"] == 1


@pytest.mark.parametrize(
    "config",
    [
        {"token": "abcdefgh"}, {"deep": [{"hub_token": "abcdefgh"}]}, {"password": "hunter2"}, {"api_key": "k"},
        {"note": "hf_" + "a" * 30}, {"note": "sk-" + "a" * 30}, {"url": "https://me:secret@example.org/x"},
        {"note": "ludus_hub_" + "0" * 72}, {"note": "AKIA" + "A" * 16}, {"hf_" + "a" * 30: 1},
        {"key": "-----BEGIN RSA PRIVATE KEY-----"},
    ],
)  # fmt: skip
def test_secrets_in_a_configuration_are_refused_without_repeating_them(people: PeopleHub, config: Any) -> None:
    answer = people.of("alice").post("/api/v1/training", json=opening(config=config))
    assert (answer.status_code, kind_of(answer)) == (400, "InvalidParams")
    assert "looks like a secret" in answer.text
    for value in ("abcdefgh", "hunter2", "aaaaaaaa", "secret@"):
        assert value not in answer.text


def test_ordinary_configurations_are_no_secrets(people: PeopleHub) -> None:
    config = {
        "max_tokens": 512, "optimizer": {"tokens": 16_384}, "pad_token": "<pad>", "token_variable": "MY_TOKEN",
        "hub_token": "<HUB_TOKEN>", "password": "", "url": "https://example.org:8000/a", "key": "value",
    }  # fmt: skip
    assert opened(people.of("alice"), config=config).info()["config"] == config


def test_configurations_are_bounded(people: PeopleHub) -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    alice = people.of("alice")
    assert kind_of(alice.post("/api/v1/training", json=opening(config={"a": deep}))) == "InvalidParams"
    assert kind_of(alice.post("/api/v1/training", json=opening(config={"a": "x" * 70_000}))) == "PayloadTooLarge"
    assert kind_of(alice.post("/api/v1/training", json=opening(config={"a": "x" * 2**20}))) == "PayloadTooLarge"


def test_an_account_has_bounded_runs_points_values_bytes_and_attempts(small: PeopleHub) -> None:
    alice = small.of("alice")
    run = opened(alice)
    assert kind_of(run.send([(n, {"x" * 100: 1.0}) for n in range(400)])) == "PayloadTooLarge"
    run.steps(1, 90)
    for points, limit in (([(n, {"loss": 1.0}) for n in range(20)], "run_points"),
                          ([(n, {f"m{m}": 1.0 for m in range(150)}) for n in range(7)], "run_values")):  # fmt: skip
        answer = run.send(points)
        assert (answer.status_code, answer.json()["error"]["data"]["limit"]) == (429, limit)
    sample = trajectory("x" * 200_000)
    limits = []
    for step in range(3):
        body = {"attempt": run.attempt, "step": step, "trajectory": sample}
        answer = alice.post(f"{run.path}/rollouts", json=body)
        limits.append(answer.json().get("error", {}).get("data", {}).get("limit"))
    assert limits == [None, "training_bytes", "training_bytes"]
    for step in range(2):
        body = {"attempt": run.attempt, "step": step, "trajectory": trajectory()}
        answer = alice.post(f"{run.path}/rollouts", json=body)
    assert answer.json()["error"]["data"]["limit"] == "training_rollouts"
    later = run.again("attempt-2", 1).again("attempt-3", 1)
    answer = alice.post("/api/v1/training", json={**opening(later.sender_key), "attempt": "attempt-4"})
    assert answer.json()["error"]["data"]["limit"] == "attempts"
    opened(alice)
    assert alice.post("/api/v1/training", json=opening()).json()["error"]["data"]["limit"] == "training_runs"
    assert alice.delete(run.path).status_code == 204
    opened(alice)


def test_an_account_sends_a_bounded_number_of_requests(small: PeopleHub) -> None:
    carol = small.of("carol")
    run = opened(carol)
    answers = [carol.post(f"{run.path}/alive", json={"attempt": run.attempt}) for _ in range(160)]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert 5 <= len(refused) <= 15
    assert refused[0].json()["error"]["data"]["limit"] == "training"
    assert refused[0].headers["retry-after"]
    assert small.of("bob").post("/api/v1/training", json=opening()).status_code == 201, "others are served"


def test_a_million_points_take_bounded_memory_and_keep_their_extremes() -> None:
    curves = Curves()
    for batch in range(1_000):
        curves.add([Value("loss", 1_000 * batch + n, float(n % 7)) for n in range(1_000)])
    curves.add([Value("loss", 500_500, -99.0), Value("loss", 123_456, 99.0)])
    assert len(curves.metrics["loss"].buckets) <= BUCKETS
    assert len(curves.pack()) < 20_000
    curve = curves.metrics["loss"].curve("loss", 60)
    assert (min(curve.low), max(curve.high), len(curve.steps) <= 60) == (-99.0, 99.0, True)
    assert sum(row[0] for row in curves.metrics["loss"].buckets.values()) == 1_000_002


def test_rollouts_must_be_trajectories_of_bounded_size(run: TrainingRun) -> None:
    def sent(record: Any) -> str:
        body = {"attempt": run.attempt, "step": 1, "trajectory": record}
        return kind_of(run.client.post(f"{run.path}/rollouts", content=json.dumps(body)))

    assert sent({"a": 1}) == "InvalidParams"
    assert sent([1]) == "InvalidParams"
    assert sent(trajectory("x" * 300_000)) == "PayloadTooLarge"
    assert sent(trajectory("x" * 2**20)) == "PayloadTooLarge"


def test_a_run_on_a_private_package_names_it_like_one_that_does_not_exist(people: PeopleHub, tmp_path: Path) -> None:
    from hub_people import publish_private
    from hubs import new_name, release

    secret, absent = f"alice/{new_name()}", f"alice/{new_name()}"
    assert publish_private(people.of("alice"), release(secret)).status_code == 201
    environments = [{"name": "a", "package": secret, "version": "1.0.0"}, {"name": "b", "package": absent}]
    run = opened(people.of("alice"), environments=environments, visibility="public")
    assert f'href="/{secret}/versions/1.0.0"' in people.browser("alice").get(f"/training/{run.key}").text
    stranger = people.browser("bob").get(f"/training/{run.key}").text
    assert f'href="/{secret}' not in stranger
    assert f'href="/{absent}' not in stranger
