"""Commands run as the server's own user, with the server's own rights: for code that you trust, and nothing else.

Limits hold for programs that do not fight them: they are watched rather than enforced by the kernel.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from contextlib import ExitStack
from typing import Final

from ludus.server.sandbox.box import BoxProcess, Launch, RunnerBox, inside_argv
from ludus.server.sandbox.errors import SandboxFailed, SandboxUnavailable, SandboxUnsupported
from ludus.server.sandbox.model import SandboxSettings
from ludus.server.sandbox.owner import OWNER, end_left_behind, remove_left_behind
from ludus.server.sandbox.pool import PooledProvider

PYTHON: Final = os.path.realpath(sys.executable)


class UnsafeLocal(PooledProvider):
    """The provider. It isolates nothing, and is chosen only by its name."""

    name = "unsafe-local"

    async def open(self) -> None:
        """See `SandboxProvider.open`."""
        if sys.platform != "linux":
            raise SandboxUnavailable(f"unsafe-local needs Linux's /proc, and this is {sys.platform}; name `docker`")
        await asyncio.to_thread(end_left_behind)
        await asyncio.to_thread(remove_left_behind)

    async def _check(self, settings: SandboxSettings) -> None:
        asked = [name for name in ("network", "image", "readonly") if getattr(settings, name)]
        if asked:
            raise SandboxUnsupported(f"unsafe-local isolates nothing, so it cannot honour {', '.join(asked)}")

    async def _start(self, settings: SandboxSettings) -> RunnerBox:
        limits = settings.limits
        with ExitStack() as undo:
            try:
                home = tempfile.mkdtemp(prefix=f"{OWNER}-")
                undo.callback(shutil.rmtree, home, ignore_errors=True)
                control, theirs = socket.socketpair()
            except OSError as error:
                raise SandboxFailed(f"a sandbox could not be started: {error}") from None
            config = {
                "alone": False, "home": home, "user": os.geteuid(), "memory": limits.memory, "files": 1024,
                "disk": {"bytes": limits.disk, "inodes": limits.inodes}, "tasks": limits.processes, "counted": False,
                "meter": -1, "address_space": 0, "count_tasks": 0, "filter": "",
            }  # fmt: skip
            process = BoxProcess(Launch(inside_argv(PYTHON, theirs.fileno()), config, ()))
            await process.start(control, theirs)
            undo.pop_all()
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
        return RunnerBox(process, settings, env, self.create, self._pool.forget)
