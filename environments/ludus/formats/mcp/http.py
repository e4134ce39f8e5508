"""Connections to MCP servers over streamable HTTP: one session each, with bounds on what arrives.

How this works: one call that goes wrong is the agent's error to see, as on standard input and output, and a server that
is gone leaves the episode unscored. So an answer with an error status, or one that is too long, is replaced by a
JSON-RPC error for the same request (`_Watched`). After an error status, a `ping` shows whether the server still knows
the session (`HttpConnection.request`); if it does not answer either, the connection has ended.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import httpx2
import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from ludus.protocol.errors import LudusError
from ludus.server.authoring.mcp_repair import repair_result
from ludus.server.authoring.mcp_stdio import ANSWER_BYTES, McpConnection, McpServerEnded, too_long

_CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 300.0
_PING_SECONDS: Final = 10.0
_EVENT_END: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_FAILED_STATUS: Final = -32050
"""The code of the JSON-RPC error that stands for an HTTP status."""


class HttpConnection(McpConnection):
    """A connection to a server at a URL.

    Args:
        url: the address.
        headers: those of each request.
        answer_bytes: the longest answer that is read; an answer may be a stream of events.
    """

    def __init__(self, url: str, headers: Mapping[str, str], answer_bytes: int = ANSWER_BYTES) -> None:
        super().__init__()
        self.answer_bytes: Final = answer_bytes
        self._url = url
        self._headers = dict(headers)
        self._status: int | None = None
        """The last HTTP status that was an error."""

    def ended(self) -> LudusError:
        """Return the error for a server that is gone."""
        why = self._fault or "its session has ended"
        status = f"HTTP status {self._status}"
        return McpServerEnded(why if self._status is None or status in why else f"{why}; it answered with {status}")

    async def _stop(self) -> None:
        """Nothing is left to end: leaving the client has ended the session."""

    def fail(self, fault: str) -> None:
        """Note that the server is gone."""
        self._end(fault)

    def note_status(self, status: int) -> None:
        """Note that the server answered with an error status."""
        self._status = status

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done."""
        return self._ready.done()

    async def request(self, make: Callable[[Client], Coroutine[Any, Any, Any]], seconds: float) -> Any:
        """Send one request as `McpConnection.request` does; after an error status, see whether the server is there."""
        try:
            return await super().request(make, seconds)
        except MCPError as error:
            if error.error.code != _FAILED_STATUS or await self._answers():
                raise
            self._end(error.error.message)
            raise self.ended() from None

    async def _answers(self) -> bool:
        """Return whether the server answers a `ping`; an error with which it answers is an answer, too."""
        try:
            await super().request(lambda client: client.session.send_ping(), _PING_SECONDS)
        except MCPError as error:
            return error.error.code != _FAILED_STATUS
        except (TimeoutError, LudusError):
            return False
        return True

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        verify: ssl.SSLContext | bool = _tls() if self._url.startswith("https:") else False
        transport = _Watched(httpx2.AsyncHTTPTransport(verify=verify), self)
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
        async with (
            httpx2.AsyncClient(transport=transport, headers=self._headers, timeout=timeout) as client,
            streamable_http_client(self._url, http_client=client) as (arrived, *others),
        ):
            yield (_Repaired(arrived), *others)


class _Repaired(ObjectReceiveStream[Any]):
    """The messages of a server, with results that the `mcp` package can read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def receive(self) -> Any:
        item = await self._inner.receive()
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCResponse) and isinstance(message.result, dict):
            repair_result(message.result)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Watched(httpx2.AsyncBaseTransport):
    """Bounds the answers of a server, and notices when it is gone or answers with an error status."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, connection: HttpConnection) -> None:
        self._inner = inner
        self._connection = connection

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = await _call_of(request) if request.method == "POST" else None
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if request.method == "POST":
                self._connection.fail(f"it cannot be reached: {str(error) or type(error).__name__}")
            raise
        if request.method == "POST" and response.status_code >= 400:
            self._connection.note_status(response.status_code)
            if call is not None and self._connection.is_ready:
                await response.aclose()
                message = f"the server answered with HTTP status {response.status_code}"
                return _answer(call, types.ErrorData(code=_FAILED_STATUS, message=message))
        is_stream = "text/event-stream" in response.headers.get("content-type", "")
        response.stream = _Bounded(response.stream, self._connection, call, request.method == "POST", is_stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _call_of(request: httpx2.Request) -> str | int | None:
    """Return the id of the JSON-RPC request in an HTTP request; None for a notification or an answer."""
    try:
        message = json.loads(await request.aread())
        call = message["id"] if "method" in message else None
    except (ValueError, KeyError, TypeError):
        return None
    return call if isinstance(call, str | int) else None


def _error_text(call: str | int, error: types.ErrorData) -> str:
    return types.JSONRPCError(jsonrpc="2.0", id=call, error=error).model_dump_json(by_alias=True, exclude_unset=True)


def _answer(call: str | int, error: types.ErrorData) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "application/json"}, text=_error_text(call, error))


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, up to a limit: what is longer ends with an error for its call.

    Args:
        inner: the body.
        connection: the connection, for a body that breaks off.
        call: the id of the call that it answers; None if it answers none.
        asks: whether the request was a `POST`.
        is_stream: whether it is a stream of events.
    """

    def __init__(
        self, inner: Any, connection: HttpConnection, call: str | int | None, asks: bool, is_stream: bool
    ) -> None:
        self._inner = inner
        self._connection = connection
        self._call = call
        self._asks = asks
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        size = 0
        limit = self._connection.answer_bytes
        try:
            async for part in self._inner:
                size += len(part)
                if size > limit:
                    if self._call is None:
                        raise httpx2.ReadError(f"it sent more than {limit:,} bytes")
                    error = _error_text(self._call, too_long(limit))
                    yield (f"event: message\ndata: {error}\n\n" if self._is_stream else error).encode()
                    return
                unread = max(len(held) - 3, 0)  # an end may lie across two parts
                held += part
                # Only whole events pass, so that an error can follow, and a JSON body only when it is complete.
                ends = [match.end() for match in _EVENT_END.finditer(held, unread)] if self._is_stream else []
                if ends:
                    yield bytes(held[: ends[-1]])
                    del held[: ends[-1]]
            if held:
                yield bytes(held)
        except httpx2.TransportError as error:
            if self._asks:
                self._connection.fail(f"its answer broke off: {str(error) or type(error).__name__}")
            raise

    async def aclose(self) -> None:
        with contextlib.suppress(httpx2.TransportError):
            await self._inner.aclose()


@cache
def _tls() -> ssl.SSLContext:
    """Return the settings for TLS, which take long to make."""
    return ssl.create_default_context()
