"""Requests of MCP: each is one POST in the envelope of revision 2026-07-28, without a session.

The envelope consists of three `_meta` keys and a few headers, so this module writes it directly, without an MCP client
object: https://modelcontextprotocol.io/specification/2026-07-28/basic
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from pydantic_core import from_json, to_json

from ludus.client.transports._reasons import doing, refusal, unreachable
from ludus.client.transports.base import Retries, require_loop
from ludus.common.backoff import retry_after
from ludus.common.distribution import installed_version
from ludus.protocol import errors
from ludus.telemetry.tracing import from_environment

REVISION: Final = "2026-07-28"
"""The MCP revision of the requests."""

FIRST_BACKOFF: Final = 0.05
LAST_BACKOFF: Final = 2.0

_RETRIED_STATUSES: Final = frozenset({408, 425, 502, 503, 504})
"""Statuses of a proxy or of a server that is stopping, with which the request may not have arrived."""


class McpRequests:
    """Sends requests to one MCP endpoint.

    Args:
        url: the endpoint's URL.
        shown: what messages call the endpoint; the URL when None.
        token: the bearer token; None without one.
        extensions: the extensions that the client announces.
        timeout: seconds that a request may take if it sets no timeout of its own; None for no limit.
        reconnect_seconds: seconds to retry a request while the server cannot be reached.
        connections: the most connections, and so the most requests, at the same time.
    """

    def __init__(
        self,
        url: str,
        *,
        shown: str | None = None,
        token: str | None = None,
        extensions: Mapping[str, Any] | None = None,
        timeout: float | None = 300.0,
        reconnect_seconds: float = 30.0,
        connections: int = 100,
    ) -> None:
        self._url = url
        self._shown = shown or url
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": extensions} if extensions else {},
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

    async def ask(
        self,
        method: str,
        fields: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Mapping[str, Any]:
        """Send a request until there is an answer, and return it: an object with `result` or `error`.

        A request may arrive more than once. One that must not run twice carries a key.

        Args:
            method: MCP's name of the method.
            fields: its params.
            meta: further keys of its `_meta`.
            headers: further headers.
            timeout: seconds for the whole request; the endpoint's own when None.

        Raises:
            InvalidParams: the params cannot be written as JSON.
            ConnectionFailed: there is no connection.
            DeadlineExceeded: there was no answer in time.
            LudusError: the server refuses with a status of HTTP.
        """
        self._loop = self._loop or asyncio.get_running_loop()
        require_loop(self._loop, self._shown)
        seconds = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(None if seconds in (None, math.inf) else seconds):
                return await self._ask(method, {**fields, "_meta": {**self._meta, **(meta or {})}}, headers or {})
        except TimeoutError:
            raise errors.DeadlineExceeded(f"{doing(method)}: no answer in time", method=method) from None

    async def close(self) -> None:
        """Close all connections. Closing twice is no error."""
        self._closed.set()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, method: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> Mapping[str, Any]:
        try:
            body = to_json({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params})
        except ValueError as error:
            raise errors.InvalidParams(f"{doing(method)}: the request cannot be written as JSON: {error}") from None
        context = self._tracing.carrier() if self._tracing is not None else {}
        all_headers = {**self._headers, "Mcp-Method": method, **context, **headers}
        retries = Retries(self._reconnect_seconds, FIRST_BACKOFF, LAST_BACKOFF)
        while True:
            if self._closed.is_set():
                raise errors.ConnectionFailed("this client is closed")
            try:
                return await self._post(all_headers, body)
            except errors.ShuttingDown as error:
                cause: Exception = error
            except (aiohttp.ClientError, OSError) as error:
                cause = error
                if isinstance(error, aiohttp.ClientConnectorError) and not self._reached_before:
                    retries.give_up = 0.0
            if not await retries.wait(reached=not isinstance(cause, aiohttp.ClientConnectorError)):
                raise unreachable(self._shown, cause) from None

    async def _post(self, headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections), timeout=aiohttp.ClientTimeout(total=None)
            )
        async with self._session.post(self._url, data=body, headers=headers) as response:
            self._reached_before = True
            content = await response.read()
            if response.status in _RETRIED_STATUSES:
                raise errors.ShuttingDown(f"{self._shown} is not ready (HTTP {response.status})", url=self._shown)
        if response.content_type == "text/event-stream":
            content = _last_event(content)
        try:
            reply = from_json(content)
        except ValueError:
            reply = None
        if isinstance(reply, dict) and ("result" in reply or "error" in reply):
            return reply
        page, pause = content.lstrip().startswith(b"<"), retry_after(response.headers)
        raise refusal(self._shown, response.status, page=page, pause=pause)


def _last_event(stream: bytes) -> bytes:
    """Return the data of the last event, which is the JSON-RPC response; notifications come before it."""
    text = stream.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n")
    event = text.rsplit("\n\n", 1)[-1]
    lines = [line.removeprefix("data:").removeprefix(" ") for line in event.split("\n") if line.startswith("data:")]
    return "\n".join(lines).encode()
