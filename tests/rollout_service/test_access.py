"""Who may use the service, what it refuses, and its limits."""

from __future__ import annotations

import copy
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rollout_clients import Answer, Endpoint, RunningService, World
from terminal import clean_variables, run_ludus

from ludus.gateway.service import RolloutRequest


def refusal(service: RunningService, body: Any, headers: dict[str, str] | None = None) -> Answer:
    """The answer to a request that must be refused."""
    with pytest.raises(Answer) as refused:
        service.ask("POST", "/rollouts", body, headers)
    assert set(refused.value.value["error"]) == {"type", "code", "message"}
    return refused.value


@pytest.mark.suite("rollout-service", first=5)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n: 0 is too small; the least is 1"),
        ({"n": "3"}, "n: '3' is not a whole number"),
        ({"n": None}, "give either tasks, or n"),
        ({"tasks": [{"index": 1}]}, "give either tasks, or n"),
        ({"tasks": [{"task": "a", "index": 1}], "n": None}, "tasks.0: "),
        ({"samples": 1024, "n": 1000}, "one job may have"),
        ({"model": {"url": "file:///etc/passwd", "name": "x"}}, "model.url"),
        ({"sampling": {"temperature": -1}}, "sampling.temperature"),
        ({"sampling": {"temprature": 1}}, "sampling.temprature"),
        ({"harness": "agent", "tokens": False}, "a harness calls the model through the gateway"),
        ({"retries": 6}, "retries"),
    ],
)
def test_a_malformed_request_names_the_field(change: dict[str, Any], message: str, world: World) -> None:
    found = refusal(world.service, {**world.request(), **change})
    assert (found.status, found.kind) == (400, "InvalidParams")
    assert message in found.message


@pytest.mark.suite("rollout-service", first=2)
@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"split": "trian"}, 422, "trian"),
        ({"first": 62}, 422, "has 64 tasks"),
        ({"environment": {"url": "http://127.0.0.1:9", "name": "sums"}}, 502, "127.0.0.1:9"),
        ({"environment": "absent"}, 422, "this server has"),
        ({"model": "absent"}, 422, "has no model 'absent'"),
        ({"tokenizer": "/nowhere/at/all"}, 422, "model.tokenizer"),
        ({"chat_template": "{{ 1 + }}"}, 422, "model.chat_template"),
    ],
)
def test_what_would_make_every_episode_fail_is_refused_before_the_first_one(
    change: dict[str, Any], status: int, message: str, world: World
) -> None:
    request = world.request()
    if isinstance(name := change.get("environment"), str):
        change = {"environment": {"url": world.server, "name": name}}
    if "model" in change:
        change = {"model": {**request["model"], "name": "absent"}}
    elif {"tokenizer", "chat_template"} & change.keys():
        change = {"model": {**request["model"], **change}}
    found = refusal(world.service, {**request, **change})
    assert (found.status, message in found.message) == (status, True), found.message
    assert world.service.ask("GET", "/rollouts")["jobs"] == []


JUNK: list[Any] = [None, True, -1, 0, 1.5, 10**30, "", "x" * 3000, "\ud800", [], [[]], {}, {"a": 1}, "http://[", [None]]


def mutated(value: Any, rng: random.Random) -> Any:
    """The request with one of its values replaced, removed or added, at any depth."""
    changed = copy.deepcopy(value)
    at = changed
    while True:
        name = rng.choice(list(at) if isinstance(at, dict) else list(range(len(at))))
        inner = at[name]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.7:
            at = inner
            continue
        if isinstance(at, dict) and rng.random() < 0.2:
            at[rng.choice(["unknown", "", "__class__", "token"])] = rng.choice(JUNK)
        elif isinstance(at, dict) and rng.random() < 0.2:
            del at[name]
        else:
            at[name] = rng.choice(JUNK)
        return changed


def test_malformed_requests_are_refused_with_a_typed_error_and_change_nothing(world: World) -> None:
    request = world.request(tasks=[{"task": "sum-1", "seed": 1}, {"index": 2}], sampling={"top_p": 0.5, "min_p": 0.1})
    request["limits"] = {"max_turns": 3}
    rng, sent = random.Random(5), 0
    for _ in range(600):
        body = mutated(request, rng)
        try:
            RolloutRequest.model_validate(body)
        except ValidationError:
            sent += 1
            assert refusal(world.service, body).status == 400
    assert sent > 300
    for raw in (b"", b"[", b"[]", b"null", b"{" * 100_000, b"\xff\xfe", b'{"n": NaN}', b'"x"'):
        assert refusal(world.service, raw).status == 400
    assert refusal(world.service, b" " * (17 << 20)).status == 413
    assert world.service.ask("GET", "/status")["running"] == 0
    assert world.service.play(world.request(n=1))[-1]["counts"]["scored"] == 1


