"""The processes of a sandbox: which command each belongs to, what they use, and how to end those of one command.

How this works:

- At most one `run` is in progress. Besides it there may be background commands. Each of these has a keeper: a small
  process between the program inside and the command, which adopts the command's orphans. So every descendant
  of a keeper belongs to its command, and every other process to the `run`. A process cannot change its ancestors: if a
  command kills its own keeper, its processes become children of the program inside, and are ended.
- `Census.take` reads all of `/proc` once and assigns each process to its command, by the ids of the parents.
- `Census.end` ends the processes of one command. If no other command runs, that is one system call, under the kernel's
  lock, so that no process can escape by forking. Otherwise they are stopped and killed until none is left. If they fork
  faster than that for a second, all processes of the sandbox are ended.
- `Account` sums up what the processes of one command use. CPU time comes from the control group where there is one and
  the command is alone. Otherwise it is computed from processes that were waited for, that are alive, and that
  disappeared between two looks.
"""

from __future__ import annotations

import os
import resource
import time

from ludus.sandbox.inside import confine
from ludus.sandbox.inside.messages import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PAGE = resource.getpagesize()
RUN = 0
"""The owner of all processes that have no keeper."""
SOCKET_BYTES = 2 * 212992
"""Bytes that a local socket may hold: twice `net.core.wmem_default`, since the last message may exceed that."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PERSIST_SECONDS = 1.0
_MANY = 1_000_000
"""Assumed of a process whose descriptors cannot be counted."""


class Usage:
    """The resource usage of one process, from the fields of its `/proc/…/stat` after the name."""

    def __init__(self, fields: list[bytes]) -> None:
        self.ended = fields[0] in (b"Z", b"X")
        self.stopped = fields[0] in (b"T", b"t")
        self.parent = int(fields[1])
        self.own = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        """Its CPU seconds."""
        self.children = (int(fields[13]) + int(fields[14])) / _TICKS_PER_SECOND
        """The CPU seconds of descendants that were waited for."""
        self.tasks = int(fields[17])
        self.began = int(fields[19])
        self.memory = int(fields[21]) * PAGE
        """Its resident bytes."""


Usages = dict[tuple[int, int], Usage]
"""Processes by their id and the time when they began."""


class Census:
    """All processes of the sandbox except this one, by the command that they belong to.

    Args:
        alone: whether the sandbox has its own process namespace.
        reap: reaps the ended children of this process; with True it waits until there is no child left.
    """

    def __init__(self, alone: bool, reap: Callable[[bool], None]) -> None:
        self.alone = alone
        self.keepers: set[int] = set()
        self.runs = False
        """Whether a `run` is in progress."""
        self._reap = reap

    def take(self) -> dict[int, Usages]:
        """Return the processes of each keeper, the keeper included, and those of no keeper under `RUN`."""
        return self._assign()[0]

    def _assign(self) -> tuple[dict[int, Usages], bool]:
        """Return the same, and whether every process could be assigned; one is unclear while its parent is ending."""
        me = os.getpid()
        living = {pid: process for pid in _numbers("/proc") if pid != me and (process := usage(pid)) is not None}
        owners: dict[int, int | None] = {me: RUN, **{pid: pid for pid in self.keepers}}
        clear = True
        usages: dict[int, Usages] = {RUN: {}, **{keeper: {} for keeper in self.keepers}}
        for pid, process in living.items():
            owner = _owner(pid, living, owners)
            if owner is not None:
                usages[owner][pid, process.began] = process
            elif self.alone:
                clear = False
        return usages, clear

    def end(self, owner: int) -> None:
        """End all processes of one command, its keeper last, and return when none is left."""
        if self.alone and self.keepers <= {owner} and not (owner and self.runs):
            self._end_all()
            return
        deadline = time.monotonic() + _PERSIST_SECONDS
        while True:
            any_alive = False
            for number in (confine.SIGSTOP, confine.SIGKILL):
                usages, clear = self._assign()
                for (pid, _), process in usages.get(owner, {}).items():
                    if not process.ended and pid != owner:
                        any_alive = True
                        _signal(pid, number)
            self._reap(False)
            if not any_alive and clear:
                break
            if self.alone and time.monotonic() >= deadline:
                self._end_all()
                return
            time.sleep(0.001)
        if owner in self.keepers:
            _signal(owner, confine.SIGKILL)
            os.waitpid(owner, 0)
            self.keepers.discard(owner)

    def pause(self) -> list[int]:
        """Stop all processes that run, and return their ids for `resume`.

        Raises:
            Refused: they start others faster than they can be stopped.
        """
        paused: list[int] = []
        deadline = time.monotonic() + _PERSIST_SECONDS
        while True:
            usages, clear = self._assign()
            new = [
                pid for owner, group in usages.items() for (pid, _), process in group.items()
                if pid != owner and not process.ended and not process.stopped
            ]  # fmt: skip
            if not new and clear:
                return paused
            for pid in new:
                _signal(pid, confine.SIGSTOP)
            paused += [pid for pid in new if pid not in paused]
            if time.monotonic() >= deadline:
                self.resume(paused)
                raise Refused("the commands that run in the sandbox start processes faster than these can be stopped")

    def resume(self, paused: list[int]) -> None:
        """Continue stopped processes, children before their parents, which thus do not notice."""
        for pid in sorted(paused, reverse=True):
            _signal(pid, confine.SIGCONT)

    def _end_all(self) -> None:
        """End every process of the namespace except this one, and wait until they are gone."""
        try:
            os.kill(-1, confine.SIGKILL)
        except ProcessLookupError:
            return
        self._reap(True)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _owner(pid: int, living: dict[int, Usage], owners: dict[int, int | None]) -> int | None:
    """Return the command that a process belongs to; None if one of its ancestors is not among those found."""
    path = []
    while pid not in owners:
        process = living.get(pid)
        if process is None:
            owners[pid] = None
            break
        path.append(pid)
        pid = process.parent
    for below in path:
        owners[below] = owners[pid]
    return owners[pid]


class Account:
    """What the processes of one command use.

    Args:
        meter: a descriptor that yields the CPU time of the sandbox's control group; -1 without one.
        counts_sockets: whether memory includes the kernel's buffers of sockets.
        tcp: whether there may be TCP sockets.
    """

    def __init__(self, meter: int, counts_sockets: bool, tcp: bool = False) -> None:
        self.peak = self.memory = self.tasks = 0
        self._meter = meter
        self._before = self._metered() if meter >= 0 else 0.0
        self._counts_sockets = counts_sockets
        self._tcp = tcp
        self._sockets = socket_memory(tcp) if counts_sockets else 0
        """What sockets held before the command started."""
        self.waited = 0.0
        """CPU time of processes that were waited for."""
        self.others = 0.0
        """The part of the control group's CPU time that other commands used."""
        self._usages: Usages = {}
        self._gone = self._passed_on = 0.0
        """CPU time of disappeared processes when last seen, and the part that living parents took over by waiting."""

    def _metered(self) -> float:
        """Return the control group's CPU time without that of this process."""
        words = os.pread(self._meter, 256, 0).split()
        used = int(words[1]) / 1e6 if words[0] == b"usage_usec" else int(words[0]) / 1e9
        return used - time.process_time()

    def cpu(self) -> float:
        """Return the CPU seconds used so far.

        Without a control group, the kernel drops the CPU time of a process whose parent ignores SIGCHLD, because no
        process waits for it. So the CPU time of each disappeared process, when last seen, is kept. The part of it that
        neither a living parent nor this process took over by waiting is added.
        """
        if self._meter >= 0:
            return max(0.0, self._metered() - self._before - self.others)
        living = sum(process.own + process.children for process in self._usages.values())
        return self.waited + living + max(0.0, self._gone - self._passed_on - self.waited)

    def note(self, usages: Usages, alone: bool) -> None:
        """Record the living processes, and the CPU time of those that disappeared since the last call."""
        for key, before in self._usages.items():
            # Without a namespace, a process that is just getting a new parent can be missing from `usages`.
            if alone and key not in usages:
                self._gone += before.own + before.children
        for key, now in usages.items():
            previous = self._usages.get(key)
            self._passed_on += now.children - (previous.children if previous else 0.0)
        self._usages = usages

    def exceeded(self, limits: dict[str, Any], keeper: int, shared: bool) -> str | None:
        """Return the limit that the processes of the last `note` together exceed, or None.

        Args:
            limits: the limits by name.
            keeper: the keeper among the processes, which counts toward neither memory nor processes.
            shared: whether other commands run, so that it is not clear whose a socket is.
        """
        counted = {pid: process for (pid, _), process in self._usages.items() if pid != keeper}
        memory = sum(process.memory for process in counted.values())
        if memory > limits["memory"]:
            memory = self.count_shared_pages_once(keeper)
        # The kernel may hold as much for each socket, and no process's memory counts it.
        if self._counts_sockets and not shared:
            memory += max(0, socket_memory(self._tcp) - self._sockets)
        self.memory = memory
        self.peak = max(self.peak, memory)
        self.tasks = sum(process.tasks for process in counted.values())
        if memory > limits["memory"]:
            return "memory"
        if self.tasks > limits["processes"]:
            return "processes"
        return "cpu_seconds" if self.cpu() > limits["cpu_seconds"] else None

    def count_shared_pages_once(self, keeper: int) -> int:
        """Compute `memory` again, with proportional shares: the sum of the processes counts shared pages repeatedly."""
        self.memory = sum(_proportional(pid, process) for (pid, _), process in self._usages.items() if pid != keeper)
        return self.memory

    def count_sockets(self) -> int:
        """Return how many sockets the processes of the last `note` hold; one that hides them counts as many."""
        return sum(_sockets_of(pid) for pid, _ in self._usages)


