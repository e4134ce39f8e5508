"""A server on its standard input and output, in a real process, read and written line by line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

SECONDS = 60.0


class Lines:
    """The two pipes of a stdio server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def write(self, *lines: bytes) -> None:
        """Write lines, without waiting for an answer."""
        for line in lines:
            self._stdin.write(line + b"\n")
        await self._stdin.drain()

    async def read(self) -> Any:
        """Read the next answer, at most `SECONDS`."""
        return json.loads(await asyncio.wait_for(self._stdout.readline(), SECONDS))

    async def ask(self, line: bytes) -> Any:
        """Write a line and read its answer."""
        await self.write(line)
        return await self.read()


@asynccontextmanager
async def serving_stdio(*arguments: str) -> AsyncIterator[Lines]:
    """Run `ludus serve ARGUMENTS --stdio`, which must end in order when its input closes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ludus.cli", "serve", *arguments, "--stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    lines = Lines(process)
    try:
        yield lines
    finally:
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), SECONDS) == 0
