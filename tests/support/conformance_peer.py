"""Clients written from the spec's text alone: bare JSON over HTTP and WebSocket, checked by the schemas."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SPEC = Path(__file__).resolve().parents[2] / "spec"
SCHEMA = json.loads((SPEC / "schema" / "episodes.schema.json").read_text("utf-8"))
_OPENRPC = json.loads((SPEC / "schema" / "openrpc.json").read_text("utf-8"))
OPENRPC = {method["name"]: method for method in _OPENRPC["methods"]}
ERRORS = {
    name: {_OPENRPC["components"]["errors"][one["$ref"].rsplit("/", 1)[-1]]["code"] for one in method["errors"]}
    for name, method in OPENRPC.items()
}
CODES = frozenset(
    int(code) for code in re.findall(r"^\| (-?\d+) \|", (SPEC / "core" / "7-errors.md").read_text("utf-8"), re.M)
)
MCP_CODES = frozenset({-32020, -32021, -32022})
REGISTRY: Registry[Any] = Registry().with_resource(SCHEMA["$id"], Resource.from_contents(SCHEMA))
EXTENSION = "dev.ludus/episodes"
SUBPROTOCOL = "ludus.channel.v0.2"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
VALIDATORS: dict[str, Draft202012Validator] = {}


def validate(name: str, value: Any) -> None:
    """Insist that `value` conforms to the schema of the wire type `name`."""
    if name not in VALIDATORS:
        VALIDATORS[name] = Draft202012Validator({"$ref": f"{SCHEMA['$id']}#/$defs/{name}"}, registry=REGISTRY)
    VALIDATORS[name].validate(value)


def expect_listed(method: str, error: RpcError) -> None:
    """Insist that the text lists the error for the method."""
    assert error.code in ERRORS.get(method, CODES) | MCP_CODES, f"{method} answered {error}, which is not listed for it"


class RpcError(Exception):
    """What a server answered instead of a result."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: dict[str, Any] = error.get("data") or {}
        assert self.code in CODES | MCP_CODES, error
        assert self.message


