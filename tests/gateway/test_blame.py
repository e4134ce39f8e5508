"""Who ended an episode whose program failed: no policy makes its episodes disappear, and no outage is a 0."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from gateway_play import Play, RecordingEngine
from harness_workers import AGENT, COMMON, worker
from scripted import call

from ludus.gateway.blame import environment_tool
from ludus.gateway.folders import EpisodeFolders
from ludus.gateway.harness import CommandHarness


def was_left(folder: str) -> bool:
    """Whether a folder still exists."""
    return Path(folder).exists()


SHELL = {"type": "function", "function": {"name": "shell", "description": "Run a command.", "parameters": {}}}
CODING = COMMON + (
    """
import subprocess
SHELL = """
    + repr(SHELL)
    + """
messages = [{"role": "user", "content": task["prompt"]}]
while True:
    message = model(messages, [SAY, SHELL])
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for made in message["tool_calls"]:
        arguments = json.loads(made["function"]["arguments"])
        if made["function"]["name"] == "shell":
            text = subprocess.run(["bash", "-c", arguments["command"]], capture_output=True).stdout.decode()
        else:
            text = tool(made["function"]["name"], arguments)
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
"""
)
"""An agent program with a shell of its own, which runs as its child."""


def after_a_step(then: str) -> Any:
    """A policy that earns something in its first turn, and does `then` in all others."""
    return lambda prompt, rng: then if "warmer" in prompt else call("warm")


@pytest.mark.parametrize(
    ("command", "cause", "stopped", "idle_seconds"),
    [
        ("kill -9 $PPID", "call", "turn_limit", None),
        ("kill $PPID", "call", "turn_limit", None),
        ("sleep 600", "idle", "time_limit", 2.0),
        ("kill -STOP $PPID", "idle", "time_limit", 2.0),
    ],
)
async def test_what_a_policy_does_to_its_program_is_its_own_end(
    command: str, cause: str, stopped: str, idle_seconds: float | None, play: Play, engine: RecordingEngine
) -> None:
    engine.script = after_a_step(call("shell", command=command))
    played = await play(CODING, idle_seconds=idle_seconds)
    trajectory = played.trajectory()
    assert (trajectory.failure, trajectory.stopped, played.ended_by) == (None, stopped, cause)
    assert trajectory.value == 0.25


async def test_a_program_killed_from_the_background_was_killed_by_its_policy(
    play: Play, engine: RecordingEngine
) -> None:
    replies = iter([call("warm"), call("shell", command="(sleep 0.2; kill -9 $PPID) > /dev/null 2>&1 &")])
    waiting = asyncio.Event()

    async def wait() -> str:
        await waiting.wait()
        return ""

    engine.script = lambda prompt, rng: next(replies, None) or wait()
    played = await play(CODING)
    assert (played.trajectory().failure, played.ended_by, played.trajectory().value) == (None, "signal", 0.25)


PROBES = "\ntry: post(task['anthropic_base_url'] + '/api/tags', {})\nexcept OSError: pass\n"
CUT_EXITS = """
if "length" in json.dumps(post(task["openai_base_url"] + "/chat/completions", {"messages": [
        {"role": "user", "content": task["prompt"]}], "tools": [SAY]})["choices"][0]["finish_reason"]):
    sys.exit("the response exceeded the output token maximum")
