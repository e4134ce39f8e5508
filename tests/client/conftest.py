from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ludus.client import Client, connect


@pytest.fixture(params=["channel", "mcp"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def client_of(serve: Any, wire: str) -> AsyncIterator[Any]:
    """`client = await client_of(Environment, …)`: a client of a new server, over each wire in turn."""
    async with AsyncExitStack() as stack:

        async def start(*environments: Any, options: dict[str, Any] | None = None, **settings: Any) -> Client:
            server = await serve(*environments, **settings)
            return await stack.enter_async_context(connect(server.url, wire=wire, **(options or {})))  # type: ignore[arg-type]

        yield start
