"""Control groups: the kernel's limits on a sandbox's memory and processes, if this process may create groups.

Both versions are supported. Version 2 needs a group that delegates `memory` and `pids` to its children: the server's
own group, its parent, or the root. Version 1 needs `memory`, `pids` and `cpuacct` to be writable.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ludus.sandbox.core.stale import OWNER, is_alive

__all__ = ["Group", "Groups"]


_ROOT: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = ("memory", "pids")
_TIME: Final = "cpuacct"
_REMOVALS: Final = 400
_TCP_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a group uses: CPU seconds so far, bytes of memory other than files, and tasks."""

    cpu: float = 0.0
    memory: int = 0
    tasks: int = 0


class Group:
    """The control group of one sandbox, with one directory per hierarchy: its limits, and what its processes use."""

    def __init__(self, directories: dict[str, Path], version: int) -> None:
        self._memory, self._pids = directories["memory"], directories["pids"]
        self._time = directories.get(_TIME, self._memory)
        """The directory that counts CPU time; in version 2 every group does."""
        self._version = version
        self._all = dict.fromkeys((self._memory, self._pids, self._time))

    @property
    def name(self) -> str:
        """Its name, without the groups around it."""
        return self._memory.name

    @classmethod
    def of(cls, pid: int, box: str) -> Group | None:
        """Return the group of a process, which has `box` in its path; None if it is not visible here."""
        if not is_in_group(pid, box):
            return None
        directory = _place_v2(str(pid))
        if directory is not None and (directory / "memory.current").exists():
            return cls(dict.fromkeys(_NEEDED, directory), 2)
        directories = _places_v1(str(pid))
        complete = len(directories) == len(_NEEDED) + 1 and all(path.exists() for path in directories.values())
        return cls(directories, 1) if complete else None

    def make(self, memory: int, processes: int) -> None:
        """Create the group with its limits: bytes of memory, and number of tasks."""
        for directory in self._all:
            directory.mkdir()
        if self._version == 2:
            self._write(self._memory / "memory.max", memory)
            self._write(self._memory / "memory.swap.max", 0, optional=True)
        else:
            self._write(self._memory / "memory.limit_in_bytes", memory)
            self._write(self._memory / "memory.memsw.limit_in_bytes", memory, optional=True)
            self.bound_tcp(memory)
        self._write(self._pids / "pids.max", processes)

    def bound_tcp(self, memory: int) -> None:
        """Limit the buffers of TCP, which version 1 counts separately, to a share of `memory`."""
        if self._version == 1:
            share = memory // _TCP_SHARE
            self._write(self._memory / "memory.kmem.tcp.limit_in_bytes", share, optional=True)

    def add(self, pid: int) -> None:
        """Put a process into the group; processes that it starts will be in it too."""
        for directory in self._all:
            self._write(directory / "cgroup.procs", pid)

    def open_meter(self) -> int:
        """Open the file with the group's CPU time: `cpu.stat` in version 2, `cpuacct.usage` in version 1."""
        return os.open(self._time / ("cpu.stat" if self._version == 2 else "cpuacct.usage"), os.O_RDONLY | os.O_CLOEXEC)

    def exists(self) -> bool:
        """Return whether the group is still there: an engine removes that of a container which has ended."""
        return self._memory.exists()

    def broken(self) -> tuple[int, int]:
        """Return how often the memory limit killed a process, and how often the process limit refused one."""
        memory = "memory.events" if self._version == 2 else "memory.oom_control"
        return _counter(self._memory / memory, "oom_kill"), _counter(self._pids / "pids.events", "max")

    def usage(self) -> Usage:
        """Return what the group uses now."""
        if self._version == 2:
            seconds = _counter(self._time / "cpu.stat", "usage_usec") / 1e6
            used = _number(self._memory / "memory.current") - _counter(self._memory / "memory.stat", "file")
        else:
            seconds = _number(self._time / "cpuacct.usage") / 1e9
            cached = _counter(self._memory / "memory.stat", "total_cache")
            used = _number(self._memory / "memory.usage_in_bytes") - cached
        return Usage(seconds, max(0, used), _number(self._pids / "pids.current"))

    def most_tasks(self) -> int:
        """Return the peak number of tasks in the group; 0 if the kernel does not report it."""
        return _number(self._pids / "pids.peak")

    async def remove(self, *, inner: bool = False) -> None:
        """Remove the group; its processes must have been killed.

        Args:
            inner: remove groups within it as well, whose owner may have been killed.
        """
        for directory in self._all:
            for _ in range(_REMOVALS):
                if inner:
                    _remove_tree(directory)
                try:
                    directory.rmdir()
                except FileNotFoundError:
                    break
                except OSError:  # the kernel has not removed its processes yet
                    await asyncio.sleep(0.005)
                else:
                    break

    def _write(self, file: Path, value: int, *, optional: bool = False) -> None:
        try:
            file.write_text(str(value), encoding="ascii")
        except OSError:
            if not optional:
                raise


