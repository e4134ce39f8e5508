"""The clients that checks use: trainers on each control wire, and stock MCP clients of both eras."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from ludus.conformance.checks import ConformanceFailure
from ludus.conformance.http_probe import LEGACY, MODERN, HttpProbe, bearer
from ludus.protocol.identifiers import CONTROL_PATH, EXTENSION_ID, EXTENSION_VERSION

ENVELOPE: Final = ("resultType", "_meta")
"""The fields that MCP adds to results, whatever the method."""
CLIENT: Final = {"name": "ludus-conform", "version": EXTENSION_VERSION}


@dataclass(frozen=True, slots=True)
class Reply:
    """A JSON-RPC reply, or the HTTP answer that came instead of one."""

    result: dict[str, Any] | None
    """The result without the fields that MCP adds to each one; checks of leaks and of the envelope read `raw`."""
    code: int | None
    message: str
    data: dict[str, Any]
    status: int | None = None
    """The HTTP status, on wires that have one."""
    raw: Any = field(default=None, repr=False)
    """The whole reply as it came; None if there was none."""

    @property
    def whole(self) -> dict[str, Any]:
        """Return the result with the fields that MCP adds; empty for an error."""
        return dict((self.raw or {}).get("result") or {})

    @classmethod
    def of(cls, body: Any, status: int | None = None) -> Self:
        """Parse one reply.

        Raises:
            ConformanceFailure: the body is neither a result nor an error.
        """
        if not isinstance(body, dict) or ("result" in body) == ("error" in body):
            raise ConformanceFailure(f"the reply is neither a result nor an error: {str(body)[:200]} (HTTP {status})")
        if "result" in body:
            result = body["result"]
            if not isinstance(result, dict):
                raise ConformanceFailure(f"`result` is not an object: {str(result)[:200]}")
            payload = {key: value for key, value in result.items() if key not in ENVELOPE}
            return cls(payload, None, "", {}, status, body)
        error = body["error"]
        if not isinstance(error, dict):
            raise ConformanceFailure(f"`error` is not an object: {str(error)[:200]}")
        return cls(None, error.get("code"), str(error.get("message")), error.get("data") or {}, status, body)


class Control(Protocol):
    """A control wire."""

    @property
    def name(self) -> str:
        """The name under which its answers are recorded."""
        ...

    async def send(self, body: Any) -> tuple[Any, int | None]:
        """Send one JSON value, or text or bytes unchanged; return the answer's JSON value and HTTP status."""
        ...


@dataclass(frozen=True)
class ChannelControl:
    """The channel, with a new connection for each request, since nothing may depend on connections."""

    probe: HttpProbe
    token: str | None
    name: str = field(default="channel", init=False)

    async def send(self, body: Any) -> tuple[Any, int | None]:
        """Send one frame and wait for one reply."""
        async with self.probe.channel(self.token) as pipe:
            await pipe.send(body)
            return await pipe.next(), None


@dataclass(frozen=True)
class McpControl:
    """The extension over POST /mcp, in the MCP revision that supports extensions."""

    probe: HttpProbe
    token: str | None
    name: str = field(default="mcp", init=False)

    async def send(self, body: Any) -> tuple[Any, int | None]:
        """Post one request."""
        if isinstance(body, dict) and isinstance(body.get("params"), dict):
            body = {**body, "params": {**body["params"], "_meta": envelope(extension=True)}}
        if isinstance(body, str):
            body = body.encode()
        value, answer = await self.probe.mcp("mcp", CONTROL_PATH, body, headers=bearer(self.token))
        return value, answer.status


class StockMcpClient:
    """An MCP client that does not know the extension.

    Args:
        probe: sends the requests to the server.
        path: the path of the endpoint.
        wire: the wire under which its answers are recorded.
        legacy: whether it begins with `initialize`.
        headers: headers that are sent with every request.
        declares: whether it declares the extension nevertheless.
    """

    def __init__(
        self,
        probe: HttpProbe,
        path: str,
        wire: str,
        *,
        legacy: bool = False,
        headers: Mapping[str, str] | None = None,
        declares: bool = False,
    ) -> None:
        self.path = path
        self.name: Final[str] = wire
        self._probe = probe
        self._revision = LEGACY if legacy else MODERN
        self._headers = dict(headers or {})
        self._declares = declares
        self._ids = itertools.count(1)
        self.handshake: dict[str, Any] | None = None
        """The result of `initialize`; None until a legacy client has sent its first request."""

    async def ask(self, method: str, meta: Mapping[str, Any] | None = None, **params: Any) -> Reply:
        """Call an MCP method."""
        if meta is not None:
            params["_meta"] = dict(meta)
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        body, status = await self.send(request)
        if body is None:
            return Reply(None, None, f"HTTP {status} without a reply", {}, status)
        reply = Reply.of(body, status)
        self._probe.transcript.code(self.name, reply.code, reply.message)
        return reply

    async def call(self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> Reply:
        """Call a tool."""
        return await self.ask("tools/call", meta, name=tool, arguments=dict(arguments))

    async def send(self, body: Any) -> tuple[Any, int | None]:
        """Post a request as this client would."""
        if self._revision == LEGACY:
            if self.handshake is None:
                await self._shake_hands()
        elif isinstance(body, dict) and isinstance(body.get("params"), dict):
            meta = {**envelope(extension=self._declares), **body["params"].get("_meta", {})}
            body = {**body, "params": {**body["params"], "_meta": meta}}
        name = body.get("params", {}).get("name") if isinstance(body, dict) else None
        value, answer = await self._post(body, name)
        return value, answer.status

    async def _post(self, body: Any, name: str | None = None) -> tuple[Any, Any]:
        return await self._probe.mcp(
            self.name, self.path, body, headers=self._headers, revision=self._revision, name=name
        )

    async def _shake_hands(self) -> None:
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        value, answer = await self._post(request)
        reply = Reply.of(value, answer.status)
        if reply.result is None:
            raise ConformanceFailure(f"initialize was refused with {reply.code}: {reply.message}")
        self.handshake = reply.result
        session = next((text for name, text in answer.headers.items() if name.lower() == "mcp-session-id"), None)
        if session is not None:
            self._headers["Mcp-Session-Id"] = session
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})


CONTROLS: Final[Mapping[str, Callable[[HttpProbe, str | None], Control]]] = {
    "channel": ChannelControl,
    "mcp": McpControl,
    "legacy": lambda probe, token: StockMcpClient(probe, CONTROL_PATH, "mcp", legacy=True, headers=bearer(token)),
}
"""The control wires. `legacy` is POST /mcp in a revision that begins with `initialize`; it declares nothing."""


def envelope(*, extension: bool) -> dict[str, Any]:
    """Return the `_meta` that MCP revision 2026-07-28 requires in every request."""
    capabilities = {"extensions": {EXTENSION_ID: {"version": EXTENSION_VERSION}}} if extension else {}
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": CLIENT,
    }
