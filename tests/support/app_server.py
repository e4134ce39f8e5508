"""A real server of an application that a test has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ludus.server.serving.app import LudusApp
from ludus.server.serving.serve import LudusServer
from ludus.server.serving.settings import ServerSettings


@asynccontextmanager
async def serving_app(app: LudusApp, settings: ServerSettings) -> AsyncIterator[str]:
    """Serve an application, and yield its address."""
    server = LudusServer(app, settings)
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(30):
            await server.running.wait()
        yield server.url
    finally:
        server.stop()
        await task
