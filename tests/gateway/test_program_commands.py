"""Agent programs by name: what is started, what is refused, and the bridge for programs without a client for MCP."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from saying import Saying
from typer.testing import CliRunner

from ludus.cli.harness import harness
from ludus.client import connect
from ludus.gateway import HarnessFailed, make_harness
from ludus.harnesses import (
    NAMES,
    InstallError,
    NotInstalled,
    bridge,
    find_program,
    harness_command,
    install,
    installing,
)
from ludus.harnesses.bridge import Bridge, instructions, script
from ludus.harnesses.program import Finished, Npm, Setting, Task, Venv
from ludus.harnesses.programs import claude_code, cline, qwen_code
from ludus.trainer.core.config import RolloutConfig

TASK = Task("http://host/play", "http://host/KEY/v1", "http://host/KEY", "key", "policy", "Be brief.", "Guess.")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the program `pi` is installed, as far as its stamp says."""
    monkeypatch.setenv("LUDUS_HARNESSES", str(tmp_path))
    folder = tmp_path / "pi"
    folder.mkdir()
    (folder / installing.STAMP).write_text(installing.fingerprint(find_program("pi")))
    return folder


# ── what is started ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_program_is_refused_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_HARNESSES", str(tmp_path))
    with pytest.raises(HarnessFailed, match="Pi is not installed; `ludus harness install pi` installs it"):
        make_harness("pi")
    with pytest.raises(HarnessFailed, match="one of aider, claude-code"):
        make_harness("vim")


def test_another_version_is_refused(installed: Path) -> None:
    (installed / installing.STAMP).write_text("another")
    with pytest.raises(NotInstalled, match=r"in another version than 1\.6\.0; `ludus harness install pi` replaces it"):
        harness_command(find_program("pi"))


def test_a_program_runs_in_a_sandbox_unless_it_is_asked_not_to(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/bin/{name}")
    boxed = shlex.join(harness_command(find_program("pi"), ["--own-tools", "--memory", "99"]))
    assert "ludus.cli box" in boxed
    assert f"--show {installed}:/opt/pi" in boxed
    assert "--memory 99 --" in boxed
    assert boxed.endswith("pi /opt/pi --own-tools")
    bare = shlex.join(harness_command(find_program("pi"), ["--no-box"]))
    assert "box" not in bare
    assert bare.endswith(f"pi {installed}")


def test_a_sandbox_that_is_not_here_and_options_without_one_are_refused(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="--memory 9 is an option of the sandbox, and --no-box asks for none"):
        harness_command(find_program("pi"), ["--no-box", "--memory", "9"])
    monkeypatch.setattr("shutil.which", lambda name, **_: None)
    with pytest.raises(NotInstalled, match='"pi --no-box" runs without a sandbox'):
        harness_command(find_program("pi"))


@pytest.mark.parametrize("name", [name for name in NAMES if not find_program(name).bridge])
def test_a_launch_has_the_task_and_readable_configuration(name: str, tmp_path: Path) -> None:
    setting = Setting(tmp_path, tmp_path / "home", tmp_path / "home" / "workspace")
    launch = find_program(name).launch(TASK, setting)
    everything = json.dumps([*launch.arguments, launch.input, *launch.variables.items(), *launch.files.items()])
    for part in (TASK.play_url, TASK.anthropic_base_url, TASK.api_key, TASK.system, TASK.prompt):
        assert part in everything
    for path, text in launch.files.items():
        if path.endswith((".json", ".yaml")):
            json.loads(text)
        if path.endswith(".toml"):
            tomllib.loads(text)


def test_the_command_lists_and_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_HARNESSES", str(tmp_path))
    rows = json.loads(CliRunner().invoke(harness, ["list", "--json"]).output)
    assert [row["name"] for row in rows] == list(NAMES)
    assert {row["folder"] for row in rows} == {None}
    assert "not installed" in CliRunner().invoke(harness, ["list"]).output
    refused = CliRunner().invoke(harness, ["run", "pi"], env={"COLUMNS": "300"})
    assert refused.exit_code == 2
    assert "`ludus harness install pi` installs it" in refused.output
    assert "there is no program 'vim'" in CliRunner().invoke(harness, ["install", "vim"]).output


def test_a_run_may_name_a_program() -> None:
    assert RolloutConfig(harness="codex --own-tools").harness == "codex --own-tools"
    with pytest.raises(ValueError, match="or name one of aider, claude-code"):
        RolloutConfig(harness="vim")


# ── installing ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_the_pins_of_a_program_have_its_version(name: str) -> None:
    program = find_program(name)
    if isinstance(program.source, Npm):
        package = json.loads((installing.PINS / name / "package.json").read_text())
        assert package["dependencies"] == dict(program.source.packages)
        lock = json.loads((installing.PINS / name / "package-lock.json").read_text())
        versions = [lock["packages"][f"node_modules/{package}"]["version"] for package in program.source.packages]
        assert any(version.startswith(program.version) for version in versions)
    else:
        pins = (installing.PINS / f"{name}.txt").read_text().splitlines()
        assert set(pins) >= {pin for pin in program.source.requirements if "==" in pin}


def test_a_program_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[str]] = []
    monkeypatch.setattr(installing, "_run", lambda command, variables, folder: runs.append(command))
    monkeypatch.setattr(installing, "_npm", lambda: (["npm"], {}))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    lines: list[str] = []
    for _ in range(2):
        install(find_program("pi"), lines.append, tmp_path / "pi")
    assert len(runs) == 1
    assert (tmp_path / "pi" / "package-lock.json").exists()
    assert lines[0].startswith("installing Pi 1.6.0 into ")
    assert lines[-1] == f"Pi 1.6.0 is installed in {tmp_path / 'pi'}"


