"""A server with a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from durable_server import Process


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Process]:
    """A server with a journal."""
    async with AsyncExitStack() as stack:
        process = Process(tmp_path)
        stack.push_async_callback(process.end)
        await process.start()
        yield process
