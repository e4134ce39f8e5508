"""Owner names for directories, containers and processes, and removal of those whose server no longer runs."""

from __future__ import annotations

import logging
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import Final

from ludus.sandbox.core.rescue import end_tree
from ludus.sandbox.inside.files import clear

__all__ = ["OWNER", "is_alive", "remove_left_behind"]


log = logging.getLogger("ludus.sandbox")


def _begun(pid: int) -> str | None:
    """Return when a process started, in the kernel's ticks; it detects that a process id was reused."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return None


def _namespace() -> int:
    """Return the id of this process's PID namespace; 0 if /proc belongs to another namespace or does not exist."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino if os.readlink("/proc/self") == str(os.getpid()) else 0
    except OSError:
        return 0


_NAMESPACE: Final = _namespace()
_OWNER: Final = re.compile(r"ludus-(\d+)-(\d+)-(\d+)")


def owner_of(pid: int) -> str:
    """Return the owner name of a process of this namespace: `ludus-<namespace>-<pid>-<start>`."""
    return f"ludus-{_NAMESPACE}-{pid}-{_begun(pid) or 0}"


OWNER: Final = owner_of(os.getpid())
"""The owner name of this process."""


def boot() -> str:
    """Return the id of the machine's current boot: process ids are meaningless in another one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def is_alive(owner: str) -> bool:
    """Return whether the process that `owner` names may still run.

    Servers in different containers can share an engine, control groups or directories without seeing each other's
    process ids. A process of another namespace is assumed to run.
    """
    parts = _OWNER.fullmatch(owner)
    if parts is None or _NAMESPACE == 0 or int(parts[1]) != _NAMESPACE:
        return True
    return _begun(int(parts[2])) == parts[3]


def kill_stale_processes() -> None:
    """Kill the processes of sandboxes whose server, in this namespace, no longer runs.

    A sandbox normally ends with its server. One can remain if its server was killed while starting it. If its processes
    share this namespace, none of them ends with the first one, so all of them are ended.
    """
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        owner = words[-1].decode("utf-8", "replace")
        is_runner = any(b"ludus.sandbox.inside" in word for word in words)
        if not is_runner or is_alive(owner):
            continue
        try:
            shared = os.stat(entry / "ns/pid").st_ino == _NAMESPACE
            if not shared:
                os.kill(int(entry.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if shared:
            end_tree(int(entry.name), f"/{owner}-")


def remove_left_behind() -> None:
    """Remove the temporary directories of servers that no longer run; each name starts with its owner's name."""
    for folder in Path(tempfile.gettempdir()).glob("ludus-*-*-*-*"):
        if folder.is_dir() and not folder.is_symlink() and not is_alive(folder.name.rpartition("-")[0]):
            try:
                clear(str(folder))
                folder.rmdir()
            except OSError as error:
                log.warning("removing what a stopped server left behind failed: %s", error)
