"""Servers of two workers, with and without journals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from worker_servers import WorkersServer

pytestmark = pytest.mark.timeout(300)

Launch = Callable[..., Awaitable[WorkersServer]]


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launch]:
    """`server = await launch("--option", …, journal=True)`: a server, which is gone when the test ends."""
    async with AsyncExitStack() as stack:

        async def start(*options: str, variables: dict[str, str] | None = None, **settings: Any) -> WorkersServer:
            server = WorkersServer(tmp_path, *options, **settings)
            server.variables = variables or {}
            stack.push_async_callback(server.end)
            await server.start()
            return server

        yield start


@pytest.fixture(params=[True, False], ids=["journal", "no journal"])
async def server(request: pytest.FixtureRequest, launch: Launch) -> WorkersServer:
    """A server with journals, and one without."""
    return await launch(journal=request.param)
