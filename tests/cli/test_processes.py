"""Each command once as people run it: the installed program in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ludus.cli._lazy import discover

Ludus = Callable[..., CompletedProcess[str]]

USED = {"envs", "tasks", "show", "play", "run", "init", "token", "serve"}
"""The commands that these tests really use; `serve` is the server of them all."""
COMMANDS = {name for plugin in discover() for name in plugin.commands}


@pytest.mark.suite("breadth")
def test_what_a_server_has_is_listed(ludus_process: Ludus, url: str) -> None:
    assert "sums 0.1.0" in ludus_process("envs", url).stdout
    assert "sum-3" in ludus_process("tasks", url, "sums").stdout
    assert "4 + 2?" in ludus_process("show", url, "sums", "sum-4").stdout


def test_a_person_plays_through_a_pipe(ludus_process: Ludus, url: str) -> None:
    done = ludus_process("play", url, "sums", "--task", "sum-3", input="submit 5\n")
    assert done.returncode == 0, done.stderr
    assert "Reward: 1 (right 1)" in done.stdout


def test_a_policy_runs(ludus_process: Ludus, url: str, world: Path) -> None:
    done = ludus_process("run", url, "sums", "--policy", "oracle", "--source", f"{world}:Sums", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mean"] == 1.0


def test_a_project_and_a_token_are_made(ludus_process: Ludus, tmp_path: Path) -> None:
    assert ludus_process("init", "word-play").returncode == 0
    assert (tmp_path / "word-play" / "word_play.py").exists()
    assert "ludus_" in ludus_process("token", "create", "--name", "t", "--file", "tokens.json").stdout
    assert "t\ttasks:read" in ludus_process("token", "list", "--file", "tokens.json").stdout


def test_an_error_is_a_line_on_stderr_and_an_exit_code(ludus_process: Ludus) -> None:
    done = ludus_process("envs", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("ludus: ")


def test_the_commands_above_are_commands() -> None:
    assert USED < COMMANDS


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("command", sorted(COMMANDS - USED))
def test_every_other_command_starts(ludus_process: Ludus, command: str) -> None:
    done = ludus_process(command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ludus {command}" in done.stdout
