"""A caller's chat template is a program from outside: it stops no other caller, and ends with its job."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from rollout_clients import Answer, Endpoint, RunningService, World, check_exact, wait_ended
from waiting import block_until

from ludus.gateway.service.processes import children_of
from ludus.protocol.bounds import MAX_BODY_VALUES
from ludus.trainer.core.tiny import make_tokenizer

SOURCE = str(make_tokenizer((), 300).chat_template)
LOOPS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)


def with_template(world: World, source: str, **fields: Any) -> dict[str, Any]:
    asked = world.request(**fields)
    return {**asked, "model": {**asked["model"], "chat_template": source}}


def template_processes(service: RunningService) -> set[int]:
    """The processes in which the workers render templates of callers."""
    found: set[int] = set()
    for worker in service.workers():
        for pid in children_of(worker):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"template_child" in command:
                found.add(pid)
    return found


def test_another_callers_rollouts_complete_while_an_endless_template_renders_and_delete_ends_it(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--workers", 1, "--template-seconds", 3600), server, endpoint)
    answers: list[Answer | list[dict[str, Any]]] = []

    def ask() -> None:
        try:
            answers.append(world.service.play(with_template(world, LOOPS)))
        except Answer as answer:
            answers.append(answer)

    caller = threading.Thread(target=ask)
    caller.start()
    block_until(lambda: template_processes(world.service), 60)
    (process,) = template_processes(world.service)
    *lines, end = world.service.play(world.request())
    assert (len(lines) > 1, end["counts"]["scored"]) == (True, 4)
    assert template_processes(world.service) == {process}, "the template renders still"
    (job,) = [one for one in world.service.ask("GET", "/rollouts")["jobs"] if one["state"] == "running"]
    assert world.service.ask("DELETE", f"/rollouts/{job['job']}")["state"] == "canceled"
    wait_ended(process)
    caller.join(60)
    assert answers, "its caller is answered"
    assert world.service.ask("GET", "/status")["worker_deaths"] == 0


@pytest.mark.suite("rollout-service")
def test_a_template_that_exceeds_its_time_is_refused_by_name_before_any_episode(
    start_service: RunningService.Start, server: str, endpoint: Endpoint
) -> None:
    world = World(start_service("--workers", 1, "--template-seconds", 0.5), server, endpoint)
    with pytest.raises(Answer) as refused:
        world.service.play(with_template(world, LOOPS))
    assert (refused.value.status, refused.value.kind) == (422, "InvalidParams")
    assert "model.chat_template took longer than 0.5 s" in refused.value.message
    block_until(lambda: not template_processes(world.service), 60)
    # Only the words of the environment set it off, so that no check before the first episode does.
    late = SOURCE + "{% if messages | length > 1 and 'What is ' in messages | string %}" + LOOPS + "{% endif %}"
    *lines, end = world.service.play(with_template(world, late, n=2, retries=3))
    assert (end["counts"]["scored"], end["counts"]["attempts"]) == (0, 2), (
        "what its caller has caused is not tried again"
    )
    lines = [line for line in lines if line["type"] == "unscored"]
    assert {(line["problem"]["kind"], line["problem"]["error"]) for line in lines} == {("request", "TemplateExceeded")}
    assert "model.chat_template" in lines[0]["problem"]["message"]
    block_until(lambda: not template_processes(world.service), 60)


def test_a_callers_honest_template_gives_the_same_tokens_as_the_services_own(world: World) -> None:
    own = [line["samples"] for line in world.service.play(world.request()) if line["type"] == "episode"]
    given = world.service.play(with_template(world, SOURCE))
    lines = sorted((line for line in given if line["type"] == "episode"), key=lambda line: line["index"])
    assert len(lines) == 4
    check_exact(lines, world.endpoint)
    assert sorted(map(json.dumps, own)) == sorted(json.dumps(line["samples"]) for line in lines)


def test_a_request_of_too_many_values_is_refused_before_it_is_parsed(world: World) -> None:
    body = {**world.request(), "tasks": [[]] * (MAX_BODY_VALUES + 1)}
    with pytest.raises(Answer) as refused:
        world.service.play(body)
    assert (refused.value.status, refused.value.kind) == (413, "PayloadTooLarge")
    with pytest.raises(Answer) as refused:
        world.service.play(with_template(world, "x" * (256 * 1024 + 1)))
    assert "model.chat_template" in refused.value.message