def _counter(file: Path, name: str) -> int:
    try:
        for line in file.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except OSError:
        pass
    return 0


def _number(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


class Groups:
    """A place in the hierarchy where this process can create groups."""

    def __init__(self, bases: dict[str, Path], version: int) -> None:
        self._bases = bases
        self._version = version

    @classmethod
    def find(cls) -> Groups | None:
        """Return the first usable place, or None."""
        for bases, version in _candidates():
            groups = cls(bases, version)
            if groups._works():
                return groups
        return None

    def new(self) -> Group:
        """Return a group with a new name; `Group.make` creates it."""
        name = f"{OWNER}-{secrets.token_hex(6)}"
        return Group({kind: base / name for kind, base in self._bases.items()}, self._version)

    def nest(self, memory: int, processes: int) -> tuple[Group, Groups]:
        """Create a group with limits on all groups within it together, and return it with the place for those.

        Raises:
            OSError: the kernel refuses it.
        """
        group = self.new()
        group.make(memory, processes)
        directories = {kind: base / group.name for kind, base in self._bases.items()}
        if self._version == 2:
            handed = " ".join(f"+{name}" for name in _NEEDED)
            (next(iter(directories.values())) / "cgroup.subtree_control").write_text(handed, encoding="ascii")
        return group, Groups(directories, self._version)

    def describe(self) -> dict[str, Any]:
        """Return this place for another process of the same user, as JSON; see `at`."""
        return {"bases": {kind: str(base) for kind, base in self._bases.items()}, "version": self._version}

    @classmethod
    def at(cls, described: dict[str, Any]) -> Groups:
        """Return the place that `describe` describes."""
        return cls({kind: Path(base) for kind, base in described["bases"].items()}, int(described["version"]))

    def sweep(self) -> int:
        """Remove the groups of servers that no longer run; return how many were removed."""
        removed = 0
        for base in set(self._bases.values()):
            for directory in base.glob("ludus-*-*-*"):
                if not is_alive(directory.name.rpartition("-")[0]):
                    removed += _remove_tree(directory)
        return removed

    def _works(self) -> bool:
        group = self.new()
        try:
            group.make(64 * 1024 * 1024, 8)
        except OSError:
            return False
        finally:
            for directory in group._all:
                try:
                    directory.rmdir()
                except OSError:
                    pass
        return True


def _remove_tree(directory: Path) -> int:
    """Remove a group with those within it, as far as no process is in them; return how many were removed."""
    removed = sum(_remove_tree(inner) for inner in directory.iterdir() if inner.is_dir()) if directory.is_dir() else 0
    try:
        directory.rmdir()
    except OSError:
        return removed
    return removed + 1


def is_in_group(pid: int, name: str) -> bool:
    """Return whether a process of this machine is in a group with `name` in its path.

    An engine on another machine, or in a virtual machine, reports process ids that belong to other processes here.
    """
    return any(name in path for _, path in _memberships(str(pid)))


def _memberships(process: str) -> Iterator[tuple[str, str]]:
    """Yield the controllers of each hierarchy, separated by commas, and the path of the process's group in it."""
    try:
        lines = Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        yield controllers, path.lstrip("/")


def _place_v2(process: str = "self") -> Path | None:
    """Return the directory of a process's group in version 2."""
    return next((_ROOT / path for controllers, path in _memberships(process) if not controllers), None)


def _places_v1(process: str = "self") -> dict[str, Path]:
    """Return the directories of a process's groups in version 1, by controller; only of those that are used here."""
    return {
        name: _ROOT / name / path
        for controllers, path in _memberships(process)
        for name in controllers.split(",")
        if name in (*_NEEDED, _TIME)
    }


def _candidates() -> Iterator[tuple[dict[str, Path], int]]:
    """Yield places where this process may be able to create groups, and their version."""
    current = _place_v2()
    if current is not None and (_ROOT / "cgroup.subtree_control").exists():
        for directory in dict.fromkeys((current, current.parent if current != _ROOT else current, _ROOT)):
            try:
                handed_down = (directory / "cgroup.subtree_control").read_text(encoding="ascii").split()
            except OSError:
                continue
            if set(_NEEDED) <= set(handed_down) and os.access(directory, os.W_OK):
                yield dict.fromkeys(_NEEDED, directory), 2
    directories = _places_v1()
    if len(directories) == len(_NEEDED) + 1 and all(os.access(path, os.W_OK) for path in directories.values()):
        yield directories, 1
