"""A gateway over an engine that follows a script."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gateway_play import Caller, Open, Play, RecordingEngine
from saying import Saying
from scripted import call
from terminal import running_episodes

from ludus.client import connect
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, make_harness
from ludus.rendering import Renderer
from ludus.server import Environment
from ludus.trainer.core.tiny import make_tokenizer

PYTHON = shlex.quote(sys.executable)


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


class Ungraded(Saying):
    grade = Environment.grade  # type: ignore[assignment]


@pytest.fixture
async def play(serve: Any, renderer: Renderer, engine: RecordingEngine, tmp_path: Path) -> AsyncIterator[Play]:
    """`played = await play(program)`: an episode of `Saying` that a program of Python text has played."""
    engine.script = lambda prompt, rng: "Done." if "said" in prompt else call("say", number=0)
    async with AsyncExitStack() as stack:
        server = await serve(Saying, Ungraded)
        client = await stack.enter_async_context(connect(server.url))

        async def played(
            program: str, *, environment: str = "saying", kind: str = "command", limits: Any = None,
            variables: Any = None, again: bool = False, **options: Any,
        ) -> HarnessEpisode:  # fmt: skip
            file = tmp_path / "program.py"
            file.write_text(program)
            harness = make_harness(f"{kind} {PYTHON} {shlex.quote(str(file))}", variables)
            stack.push_async_callback(harness.aclose)
            gateway = await stack.enter_async_context(Gateway(engine, renderer, limits=GatewayLimits(**(limits or {}))))
            episode = await client.environment(environment).start(split="train", index=0, seed=7)
            values: dict[str, Any] = {"episode_seconds": 30.0, **options}
            if again:
                values["again"] = lambda: client.environment(environment).start(split="train", index=0, seed=7)
            harnessed = HarnessEpisode(episode, gateway, harness, "episode", **values)
            await harnessed.play()
            return harnessed

        yield played
        assert await asyncio.to_thread(running_episodes, server.url) == 0
