"""A gateway over an engine that follows a script, and a plain HTTP client for its wires."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import aiohttp
import pytest
from scripted import ScriptedEngine, call

from ludus.gateway import EpisodeSession, Gateway, GatewayLimits
from ludus.rendering import Renderer
from ludus.trainer.tiny import make_tokenizer

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


class Answer(NamedTuple):
    """What the gateway answered."""

    status: int
    value: Any
    headers: dict[str, str]


class Caller:
    """A client of one episode, without any provider's package."""

    def __init__(self, gateway: Gateway, session: EpisodeSession, http: aiohttp.ClientSession) -> None:
        self.gateway, self.session, self.http = gateway, session, http

    async def post(self, path: str, body: Any, *, url: str | None = None, headers: Any = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        target = f"{url or self.gateway.base_url(self.session)}/v1/{path}"
        async with self.http.post(target, data=data, headers=headers) as response:
            text = await response.text()
            return Answer(response.status, json.loads(text), {k.lower(): v for k, v in response.headers.items()})

    async def chat(self, messages: list[dict[str, Any]], **fields: Any) -> Answer:
        body = {"model": "any", "messages": messages, "tools": [{"type": "function", "function": ADD}], **fields}
        return await self.post("chat/completions", body)


Open = Callable[..., Awaitable[Caller]]


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return Renderer(make_tokenizer((), 300))


@pytest.fixture
def engine(renderer: Renderer) -> ScriptedEngine:
    return ScriptedEngine(renderer.tokenizer, lambda prompt, rng: call("add", a=rng.randrange(100), b=2))


@pytest.fixture
async def open_episode(engine: ScriptedEngine, renderer: Renderer) -> AsyncIterator[Open]:
    """`caller = await open_episode(max_calls=3)`: an episode at a gateway with these limits."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def opened(**limits: Any) -> Caller:
            gateway = Gateway(engine, renderer, limits=GatewayLimits(**limits))
            await stack.enter_async_context(gateway)
            return Caller(gateway, gateway.open("episode", seed=3), http)

        yield opened
