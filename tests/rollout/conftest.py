"""A model endpoint on a real socket, and an environment to play."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from ludus.client import RemoteEnvironment, connect

Reply = dict[str, Any] | web.Response | Callable[[dict[str, Any]], "Reply | Awaitable[Reply]"]


@dataclass
class Endpoint:
    """An OpenAI-compatible server that answers from a script; the last reply answers everything after it."""

    script: deque[Reply] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def say(self, *replies: Reply) -> None:
        self.script.extend(replies)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        reply: Any = self.script.popleft() if len(self.script) > 1 else self.script[0]
        while callable(reply):
            reply = reply(body)
            if isinstance(reply, Awaitable):
                reply = await reply
        return reply if isinstance(reply, web.StreamResponse) else web.json_response(reply)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    served = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", served.complete)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{port}/v1"
    yield served
    await runner.cleanup()


def completion(text: str | None = None, *calls: tuple[str, Any], usage: tuple[int, int] = (10, 5)) -> dict[str, Any]:
    """A completion with text, calls, or both; arguments that are no text are written as JSON."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"c{position}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for position, (name, given) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {
        "id": "x",
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
    }


@pytest.fixture(name="completion")
def completion_fixture() -> Callable[..., dict[str, Any]]:
    return completion


@pytest.fixture
async def remote(serve: Any) -> AsyncIterator[Callable[..., Awaitable[RemoteEnvironment]]]:
    """`environment = await remote(Class)`: a client's handle of an environment on a real server."""
    clients = []

    async def open_one(cls: Any, **options: Any) -> RemoteEnvironment:
        server = await serve(cls, **options)
        client = connect(server.url)
        clients.append(client)
        (info,) = await client.environments()
        return client.environment(info.name)

    yield open_one
    await asyncio.gather(*(client.close() for client in clients))
