"""How the checks reach a server: raw requests, right and wrong ones, and replies as they came."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from ludus.client.conform.checks import Fault, NotApplicable
from ludus.client.policies.values import random_value
from ludus.protocol.identifiers import (
    CHANNEL_PATH,
    CHANNEL_SUBPROTOCOL,
    CONTROL_PATH,
    EXTENSION_ID,
    EXTENSION_VERSION,
    METHOD_PREFIX,
)

REVISION = "2026-07-28"
SECONDS = 60.0
"""How long any one reply is waited for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A JSON-RPC reply, or what came instead of one."""

    result: dict[str, Any] | None
    code: int | None
    message: str
    data: dict[str, Any]
    status: int | None = None
    """The HTTP status, on wires that have one."""
    raw: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, body: Any, status: int | None = None) -> Self:
        """Read one reply."""
        if not isinstance(body, dict) or ("result" in body) == ("error" in body):
            raise Fault(f"the reply is neither a result nor an error: {str(body)[:200]} (HTTP {status})")
        if "result" in body:
            result = {key: value for key, value in body["result"].items() if key not in ("resultType", "_meta")}
            return cls(result, None, "", {}, status, body)
        error = body["error"]
        return cls(None, error.get("code"), str(error.get("message")), error.get("data") or {}, status, body)


class Control(Protocol):
    """A control wire."""

    name: str

    async def send(self, body: Any) -> Any:
        """Send one JSON value, or bytes as they are, and give the reply's JSON value and HTTP status."""


class ChannelControl:
    """The channel, one connection for each request: nothing may depend on connections."""

    name = "channel"

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str | None) -> None:
        self._http = http
        self._url = url + CHANNEL_PATH
        self._headers = bearer(token)

    async def send(self, body: Any) -> Any:
        """Send one frame and wait for one frame."""
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        async with self._http.ws_connect(
            self._url, headers=self._headers, protocols=(CHANNEL_SUBPROTOCOL,), max_msg_size=0
        ) as socket:
            if isinstance(text, bytes):
                await socket.send_bytes(text)
            else:
                await socket.send_str(text)
            message = await socket.receive(timeout=SECONDS)
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise Fault(f"the channel answered with {message.type.name} {message.data!r} instead of a text frame")
            return json.loads(message.data), None


class McpControl:
    """The extension over POST /mcp in revision 2026-07-28."""

    name = "mcp"

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str | None) -> None:
        self._http = http
        self._url = url + CONTROL_PATH
        self._headers = bearer(token)

    async def send(self, body: Any) -> Any:
        """Post one request."""
        if isinstance(body, dict) and isinstance(body.get("params"), dict):
            body = {**body, "params": {**body["params"], "_meta": envelope(extension=True)}}
        method = body.get("method", "") if isinstance(body, dict) else ""
        return await post_mcp(self._http, self._url, body, self._headers, str(method))


def bearer(token: str | None) -> dict[str, str]:
    """The authorization header."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def envelope(*, extension: bool) -> dict[str, Any]:
    """The `_meta` that revision 2026-07-28 asks of every request."""
    capabilities = {"extensions": {EXTENSION_ID: {"version": EXTENSION_VERSION}}} if extension else {}
    return {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "ludus-conform", "version": EXTENSION_VERSION},
    }


async def post_mcp(
    http: aiohttp.ClientSession, url: str, body: Any, headers: Mapping[str, str], method: str, name: str | None = None
) -> tuple[Any, int]:
    """Post a body to an MCP endpoint and read the JSON or the last SSE event of the answer."""
    sent = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Method": method or "none",
        **({"Mcp-Name": name} if name is not None else {}),
        **headers,
    }
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http.post(url, data=data, headers=sent) as response:
        text = await response.text()
        if response.content_type == "text/event-stream":
            lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
            text = lines[-1] if lines else ""
        try:
            return json.loads(text), response.status
        except ValueError:
            return None, response.status


@dataclass(slots=True)
class Target:
    """A server under test and the environment that is played on it."""

    url: str
    token: str | None
    environment: dict[str, Any]
    split: str


class Bench:
    """What a control-plane check works with: one wire of one server."""

    def __init__(self, control: Control, target: Target, http: aiohttp.ClientSession) -> None:
        self.control = control
        self.target = target
        self.http = http
        self._ids = itertools.count(1)
        self._rng = random.Random(1)
        self._open: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for episode in self._open:
            await self.ask("episodes/close", episode=episode)

    async def ask(self, method: str, /, **params: Any) -> Reply:
        """Call a method of the extension."""
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": METHOD_PREFIX + method, "params": params}
        body, status = await self.control.send(request)
        if status is not None and body is None:
            raise Fault(f"{method} was answered with HTTP {status} and no JSON-RPC reply")
        reply = Reply.of(body, status)
        if body.get("id") != request["id"]:
            raise Fault(f"the reply to id {request['id']} carries the id {body.get('id')!r}")
        return reply

    async def must(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Call a method that has to succeed."""
        reply = await self.ask(method, **params)
        if reply.result is None:
            raise Fault(f"{method} failed with {reply.code}: {reply.message}")
        return reply.result

    async def refused(self, code: int | tuple[int, ...], method: str, /, **params: Any) -> Reply:
        """Call a method that has to be refused with a certain code."""
        reply = await self.ask(method, **params)
        wanted = (code,) if isinstance(code, int) else code
        if reply.code not in wanted:
            came = "a result" if reply.result is not None else f"{reply.code} ({reply.message})"
            raise Fault(f"{method} should be refused with {' or '.join(map(str, wanted))}, but answered {came}")
        if not reply.message.strip():
            raise Fault(f"the refusal of {method} has an empty message")
        return reply

    async def start(self, **more: Any) -> dict[str, Any]:
        """Start one episode; it is closed when the check ends."""
        return (await self.start_group(1, **more))["episodes"][0]  # type: ignore[no-any-return]

    async def start_group(self, count: int, **more: Any) -> dict[str, Any]:
        """Start a group."""
        params = {"environment": self.name, "split": self.target.split, "key": new_key(), "count": count, **more}
        result = await self.must("episodes/start", **params)
        self._open += [one["episode"] for one in result["episodes"]]
        return result

    async def step(self, episode: str, number: int, call: tuple[str, dict[str, Any]], key: str) -> Reply:
        """Ask for one step."""
        tool, arguments = call
        return await self.ask("episodes/step", episode=episode, step=number, tool=tool, arguments=arguments, key=key)

    def some_call(self, started: Mapping[str, Any], index: int = 0) -> tuple[str, dict[str, Any]]:
        """A call with arguments that fit one of the episode's tools."""
        if not started["tools"]:
            raise NotApplicable("the environment has no tools")
        tool = started["tools"][index % len(started["tools"])]
        arguments = random_value(tool["inputSchema"], self._rng)
        return tool["name"], arguments if isinstance(arguments, dict) else {}

    @property
    def name(self) -> str:
        """The environment's name."""
        return str(self.target.environment["name"])


def new_key() -> str:
    """A key that was never used."""
    return uuid.uuid4().hex
