"""Harnesses as programs: what they get, and how each way of ending is recorded."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from gateway_play import Play, RecordingEngine, check_exact
from harness_workers import AGENT, COMMON, worker
from scripted import call
from waiting import is_running

from ludus.gateway import HarnessFailed, make_harness
from ludus.gateway.harness import CommandHarness
from ludus.protocol.errors import InvalidParams


@pytest.mark.parametrize("kind", ["command", "worker"])
async def test_a_program_plays_an_episode_and_its_tokens_are_recorded(
    kind: str, play: Play, engine: RecordingEngine
) -> None:
    program = AGENT if kind == "command" else worker(AGENT)
    played = await play(program, kind=kind)
    trajectory = played.trajectory()
    assert (trajectory.value, trajectory.end_reason, trajectory.stopped) == (1.0, "completed", None)
    assert trajectory.failure is None
    assert [item["type"] for item in trajectory.items] == ["message", "function_call"]
    assert [(step.step, step.reward and step.reward.value) for step in trajectory.steps] == [(1, 1.0)]
    assert len(trajectory.turns) == 1
    check_exact(played.session, engine)


async def test_nothing_is_sampled_after_the_end_of_the_episode(play: Play, engine: RecordingEngine) -> None:
    looping = (
        COMMON
        + """
messages = [{"role": "user", "content": task["prompt"]}, model([{"role": "user", "content": task["prompt"]}], [SAY])]
(made,) = messages[1]["tool_calls"]
messages.append({"role": "tool", "tool_call_id": made["id"], "content": tool("say", {"number": 0})})
for _ in range(3):
    assert model(messages, [SAY])["content"] == "The episode has ended."
"""
    )
    played = await play(looping)
    assert played.trajectory().failure is None
    assert len(engine.seen) == 1


async def test_the_last_message_is_graded_as_with_our_own_loop(play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: "I think it is 0."
    trajectory = (await play(AGENT)).trajectory()
    assert (trajectory.value, trajectory.end_reason) == (0.5, "submitted")
    assert trajectory.grade is not None
    ungraded = (await play(AGENT, environment="ungraded")).trajectory()
    assert (ungraded.stopped, ungraded.end_reason, ungraded.value) == ("final_message", "closed", 0.0)


CRASH = COMMON + "model([{'role': 'user', 'content': 'x'}])\nraise RuntimeError('the harness broke')\n"


async def test_a_harness_that_crashes_is_unscored_and_never_a_zero(play: Play) -> None:
    trajectory = (await play(CRASH)).trajectory()
    assert trajectory.value is None
    assert trajectory.reward is None
    assert trajectory.failure is not None
    assert (trajectory.failure.kind, trajectory.failure.error) == ("policy", "HarnessFailed")
    assert "exit code 1" in trajectory.failure.message
    assert "the harness broke" in trajectory.failure.message


async def test_a_crash_after_the_end_of_the_episode_keeps_its_reward(play: Play) -> None:
    trajectory = (await play(AGENT + "\nraise SystemExit(3)\n")).trajectory()
    assert (trajectory.value, trajectory.failure) == (1.0, None)


async def test_a_harness_that_loops_is_truncated_by_name(play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: call("warm")
    looping = (
        COMMON
        + """
messages = [{"role": "user", "content": task["prompt"]}]
while True:
    message = model(messages, [SAY])
    messages.append(message)
    for made in message["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": tool("warm", {})})
"""
    )
    played = await play(looping, limits={"max_calls": 3})
    trajectory = played.trajectory()
    assert (trajectory.stopped, trajectory.failure) == ("turn_limit", None)
    assert trajectory.value == 0.75
    assert len(played.session.calls) == 3
    check_exact(played.session, engine)


async def test_a_harness_that_repeats_its_request_until_a_limit_is_unscored(play: Play) -> None:
    again = COMMON + "while True:\n    model([{'role': 'user', 'content': task['prompt']}], [SAY])\n"
    trajectory = (await play(again, limits={"max_calls": 4})).trajectory()
    assert trajectory.value is None
    assert trajectory.failure is not None
    assert (trajectory.failure.kind, trajectory.failure.error) == ("policy", "HarnessFailed")
    assert "the same conversation 4 times" in trajectory.failure.message
    assert "turn limit" in trajectory.failure.message


@pytest.mark.parametrize("reply", ["", "loud " * 100])
async def test_a_harness_that_asks_again_after_replies_that_no_program_can_use_is_truncated(
    reply: str, play: Play, engine: RecordingEngine
) -> None:
    engine.script = lambda prompt, rng: reply
    again = COMMON + "while True:\n    model([{'role': 'user', 'content': task['prompt']}], [SAY])\n"
    trajectory = (await play(again, limits={"max_calls": 4, "max_tokens": 16})).trajectory()
    assert (trajectory.stopped, trajectory.failure, trajectory.value) == ("turn_limit", None, 0.0)


async def test_a_harness_that_asks_again_and_goes_on_is_truncated(play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: call("warm")
    asking = (
        COMMON
        + """
