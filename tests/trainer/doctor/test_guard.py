"""The process that runs one check: nothing that the check started outlives it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import block_until_up, is_running

from ludus.trainer.doctor import guard

SPAWN = """
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
new = Path(sys.argv[1] + ".new")
new.write_text(str(child.pid))
new.rename(sys.argv[1])
if sys.argv[2] == "wait":
    time.sleep(1000)
sys.exit(3)
"""


@contextmanager
def start(seconds: float, *program: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", str(Path(guard.__file__)), str(seconds), sys.executable, "-c", *program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process


def until_written(path: Path, process: subprocess.Popen[bytes]) -> int:
    """Return the id of the process that the command started in a session of its own."""
    block_until_up(process, path.exists)
    return int(path.read_text())


def test_a_command_that_ends_leaves_no_process_and_its_status_is_returned(tmp_path: Path) -> None:
    with start(50, SPAWN, str(tmp_path / "pid"), "end") as process:
        assert process.wait(50) == 3
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.suite("doctor")
def test_a_command_that_hangs_is_killed_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    with start(3, SPAWN, str(tmp_path / "pid"), "wait") as process:
        pid = until_written(tmp_path / "pid", process)
        assert is_running(pid)
        assert process.wait(50) == guard.TIMED_OUT
    assert not is_running(pid)


def test_a_command_ends_when_its_starter_has_ended(tmp_path: Path) -> None:
    with start(1000, SPAWN, str(tmp_path / "pid"), "wait") as process:
        pid = until_written(tmp_path / "pid", process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(50) == guard.ORPHANED
    assert not is_running(pid)


def test_the_signal_that_ended_a_command_is_in_its_status(tmp_path: Path) -> None:
    with start(50, "import os; os.abort()") as process:
        assert process.wait(50) == 128 + 6
