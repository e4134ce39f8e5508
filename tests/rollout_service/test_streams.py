"""What a caller gets: lines with exact tokens, each episode once, unscored ones apart; and streams that can be lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rollout_clients import Answer, Endpoint, RunningService, World, check_exact

CLIENT = Path(__file__).with_name("plain_client.py")
SNIPPETS = Path(__file__).parents[2] / "docs" / "snippets"
SCHEMA = Path(__file__).parents[2] / "docs" / "assets" / "rollout-service.schema.json"


@pytest.mark.suite("rollout-service")
def test_a_request_is_answered_with_one_line_for_each_episode_and_a_last_line_with_counts(world: World) -> None:
    lines = world.service.play(world.request("mixed", n=4, samples=2))
    assert [line["line"] for line in lines] == list(range(9))
    *episodes, end = lines
    assert {line["type"] for line in episodes} == {"episode"}
    assert sorted(line["index"] for line in episodes) == list(range(8))
    assert all((line["group"], line["sample"]) == divmod(line["index"], 2) for line in episodes)
    assert {line["task"] for line in episodes} == {"sum-0", "sum-1", "sum-2", "sum-3"}
    assert len({(line["group"], line["seed"]) for line in episodes}) == 4, "a group has one seed"
    assert {line["reward"] for line in episodes} == {0.0, 1.0}
    counts = {"episodes": 8, "scored": 8, "unscored": 0, "canceled": 0, "attempts": 8}
    assert (end["type"], end["state"], end["counts"]) == ("end", "completed", counts)
    check_exact(episodes, world.endpoint)


@pytest.mark.suite("rollout-service")
def test_every_line_and_the_request_follow_the_published_schema(world: World) -> None:
    schema = world.service.ask("GET", "/schema")
    assert schema == json.loads(SCHEMA.read_text(encoding="utf-8")), "run: make generate"
    check = jsonschema.Draft202012Validator(schema)
    request = world.request(environment="every_third_breaks", n=6, trajectory=True)
    jsonschema.Draft202012Validator({**schema, "oneOf": [{"$ref": "#/$defs/RolloutRequest"}]}).validate(request)
    lines = world.service.play(request)
    assert {line["type"] for line in lines} == {"episode", "unscored", "end"}
    for line in lines:
        check.validate(line)
    scored = next(line for line in lines if line["type"] == "episode")
    assert scored["trajectory"]["items"][0]["role"] == "user"
    with pytest.raises(jsonschema.ValidationError):
        check.validate({**scored, "reward": None})


def test_a_broken_environment_is_unscored_apart_and_without_tokens(world: World) -> None:
    *lines, end = world.service.play(world.request(environment="every_third_breaks", n=6))
    broken = [line for line in lines if line["type"] == "unscored"]
    assert len(broken) == 2
    assert {line["problem"]["kind"] for line in broken} == {"environment"}
    assert not any("samples" in line or "reward" in line for line in broken)
    assert [line["reward"] for line in lines if line["type"] == "episode"] == [1.0] * 4
    assert (end["counts"]["scored"], end["counts"]["unscored"], end["counts"]["attempts"]) == (4, 2, 6)


def test_tasks_can_be_named_by_id_or_index_with_seeds_of_their_own(world: World) -> None:
    tasks = [{"task": "sum-9", "seed": 5}, {"index": 3}, {"index": 2, "split": "test"}, {"task": "sum-9", "seed": 5}]
    *lines, _ = world.service.play(world.request(tasks=tasks))
    lines.sort(key=lambda line: int(line["index"]))
    assert [line["task"] for line in lines] == ["sum-9", "sum-3", "sum-1002", "sum-9"]
    assert [line["split"] for line in lines] == ["train", "train", "test", "train"]
    assert (lines[0]["seed"], lines[3]["seed"]) == (5, 5)
    assert lines[1]["seed"] not in (5, lines[2]["seed"])


def test_a_task_that_does_not_exist_is_unscored_and_not_tried_again(world: World) -> None:
    *lines, end = world.service.play(world.request(tasks=[{"task": "sum-1"}, {"task": "sum-none"}]))
    by_task = {line["task"]: line for line in lines}
    assert by_task["sum-1"]["reward"] == 1.0
    assert by_task["sum-none"]["problem"]["kind"] == "request"
    assert end["counts"]["attempts"] == 2


def test_text_only_needs_no_token_ids(world: World) -> None:
    *lines, _ = world.service.play(world.request("mixed", tokens=False, trajectory=True, samples=2))
    assert {line["reward"] for line in lines} == {0.0, 1.0}
    assert all(line["samples"] == [] and line["trajectory"]["steps"] for line in lines)


def test_an_endpoint_that_breaks_leaves_unscored_lines_with_the_earlier_attempts(world: World) -> None:
    request = world.request("stray", n=1, retries=1)
    *lines, end = world.service.play(request)
    assert [line["problem"]["error"] for line in lines] == ["ProtocolViolation"]
    assert [(line["attempt"], len(line["earlier"])) for line in lines] == [(2, 1)]
    assert (end["counts"]["unscored"], end["counts"]["attempts"]) == (1, 2)


@pytest.mark.parametrize("model", ["text", "blind", "changed"])
def test_an_endpoint_without_exact_tokens_is_refused_before_the_first_episode(model: str, world: World) -> None:
    before = world.service.ask("GET", "/status")["jobs"]
    with pytest.raises(Answer) as refused:
        world.service.play(world.request(model))
    assert (refused.value.status, refused.value.kind) == (422, "Unsupported")
    assert world.service.ask("GET", "/status")["jobs"] == before


def test_a_lost_connection_is_resumed_at_any_line(world: World) -> None:
    with world.service.stream("POST", "/rollouts", world.request(n=8)) as stream:
        first, job = stream.take(3), stream.job
    with world.service.stream("GET", f"/rollouts/{job}/lines?from=2") as stream:
        rest = list(stream)
    assert rest[0] == first[2]
    assert [line["line"] for line in (*first[:2], *rest)] == list(range(9))
    with world.service.stream("GET", f"/rollouts/{job}/lines?from=8") as stream:
        assert [line["type"] for line in stream] == ["end"]
    with pytest.raises(Answer, match="has 9 lines"):
        world.service.ask("GET", f"/rollouts/{job}/lines?from=10")


def test_a_repeated_request_with_the_same_key_plays_nothing_twice(world: World) -> None:
    request, headers = world.request(n=3), {"Idempotency-Key": "step-7"}
    before = world.endpoint.facts()["counts"]["solver"]
    first = world.service.play(request, headers)
    after = world.endpoint.facts()["counts"]["solver"]
    assert after > before
    assert world.service.play(request, headers) == first
    assert world.endpoint.facts()["counts"]["solver"] == after
    with pytest.raises(Answer) as refused:
        world.service.play(world.request(n=4), headers)
    assert (refused.value.status, refused.value.kind) == (409, "KeyConflict")


def test_the_newest_stream_of_a_job_ends_the_others(world: World) -> None:
    request = world.request("held", n=4)
    with world.service.stream("POST", "/rollouts", request) as old:
        world.endpoint.wait_held(4)
        with world.service.stream("GET", f"/rollouts/{old.job}/lines?from=0") as new:
            assert list(old) == []
            world.endpoint.release()
            assert len(list(new)) == 5


def test_two_jobs_at_once_share_the_service_and_keep_their_lines_apart(world: World) -> None:
    with (
        world.service.stream("POST", "/rollouts", world.request("held", n=4)) as held,
        world.service.stream("POST", "/rollouts", world.request("wrong", n=8)) as wrong,
    ):
        lines = list(wrong)  # while the other one still runs
        assert lines[-1]["counts"]["scored"] == 8
        assert {line["reward"] for line in lines[:-1]} == {0.0}
        world.endpoint.wait_held(4)
        world.endpoint.release()
        *others, end = list(held)
    assert {line["reward"] for line in others} == {1.0}
    assert end["job"] != lines[-1]["job"]
    check_exact(others, world.endpoint)


def test_a_job_can_be_read_later(world: World) -> None:
    status = world.service.ask("POST", "/rollouts", world.request(n=2, stream=False))
    assert status["counts"]["episodes"] == 2
    with world.service.stream("GET", f"/rollouts/{status['job']}/lines") as stream:
        assert [line["type"] for line in stream] == ["episode", "episode", "end"]
    assert world.service.ask("GET", f"/rollouts/{status['job']}")["state"] == "completed"
    world.service.ask("DELETE", f"/rollouts/{status['job']}")
    with pytest.raises(Answer, match="there is no job"):
        world.service.ask("GET", f"/rollouts/{status['job']}")


def run_plain_client(service: RunningService, request: dict[str, Any], lost_after: int) -> dict[str, Any]:
    """Run the client without Ludus on its path."""
    given = [service.url, json.dumps(request), str(lost_after)]
    command = [sys.executable, "-I", "-S", str(CLIENT), str(SNIPPETS), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_process_without_ludus_gets_its_trajectories_over_a_connection_that_it_loses_again_and_again(
    world: World,
) -> None:
    report = run_plain_client(world.service, world.request("mixed", n=16, samples=2), lost_after=5)
    assert report["ludus"] == ""
    assert report["indices"] == list(range(32))
    assert report["lines"] == list(range(33))
    assert report["end"]["counts"]["scored"] == 32
    assert report["tokens"] > 32
    assert report["losses"] == 8


@pytest.mark.suite("rollout-service")
@pytest.mark.timeout(120)
def test_a_process_without_ludus_gets_512_trajectories(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--workers", 2), server, endpoint)
    report = run_plain_client(world.service, world.request("mixed", n=64, samples=8), lost_after=100)
    assert report["losses"] == 5
    assert report["ludus"] == ""
    assert report["indices"] == list(range(512))
    assert report["lines"] == list(range(513))
    assert report["end"]["counts"] == {"episodes": 512, "scored": 512, "unscored": 0, "canceled": 0, "attempts": 512}
    assert 0 < sum(report["rewards"]) < 512
