"""A hub with verified runs, a scripted model endpoint on loopback, and packages that are written in the tests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web
from hubs import KEY, WheelParts, release

from ludus.hub.app import create_hub
from ludus.hub.endpoints.settings import EndpointSettings
from ludus.hub.people.viewers import Viewer
from ludus.hub.registry.publishing import Upload
from ludus.hub.results.limits import ResultLimits
from ludus.hub.serve import HubServer
from ludus.hub.settings import HubSettings
from ludus.hub.verified.settings import VerifiedSettings
from ludus.protocol.episodes import SplitInfo
from ludus.protocol.registry import EnvironmentEntry
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

MODEL = "m-1"
SECRET = "sk-never-shown-7f3a9c51"
OWNER = "ada"

LOCKS = '''
"""Locks with a code that their prompt names."""

from ludus.server import Environment, Private, Result, Task, tool


class Lock(Task):
    """A lock."""

    code: Private[int]


class Locks(Environment[Lock]):
    """Open a lock."""

    version = "1.0"
    splits = {"test": [Lock(id=f"lock-{index}", code=index % 10) for index in range(40)]}
    reward_range = (0.0, 1.0)

    def prompt(self):
        """Say what to do."""
        return f"Open {self.task.id}."

    @tool
    def look(self) -> str:
        """Look at the lock."""
        return "It is a lock."

    @tool(ends=True)
    def turn(self, number: int) -> Result:
        """Turn the lock to a number."""
        return Result("It turns.", reward=float(number == self.task.code))
'''

HARNESS = '''
"""A harness that asks its model once, and turns the lock to the number that the model says."""

import json
import os
import re
import urllib.request

from ludus.client.agent_endpoint import open_agent_endpoint


def ask(base_url, model, text):
    """Return what the model says."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(base_url + "/chat/completions", body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


async def play(play_url, base_url, model):
    """Play one episode."""
    async with open_agent_endpoint(play_url) as episode:
        said = ask(base_url, model, str(episode.prompt[0].content))
        await episode.call("turn", number=int(re.search(r"[0-9]+", said)[0]))
