"""Sandboxes without isolation, only for code that you trust: commands run as the server's user with its rights.

Most limits are watched by the program inside, not enforced by the kernel, so a program can evade them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from typing import Any

from ludus.sandbox.box import RunnerBox
from ludus.sandbox.box_process import BoxProcess, Launch, inside_argv
from ludus.sandbox.core.errors import SandboxFailed, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.core.model import Limits, SandboxSettings
from ludus.sandbox.core.stale import OWNER, kill_stale_processes, remove_left_behind
from ludus.sandbox.inside.files import clear
from ludus.sandbox.pool import PooledProvider

log = logging.getLogger("ludus.sandbox")


class UnsafeLocal(PooledProvider):
    """The provider of sandboxes without isolation; it is used only if named explicitly."""

    name = "unsafe-local"
    has_cassettes = False

    async def open(self) -> None:
        """See `SandboxProvider.open`."""
        if sys.platform != "linux":
            raise SandboxUnavailable(f"unsafe-local needs Linux's /proc, and this is {sys.platform}; use `docker`")
        await asyncio.to_thread(kill_stale_processes)
        await asyncio.to_thread(remove_left_behind)

    async def _check(self, settings: SandboxSettings) -> None:
        unsupported = [name for name in ("network", "image", "readonly", "links") if getattr(settings, name)]
        if unsupported:
            raise SandboxUnsupported(
                f"unsafe-local isolates nothing, so it cannot honor {', '.join(unsupported)}; use `bubblewrap`"
            )

    async def _start(self, settings: SandboxSettings) -> LocalBox:
        with ExitStack() as undo:
            try:
                home = tempfile.mkdtemp(prefix=f"{OWNER}-")
            except OSError as error:
                raise SandboxFailed(f"starting a sandbox failed: {error}") from None
            undo.callback(shutil.rmtree, home, ignore_errors=True)
            process = await _start_process(settings.limits, home)
            undo.pop_all()
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
        another = partial(_start_process, settings.limits, home)
        return LocalBox(home, process, settings, env, self.create, self._pool.forget, another)


class LocalBox(RunnerBox):
    """A sandbox whose work directory is on this machine's disk and outlives the program inside."""

    def __init__(self, home: str, *about: Any) -> None:
        super().__init__(*about)
        self._home = home

    async def _close(self) -> None:
        await super()._close()
        await asyncio.to_thread(_remove, self._home)  # in case the program inside was killed before it removed it


async def _start_process(limits: Limits, home: str) -> BoxProcess:
    try:
        with ExitStack() as undo:
            control, far_end = socket.socketpair()
            undo.callback(control.close)
            undo.callback(far_end.close)
            passing, inner = socket.socketpair()
            undo.pop_all()
    except OSError as error:
        raise SandboxFailed(f"starting a sandbox failed: {error}") from None
    passing.setblocking(False)
    config = {
        "alone": False, "home": home, "user": os.geteuid(), "memory": limits.memory, "files": 1024,
        "disk": {"bytes": limits.disk, "inodes": limits.inodes}, "tasks": limits.processes, "counted": False,
        "meter": -1, "address_space": 0, "count_tasks": 0, "filter": "", "processes": limits.processes,
        "passing": inner.fileno(), "address": None, "terminals": 0, "tcp": False,
    }  # fmt: skip
    process = BoxProcess(Launch(inside_argv(far_end.fileno()), config, (inner.detach(),), passing))
    await process.start(control, far_end)
    return process


def _remove(home: str) -> None:
    try:
        clear(home)
        os.rmdir(home)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("removing the directory of a sandbox failed: %s", error)
