"""A host with one environment, and a model endpoint on a real socket that judges as configured."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from ludus.protocol import episodes as e
from ludus.server import Environment, EpisodeHost
from ludus.server.auth.principal import Principal
from ludus.server.rewards.judges import Endpoint

OPEN = Principal.open()


class Playing:
    """A running host, in short words."""

    def __init__(self, host: EpisodeHost) -> None:
        self.host = host
        self._keys = iter(range(1_000_000))

    def key(self) -> str:
        return f"k{next(self._keys)}"

    async def start(self, count: int = 1) -> list[str]:
        name = next(iter(self.host.catalog))
        params = e.StartParams(environment=name, split="train", index=0, count=count, key=self.key())
        self.group = (started := await self.host.start(params, OPEN)).group
        return [episode.episode for episode in started.episodes]

    async def step(self, episode: str, number: int, tool: str, **arguments: Any) -> e.StepResult:
        params = e.StepParams(episode=episode, step=number, tool=tool, arguments=arguments, key=self.key())
        return await self.host.step(params, OPEN)

    async def grade(self, episode: str, answer: str) -> e.GradeResult:
        return await self.host.grade(e.GradeParams(episode=episode, answer=answer, key=self.key()), OPEN)

    async def rewards(self, episode: str) -> e.RewardsResult:
        return await self.host.rewards(e.RewardsParams(episode=episode), OPEN)


Host = Callable[[type[Environment[Any]]], Awaitable[Playing]]


@pytest.fixture
async def playing() -> AsyncIterator[Host]:
    async with AsyncExitStack() as stack:

        async def begin(cls: type[Environment[Any]]) -> Playing:
            return Playing(await stack.enter_async_context(EpisodeHost([cls])))

        yield begin


Reply = Callable[[dict[str, Any]], Any]
"""Makes a reply of a request's body: a text for a completion, or a whole response."""


@dataclass
class JudgeServer:
    """An OpenAI-compatible server that does what a script says; its last entry answers everything after it."""

    script: deque[Reply] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    model: str | None = None
    """What it reports; the model asked for by default."""
    finish: str = "stop"

    def says(self, *replies: Reply) -> None:
        self.script = deque(replies)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        reply: Any = (self.script.popleft() if len(self.script) > 1 else self.script[0])(body)
        if isinstance(reply, Awaitable):
            reply = await reply
        if isinstance(reply, web.StreamResponse):
            return reply
        message = {"role": "assistant", "content": reply}
        return web.json_response(
            {
                "model": self.model or body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10},
            }
        )


def case_of(body: dict[str, Any]) -> str:
    found = re.search(r'"case": "(\w+)"', body["messages"][0]["content"])
    assert found is not None
    return found[1]


def gives(score: Any, reason: str = "because") -> Reply:
    """A verdict as it was asked for."""
    return lambda body: json.dumps({"case": case_of(body), "reason": reason, "score": score})


def prefers(better: Callable[[str, str], str]) -> Reply:
    """A comparison by a function of the first and the second text."""

    def reply(body: dict[str, Any]) -> str:
        text = body["messages"][1]["content"]
        first, second = (re.search(rf"<{name}-\w+>\n(.*?)\n</{name}", text, re.DOTALL) for name in ("first", "second"))
        assert first is not None
        assert second is not None
        return json.dumps({"case": case_of(body), "reason": "because", "better": better(first[1], second[1])})

    return reply


def fails(status: int, **headers: str) -> Reply:
    return lambda body: web.Response(status=status, text="no", headers=headers)


@pytest.fixture
async def served() -> AsyncIterator[JudgeServer]:
    server = JudgeServer()
    app = web.Application(client_max_size=16 * 1024**2)
    app.router.add_post("/v1/chat/completions", server.complete)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


@pytest.fixture
async def endpoint(served: JudgeServer) -> AsyncIterator[Callable[..., Endpoint]]:
    """`endpoint(model, …)`: the judge server as an endpoint, closed afterwards."""
    made: list[Endpoint] = []

    def make(model: str = "judge-1", **options: Any) -> Endpoint:
        values: dict[str, Any] = {"first_pause": 0.001, "seconds": 5.0, **options}
        made.append(Endpoint(model, served.url, **values))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


@pytest.fixture
def say() -> Any:
    """The replies that a script is made of."""

    class Say:
        verdict = staticmethod(gives)
        comparison = staticmethod(prefers)
        failure = staticmethod(fails)
        case = staticmethod(case_of)

    return Say
