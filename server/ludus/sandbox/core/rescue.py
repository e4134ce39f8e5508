"""Operations from outside a sandbox whose program inside no longer works: end its processes and save its files."""

from __future__ import annotations

import io
import logging
import os
import signal
import time
from typing import Final

from ludus.sandbox.core.model import Snapshot
from ludus.sandbox.inside import files
from ludus.sandbox.inside.messages import Refused

log = logging.getLogger("ludus.sandbox")

_END_SECONDS: Final = 10.0
_ROUND_SECONDS: Final = 0.002


def open_home(process: int, home: str) -> int:
    """Open the work directory of a sandbox through its first process, before anything untrusted runs in it.

    A file system in memory exists as long as a process holds it open, so the files outlive the sandbox's processes.

    Returns:
        A descriptor, or -1 if this server may not inspect its sandboxes because it lacks CAP_SYS_PTRACE.

    Raises:
        OSError: this server has no descriptors left.
    """
    try:
        return os.open(f"/proc/{process}/root{home}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return -1


def save_files(folder: int, disk: int) -> Snapshot | None:
    """Copy the content of a directory that no process can change any more, and close its descriptor.

    Args:
        folder: the descriptor of the directory.
        disk: the maximum size of all files in bytes.

    Returns:
        The files; None if they cannot be copied, for example sparse files larger than `disk` or paths that are too
        long.
    """
    data = io.BytesIO()
    try:
        os.fchmod(folder, 0o700)
        files.snapshot({"home": f"/proc/self/fd/{folder}", "disk": {"bytes": disk}}, data)
    except (Refused, OSError) as error:
        log.info("a rebuilt sandbox starts without its files: %s", error)
        return None
    finally:
        os.close(folder)
    return Snapshot(data.getvalue())


def end_tree(root: int | None, marked: str) -> None:
    """End the processes of a sandbox that has no process namespace; block until they are gone, 10 s at most.

    Args:
        root: the first process, which is ended with all of its descendants; None if it has ended.
        marked: a text in the environment of the sandbox's processes, by which those that lost their parents are found.
    """
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        pids: set[int] = set()
        while more := _tree(root, marked.encode()) - pids:
            # Stop all of them first, so that none starts another process while they are ended.
            _signal(more, signal.SIGSTOP)
            pids |= more
        if not pids:
            return
        _signal(pids, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def _tree(root: int | None, marked: bytes) -> set[int]:
    below: dict[int, list[int]] = {}
    pids: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state == b"Z":
                    continue
                below.setdefault(int(parent), []).append(int(name))
                with open(f"/proc/{name}/environ", "rb") as file:
                    if marked in file.read():
                        pids.add(int(name))
            except OSError:
                continue
    waiting = [] if root is None else [root]
    while waiting:
        children = below.get(waiting.pop(), [])
        pids.update(children)
        waiting += children
    if root is not None and any(root in children for children in below.values()):
        pids.add(root)
    return pids


def _signal(processes: set[int], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except (ProcessLookupError, PermissionError):
            continue
