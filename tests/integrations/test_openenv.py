"""OpenEnv's own server, client and `openenv validate` use exported folders, and play as our client does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from exported import WORLD, exported
from peer_clients import peer_variables, python_of
from recorded_play import differences, guesses, recorded, sums
from terminal import running_episodes, serving

from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

pytestmark = [pytest.mark.suite("integrations"), pytest.mark.timeout(240)]

PROGRAM = "openenv_play.py"
"""The program in `peers/`."""
SECRET = "t0p-s3cret-token"
SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "openenv_episode.py"
FIELDS = ("text", "reward", "error", "end_reason")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a Ludus server, without open episodes afterwards."""
    with serving("guess_number", f"{WORLD}:Sums", f"{WORLD}:EveryThirdBreaks") as address:
        yield address
        assert running_episodes(address) == 0, "episodes are still open"


@contextmanager
def facade(folder: Path, package: Path, **variables: str) -> Iterator[str]:
    """The address of the server of an exported folder, in the interpreter that has OpenEnv."""
    command = [python_of("openenv"), "-m", "uvicorn", "server.app:app", "--port", "0", "--lifespan", "on"]
    own = {"PYTHONPATH": str(package), "ENABLE_WEB_INTERFACE": "false", **variables}
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**peer_variables(), **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        seen = ""
        try:
            for line in process.stdout:
                seen += line
                if found := re.search(r"running on (http://[\d.]+:\d+)", line):
                    yield found[1]
                    break
            else:
                pytest.fail(f"the server of {folder} said: {seen}")
        finally:
            process.terminate()
            process.wait(timeout=20)