'''


Answer = Callable[[dict[str, Any]], Any]


def right_turn(asked: dict[str, Any]) -> dict[str, Any]:
    """The message of a model that opens each lock: with its tool if it has one, else in words."""
    lock = re.search(r"lock-(\d+)", json.dumps(asked["messages"]))
    assert lock is not None
    code = int(lock[1]) % 10
    if not asked.get("tools"):
        return {"role": "assistant", "content": f"The code is {code}."}
    call = {"id": "c1", "type": "function", "function": {"name": "turn", "arguments": json.dumps({"number": code})}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@dataclass
class ModelServer:
    """An OpenAI-compatible server on loopback, whose answers a test scripts.

    Attributes:
        answer: returns the message for a request, or a whole response.
        asked: the bodies of all requests for completions.
        headers: their headers.
    """

    answer: Answer = right_turn
    asked: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    port: int = 0
    _runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        self.headers.append(dict(request.headers))
        asked = json.loads(body) if body else {}
        self.bodies.append(body)
        self.asked.append(asked)
        if asked.get("messages") == [{"role": "user", "content": "Hi"}] and self.answer is right_turn:
            said: Any = {"role": "assistant", "content": "Hello."}
        else:
            said = self.answer(asked)
        if asyncio.iscoroutine(said):
            said = await said
        if isinstance(said, web.StreamResponse):
            return said
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        whole = {"id": "x", "object": "chat.completion", "created": 0, "model": MODEL, "usage": usage,
                 "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}  # fmt: skip
        if said.get("tool_calls"):
            whole["choices"][0]["finish_reason"] = "tool_calls"
        if asked.get("stream"):
            return await self._stream(request, said, usage)
        self.answers.append(json.dumps(whole).encode())
        return web.Response(body=self.answers[-1], content_type="application/json")

    async def _stream(self, request: web.BaseRequest, said: dict[str, Any], usage: dict[str, int]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"content": word}}]} for word in str(said["content"]).split()
        ]
        for chunk in [*chunks, {"choices": [], "usage": usage}]:
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


class VerifiedHub:
    """A hub in this event loop, with tokens of alice, bob, the publisher ada, and the operator root."""

    def __init__(self, data: Path, settings: VerifiedSettings, database_url: str | None = None) -> None:
        self.data = data
        self.settings = settings
        self.database_url = database_url
        self.url = ""
        self.tokens: dict[str, str] = {}
        self.app: Any = None
        self._server: HubServer | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if not self.tokens:
            made = {
                name: new_token(name, ("admin",) if name == "root" else ("tasks:read", "episodes:run", "rewards:read"))
                for name in ("alice", "bob", OWNER, "root")
            }
            self.data.mkdir(parents=True, exist_ok=True)
            write_token_file(self.data / "tokens.json", TokenFile(tokens=tuple(record for _, record in made.values())))
            self.tokens = {name: token for name, (token, _) in made.items()}
        settings = HubSettings(
            data=self.data, port=0, seed=False, database_url=self.database_url, token_file=self.data / "tokens.json",
            endpoints=EndpointSettings(spares=False), results=ResultLimits(sweep_seconds=3600.0),
            verified=self.settings,
        )  # fmt: skip
        self.app = create_hub(settings)
        up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server = HubServer(self.app, settings, up.set_result)
        self._serving = asyncio.create_task(self._server.serve())
        self.url = await asyncio.wait_for(up, 60)

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server = None

    def client(self, who: str | None = "alice") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.tokens[who]}"} if who else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)

    def publish(self, package: str = "ada/locks", module: str = LOCKS, *, signed: bool = True, **points: str) -> None:
        """Publish a package with the environment `Locks`, and with harnesses by the names of their entry points."""
        parts = WheelParts(package.replace("/", "-"), module=module)
        entries = f"[ludus.environments]\nlocks = {parts.package}:Locks\n"
        if points:
            parts.more["a_harness.py"] = points.pop("source").encode()
            entries += "[ludus.harnesses]\n" + "".join(f"{name} = a_harness:{at}\n" for name, at in points.items())
        parts.entry_points = entries
        split = SplitInfo(name="test", type="test", count=40)
        environment = EnvironmentEntry(
            name="locks", source=f"{parts.package}:Locks", version="1.0", splits=(split,), reward_range=(0.0, 1.0)
        )
        one = release(package, parts=parts, key=KEY if signed else None, environments=(environment,))
        hub = self.app.state.hub
        with hub.blobs.receiving(len(one.wheel)) as incoming:
            incoming.write(one.wheel)
            who = Viewer.of_administrator(package.partition("/")[0])
            hub.publisher.publish(who, Upload(incoming, one.filename, one.manifest, one.card, one.signed))

    async def register(self, params: dict[str, Any], who: str = "alice", package: str = "ada/locks") -> httpx.Response:
        """Ask for a verified run."""
        async with self.client(who) as client:
            return await client.post(f"/api/v1/environments/{package}/versions/1.0.0/verified-runs", json=params)

    async def run(self, params: dict[str, Any], who: str = "alice") -> dict[str, Any]:
        """Do a verified run, and return its receipt."""
        answer = await self.register(params, who)
        assert answer.status_code == 201, answer.text
        key = answer.json()["key"]
        async with asyncio.timeout(100):
            await self.app.state.verified.wait(key)
        return await self.get(f"/api/v1/runs/{key}/receipt")

    async def get(self, path: str, who: str = "alice") -> dict[str, Any]:
        """Return what the hub answers."""
        async with self.client(who) as client:
            answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def params(model: ModelServer, **changes: Any) -> dict[str, Any]:
    """Return the body of a registration."""
    return {
        "environment": "locks", "split": "test", "tasks": 2, "harness": "ludus", "model": MODEL,
        "baseUrl": model.url, "apiKey": SECRET, **changes,
    }  # fmt: skip
