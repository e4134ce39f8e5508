"""An engine on stub servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from stub_vllm import LORA, StubVllm, running

from ludus.trainer.core.config import VllmEngineConfig
from ludus.trainer.engines.vllm import VllmEngine

Connect = Callable[..., Awaitable[VllmEngine]]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """`engine = await connect(stub, …, sync="file", **settings)`; engine and stubs are gone when the test ends."""
    async with AsyncExitStack() as stack:

        async def start(*stubs: StubVllm, sync: str = "file", context: int = 512, **settings: Any) -> VllmEngine:
            for stub in stubs:
                await stack.enter_async_context(running(stub))
            options = {"request_seconds": 5.0, "sync_seconds": 5.0, "start_seconds": 5.0, **settings}
            config = VllmEngineConfig.model_validate({"urls": [s.url for s in stubs], "sync": sync, **options})
            lora = LORA if sync == "lora" else None
            engine = await VllmEngine.open(
                config, model="any", dtype="float32", context=context, folder=tmp_path, lora=lora
            )
            stack.push_async_callback(engine.aclose)
            for stub in stubs:
                stub.asked.clear()
                stub.headers.clear()
            return engine

        async with asyncio.timeout(30):
            yield start