@pytest.fixture(scope="module")
def guessed(url: str, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder and the address of `guess_number-shaped`."""
    folder = tmp_path_factory.mktemp("openenv") / "guessed"
    exported("openenv", url, "guess_number-shaped", folder, "--name", "guessed")
    with facade(folder, package) as address:
        yield folder, address


def validated(*arguments: str) -> dict[str, Any]:
    """Return the report of OpenEnv's own `openenv validate`."""
    command = str(Path(python_of("openenv")).with_name("openenv"))
    done = subprocess.run(
        [command, "validate", *arguments, "--json"], capture_output=True, text=True, env=peer_variables(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(("form", "module"), [("gymnasium", "ludus_guessed"), ("openenv", "guessed/server")])
def test_an_exported_package_can_be_built(url: str, tmp_path: Path, form: str, module: str) -> None:
    folder = exported(form, url, "guess_number", tmp_path / "guessed", "--name", "guessed")
    uv = [str(Path(sys.executable).with_name("uv")), "build", "--wheel", "--no-build-isolation"]
    command = [*uv, "--python", sys.executable, "--out-dir", str(tmp_path / "wheels"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"{module}/__init__.py" in names
    assert form == "gymnasium" or {"guessed/models.py", "guessed/client.py", "guessed/server/app.py"} <= set(names)


def test_openenv_validate_passes_on_the_folder_and_on_its_server(guessed: tuple[Path, str]) -> None:
    folder, address = guessed
    report = validated(str(folder), "--level", "static")
    assert report["verdict"] == "pass"
    assert report["manifest"]["reward"]["range"] == [0.0, 1.0]
    assert report["manifest"]["capabilities"]["declared_task_count"]["train"] == 10_000
    report = validated("--url", address)
    assert (report["passed"], report["mode"]) == (True, "simulation")
    assert len(report["criteria"]) == 6


def test_episodes_through_openenvs_client_equal_those_of_our_client(
    url: str, guessed: tuple[Path, str], run_peer: Callable[..., dict[str, Any]]
) -> None:
    ours = asyncio.run(recorded(url, "guess_number-shaped", guesses, range(20)))
    assert len({one["value"] for one in ours}) > 2
    folder, address = guessed
    given = {"folder": str(folder.parent), "module": "guessed", "url": address, "run": "golden", "episodes": ours}
    episodes = run_peer("openenv", PROGRAM, given)["episodes"]
    assert differences(with_done(ours), episodes, (*FIELDS, "done")) == []
    for one, theirs in zip(ours, episodes, strict=True):
        assert theirs["first"]["metadata"] == {key: one[key] for key in ("task", "split", "index", "seed")}
        assert [tool["name"] for tool in theirs["first"]["tools"]] == ["guess"]
        assert theirs["counted"] == len(one["steps"])
        # The agent's and the trainer's observation: no components and no remarks, such as the hidden number.
        assert {tuple(step["shown"]) for step in theirs["steps"]} == {
            ("done", "error", "metadata", "reward", "text", "tools")
        }


def with_done(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for one in episodes:
        for step in one["steps"]:
            step["done"] = step["end_reason"] is not None
    return episodes


def test_answers_refusals_and_an_outage(
    url: str,
    doomed: tuple[str, int],
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_peer: Callable[..., dict[str, Any]],
) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", SECRET)
    folder = exported("openenv", url, "sums", tmp_path / "sums", "--token", SECRET)
    assert not [path for path in folder.rglob("*") if path.is_file() and SECRET in path.read_text(encoding="utf-8")]
    app = folder / "server" / "app.py"
    app.write_text(app.read_text().replace("    split=", "    reconnect_seconds=0.2,\n    split="))
    ours = asyncio.run(recorded(doomed[0], "sums", sums, range(20)))
    assert {one["value"] for one in ours} == {0.0, 1.0}
    given = {"folder": str(tmp_path), "module": "sums", "process": doomed[1], "episodes": ours}
    with facade(folder, package, LUDUS_URL=doomed[0]) as address:
        report = run_peer("openenv", PROGRAM, {**given, "run": "both", "url": address})
    assert differences(with_done(ours), report["episodes"], (*FIELDS, "done")) == []
    assert "there is no open episode: send reset first" in report["early"]
    assert "reset has no argument color; it has: seed, episode_id, split, task, index" in report["argument"]
    assert "sum-1000000" in report["task"]
    assert report["both"] == ["Error: give either a tool, with its arguments, or an answer.", "invalid_arguments"]
    assert "there is no open episode" in report["ended"]
    assert report["killed"].startswith("RuntimeError: Server error: ")
    assert "EXECUTION_ERROR" in report["killed"]
    assert "reward" not in report["killed"]
    assert "there is no open episode" in report["after"]


def test_the_program_on_the_page_runs(url: str, package: Path, tmp_path: Path) -> None:
    folder = exported("openenv", url, "guess_number", tmp_path / "guess_number")
    text = SNIPPET.read_text(encoding="utf-8")
    with facade(folder, package) as address:
        program = text.replace("http://127.0.0.1:8000", address)
        assert program != text
        variables = {**peer_variables(), "PYTHONPATH": f"{package}{os.pathsep}{tmp_path}"}
        command = [python_of("openenv"), "-c", program]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" None False\n")


def test_an_environment_that_breaks_is_an_error_of_the_request(url: str, package: Path, tmp_path: Path) -> None:
    folder = exported("openenv", url, "every_third_breaks", tmp_path / "breaking")
    with facade(folder, package) as address:
        ends = [answered_wrongly(address, seed) for seed in range(6)]
    assert ends.count("error") == 2
    assert {end for end in ends if end != "error"} == {"0.0"}


def answered_wrongly(address: str, seed: int) -> str:
    """Play a wrong answer over OpenEnv's WebSocket without any of its code, and return the reward or `error`."""

    async def go() -> str:
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{address}/ws") as socket:
            await socket.send_json({"type": "reset", "data": {"seed": seed}})
            assert (await socket.receive_json(timeout=30))["type"] == "observation"
            await socket.send_json({"type": "step", "data": {"answer": "1000"}})
            reply = await socket.receive_json(timeout=30)
            return "error" if reply["type"] == "error" else str(reply["data"]["reward"])

    return asyncio.run(go())


async def test_a_folder_hosted_back_with_the_format_openenv_gives_the_same_rewards(
    url: str, guessed: tuple[Path, str]
) -> None:
    ours = await recorded(url, "guess_number-shaped", guesses, [5] * 20, range(20))
    assert len({one["value"] for one in ours}) > 2
    source = parse_source(f"openenv:{guessed[1]}")
    assert source is not None
    environment: Any = (await asyncio.to_thread(resolve, source.with_options({"reset": '{"seed": 5}'})))[0]
    counts = {one.name: one.count for one in environment.described.splits}
    assert counts == {"train": 10_000, "validation": 300, "test": 300}
    async with play(environment) as world:
        for one in ours:
            episode = await world.start(split="train", index=one["index"])
            made = [await episode.call("step", **step["action"]) for step in one["steps"]]
            assert [step.reward for step in made] == [step["reward"] for step in one["steps"]]
            assert [json.loads(step.text)["text"] for step in made] == [step["text"] for step in one["steps"]]
            assert (episode.ended, episode.reward) == (True, one["value"])
