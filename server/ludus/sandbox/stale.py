"""Names for what a server leaves on a machine, from which a later one sees whether it is still wanted."""

from __future__ import annotations

import logging
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import Final

from ludus.sandbox.inside.files import clear

log = logging.getLogger("ludus.sandbox")


def _begun(pid: int) -> str | None:
    """When a process began, in the kernel's ticks: a process id alone may have been given to another since."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return None


def _namespace() -> int:
    """The process namespace in which this process numbers others; 0 where /proc is of another, or there is none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino if os.readlink("/proc/self") == str(os.getpid()) else 0
    except OSError:
        return 0


_NAMESPACE: Final = _namespace()
_OWNER: Final = re.compile(r"ludus-(\d+)-(\d+)-(\d+)")


def owner_of(pid: int) -> str:
    """The name of a process of this namespace."""
    return f"ludus-{_NAMESPACE}-{pid}-{_begun(pid) or 0}"


OWNER: Final = owner_of(os.getpid())
"""This process."""


def is_alive(owner: str) -> bool:
    """Whether the process that `owner` names may still run.

    A server in a container, or beside one, shares an engine, control groups or directories with servers whose
    processes it does not see or sees by other numbers. Those are taken to run.
    """
    parts = _OWNER.fullmatch(owner)
    if parts is None or _NAMESPACE == 0 or int(parts[1]) != _NAMESPACE:
        return True
    return _begun(int(parts[2])) == parts[3]


def kill_stale_processes() -> int:
    """End the processes of boxes whose server, of this namespace, is no more; how many there were.

    A box ends with its server by itself. What is left over is the rare one whose server was killed in the middle of
    starting it.
    """
    ended = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        owner = words[-1].decode("utf-8", "replace")
        ours = any(b"ludus.sandbox.inside" in word for word in words)
        if ours and not is_alive(owner):
            try:
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
            except (ProcessLookupError, PermissionError):
                continue
    return ended


def remove_left_behind() -> None:
    """Remove the temporary directories of servers that are no more; their names begin with their owner's."""
    for left in Path(tempfile.gettempdir()).glob("ludus-*-*-*-*"):
        if left.is_dir() and not left.is_symlink() and not is_alive(left.name.rpartition("-")[0]):
            try:
                clear(str(left))
                left.rmdir()
            except OSError as error:
                log.warning("what a server left behind could not be removed: %s", error)
