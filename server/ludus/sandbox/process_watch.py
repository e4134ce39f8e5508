"""The resources that a container's processes use, summed from /proc, where no control group counts them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from ludus.sandbox.cgroups import Usage, is_in_group

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def is_first_process(pid: int, container: str) -> bool:
    """Return whether a process of this machine belongs to a container, by its control group or its mounted files.

    An engine on another machine, or in a virtual machine, reports process ids that belong to other processes here.
    Rootless Podman may have no control groups, but mounts files such as /etc/hostname from the container's folder.
    """
    if is_in_group(pid, container):
        return True
    try:
        return container in Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "replace")
    except OSError:
        return False


class ProcessWatch:
    """The processes of one container, found by their PID namespace, with the methods of a `Group`.

    Args:
        process: the container's first process.
        memory: the bytes from which memory is measured with pages that processes share counted once, which is slow.
    """

    def __init__(self, process: int, memory: int) -> None:
        self._namespace = os.stat(f"/proc/{process}/ns/pid").st_ino
        self._memory = memory
        self._cpu = self._gone = 0.0
        self._most = 0

    def usage(self) -> Usage:
        """Return what the processes use now; processor time includes that of processes which have ended.

        A process that is waited for adds its time to that of its parent. If the sum falls, processes have ended that
        no other waited for, or the look came in between; a second look shows which.
        """
        cpu, memory, tasks = self._look()
        if cpu < self._cpu:
            cpu, memory, tasks = self._look()
        self._gone += max(0.0, self._cpu - cpu)
        self._cpu = cpu
        self._most = max(self._most, tasks)
        return Usage(cpu + self._gone, memory, tasks)

    def _look(self) -> tuple[float, int, int]:
        cpu = tasks = 0
        resident: dict[int, int] = {}
        for pid in self._processes():
            with suppress(OSError, IndexError, ValueError):
                fields = _fields(f"/proc/{pid}/stat")
                cpu += sum(map(int, fields[11:15]))  # user and system time, its own and that of children it waited for
                tasks += int(fields[17])
                pages = int(fields[21])
                if pages == 0 and int(fields[17]) > 1:  # its first thread has ended; the others still use its memory
                    pages = max(
                        int(_fields(f"/proc/{pid}/task/{thread}/stat")[21])
                        for thread in os.listdir(f"/proc/{pid}/task")
                    )
                resident[pid] = pages * _PAGE
        memory = sum(resident.values())
        if memory > self._memory:
            memory = sum(_proportional(pid, size) for pid, size in resident.items())
        return cpu / _TICKS, memory, tasks

    def _processes(self) -> list[int]:
        pids = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):
                    if os.stat(f"/proc/{name}/ns/pid").st_ino == self._namespace:
                        pids.append(int(name))
        return pids

    def broken(self) -> tuple[int, int]:
        """Return the counts of failures by limits on memory and tasks, which only a control group has."""
        return 0, 0

    def most_tasks(self) -> int:
        """Return the peak number of tasks that was observed."""
        return self._most

    def bound_tcp(self, memory: int) -> None:
        """Do nothing: without control groups the kernel limits these buffers for the whole machine only."""


def _fields(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _proportional(pid: int, resident: int) -> int:
    """Return the memory of a process, with each page that it shares divided by the number of its users."""
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return resident
