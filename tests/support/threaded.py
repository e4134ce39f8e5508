"""A real server in a thread of its own, for tests that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ludus.server import Environment
from ludus.server.runtime.limits import ServerLimits
from ludus.server.serving.serve import LudusServer, serving
from ludus.server.serving.settings import ServerSettings


@contextmanager
def server_in_thread(
    *environments: type[Environment[Any]], limits: ServerLimits | None = None, **settings: Any
) -> Iterator[LudusServer]:
    """A server that answers while the caller's thread is busy."""
    started = threading.Event()
    found: dict[str, Any] = {}

    async def live() -> None:
        chosen = ServerSettings(port=0, limits=limits or ServerLimits(grace_seconds=0.5), **settings)
        async with serving(environments, chosen) as server:
            found.update(server=server, loop=asyncio.get_running_loop(), enough=asyncio.Event())
            started.set()
            await found["enough"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="server-of-a-test")
    thread.start()
    try:
        if not started.wait(timeout=20):
            raise TimeoutError("the server did not start")
        yield found["server"]
    finally:
        if "loop" in found:
            found["loop"].call_soon_threadsafe(found["enough"].set)
        thread.join(timeout=20)
