"""A gateway over an engine that follows a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from gateway_play import Caller, Open, RecordingEngine
from scripted import call

from ludus.gateway import Gateway, GatewayLimits
from ludus.rendering import Renderer
from ludus.trainer.core.tiny import make_tokenizer


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return Renderer(make_tokenizer((), 300))


@pytest.fixture
def engine(renderer: Renderer) -> RecordingEngine:
    return RecordingEngine(renderer.tokenizer, lambda prompt, rng: call("add", a=rng.randrange(100), b=2))


@pytest.fixture
async def open_episode(engine: RecordingEngine, renderer: Renderer) -> AsyncIterator[Open]:
    """`caller = await open_episode(max_calls=3)`: an episode at a gateway with these limits."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def opened(engine: Any = engine, renderer: Renderer = renderer, **limits: Any) -> Caller:
            gateway = Gateway(engine, renderer, limits=GatewayLimits(**limits))
            await stack.enter_async_context(gateway)
            return Caller(gateway, gateway.open("episode", seed=3), http)

        yield opened
