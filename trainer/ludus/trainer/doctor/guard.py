"""Runs a command for a limited time, and leaves none of its processes behind.

    python -I guard.py SECONDS PROGRAM [ARGUMENT]...

Standard input must be a pipe that only the starter holds open. The command ends when it ends by itself, when the time
has passed, or when the pipe closes because the starter has ended. Then every process that it started is killed, those
in sessions of their own too. The exit status is the command's, 128 plus the number of a signal that ended it, or 124
after the limit. Standard library only: it runs without Ludus.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

TIMED_OUT = 124
ORPHANED = 125
KILL_SECONDS = 10.0
"""The maximum time for killed processes to disappear."""
_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl


def main(seconds: float, command: list[str]) -> int:
    """Run the command and return the exit status."""
    _adopt_orphans()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    events: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=lambda: events.put(_status(child.wait())), daemon=True).start()
    threading.Thread(target=lambda: events.put(_starter_ended()), daemon=True).start()
    try:
        status = events.get(timeout=seconds)
    except queue.Empty:
        status = TIMED_OUT
    _kill_all(child.pid)
    return status


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def _starter_ended() -> int:
    while os.read(0, 64):
        pass
    return ORPHANED


def _adopt_orphans() -> None:
    """Become the parent of processes whose own parent has ended, so that they can be found (Linux)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_all(group: int) -> None:
    """Kill the command's process group and all descendants of this process, until none is left."""
    end = time.monotonic() + KILL_SECONDS
    while time.monotonic() < end:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        for pid in (alive := descendants(os.getpid())):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not alive:
            return
        time.sleep(0.02)


def descendants(root: int) -> list[int]:
    """Return the running descendants of a process; none where the system has no /proc."""
    children: dict[int, list[int]] = {}
    ended: set[int] = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdecimal():
            continue
        with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            children.setdefault(int(parent), []).append(int(name))
            if state in ("Z", "X"):
                ended.add(int(name))
    pids, open_ = [], [root]
    while open_:
        below = children.get(open_.pop(), [])
        open_ += below
        pids += below
    return [pid for pid in pids if pid not in ended]


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
