"""The resources that a container's processes use, summed from /proc, where no control group counts them."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from ludus.sandbox.cgroups import Usage

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessWatch:
    """The processes of one container, found by their PID namespace; it stands in for a `Group`.

    Args:
        process: the container's first process.
        memory: the bytes from which memory is measured with pages that processes share counted once, which is slow.
    """

    def __init__(self, process: int, memory: int) -> None:
        self._namespace = os.stat(f"/proc/{process}/ns/pid").st_ino
        self._memory = memory
        self._ended: dict[int, float] = {}
        self._most = 0

    def usage(self) -> Usage:
        """Return what the processes use now; processor time includes that of processes seen earlier."""
        memory = tasks = 0
        pids = self._processes()
        for pid in pids:
            with suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                # user and system time, its own and that of children it has waited for
                self._ended[pid] = sum(map(int, fields[11:15])) / _TICKS
                tasks += int(fields[17])
                memory += int(fields[21]) * _PAGE
        if memory > self._memory:
            memory = sum(map(_proportional, pids))
        self._most = max(self._most, tasks)
        return Usage(sum(self._ended.values()), memory, tasks)

    def _processes(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):
                    if os.stat(f"/proc/{name}/ns/pid").st_ino == self._namespace:
                        found.append(int(name))
        return found

    def broken(self) -> tuple[int, int]:
        """Return the counts of failures by limits on memory and tasks, which only a control group has."""
        return 0, 0

    def most_tasks(self) -> int:
        """Return the peak number of tasks that was observed."""
        return self._most

    def bound_tcp(self, memory: int) -> None:
        """Do nothing: without control groups the kernel limits these buffers for the whole machine only."""


def _proportional(pid: int) -> int:
    """Return the memory of a process, with each page that it shares divided by the number of its users."""
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0
