"""A real `ludus serve` in a process of its own, of an environment in a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ludus.sandbox.core.stale import owner_of


class Served:
    """A `ludus serve` process."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url
        self.owner = owner_of(process.pid)


@asynccontextmanager
async def served(world: Path, variables: dict[str, str], name: str = "Coding") -> AsyncIterator[Served]:
    command = [sys.executable, "-m", "ludus.cli", "serve", f"{world}:{name}", "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **variables}
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b" at http" not in (line := await process.stdout.readline()):
                assert line, "the server did not start"
        yield Served(process, line.decode().split(" at ")[1].split()[0])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
