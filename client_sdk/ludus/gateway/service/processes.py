"""Processes that a dead worker left behind: they become children of the service, which ends them.

A worker that is killed cannot end its harnesses. On Linux the service is the reaper of its descendants, so they are
found as its own children. Elsewhere they are left.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")
_ROUNDS: Final = 500
_PAUSE: Final = 0.01


def become_subreaper() -> None:
    """Make the orphans among this process's descendants its children. It does nothing except on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def end_orphans(known: Collection[int]) -> None:
    """End all children of this process except the known ones, and what they leave behind, within 5 seconds."""
    for _ in range(_ROUNDS):
        orphans = children_of(os.getpid()) - set(known)
        if not orphans:
            return
        for pid in orphans:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  # it does not wait
        await asyncio.sleep(_PAUSE)


def children_of(parent: int) -> set[int]:
    """Return the children of a process; none except on Linux."""
    found: set[int] = set()
    if sys.platform != "linux":
        return found
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                after_name = (_PROC / entry.name / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[1]) == parent:
                    found.add(int(entry.name))
    return found