class Peer:
    """Asks for methods of the extension by their names without the prefix; checks what comes back."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self.token = token
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One method's result.

        Raises:
            RpcError: the server said no.
        """
        name = "dev.ludus/" + method
        try:
            result = await self.exchange(name, params)
        except RpcError as error:
            expect_listed(name, error)
            raise
        if name in OPENRPC:
            validate(OPENRPC[name]["result"]["name"], result)
        return result

    async def exchange(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, get its answer."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of the connection."""

    # ── shorthands ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, environment: str = "workshop", split: str = "train", **params: Any) -> dict[str, Any]:
        """Start one episode; its `StartedEpisode`."""
        params.setdefault("key", uuid.uuid4().hex)
        result = await self.call("episodes/start", environment=environment, split=split, **params)
        episode: dict[str, Any] = result["episodes"][0]
        return episode

    async def step(self, episode: str, step: int, tool: str, **params: Any) -> dict[str, Any]:
        """One step, under a new key unless `key` says otherwise."""
        params.setdefault("key", uuid.uuid4().hex)
        return await self.call("episodes/step", episode=episode, step=step, tool=tool, **params)

    async def grade(self, episode: str, answer: str, **params: Any) -> dict[str, Any]:
        """Hand in an answer."""
        params.setdefault("key", uuid.uuid4().hex)
        return await self.call("episodes/grade", episode=episode, answer=answer, **params)

    async def info(self, episode: str) -> dict[str, Any]:
        """Where an episode stands."""
        result = await self.call("episodes/get", episode=episode)
        info: dict[str, Any] = result["info"]
        return info

    async def rewards(self, episode: str, after: int = 0) -> dict[str, Any]:
        """The reward log."""
        return await self.call("episodes/rewards", episode=episode, after=after)


class ChannelPeer(Peer):
    """The channel, each request in a frame of its own; `frame` sends anything."""

    def __init__(self, url: str, token: str | None = None) -> None:
        super().__init__(url, token)
        self._ids = itertools.count(1)
        self._waiting: dict[int | str, asyncio.Future[dict[str, Any]]] = {}
        self.stray: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        """Replies that no request waits for by id, including failures with a null id."""
        self.frames: list[str] = []
        """Every frame that came."""
        self._opening = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self.socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """Open the connection if it is not."""
        async with self._opening:
            if self.socket is None:
                self._session = aiohttp.ClientSession()
                self.socket = await self._session.ws_connect(
                    self.url + "/channel", protocols=(SUBPROTOCOL,), headers=self.headers, max_msg_size=0
                )
                self._reader = asyncio.create_task(self._read(self.socket))
            return self.socket

    async def exchange(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, get its answer."""
        socket = await self.connect()
        identifier = next(self._ids)
        future = self._waiting[identifier] = asyncio.get_running_loop().create_future()
        await socket.send_str(json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}))
        return result_of(await asyncio.wait_for(future, 20))

    async def frame(self, value: Any) -> None:
        """Send a frame: text as it is, anything else as JSON."""
        socket = await self.connect()
        await socket.send_str(value if isinstance(value, str) else json.dumps(value))

    async def reply(self) -> dict[str, Any]:
        """The next reply that no request waits for."""
        return await asyncio.wait_for(self.stray.get(), 20)

    async def close(self) -> None:
        """Let go of the connection."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self.socket is not None:
            await self.socket.close()
        if self._session is not None:
            await self._session.close()
        self.socket = self._session = self._reader = None

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            self.frames.append(message.data)
            frame = json.loads(message.data)
            for reply in frame if isinstance(frame, list) else [frame]:
                validate("Success" if "result" in reply else "Failure", reply)
                future = self._waiting.pop(reply["id"], None)
                if future is None:
                    self.stray.put_nowait(reply)
                elif not future.done():
                    future.set_result(reply)


class McpPeer(Peer):
    """MCP's Streamable HTTP, revision 2026-07-28 by default, at the control endpoint or at any other path."""

    def __init__(self, url: str, token: str | None = None, *, path: str = "/mcp", revision: str = MODERN) -> None:
        super().__init__(url, token)
        self.path = path
        self.revision = revision
        self.declare = True
        """Whether requests declare the extension."""
        self.version = "0.2"
        self.bodies: list[str] = []
        """Every body that came."""
        self._session: aiohttp.ClientSession | None = None

    async def post(self, method: str, params: Mapping[str, Any] | str) -> tuple[int, dict[str, Any]]:
        """One POST: the HTTP status and the JSON-RPC message that answers. Text is sent as the whole body."""
        if self._session is None:
            self._session = aiohttp.ClientSession()
        body = params if isinstance(params, str) else self.body(method, params)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": self.revision,
            **self.headers,
        }
        if self.revision == MODERN:
            headers["Mcp-Method"] = method
            if isinstance(params, Mapping) and method in ("tools/call", "prompts/get"):
                headers["Mcp-Name"] = _header_value(str(params["name"]))
        async with self._session.post(self.url + self.path, data=body.encode(), headers=headers) as response:
            text = await response.text()
            self.bodies.append(text)
            if response.content_type == "text/event-stream":
                text = text.replace("\r\n", "\n").rstrip("\n").rsplit("data: ", 1)[-1]
            return response.status, json.loads(text)

    async def exchange(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, get its answer without MCP's own fields."""
        _, reply = await self.post(method, params)
        result = result_of(reply)
        return {key: value for key, value in result.items() if key not in ("_meta", "resultType")}

    async def mcp(self, method: str, **params: Any) -> dict[str, Any]:
        """A method of MCP itself.

        Raises:
            RpcError: the server said no.
        """
        return result_of((await self.post(method, params))[1])

    async def notify(self, method: str, **params: Any) -> int:
        """Send a notification of MCP; return the HTTP status."""
        message = json.loads(self.body(method, params))
        del message["id"]
        assert self._session is None
        self._session = aiohttp.ClientSession()
        headers = {**self.headers, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        headers |= {"MCP-Protocol-Version": self.revision, "Mcp-Method": method}
        async with self._session.post(self.url + self.path, json=message, headers=headers) as response:
            return response.status

    async def tool(self, name: str, arguments: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """`tools/call`."""
        return await self.mcp("tools/call", name=name, arguments=dict(arguments or {}), **params)

    async def close(self) -> None:
        """Let go of the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def body(self, method: str, params: Mapping[str, Any]) -> str:
        """A request as JSON text."""
        params = dict(params)
        if self.revision == MODERN:
            extensions = {EXTENSION: {"version": self.version}} if self.declare else {}
            params["_meta"] = {
                **params.get("_meta", {}),
                "io.modelcontextprotocol/protocolVersion": self.revision,
                "io.modelcontextprotocol/clientCapabilities": {"extensions": extensions},
                "io.modelcontextprotocol/clientInfo": {"name": "conformance", "version": "0"},
            }
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


class OrsPeer:
    """ORS over HTTP: JSON routes and event streams."""

    def __init__(self, url: str, token: str | None = None, *, header: str = "Authorization") -> None:
        self.url = url
        value = f"Bearer {token}" if header == "Authorization" else token
        self.headers = {header: value} if token and value else {}
        self.texts: list[str] = []
        """Every body that came."""
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, path: str, body: Any = None, session: str | None = None) -> tuple[int, Any]:
        """Status and JSON body."""
        async with self._request(method, path, body, session) as response:
            self.texts.append(await response.text())
            return response.status, await response.json(content_type=None)

    async def events(self, path: str, body: Any = None, session: str | None = None) -> list[tuple[str, str]]:
        """The events of a stream, comments left out; raw data, the one space after the colon removed."""
        found: list[tuple[str, str]] = []
        async with self._request("POST", path, body, session) as response:
            text = (await response.read()).decode()
            self.texts.append(text)
            assert response.content_type == "text/event-stream", text
        for part in text.replace("\r\n", "\n").split("\n\n"):
            lines = [line for line in part.split("\n") if line and not line.startswith(":")]
            if lines:
                fields = [line.split(":", 1) for line in lines]
                kind = next((value[1:] for name, value in fields if name == "event"), "message")
                found.append((kind, "\n".join(value.removeprefix(" ") for name, value in fields if name == "data")))
        return found

    async def open(self, environment: str = "workshop", split: str = "train", index: int = 0) -> str:
        """A session with an episode; its id."""
        events = await self.events("/create_session")
        session = next(data for kind, data in events if kind == "task_id")
        body = {"env_name": environment, "split": split, "index": index}
        status, reply = await self.ask("POST", "/create", body, session)
        assert status == 200, reply
        return session

    async def call(self, session: str, name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        """`/call`: the result of the `end` event.

        Raises:
            RuntimeError: the stream ended with an `error` event.
        """
        events = await self.events("/workshop/call", {"name": name, "input": arguments or {}, **more}, session)
        return self.result(events)

    @staticmethod
    def result(events: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The result that a stream's chunks make."""
        if events[-1][0] == "error":
            raise RuntimeError(events[-1][1])
        result: dict[str, Any] = json.loads("".join(data for kind, data in events if kind in ("chunk", "end")))
        return result

    async def close(self) -> None:
        """Let go of the connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: Any, session: str | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        headers = {**self.headers, **({"X-Session-ID": session} if session else {})}
        async with self._session.request(method, self.url + path, json=body, headers=headers) as response:
            yield response


def result_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The result in a JSON-RPC response.

    Raises:
        RpcError: it holds an error.
    """
    if "error" in reply:
        raise RpcError(reply["error"])
    result: dict[str, Any] = reply["result"]
    return result


def _header_value(text: str) -> str:
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
