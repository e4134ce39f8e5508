"""Hubs with verified runs, in real sandboxes, and a model endpoint on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from verified_hub import ModelServer, VerifiedHub

from ludus.hub.verified.settings import VerifiedSettings

StartHub = Callable[..., Awaitable[VerifiedHub]]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A model endpoint that opens each lock."""
    server = ModelServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def start_hub(tmp_path: Path, model: ModelServer) -> AsyncIterator[StartHub]:
    """`hub = await start_hub(calls=3)`: a hub with other settings, which has the locks."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> VerifiedHub:
            given = {
                "enabled": True, "private_hosts": (f"127.0.0.1:{model.port}",), "outage_seconds": 0.0,
                "pause_seconds": 0.01, **settings,
            }  # fmt: skip
            hub = VerifiedHub(tmp_path / "hub", VerifiedSettings.model_validate(given))
            stack.push_async_callback(hub.stop)
            await hub.start()
            hub.publish()
            return hub

        yield start


@pytest.fixture
async def hub(start_hub: StartHub) -> VerifiedHub:
    """A hub with the locks."""
    return await start_hub()
