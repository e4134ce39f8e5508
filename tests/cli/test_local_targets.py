"""Commands that serve an environment of this machine while they run, and leave nothing behind."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import LUDUS, clean_variables

from ludus.cli import ExitCode, main
from ludus.client import read_trajectories

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Invoke]:
    """`code, out, err = invoke("run", target, …)` runs the command in this process; its servers are gone afterwards."""
    folders = tmp_path / "temporary"
    folders.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folders))
    for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ludus", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        code = int(end.value.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    yield call
    assert list(folders.iterdir()) == []
    assert served_from(folders) == set()


def served_from(folder: Path) -> set[int]:
    """Return the processes whose folder for temporary files is below `folder`."""
    mark = f"TMPDIR={folder}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found - {os.getpid()}


def test_run_serves_a_file_and_finds_its_oracle(invoke: Invoke, world: Path, tmp_path: Path) -> None:
    out = tmp_path / "played.jsonl"
    code, shown, _ = invoke("run", f"{world}:Sums", "--policy", "oracle", "--out", out, "--json")
    assert (code, json.loads(shown)["mean"]) == (0, 1.0)
    assert {one.environment for one in read_trajectories(out)} == {"sums"}


@pytest.mark.suite("breadth")
def test_run_takes_a_module_and_a_variant_of_an_installed_environment(
    invoke: Invoke, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.parent)
    code, shown, error = invoke("run", f"{world.stem}:Sums", "-n", 1, "--policy", "oracle", "--json")
    assert (code, json.loads(shown)["scored"]) == (0, 1), error
    code, shown, error = invoke("run", "countdown-hard", "--policy", "oracle", "-n", 2)
    assert code == 0, error
    assert "countdown-hard / train" in shown


@pytest.mark.suite("breadth")
def test_calibrate_serves_an_installed_environment(invoke: Invoke) -> None:
    code, shown, error = invoke("calibrate", "guess_number", "-n", 2, "--samples", 2, "--policy", "oracle", "--json")
    assert code == 0, error
    assert json.loads(shown)["pass_rate"] == 1.0
    code, _, error = invoke("calibrate", "guess_number", "--report")
    assert code == ExitCode.USAGE
    assert "--report needs a running server" in " ".join(error.split())


def test_play_serves_a_file(world: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [LUDUS, "play", f"{world}:Sums", "--task", "sum-3"], input="submit 5\n", capture_output=True, text=True,
        timeout=50, check=False, env=clean_variables() | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Reward: 1 (right 1)" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_the_environments_code_raised_is_shown(invoke: Invoke, world: Path) -> None:
    code, _, error = invoke("run", f"{world}:Sums", "--policy", f"{world}:crasher", "-n", 2)
    assert code == ExitCode.UNSUCCESSFUL
    assert "The environment's code raised:" in error
    assert 'raise RuntimeError("boom")' in error
    assert "ludus/server" not in error


SLOW_LOG = """
import logging
import threading

write = logging.StreamHandler.emit

def slow(self, record):
    if record.exc_info:
        threading.Event().wait(0.5)
    write(self, record)

logging.StreamHandler.emit = slow
"""


@pytest.mark.suite("breadth")
def test_what_the_environments_code_raised_is_shown_though_the_log_comes_later(
    invoke: Invoke, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `validate` imports the file here, too: without this, each error of all later tests would be written slowly.
    monkeypatch.setattr(logging.StreamHandler, "emit", logging.StreamHandler.emit)
    slow = tmp_path / "slow.py"
    slow.write_text(SLOW_LOG + world.read_text())
    _, _, error = invoke("run", f"{slow}:Sums", "--policy", f"{world}:crasher", "-n", 2)
    assert 'raise RuntimeError("boom")' in error
    _, out, _ = invoke("validate", f"{slow}:Sums", "--check", "crash")
    assert "RuntimeError: boom" in out


BROKEN = """
from ludus.server import Environment, Task

class Problem(Task):
    pass

class First(Environment[Problem]):
    pass

class Second(Environment[Problem]):
    pass

def settings():
    raise ValueError("no settings")

if __name__ == "broken":
    settings()
"""


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("target", "code", "parts"),
    [
        ("{folder}/wrold.py:Sums", 3, ["there is no file", "wrold.py", "did you mean", "world.py"]),
        ("{folder}/world.py:Sum", 3, ["'{folder}/world.py:Sum' is not an environment", "are: Sums, Riddle"]),
        ("{folder}/world.py:Smus", 3, ["has no class 'Smus'", "are: Sums, Riddle", "did you mean 'Sums'"]),
        ("{folder}/world.py", 3, ["has 2 environments; name one", "world.py:Sums", "world.py:Riddle"]),
        ("{folder}/broken.py:First", 3, ["failed: ValueError: no settings", "in settings\n", "raise ValueError("]),
        ("no.such:Thing", 3, ["no module 'no'"]),
        ("gess_number", 3, ["'gess_number'", "did you mean 'guess_number'"]),
    ],
)
def test_a_target_that_cannot_be_served_is_explained(
    invoke: Invoke, world: Path, tmp_path: Path, target: str, code: int, parts: list[str]
) -> None:
    (tmp_path / "world.py").write_text(world.read_text())
    (tmp_path / "broken.py").write_text(BROKEN)
    found, shown, error = invoke("run", target.format(folder=tmp_path), "-n", 1)
    assert found == code, error
    assert shown == ""
    for part in parts:
        assert part.format(folder=tmp_path) in error
    assert "ludus/server" not in error


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_its_server(world: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [LUDUS, "run", f"{world}:Sums", "--policy", f"{world}:waiting"], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=clean_variables() | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "waiting\n"
        assert served_from(tmp_path / "ludus-serve-") != set()
        process.send_signal(number)
        assert process.wait(timeout=30) == 128 + number
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert served_from(tmp_path / "ludus-serve-") == set()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.suite("breadth")
def test_the_server_ends_also_when_the_command_is_killed(world: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [LUDUS, "run", f"{world}:Sums", "--policy", f"{world}:waiting"], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=clean_variables() | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "waiting\n"
        (server,) = served_from(tmp_path / "ludus-serve-")
        ended = os.pidfd_open(server)
        process.kill()
        process.wait()
    try:
        assert select.select([ended], [], [], 30)[0] == [ended]
    finally:
        os.close(ended)