def test_a_refusal_does_not_repeat_a_secret(world: World) -> None:
    request = world.request()
    request["environment"]["token"] = ["ludus_secret"]
    request["model"]["api_key"] = {"key": "ludus_secret"}
    found = refusal(world.service, request)
    assert "ludus_secret" not in json.dumps(found.value)


@pytest.mark.suite("rollout-service")
def test_credentials_of_the_request_go_to_their_servers_and_those_of_the_service_do_not(
    world: World, start_service: RunningService.Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.request(n=1)
    request["model"]["api_key"] = "key-of-the-request"
    world.service.play(request)
    assert world.endpoint.facts()["keys"]["Bearer key-of-the-request"] > 0
    keys = set(world.endpoint.facts()["keys"])
    variables = {**clean_variables(), "OPENAI_API_KEY": "of-the-service", "LUDUS_TOKEN": "of-the-service"}
    monkeypatch.setattr("rollout_clients.clean_variables", lambda: variables)
    other = World(start_service(), world.server, world.endpoint)
    assert other.service.play(other.request(n=1))[-1]["counts"]["scored"] == 1
    assert set(world.endpoint.facts()["keys"]) <= {*keys, ""}


@pytest.mark.parametrize("path", ["/rollouts/none", "/rollouts/none/lines", "/nothing"])
def test_unknown_jobs_and_paths_are_not_found(path: str, world: World) -> None:
    with pytest.raises(Answer) as refused:
        world.service.ask("GET", path)
    assert refused.value.status == 404


@pytest.mark.parametrize("query", ["from=-1", "from=x", "from=1&other=2", "from=99999999999"])
def test_a_stream_refuses_other_parameters(query: str, world: World) -> None:
    status = world.service.ask("POST", "/rollouts", world.request(n=1, stream=False))
    with pytest.raises(Answer) as refused:
        world.service.ask("GET", f"/rollouts/{status['job']}/lines?{query}")
    assert refused.value.status == 400
    world.service.wait_until(f"/rollouts/{status['job']}", lambda job: job["state"] == "completed")


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
def test_web_pages_cannot_use_a_service_without_tokens(headers: dict[str, str], world: World) -> None:
    assert refusal(world.service, world.request(), headers).status == 403


@pytest.mark.suite("rollout-service")
def test_other_addresses_than_loopback_need_tokens(tmp_path: Path) -> None:
    done = run_ludus("rollouts", "serve", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert done.returncode == 3
    assert "without tokens" in done.stderr


@pytest.mark.suite("rollout-service")
def test_tokens_open_the_service_and_keep_the_jobs_of_callers_apart(
    start_service: RunningService.Start, server: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    def create(name: str, *scopes: str) -> dict[str, str]:
        given = [part for scope in scopes for part in ("--scope", scope)]
        done = run_ludus("token", "create", "--name", name, "--file", tmp_path / "tokens.json", *given, cwd=tmp_path)
        return {"Authorization": f"Bearer {done.stdout.strip()}"}

    ann, bob, reader = create("ann"), create("bob"), create("reader", "tasks:read")
    world = World(start_service("--token-file", tmp_path / "tokens.json"), server, endpoint)
    service = world.service
    assert refusal(service, world.request()).status == 401
    assert refusal(service, world.request(), {"Authorization": "Bearer ludus_wrong"}).status == 401
    assert refusal(service, world.request(), reader).status == 403
    job = service.ask("POST", "/rollouts", world.request(n=1, stream=False), ann)["job"]
    assert [found["job"] for found in service.ask("GET", "/rollouts", None, ann)["jobs"]] == [job]
    assert service.ask("GET", "/rollouts", None, bob)["jobs"] == []
    for method, path in (("GET", f"/rollouts/{job}"), ("DELETE", f"/rollouts/{job}")):
        with pytest.raises(Answer) as refused:
            service.ask(method, path, None, bob)
        assert refused.value.status == 404
    run_ludus("token", "revoke", "ann", "--file", tmp_path / "tokens.json", cwd=tmp_path)
    with pytest.raises(Answer) as refused:
        service.ask("GET", f"/rollouts/{job}", None, ann)
    assert refused.value.status == 401
    text = (tmp_path / "tokens.json").read_text()
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(Answer, match="401"):
        service.ask("GET", "/rollouts", None, bob)
    (tmp_path / "tokens.json").write_text(text)
    assert service.ask("GET", "/rollouts", None, bob)["jobs"] == []


@pytest.mark.suite("rollout-service")
def test_the_service_s_limits_hold_over_all_jobs(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--concurrency", 3, "--max-jobs", 2, "--keep-seconds", 2), server, endpoint)
    service = world.service
    with (
        service.stream("POST", "/rollouts", world.request("held", n=4)) as first,
        service.stream("POST", "/rollouts", world.request("held", n=4)) as second,
    ):
        endpoint.wait_held(3)
        jobs = service.ask("GET", "/rollouts")["jobs"]
        assert sum(job["running"] for job in jobs) == 3
        full = refusal(service, world.request())
        assert (full.status, full.kind) == (429, "CapacityError")
        endpoint.release()
        assert (len(list(first)), len(list(second))) == (5, 5)
    assert service.play(world.request(n=1))[-1]["state"] == "completed", "a job that was read makes room"


@pytest.mark.suite("rollout-service")
def test_the_jobs_begin_episodes_in_turn(start_service: RunningService.Start, server: str, endpoint: Endpoint) -> None:
    world = World(start_service("--concurrency", 4), server, endpoint)
    with (
        world.service.stream("POST", "/rollouts", world.request("held", n=40)) as large,
        world.service.stream("POST", "/rollouts", world.request("held", n=3)) as small,
    ):
        endpoint.wait_held(4)
        endpoint.release()
        assert list(small)[-1]["counts"]["scored"] == 3
        counts = {job["job"]: job["counts"] for job in world.service.ask("GET", "/rollouts")["jobs"]}
        assert counts[large.job]["scored"] <= 20, "the small job waited for the large one"
        assert list(large)[-1]["counts"]["scored"] == 40


@pytest.mark.suite("rollout-service")
def test_a_job_without_a_reader_is_canceled_and_then_forgotten(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--keep-seconds", 1), server, endpoint)
    status = world.service.ask("POST", "/rollouts", world.request("held", n=2, stream=False))
    path = f"/rollouts/{status['job']}"
    expired = world.service.wait_until(path, lambda job: job["state"] != "running")
    assert (expired["state"], expired["counts"]["canceled"]) == ("expired", 2)
    with pytest.raises(Answer, match="404"):
        world.service.wait_until(path, lambda job: False)


@pytest.mark.suite("rollout-service")
def test_lines_that_were_sent_are_dropped_when_they_take_too_much_room_and_others_are_not(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--spool-bytes", 1), server, endpoint)
    request = world.request(tasks=[{"index": 0}], samples=1000, trajectory=True, concurrency=64)
    with world.service.stream("POST", "/rollouts", request) as stream:
        lines, job = list(stream), stream.job
    assert [line["line"] for line in lines] == list(range(1001))
    first = world.service.ask("GET", f"/rollouts/{job}")["first_line"]
    assert first > 0
    with pytest.raises(Answer, match="is not kept any more"):
        world.service.ask("GET", f"/rollouts/{job}/lines?from={first - 1}")


def test_the_schema_needs_no_service(tmp_path: Path) -> None:
    done: subprocess.CompletedProcess[str] = run_ludus("rollouts", "schema", cwd=tmp_path)
    assert "RolloutRequest" in json.loads(done.stdout)["$defs"]


@pytest.mark.suite("rollout-service")
def test_a_service_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path, world: World) -> None:
    crash = "import sys\nif 'ludus.gateway.service.worker' in sys.orig_argv:\n    sys.exit('no such luck')\n"
    (tmp_path / "sitecustomize.py").write_text(crash)
    serve = ("rollouts", "serve", "--spool-folder", tmp_path)
    done = run_ludus(*serve, "--port", 0, "--workers", 2, cwd=tmp_path, variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 3
    assert "no such luck" in done.stderr
    assert "a worker ended before it was ready" in done.stderr
    used = run_ludus(*serve, "--port", world.service.url.rpartition(":")[2], cwd=tmp_path)
    assert used.returncode == 5
    assert "address already in use" in used.stderr
    assert list(tmp_path.glob("ludus-rollouts-*")) == []
