"""Folders for harnesses, one for each episode at a time, and the end of processes that an episode leaves behind.

Agent programs write settings and notes into the folder in which they run, read instructions there, and write its name
into their prompts. So each episode has an empty folder of its own, and the names are few: folder 1 is used again when
its episode has ended, so that the prompts of later episodes begin with the same words.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

FIRST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 1.0
"""The pauses in seconds between two looks for processes that have got the signal."""


class EpisodeFolders:
    """Empty folders for episodes at the same time. Close it at the end."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._free: list[int] = []
        self._made = 0

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[str]:
        """Give an empty folder, with the lowest number that is free, and empty it afterwards."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="ludus-harness-"))
        if self._free:
            number = heapq.heappop(self._free)
        else:
            self._made += 1
            number = self._made
        path = self._root / str(number)
        try:
            # Off the event loop: an agent may leave thousands of files.
            await asyncio.to_thread(_emptied, path)
            yield str(path)
        finally:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
            heapq.heappush(self._free, number)

    def close(self) -> None:
        """Remove all folders."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


def _emptied(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)


async def end_leftovers(key: str) -> None:
    """End the processes that have the key of an episode in their environment, where the system shows that (Linux).

    A program that starts a daemon puts it into a session of its own, which no signal to its group reaches. A process
    that has cleared its environment is not found; only a sandbox (`ludus box`) ends that one.
    """
    pause = FIRST_PAUSE
    # Again until none is left: one may start another while the others are looked for, and none ends at once.
    while await asyncio.to_thread(_kill_all, key.encode()) and pause < LONGEST_PAUSE:
        await asyncio.sleep(pause)
        pause *= 2


def _kill_all(marker: bytes) -> int:
    """Send the signal to all processes with a marker in their environment, and return their number."""
    count, this_process = 0, os.getpid()
    with suppress(OSError):
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) == this_process:
                continue
            with suppress(OSError):  # another user's process, or one that has just ended
                if marker in Path(entry.path, "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
                    count += 1
    return count
