"""The processes of endpoints: their output is in the log to its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ludus.hub.endpoints.logs import LogRing
from ludus.hub.endpoints.processes import EndpointProcess
from ludus.sandbox.core.errors import SandboxFailed
from ludus.server.workers.pool import Worker


class Box:
    """A sandbox with one process, whose output cannot be read after it is closed."""

    def __init__(self) -> None:
        self.closed = False
        self.lines = [b"about to break\n"]
        self.killed = asyncio.Event()
        self.process = SimpleNamespace(
            stderr=self, end=None, request_kill=self.killed.set, wait=self.wait, stdout=self, signal=None
        )

    async def read_line(self) -> bytes:
        await self.killed.wait()
        for _ in range(10):  # the output is still on its way
            await asyncio.sleep(0)
        if self.closed:
            raise SandboxFailed("the sandbox is closed")
        return self.lines.pop() if self.lines else b""

    async def wait(self) -> Any:
        self.process.end = SimpleNamespace(ending="it was killed", exit_code=None, signal=9)
        return self.process.end

    async def aclose(self) -> None:
        self.closed = True


async def test_a_process_that_is_killed_is_read_to_its_end_before_its_sandbox_is_closed() -> None:
    box, ring = Box(), LogRing(10_000)
    process = EndpointProcess(cast(Any, box), None, cast(Any, box.process), Worker("1"), ring)
    await process.kill()
    assert box.closed
    assert ring.tail(10).splitlines() == ["about to break", "[the process ended: it was killed]"]