def test_other_machines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(InstallError, match="Pi is installed on Linux on x86-64 only"):
        install(find_program("pi"), print, tmp_path / "pi")


def test_programs_on_python_name_exact_versions() -> None:
    for name in NAMES:
        if isinstance(find_program(name).source, Venv):
            lines = (installing.PINS / f"{name}.txt").read_text().split("\n")
            assert all("==" in line for line in lines if line and not line.startswith(("#", " ")))


# ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_episode_that_was_not_reached_is_the_program_s_failure() -> None:
    def output(status: str) -> str:
        event = {"type": "system", "subtype": "init", "mcp_servers": [{"name": "ludus", "status": status}]}
        return json.dumps(event)

    assert claude_code.end(Finished(0, output("connected"), "")).code == 0
    assert "did not connect to the episode: failed" in claude_code.end(Finished(0, output("failed"), "")).message
    result = {"type": "result"}
    events = [json.loads(output("disconnected")), result]
    assert "did not connect" in qwen_code.end(Finished(0, json.dumps(events), "")).message
    assert qwen_code.end(Finished(0, "", "")).code == 1


def test_a_line_of_json_may_hold_other_ends_of_lines() -> None:
    texts = ["a\u2028b", "a\x85b", "a\x0bb"]
    output = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    assert [event["text"] for event in Finished(0, output, "no JSON\n{broken").events()] == texts


def test_empty_replies_are_no_failure_of_cline() -> None:
    error = json.dumps({"type": "error", "message": cline.EMPTY})
    assert cline.end(Finished(1, error, "")).code == 0
    assert cline.end(Finished(1, json.dumps({"type": "error", "message": "no such file"}), "")).code == 1
    killed = cline.end(Finished(-9, "", ""))
    assert (killed.code, killed.message) == (137, "it ended with signal 9")


# ── the bridge ──────────────────────────────────────────────────────────────────────────────────────────────────────


def write_tool(path: Path, url: str) -> Path:
    path.write_text(script(sys.executable, str(installing.PINS.parents[2]), url))
    path.chmod(0o755)
    return path


async def run_tool(path: Path, *words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(str(path), *words, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return process.returncode, output.decode()


NOTE = '{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"message": "{"}}'
ANSWER = '{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "data: {}"}]}}'


@pytest.mark.parametrize(
    "body",
    [ANSWER, f"event: message\ndata: {ANSWER}\n\n", f"data: {NOTE}\r\n\r\n: alive\r\n\r\ndata: {ANSWER}\r\n\r\n"],
)
def test_the_bridge_reads_the_answer_among_the_events_of_a_stream(body: str) -> None:
    assert bridge.read_answer(body)["result"]["content"][0]["text"] == "data: {}"
    with pytest.raises(ValueError, match="gave no answer"):
        bridge.read_answer(f"data: {NOTE}\n\n")


async def test_the_bridge_plays_an_episode_by_a_command(serve: Any, tmp_path: Path) -> None:
    server = await serve(Saying)
    async with connect(server.url) as client:
        episode = await client.environment("saying").start(split="train", index=0, seed=7)
        url = episode.require_play_url()
        tools = await asyncio.to_thread(Bridge(url).tools)
        assert {"say", "warm"} <= {tool["name"] for tool in tools}
        assert "- say: Say it. Arguments: {" in instructions(tools)
        path = write_tool(tmp_path / "tool", url)
        assert await run_tool(path, "warm") == (0, "warmer\n")
        assert (await run_tool(path))[0] == 1
        assert await run_tool(path, "say", "[1]") == (1, "error: the arguments are no JSON object\n")
        code, text = await run_tool(path, "say", '{"number": 0}')
        assert (code, text.partition("\n")[0]) == (0, "said")
        assert (await episode.info()).steps == 2
        await episode.close()