"""


async def test_a_request_for_what_the_gateway_lacks_changes_no_end(play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: "loud " * 100
    played = await play(COMMON + CUT_EXITS.replace("    sys.exit", PROBES.replace("\n", "\n    ") + "\n    sys.exit"),
                        limits={"max_tokens": 16})  # fmt: skip
    assert [refusal.kind for refusal in played.session.refused] == ["path"]
    assert played.ended_by == "cut"


@pytest.mark.parametrize("kind", ["command", "worker"])
async def test_a_reply_that_is_cut_is_the_policys_end(kind: str, play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: "loud " * 100
    program = COMMON + CUT_EXITS
    if kind == "worker":
        program = worker(program.replace("sys.exit", "raise RuntimeError"))
    played = await play(program, kind=kind, limits={"max_tokens": 16})
    assert (played.trajectory().failure, played.trajectory().stopped, played.ended_by) == (None, "turn_limit", "cut")
    assert played.session.cut


@pytest.mark.parametrize(("reply", "cause"), [("", "empty"), ('<tool_call>\n{"name": \n</tool_call>', "malformed")])
async def test_a_reply_that_no_program_can_use_is_the_policys_end(
    reply: str, cause: str, play: Play, engine: RecordingEngine
) -> None:
    engine.script = after_a_step(reply)
    program = AGENT + "\nsys.exit('Model returned an empty response')\n"
    played = await play(program)
    assert (played.trajectory().failure, played.trajectory().stopped, played.ended_by) == (None, "turn_limit", cause)
    assert played.trajectory().value == 0.25


async def test_a_conversation_that_grew_too_large_is_the_policys_end(play: Play, engine: RecordingEngine) -> None:
    engine.script = after_a_step(call("shell", command="head -c 9000 /dev/zero | tr '\\0' x"))
    played = await play(CODING, limits={"body_bytes": 8000})
    trajectory = played.trajectory()
    assert (trajectory.failure, trajectory.stopped, trajectory.value) == (None, "turn_limit", 0.25)
    assert played.ended_by == "too_large"


BREAKS = AGENT + "\nif CONDITION:\n    sys.exit('a bug of the program')\n"


async def test_the_same_replies_and_the_same_end_were_the_policys_doing(play: Play, engine: RecordingEngine) -> None:
    engine.script = lambda prompt, rng: "crash" if "warmer" in prompt else call("warm")
    program = BREAKS.replace("CONDITION", "'crash' in message['content']")
    played = await play(program, again=True)
    assert (played.trajectory().failure, played.trajectory().stopped, played.ended_by) == (None, "turn_limit", "error")
    assert len(engine.seen) == len(played.session.calls) == 2
    assert played.trajectory().value == 0.25


async def test_another_end_with_the_same_replies_was_none_of_the_policys(
    play: Play, engine: RecordingEngine, tmp_path: Path
) -> None:
    engine.script = lambda prompt, rng: "Done."
    marker = tmp_path / "broke"
    once = f"not os.path.exists({str(marker)!r}) and not os.mkdir({str(marker)!r})"
    played = await play(BREAKS.replace("CONDITION", once), again=True)
    trajectory = played.trajectory()
    assert trajectory.value is None
    assert trajectory.failure is not None
    assert "a bug of the program" in trajectory.failure.message
    assert len(engine.seen) == 1


async def test_a_program_that_goes_on_with_the_same_replies_ended_otherwise(
    play: Play, engine: RecordingEngine, tmp_path: Path
) -> None:
    engine.script = lambda prompt, rng: call("warm")
    marker = tmp_path / "broke"
    once = f"""
        if not os.path.exists({str(marker)!r}):
            os.mkdir({str(marker)!r})
            sys.exit("a bug of the program")
        text = tool("""
    trajectory = (await play(AGENT.replace("\n        text = tool(", once), again=True)).trajectory()
    assert trajectory.value is None
    assert trajectory.failure is not None
    assert len(engine.seen) == 1


async def test_an_open_call_after_which_the_program_names_a_problem_is_played_again(
    play: Play, engine: RecordingEngine, tmp_path: Path
) -> None:
    engine.script = lambda prompt, rng: call("say", number=1)
    for stays in (True, False):
        marker = tmp_path / f"outage-{stays}"
        broken = f"""
        if {stays} or not os.path.exists({str(marker)!r}):
            os.makedirs({str(marker)!r}, exist_ok=True)
            sys.exit("ECONNREFUSED")
        text = tool("""
        played = await play(AGENT.replace("\n        text = tool(", broken), again=True)
        assert (played.trajectory().failure is None) is stays
        assert played.ended_by == ("error" if stays else None)


async def test_a_machine_out_of_memory_is_no_doing_of_the_policy(
    play: Play, engine: RecordingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([3, 4])
    monkeypatch.setattr("ludus.gateway.episodes.memory_kills", lambda: next(counts))
    engine.script = after_a_step(call("shell", command="kill -9 $PPID"))
    trajectory = (await play(CODING)).trajectory()
    assert trajectory.value is None
    assert trajectory.failure is not None


async def test_another_destination_is_the_policys_doing_only_if_it_had_tools_to_ask(
    play: Play, engine: RecordingEngine
) -> None:
    refused = "\nprint('api.example.com is not reachable from this sandbox')\nsys.exit(120)\n"
    engine.script = after_a_step("Done.")
    program = (await play(AGENT + refused)).trajectory()
    assert program.failure is not None
    assert program.failure.error == "HarnessNetworkRefused"
    replies = iter([call("warm"), call("shell", command="true # asks another host"), "Done."])
    engine.script = lambda prompt, rng: next(replies)
    played = await play(CODING + refused)
    assert (played.trajectory().failure, played.trajectory().value, played.ended_by) == (None, 0.25, "network")


async def test_a_program_that_broke_before_the_policy_spoke_is_unscored(play: Play) -> None:
    trajectory = (await play(COMMON + "sys.exit('no such option')\n", again=True)).trajectory()
    assert trajectory.value is None
    assert trajectory.failure is not None
    assert "no such option" in trajectory.failure.message


# ── names of tools, folders ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("guess", "guess"), ("mcp__ludus__guess", "guess"), ("ludus_guess", "guess"), ("ludus-guess", "guess"),
        ("ludus.guess", "guess"), ("ludus__last_guess", "last_guess"), ("second_guess", "guess"), ("unguess", None),
        ("shell", None),
    ],
)  # fmt: skip
def test_a_tool_is_known_by_the_end_of_its_name(name: str, tool: str | None) -> None:
    assert environment_tool(name, frozenset({"guess", "last_guess"})) == tool


async def test_steps_keep_their_rewards_where_the_program_renames_the_tools(
    play: Play, engine: RecordingEngine
) -> None:
    named, prefix = 'made["function"]["name"]', "mcp__ludus__"
    renaming = AGENT.replace(f"tool({named}", f"tool({named}.removeprefix({prefix!r})")
    engine.script = lambda prompt, rng: call(f"{prefix}say", number=0) if "warmer" in prompt else call(f"{prefix}warm")
    trajectory = (await play(renaming)).trajectory()
    assert [step.reward and step.reward.value for step in trajectory.steps] == [0.25, 1.0]


async def test_episodes_at_a_time_have_folders_of_their_own_and_later_ones_the_same_names(
    play: Play, engine: RecordingEngine, tmp_path: Path
) -> None:
    noted = tmp_path / "folders"
    note = f"open('notes.txt', 'x').write('mine')\nopen({str(noted)!r}, 'a').write(os.getcwd() + chr(10))\n"
    engine.script = lambda prompt, rng: "Done."
    for _ in range(2):
        assert (await play(COMMON + note + AGENT.removeprefix(COMMON))).trajectory().failure is None
    assert len(set(map(str.strip, noted.read_text().splitlines()))) == 2  # each harness has a root of its own
    folders = EpisodeFolders()
    async with folders.folder() as first, folders.folder() as second:
        assert os.path.dirname(first) == os.path.dirname(second)
        assert first != second
        os.mkdir(os.path.join(first, "left behind"))
    async with folders.folder() as again:
        assert (again, os.listdir(again)) == (first, [])
    folders.close()
    assert not was_left(os.path.dirname(first))


def test_files_that_a_command_names_are_those_of_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("agent.py", "serve", "--flag.py"):
        Path(name).write_text("")
    Path("venv/bin").mkdir(parents=True)
    harness = CommandHarness("python3 agent.py serve --flag.py other.py venv/bin ''")
    assert harness.arguments[1:] == (
        str(tmp_path / "agent.py"), "serve", "--flag.py", "other.py", str(tmp_path / "venv" / "bin"), "",
    )  # fmt: skip
