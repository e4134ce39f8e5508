"""An engine that records what it sees, a plain HTTP client of one episode, and the check that samples are exact."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
from scripted import ScriptedEngine

from ludus.gateway import EpisodeSession, Gateway, HarnessEpisode
from ludus.rendering.samples import Generation, Sampling

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


@dataclass
class RecordingEngine(ScriptedEngine):
    """Keeps what it was asked and what it answered, in order of the answers."""

    seen: list[tuple[tuple[int, ...], Generation]] = field(default_factory=list[Any])
    running: int = 0

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        self.running += 1
        try:
            generation = await super().generate(ids, sampling, seed=seed, session=session)
        finally:
            self.running -= 1
        self.seen.append((tuple(ids), generation))
        return generation


def check_exact(session: EpisodeSession, engine: RecordingEngine) -> None:
    """The samples hold what the engine saw and sampled, token by token, and each sampled token once."""
    assert len(session.calls) == len(engine.seen)
    for place, (call, (prompt, generation)) in enumerate(zip(session.calls, engine.seen, strict=True)):
        sample = session.samples[call.sample]
        own = slice(call.start, call.start + len(generation.ids))
        assert sample.ids[: call.start] == prompt
        assert sample.ids[own] == generation.ids == call.generation.ids
        assert sample.logprobs[own] == generation.logprobs
        assert sample.versions[own] == generation.versions
        assert all(sample.mask[own])
        assert set(sample.turns[own]) == {place}
    assert sum(sample.sampled for sample in session.samples) == sum(len(made.ids) for _, made in engine.seen)


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
        async with self.http.post(self.address(path, url), data=data, headers=headers) as response:
            text = await response.text()
            return Answer(response.status, json.loads(text), {k.lower(): v for k, v in response.headers.items()})

    def address(self, path: str, url: str | None = None) -> str:
        """The URL of a path below the episode's `/v1/`, or below its key if the path begins with a slash."""
        base = url or self.gateway.base_url(self.session)
        return f"{base}{path}" if path.startswith("/") else f"{base}/v1/{path}"

    async def get(self, path: str, headers: Any = None) -> Answer:
        async with self.http.get(self.address(path), headers=headers) as response:
            text = await response.text()
            return Answer(response.status, json.loads(text), {k.lower(): v for k, v in response.headers.items()})

    async def events(self, path: str, body: Any) -> list[tuple[str | None, Any]]:
        """The events of a streamed reply: name and data."""
        async with self.http.post(self.address(path), json={**body, "stream": True}) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            found: list[tuple[str | None, Any]] = []
            for block in (await response.text()).strip().split("\n\n"):
                lines = dict(line.split(": ", 1) for line in block.split("\n"))
                found.append((lines.get("event"), lines["data"]))
            return found

    async def chat(self, messages: list[dict[str, Any]], **fields: Any) -> Answer:
        body = {"model": "any", "messages": messages, "tools": [{"type": "function", "function": ADD}], **fields}
        return await self.post("chat/completions", body)


def reply_of(answer: Answer) -> dict[str, Any]:
    """The message of a chat completion."""
    assert answer.status == 200, answer
    message: dict[str, Any] = answer.value["choices"][0]["message"]
    return message


def outputs(message: dict[str, Any], text: str = "7") -> list[dict[str, Any]]:
    """Tool messages for the calls of a message."""
    return [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in message["tool_calls"]]


Open = Callable[..., Awaitable[Caller]]
Play = Callable[..., Awaitable[HarnessEpisode]]
"""`played = await play(program)`: an episode that a program of Python text has played."""
