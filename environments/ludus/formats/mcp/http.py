"""Connections to MCP servers over streamable HTTP: one session each, with bounds on what arrives."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from ludus.protocol.errors import LudusError
from ludus.server.authoring.mcp_stdio import McpConnection, McpServerEnded

_RESPONSE_BYTES: Final = 8 * 1024 * 1024
"""Of one answer; an answer may be a stream of events."""
_CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 300.0


class HttpConnection(McpConnection):
    """A connection to a server at a URL."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._url = url
        self._headers = dict(headers)

    def ended(self) -> LudusError:
        """Return the error for a server that is gone."""
        return McpServerEnded(self._fault or "its session has ended")

    async def _stop(self) -> None:
        """Nothing is left to end: leaving the client has ended the session."""

    def fail(self, fault: str) -> None:
        """Note that the server is gone."""
        self._end(fault)

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done."""
        return self._ready.done()

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        verify: ssl.SSLContext | bool = _tls() if self._url.startswith("https:") else False
        transport = _Watched(httpx2.AsyncHTTPTransport(verify=verify), self)
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
        async with (
            httpx2.AsyncClient(transport=transport, headers=self._headers, timeout=timeout) as client,
            streamable_http_client(self._url, http_client=client) as streams,
        ):
            yield streams


class _Watched(httpx2.AsyncBaseTransport):
    """Bounds the answers of a server, and notices when it is gone or has forgotten the session."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, connection: HttpConnection) -> None:
        self._inner = inner
        self._connection = connection

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asks = request.method == "POST"
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if asks:
                self._connection.fail(f"it cannot be reached: {str(error) or type(error).__name__}")
            raise
        if (
            asks
            and self._connection.is_ready
            and (response.status_code >= 500 or response.status_code in (401, 403, 404))
        ):
            self._connection.fail(f"it answered with HTTP status {response.status_code}")
        response.stream = _Bounded(response.stream, self._connection, asks)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, connection: HttpConnection, asks: bool) -> None:
        self._inner = inner
        self._connection = connection
        self._asks = asks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._inner:
                size += len(part)
                if size > _RESPONSE_BYTES:
                    fault = f"it sent an answer of more than {_RESPONSE_BYTES:,} bytes"
                    self._connection.fail(fault)
                    raise httpx2.ReadError(fault)
                yield part
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