def _sockets_of(pid: int) -> int:
    try:
        ends = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return 0
    except PermissionError:
        return _MANY
    count = 0
    for end in ends:
        try:
            count += os.readlink(f"/proc/{pid}/fd/{end}").startswith("socket:")
        except OSError:
            continue
    return count


def socket_memory(tcp: bool) -> int:
    """Return how many bytes the kernel may hold for the sockets of the sandbox's own network, local ones included.

    A TCP socket may hold more than a local one, so what waits in its queues is added.
    """
    with open("/proc/self/net/sockstat", "rb") as file:
        memory = int(file.readline().split()[2]) * SOCKET_BYTES
    for name in ("tcp", "tcp6") if tcp else ():
        try:
            with open(f"/proc/self/net/{name}", "rb") as file:
                for line in file.readlines()[1:]:
                    memory += sum(int(size, 16) for size in line.split()[4].split(b":"))
        except FileNotFoundError:
            continue
    return memory


def usage(pid: int) -> Usage | None:
    """Return what a process uses; None if there is no such process."""
    fields = _fields(str(pid))
    if fields is None:
        return None
    process = Usage(fields)
    if process.ended and process.tasks > 1:
        threads = _threads(pid)
        process.memory = max((thread.memory for thread in threads), default=0)
        process.ended = all(thread.ended for thread in threads)
    return process


def _numbers(path: str) -> list[int]:
    return [int(name) for name in os.listdir(path) if name.isdigit()]


def _fields(process: str) -> list[bytes] | None:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _threads(pid: int) -> list[Usage]:
    """Return the usage that each thread of a process reports: its first thread reports no memory once it has ended."""
    try:
        threads = _numbers(f"/proc/{pid}/task")
    except OSError:
        return []
    return [Usage(fields) for thread in threads if (fields := _fields(f"{pid}/task/{thread}")) is not None]


def _proportional(pid: int, process: Usage) -> int:
    """Return the resident bytes of a process, with its proportional share of pages that it shares with others."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return process.memory
