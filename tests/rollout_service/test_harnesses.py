"""Episodes that a program plays: the same exact tokens, only programs that were allowed, and nothing left of them."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from harness_workers import worker
from rollout_clients import Answer, Endpoint, RunningService, World, check_exact, wait_ended

pytestmark = pytest.mark.suite("rollout-service")

AGENT = """
import json, os, sys, urllib.request
task = json.loads(sys.stdin.readline())
def post(url, body, headers={}):
    data = json.dumps(body).encode()
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, data, {**kind, **headers})
    text = urllib.request.urlopen(request).read().decode()
    return json.loads(text[text.index("{"):text.rindex("}") + 1])
def tool(name, arguments):
    params = {"name": name, "arguments": arguments}
    headers = {"MCP-Protocol-Version": "2025-06-18"}
    reply = post(task["play_url"], {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)
    return reply["result"]["content"][0]["text"]
number = {"type": "integer"}
def described(name, *fields):
    schema = {"type": "object", "properties": {field: number for field in fields}}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}
messages = [{"role": "user", "content": task["prompt"]}]
tools = [described("add", "a", "b"), described("submit", "number")]
while True:
    body = {"model": task["model"], "messages": messages, "tools": tools}
    message = post(task["openai_base_url"] + "/chat/completions", body)["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls") or message["content"] == "The episode has ended.":
        break
    for made in message["tool_calls"]:
        text = tool(made["function"]["name"], json.loads(made["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
"""
HANG = """
import json, os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(sys.argv[1], "a").write(f"{os.getpid()} {child.pid} {os.environ['HOME']}\\n")
time.sleep(600)
"""


def harness_of(folder: Path, text: str, *arguments: object, kind: str = "command") -> str:
    """The option for a harness of that program."""
    program = folder / "agent.py"
    program.write_text(text)
    command = shlex.join([kind, sys.executable, str(program), *map(str, arguments)])
    return f"agent={command}"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A named pipe through which a harness says where it runs."""
    path = tmp_path / "notes"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("kind", ["command", "worker"])
def test_a_program_plays_the_episodes_and_their_tokens_are_exact(
    kind: str, start_service: RunningService.Start, server: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    program = AGENT if kind == "command" else worker(AGENT)
    world = World(start_service("--harness", harness_of(tmp_path, program, kind=kind)), server, endpoint)
    *lines, end = world.service.play(world.request("mixed", n=6, harness="agent"))
    assert end["counts"]["scored"] == 6, lines
    assert {line["reward"] for line in lines} == {0.0, 1.0}
    check_exact(lines, endpoint)


def test_a_program_that_crashes_is_unscored_and_was_tried_again(
    start_service: RunningService.Start, server: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    world = World(start_service("--harness", harness_of(tmp_path, "raise SystemExit(3)")), server, endpoint)
    *lines, end = world.service.play(world.request(n=2, harness="agent", retries=1))
    assert {(line["problem"]["kind"], line["problem"]["error"]) for line in lines} == {("policy", "HarnessFailed")}
    assert (end["counts"]["unscored"], end["counts"]["attempts"]) == (2, 4)


def test_only_programs_that_the_service_was_started_with_are_run(world: World, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for harness in ("agent", f"command touch {marker}", f"worker touch {marker}"):
        with pytest.raises(Answer) as refused:
            world.service.play(world.request(harness=harness))
        assert (refused.value.status, refused.value.kind) == (403, "Forbidden")
    assert not marker.exists()


def test_any_program_runs_if_the_service_allows_it(
    start_service: RunningService.Start, server: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    world = World(start_service("--any-harness"), server, endpoint)
    command = harness_of(tmp_path, AGENT).removeprefix("agent=")
    assert world.service.play(world.request(n=2, harness=command))[-1]["counts"]["scored"] == 2
    with pytest.raises(Answer, match="there is no program"):
        world.service.play(world.request(harness="command no-such-program-here"))


def started(notes: Path) -> tuple[int, int, Path]:
    """Wait for a harness, and return its process, its child's, and its home folder."""
    pid, child, home = notes.read_text().split()[:3]
    return int(pid), int(child), Path(home)


def test_canceling_ends_the_programs(
    start_service: RunningService.Start, server: str, endpoint: Endpoint, tmp_path: Path, notes: Path
) -> None:
    world = World(start_service("--harness", harness_of(tmp_path, HANG, notes)), server, endpoint)
    status = world.service.ask("POST", "/rollouts", world.request(n=1, harness="agent", stream=False))
    pid, child, home = started(notes)
    world.service.ask("DELETE", f"/rollouts/{status['job']}")
    wait_ended(pid)
    wait_ended(child)  # it had left the process group of its harness
    assert not home.exists()


@pytest.mark.parametrize("kind", ["command", "worker"])
def test_a_killed_worker_leaves_no_program_and_no_file(
    kind: str, start_service: RunningService.Start, server: str, endpoint: Endpoint, tmp_path: Path, notes: Path
) -> None:
    world = World(start_service("--harness", harness_of(tmp_path, HANG, notes, kind=kind)), server, endpoint)
    status = world.service.ask("POST", "/rollouts", world.request(n=1, harness="agent", retries=0, stream=False))
    pid, child, home = started(notes)
    world.service.kill_worker()
    job = world.service.wait_until(f"/rollouts/{status['job']}", lambda job: job["state"] == "completed")
    assert (job["counts"]["unscored"], job["running"]) == (1, 0)
    wait_ended(pid)
    wait_ended(child)
    assert not home.exists()