messages = [{"role": "user", "content": task["prompt"]}]
model(messages, [SAY])
while True:
    message = model(messages, [SAY])
    messages.append(message)
    for made in message["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": tool("warm", {})})
"""
    )
    trajectory = (await play(asking, limits={"max_calls": 4})).trajectory()
    assert (trajectory.stopped, trajectory.failure, trajectory.value) == ("turn_limit", None, 0.75)


def was_left(folder: str) -> bool:
    """Whether a folder still exists."""
    return Path(folder).exists()


HANG = COMMON + "import time\nmodel([{'role': 'user', 'content': 'x'}])\ntime.sleep(600)\n"


async def test_a_harness_that_hangs_is_unscored_and_its_processes_are_gone(
    play: Play, engine: RecordingEngine, tmp_path: Path
) -> None:
    engine.script = lambda prompt, rng: "Hm."
    pids = tmp_path / "pids"
    child = (
        "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
        "daemon = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    )
    note = f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} {{daemon.pid}}')\n"
    trajectory = (await play(COMMON + child + note + HANG.removeprefix(COMMON), idle_seconds=2.0)).trajectory()
    assert trajectory.failure is not None
    assert "no model call for 2 s" in trajectory.failure.message
    assert [pid for pid in pids.read_text().split() if is_running(int(pid))] == []


async def test_an_episode_that_takes_too_long_is_truncated_by_name(play: Play, engine: RecordingEngine) -> None:
    limits: list[asyncio.Timeout] = []
    loop = asyncio.get_running_loop()

    def limit(seconds: float | None) -> asyncio.Timeout:
        limits.append(asyncio.timeout(seconds))
        return limits[-1]

    def say(prompt: str, rng: Any) -> str:
        loop.call_later(0.5, limits[0].reschedule, 0.0)  # of the whole episode, soon after its first call
        return "Hm."

    engine.script = say
    trajectory = (await play(HANG, limit=limit)).trajectory()
    assert (trajectory.stopped, trajectory.failure, trajectory.value) == ("time_limit", None, 0.0)


async def test_a_harness_that_does_not_recover_from_a_full_context_is_truncated_by_name(play: Play) -> None:
    full = COMMON + "".join(f"model([{{'role': 'user', 'content': 'x' * {count}}}], [SAY])\n" for count in (5, 5000))
    trajectory = (await play(full, limits={"context": 500})).trajectory()
    assert (trajectory.stopped, trajectory.failure) == ("context_limit", None)


@pytest.mark.parametrize("title", ["", "model([{'role': 'user', 'content': 'A title.'}])\n"])
async def test_a_first_prompt_that_does_not_fit_is_refused_with_both_numbers(play: Play, title: str) -> None:
    large = "model([{'role': 'user', 'content': 'x' * 5000}], [SAY])\n"
    smaller = "try:\n    " + large + "except Exception:\n    model([{'role': 'user', 'content': 'a summary'}], [SAY])\n"
    for program in (large, smaller):
        with pytest.raises(InvalidParams, match="first prompt has 5[0-9]{3} tokens, and the context has only 500"):
            await play(COMMON + title + program, limits={"context": 500})


OTHER_TOOLS = AGENT.replace("[SAY]", "[{**SAY, 'function': {**SAY['function'], 'name': 'read_file'}}]")


async def test_a_harness_that_loses_the_tools_of_its_episode_is_unscored(play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: "Done."
    failure = (await play(OTHER_TOOLS)).trajectory().failure
    assert failure is not None
    assert "offered the policy 1 tools (read_file), and none of the episode's (crash, say, warm)" in failure.message


@pytest.mark.parametrize("offers_tools", [True, False])
async def test_only_a_harness_that_may_act_by_text_offers_no_tools(
    offers_tools: bool, play: Play, engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommandHarness, "__init__", partialmethod(CommandHarness.__init__, offers_tools=offers_tools))
    engine.script = lambda prompt, rng: "Done."
    failure = (await play(AGENT.replace("[SAY]", "()"))).trajectory().failure
    assert (failure is not None) is offers_tools
    assert failure is None or "offered the policy no tools, and none of the episode's" in failure.message


async def test_a_harness_that_acts_by_tools_of_its_own_names_is_scored(play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: "Done." if "warmer" in prompt else call("read_file")
    acting = OTHER_TOOLS.replace('made["function"]["name"]', '"warm"')
    played = await play(acting)
    assert (played.trajectory().failure, played.trajectory().value) == (None, 0.75)
    assert played.gateway.maps_tools


async def test_a_harness_that_calls_no_model_is_unscored_even_if_it_plays(play: Play) -> None:
    for program in ("pass", COMMON + "tool('say', {'number': 0})\n"):
        trajectory = (await play(program)).trajectory()
        assert trajectory.value is None
        assert trajectory.failure is not None
        assert "no model call" in trajectory.failure.message


async def test_a_broken_environment_is_its_own_failure_and_not_the_harness_s(
    play: Play, engine: RecordingEngine
) -> None:
    crash = AGENT.replace(
        'tool(made["function"]["name"], json.loads(made["function"]["arguments"]))', 'tool("crash", {})'
    )
    trajectory = (await play(crash)).trajectory()
    assert trajectory.failure is not None
    assert (trajectory.failure.kind, trajectory.value) == ("environment", None)
    assert trajectory.failure.incident is not None


async def test_an_engine_that_fails_is_raised(play: Play, engine: RecordingEngine) -> None:
    engine.broken = True
    with pytest.raises(Exception, match="the engine is dead"):
        await play(AGENT)


async def test_a_harness_sees_none_of_our_variables_but_its_own(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", "trainer-token")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "cloud")
    out = tmp_path / "seen.json"
    program = COMMON + f"open({str(out)!r}, 'w').write(json.dumps([dict(os.environ), task]))\n"
    played = await play(program + AGENT.removeprefix(COMMON), variables={"SEARCH_KEY": "given"})
    variables, task = json.loads(out.read_text())
    assert not {"LUDUS_TOKEN", "AWS_SECRET_ACCESS_KEY"} & variables.keys()
    assert variables["SEARCH_KEY"] == "given"
    assert variables["HOME"] != os.environ.get("HOME")
    assert not was_left(variables["HOME"])
    assert variables["LUDUS_PLAY_URL"] == task["play_url"] == played.episode.play_url
    assert variables["OPENAI_BASE_URL"] == task["openai_base_url"] == f"{task['anthropic_base_url']}/v1"
    assert variables["OPENAI_API_KEY"] == variables["ANTHROPIC_API_KEY"] == task["api_key"]
    assert variables["LUDUS_PROMPT"] == task["prompt"] == "The number is 0."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("python agent.py", "is no harness"),
        ("command ", "there is no program"),
        ("command no-such-program-here", "there is no program"),
        ("worker 'open", "is no command"),
    ],
)
def test_a_harness_that_cannot_run_is_refused_at_once(text: str, why: str) -> None:
    with pytest.raises(HarnessFailed, match=why):
        make_harness(text)


# ── workers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_error_of_a_worker_is_a_failure_of_its_episode(play: Play) -> None:
    trajectory = (await play(worker(CRASH), kind="worker")).trajectory()
    assert trajectory.failure is not None
    assert "the harness broke" in trajectory.failure.message
    assert trajectory.value is None


async def test_a_worker_that_dies_fails_its_episodes_and_is_started_again(
    play: Play, tmp_path: Path, engine: RecordingEngine
) -> None:
    marker = tmp_path / "died"
    dies_once = f"""
import os
if not os.path.exists({str(marker)!r}):
    open({str(marker)!r}, "w").close()
    os._exit(9)
"""
    program = worker(AGENT.replace("messages = [", dies_once + "messages = [", 1))
    first = (await play(program, kind="worker")).trajectory()
    assert first.failure is not None
    assert "the worker ended" in first.failure.message
    assert (await play(program, kind="worker")).trajectory().value == 1.0


async def test_a_worker_is_asked_to_stop_an_episode_whose_time_has_ended(play: Play, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    os.mkfifo(seen)
    program = f"import sys\nsys.stdin.readline()\nopen({str(seen)!r}, 'w').write(sys.stdin.readline())\n"
    played = await play(program, kind="worker", episode_seconds=0.2)
    failure = played.trajectory().failure
    assert failure is not None
    assert "no model call" in failure.message
    line = await asyncio.wait_for(asyncio.to_thread(seen.read_text), 20)  # a pipe
    assert json.loads(line)["cancel"].endswith(played.episode.id)
