"""A hub with verified runs, a scripted model endpoint on loopback, and packages that are written in the tests."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from aiohttp import web
from hubs import KEY, HubProcess, WheelParts, publish, release, upload
from waiting import block_until

from ludus.protocol.episodes import SplitInfo
from ludus.registry.types.packages import EnvironmentEntry
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

T = TypeVar("T")

MODEL = "m-1"
OWNER = "root"
"""The owner of the packages, who is the operator."""
SECRET = "sk-never-shown-7f3a9c51"

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

ROOT = Path(__file__).parents[2]
HARNESS = (ROOT / "docs" / "snippets" / "looper.py").read_text(encoding="utf-8")
"""The harness of the documentation."""

PUPPET = '''
"""A harness that runs the program that its model writes."""

import json
import os
import urllib.error
import urllib.request

from ludus.client.agent_endpoint import open_agent_endpoint


def post(url, asked, **headers):
    """Return the status and the body of an answer."""
    body = json.dumps(asked).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ask(base_url, model, text="Go.", **fields):
    """Return the status and the body of a call of the model."""
    asked = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    return post(base_url + "/chat/completions", asked)


async def play(play_url, base_url, model):
    """Play one episode."""
    async with open_agent_endpoint(play_url) as episode:
        prompt = str(episode.prompt[0].content)

        async def turn(number):
            await episode.call("turn", number=number)

        status, said = ask(base_url, model, prompt)
        code = json.loads(said)["choices"][0]["message"]["content"]
        names = {**globals(), **locals()}
        exec("async def act():\\n" + "".join("    " + line + "\\n" for line in code.splitlines()), names)
        await names["act"]()
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

    def forget(self) -> None:
        """Forget all requests."""
        for kept in (self.asked, self.bodies, self.headers, self.answers):
            kept.clear()

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1)
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
        if callable(said):
            said = said()
        if asyncio.iscoroutine(said):
            said = await said
        if isinstance(said, web.StreamResponse):
            return said
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        whole: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 0, "model": MODEL, "usage": usage,
                 "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}  # fmt: skip
        if said.get("tool_calls"):
            whole["choices"][0]["finish_reason"] = "tool_calls"
        if asked.get("stream"):
            return await self._stream(request, said, usage)
        self.answers.append(json.dumps(whole).encode())
        return web.Response(body=self.answers[-1], content_type="application/json")

    async def _stream(
        self, request: web.BaseRequest, said: dict[str, Any], usage: dict[str, int]
    ) -> web.StreamResponse:
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
    """A `ludus hub` process with tokens of alice, bob and the operator root, and a model endpoint in a thread.

    Args:
        folder: where its data lies.
        settings: the settings of verified runs.
        database: the URL of its database; None for SQLite.
        more: further options of the command.

    Attributes:
        looked_at: the key of a run that several tests look at; empty before the first of them.
    """

    looked_at = ""

    def __init__(self, folder: Path, database: str | None = None, more: tuple[str, ...] = (), **settings: Any) -> None:
        self.model = ModelServer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.await_(self.model.start())
        names = {"alice": ("tasks:read", "episodes:run", "rewards:read"), "bob": ("rewards:read",), "root": ("admin",)}
        made = {name: new_token(name, scopes) for name, scopes in names.items()}
        write_token_file(folder / "tokens.json", TokenFile(tokens=tuple(record for _, record in made.values())))
        self.tokens = {name: token for name, (token, _) in made.items()}
        given = {
            "private_hosts": [f"127.0.0.1:{self.model.port}"], "outage_seconds": 0.0, "pause_seconds": 0.01, **settings
        }  # fmt: skip
        (folder / "verified.toml").write_text("".join(f"{name} = {json.dumps(one)}\n" for name, one in given.items()))
        (folder / "endpoints.toml").write_text("spares = false\n")
        files = {"verified": "verified.toml", "endpoints": "endpoints.toml", "token-file": "tokens.json"}
        options = ["--no-seed", *(text for name, file in files.items() for text in (f"--{name}", str(folder / file)))]
        self.options = options
        self.process = HubProcess(folder / "hub", *options, *more, database=database)
        self.publish()

    def close(self) -> None:
        """Stop both."""
        self.process.stop()
        self.await_(self.model.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def host(self) -> str:
        """The host of the model endpoint, as boards show it."""
        return f"127.0.0.1:{self.model.port}"

    def play(self, code: str, *later: Any, **params: Any) -> tuple[dict[str, Any], str]:
        """Do a run of one episode in which the harness runs a program; return the receipt and what it has written.

        Args:
            code: the program.
            later: the answers of the model to the further calls; the last one again and again.
            params: see `register`.
        """
        said = [{"content": "Hi."}, {"content": code}, *(later or ({"content": "ok"},))]

        def answer(asked: dict[str, Any]) -> Any:
            return said.pop(0) if len(said) > 1 else said[0]

        self.model.answer = answer
        receipt = self.run(harness="root/puppet@1.0.0", **{"tasks": 1, **params})
        return receipt, self.output(receipt)

    def await_(self, what: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of the model endpoint."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    def client(self, who: str | None = "alice") -> httpx.Client:
        return self.process.client(self.tokens[who] if who is not None else None)

    def publish(self, package: str = "root/locks", module: str = LOCKS, *, signed: bool = True, **points: str) -> None:
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
        with self.client("root") as client:
            answer = publish(client, one) if signed else upload(client, one)
        assert answer.status_code in (200, 201), answer.text

    def register(self, who: str = "alice", package: str = "root/locks", **params: Any) -> httpx.Response:
        """Ask for a verified run."""
        asked = {
            "environment": "locks", "split": "test", "tasks": 2, "harness": "ludus", "model": MODEL,
            "baseUrl": self.model.url, "apiKey": SECRET, **params,
        }  # fmt: skip
        with self.client(who) as client:
            return client.post(f"/api/v1/environments/{package}/versions/1.0.0/verified-runs", json=asked)

    def begin(self, **params: Any) -> str:
        """Register a run, and return its key."""
        answer = self.register(**params)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["key"])

    def run(self, **params: Any) -> dict[str, Any]:
        """Do a verified run, and return its receipt."""
        return self.receipt(self.begin(**params))

    def receipt(self, key: str) -> dict[str, Any]:
        """Wait for the end of a run, and return its receipt."""
        with self.client() as client:
            block_until(lambda: client.get(f"/api/v1/runs/{key}").json()["state"] == "ended", 90)
        return self.get(f"/api/v1/runs/{key}/receipt")

    def output(self, receipt: dict[str, Any]) -> str:
        """What the harness of a run with one episode has written in its last start, and how it has ended."""
        (last, *_) = self.get(f"/api/v1/runs/{receipt['statement']['run']}/outputs")["outputs"]
        return f"{last['output']}\n{last['ending']}"

    def get(self, path: str, who: str | None = "alice") -> dict[str, Any]:
        """What the hub answers."""
        with self.client(who) as client:
            answer = client.get(path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found
