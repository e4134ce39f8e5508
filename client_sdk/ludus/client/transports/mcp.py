"""The MCP transport: each request of the extension is one `POST /mcp`, in the envelope of revision 2026-07-28.

The envelope consists of three `_meta` keys and two headers, so this module writes it directly, without an MCP client
object or a session: https://modelcontextprotocol.io/specification/2026-07-28/basic
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import aiohttp
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from ludus.client.transports._reasons import doing, refusal, unreachable
from ludus.client.transports.base import Retries, WireCapabilities, error_of, require_loop
from ludus.protocol import errors
from ludus.protocol._model import WireModel
from ludus.protocol.backoff import retry_after
from ludus.protocol.distribution import installed_version
from ludus.protocol.identifiers import CONTROL_PATH, EXTENSION_ID, EXTENSION_VERSION
from ludus.protocol.methods import METHODS, Method
from ludus.protocol.negotiation import Settings
from ludus.protocol.tracing import from_environment
from ludus.protocol.workers import EPISODE_HEADER, worker_of

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

REVISION: Final = "2026-07-28"
"""The MCP revision that this wire uses."""

DISCOVER: Final = "server/discover"
"""MCP's method that answers with what the server can do."""

FIRST_BACKOFF: Final = 0.05
LAST_BACKOFF: Final = 2.0

_RETRIED_STATUSES: Final = frozenset({408, 425, 502, 503, 504})
"""Statuses of a proxy or of a server that is stopping, with which the request may not have arrived."""

_ENVELOPE_KEYS: Final = ("resultType", "_meta")
"""Keys that MCP adds to every result."""


class McpWire:
    """The wire of `connect(wire="mcp")`.

    Args:
        url: the server's address, without `/mcp`.
        token: the trainer token.
        timeout: seconds that a request may take if it sets no timeout of its own; None for no limit.
        reconnect_seconds: seconds to retry a request while the server cannot be reached.
        connections: the most connections, and so the most requests, at the same time.
    """

    name = "mcp"
    capabilities = WireCapabilities(methods=frozenset(METHODS))

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float | None = 300.0,
        reconnect_seconds: float = 30.0,
        connections: int = 100,
    ) -> None:
        self._url = url.rstrip("/") + CONTROL_PATH
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        extension = {EXTENSION_ID: {"version": EXTENSION_VERSION}}
        self._meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": extension},
            "io.modelcontextprotocol/clientInfo": {"name": "ludus", "version": installed_version()},
        }
        self._timeout = timeout
        self._reconnect_seconds = reconnect_seconds
        self._connections = connections
        self._ids = itertools.count(1)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reached_before = False
        self._closed = asyncio.Event()
        self._tracing = from_environment()

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`."""
        self._loop = self._loop or asyncio.get_running_loop()
        require_loop(self._loop, self._url)
        seconds = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(None if seconds in (None, math.inf) else seconds):
                reply = await self._ask(method.name, params)
        except TimeoutError:
            raise errors.DeadlineExceeded(f"{doing(method.name)}: no answer in time", method=method.name) from None
        if "error" in reply:
            raise error_of(reply["error"])
        try:
            fields = {key: value for key, value in reply["result"].items() if key not in _ENVELOPE_KEYS}
            return method.result.model_validate(fields)
        except (ValidationError, AttributeError) as why:
            raise errors.ProtocolViolation(f"{doing(method.name)}: the answer is malformed: {why}") from None

    async def settings(self) -> Settings | None:
        """Return the extension's settings that the server announces; None if it announces none of this version's form.

        Raises:
            LudusError: the server cannot be reached, or refuses.
        """
        self._loop = self._loop or asyncio.get_running_loop()
        require_loop(self._loop, self._url)
        try:
            async with asyncio.timeout(self._timeout):
                reply = await self._ask(DISCOVER, WireModel())
            return Settings.model_validate(reply["result"]["capabilities"]["extensions"][EXTENSION_ID])
        except TimeoutError:
            raise errors.DeadlineExceeded("reading the server's settings: no answer in time") from None
        except (KeyError, TypeError, ValidationError):
            return None

    async def close(self) -> None:
        """Close all connections. Closing twice is no error."""
        self._closed.set()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, method: str, params: WireModel) -> Mapping[str, Any]:
        """Post the request until there is an answer. Sending it again is safe, because it carries its key."""
        try:
            fields = {**params.model_dump(mode="json"), "_meta": self._meta}
            body = to_json({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": fields})
        except ValueError as error:
            raise errors.InvalidParams(f"{doing(method)}: the request cannot be written as JSON: {error}") from None
        context = self._tracing.carrier() if self._tracing is not None else {}
        headers = {**self._headers, "Mcp-Method": method, **context}
        identifier = fields.get("episode") or fields.get("group")
        if isinstance(identifier, str) and worker_of(identifier) is not None:
            headers[EPISODE_HEADER] = identifier
        retries = Retries(self._reconnect_seconds, FIRST_BACKOFF, LAST_BACKOFF)
        while True:
            if self._closed.is_set():
                raise errors.ConnectionFailed("this client is closed")
            try:
                return await self._post(headers, body)
            except errors.ShuttingDown as error:
                cause: Exception = error
            except (aiohttp.ClientError, OSError) as error:
                cause = error
                if isinstance(error, aiohttp.ClientConnectorError) and not self._reached_before:
                    retries.give_up = 0.0
            if not await retries.wait(reached=not isinstance(cause, aiohttp.ClientConnectorError)):
                raise unreachable(self._url, cause) from None

    async def _post(self, headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections), timeout=aiohttp.ClientTimeout(total=None)
            )
        async with self._session.post(self._url, data=body, headers=headers) as response:
            self._reached_before = True
            content = await response.read()
            if response.status in _RETRIED_STATUSES:
                raise errors.ShuttingDown(f"{self._url} is not ready (HTTP {response.status})", url=self._url)
        if response.content_type == "text/event-stream":
            content = _last_event(content)
        try:
            reply = from_json(content)
        except ValueError:
            reply = None
        if isinstance(reply, dict) and ("result" in reply or "error" in reply):
            return reply
        page, pause = content.lstrip().startswith(b"<"), retry_after(response.headers)
        raise refusal(self._url, response.status, page=page, pause=pause)


def _last_event(stream: bytes) -> bytes:
    """Return the data of the last event, which is the JSON-RPC response; notifications come before it."""
    text = stream.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n")
    event = text.rsplit("\n\n", 1)[-1]
    lines = [line.removeprefix("data:").removeprefix(" ") for line in event.split("\n") if line.startswith("data:")]
    return "\n".join(lines).encode()
