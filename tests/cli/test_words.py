"""What a person mistypes is answered in plain words, with the exit code of its kind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from terminal import LUDUS, clean_variables, running_episodes

Ludus = Callable[..., CompletedProcess[str]]

pytestmark = pytest.mark.timeout(180)


def words(done: CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


@pytest.fixture
def busy() -> Iterator[int]:
    """A port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_in_use_is_said_with_what_to_do(ludus_process: Ludus, busy: int) -> None:
    done = ludus_process("serve", "guess_number", "--port", busy)
    assert done.returncode == 3, words(done)
    assert f"port {busy} of 127.0.0.1 is in use" in words(done)
    assert "--port" in words(done)
    assert "Errno" not in words(done)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "guess_number", "--port", "abc"), "'abc' is not a whole number"),
        (("serve", "guess_number", "--port", "70000"), "70000 is too large; the greatest is 65535"),
        (("serve", "guess_number", "--log-level", "loud"), "'LOUD' is not one of 'DEBUG', 'INFO'"),
        (("run", "http://127.0.0.1:9", "x", "-n", "0"), "0 is too small; the least is 1"),
        (("run", "http://127.0.0.1:9", "x", "-n", "all"), "'all' is not a whole number"),
        (("run", "127.0.0.1:9", "x"), "did you mean http://127.0.0.1:9?"),
        (("init", "2048"), "begins with a lower-case letter"),
        (("init", "2048"), "how about 'env-2048'?"),
        (("init", "My Game"), "how about 'my-game'?"),
    ],
    ids=lambda value: " ".join(value[2:] or value) if isinstance(value, tuple) else None,
)
def test_a_mistyped_value_is_answered_in_plain_words(ludus: Ludus, arguments: tuple[str, ...], said: str) -> None:
    done = ludus(*arguments)
    assert done.returncode == 2, words(done)
    assert said in words(done)
    assert "Input should be" not in words(done)


def test_a_split_by_another_of_its_names_is_understood(ludus: Ludus, url: str) -> None:
    for command in (("tasks",), ("run", "-n", "1"), ("show", "0")):
        done = ludus(command[0], url, "sums", *command[1:], "--split", "training")
        assert done.returncode == 3
        assert "did you mean 'train'?" in words(done)


def test_a_run_says_what_it_resumes_and_where_it_wrote(ludus: Ludus, url: str, world: Path, tmp_path: Path) -> None:
    oracle = ("run", url, "sums", "--policy", "oracle", "--source", f"{world}:Sums", "--out", "played.jsonl")
    first = ludus(*oracle, "-n", "2")
    assert "trajectories: played.jsonl" in words(first)
    again = ludus(*oracle, "--resume", "--json")
    assert "resuming: played.jsonl has 2 scored episodes" in words(again)
    assert json.loads(again.stdout)["episodes"] == 6


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("out", [True, False])
def test_ctrl_c_says_what_is_kept(url: str, world: Path, tmp_path: Path, out: bool) -> None:
    command = ["run", url, "sums", "--policy", f"{world}:waiting", *(["--out", "played.jsonl"] if out else [])]
    with subprocess.Popen(
        [LUDUS, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**clean_variables(), "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=100)
    assert process.returncode == 130, said
    assert ("played.jsonl has what was played, and --resume" if out else "nothing is kept without --out") in said


def test_ctrl_c_in_a_game_closes_the_episode(url: str) -> None:
    with subprocess.Popen(
        [LUDUS, "play", url, "sums"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**clean_variables(), "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        shown = ""
        while "?" not in shown:
            shown += process.stdout.read(1)
        assert running_episodes(url) == 1
        os.kill(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert "Interrupted: the episode is closed." in printed
    assert running_episodes(url) == 0
    assert "Traceback" not in errors


def test_a_file_that_cannot_be_written_is_named_with_the_reason(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = ludus("init", tmp_path / "file" / "my-game")
    assert done.returncode == 5, words(done)
    assert "file/my-game" in words(done).replace(" ", "")
    assert "Not a directory" in words(done)
    assert "report it" not in words(done)


def test_a_full_disk_is_said_without_a_traceback(ludus: Ludus, url: str, world: Path) -> None:
    oracle = ("--policy", "oracle", "--source", f"{world}:Sums")
    done = ludus("run", url, "sums", *oracle, "-n", "1", "--out", "/dev/full")
    assert done.returncode == 5, words(done)
    assert "No space left on device" in words(done)
    assert "report it" not in words(done)
