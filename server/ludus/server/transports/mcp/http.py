"""Streamable HTTP for one MCP server: both eras on one route, without state between requests by default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from ludus.server.transports.mcp.keepalive import send_with_keepalive
from ludus.server.transports.mcp.server import McpServer
from ludus.server.transports.mcp.single_exchange import SingleExchange, may_be_single_exchange

_CHECKED_ALREADY: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""The SDK's check of Host and Origin is off, because the application's `Guard` has checked them before."""

Extend = Callable[[McpServer], None]
"""Adds handlers to an MCP server."""


class Endpoint:
    """The ASGI application of one MCP server.

    Args:
        server: the MCP server.
        body_bytes: the largest request body.
        extend: adds further handlers to `server` first.
        back_channel: whether handlers may send progress, log messages and their own requests to the client while they
            run. Ludus's own tools do not, and it costs a session per handshake-era client and an event stream per
            request.
    """

    def __init__(
        self, server: McpServer, body_bytes: int, extend: Extend | None = None, *, back_channel: bool = False
    ) -> None:
        if extend is not None:
            extend(server)
        self._back_channel = back_channel
        self._server = server
        self._body_bytes = body_bytes
        self._manager = self._new_manager()
        self._exchange = RequestBodyLimitMiddleware(SingleExchange(server, self._serve_others), body_bytes)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve while entered. It may be entered again after exit."""
        async with self._manager.run():
            yield
        self._manager = self._new_manager()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one HTTP request."""
        if self._back_channel:
            return self._manager.asgi_app(scope, receive, send)
        app = self._exchange if may_be_single_exchange(scope) else self._manager.asgi_app
        return send_with_keepalive(app, scope, receive, send)

    async def _serve_others(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a message that is not a request by the SDK's transport."""
        await self._manager.asgi_app(scope, receive, send)

    def _new_manager(self) -> StreamableHTTPSessionManager:
        return StreamableHTTPSessionManager(
            self._server,
            json_response=not self._back_channel,
            stateless=not self._back_channel,
            security_settings=_CHECKED_ALREADY,
            max_request_body_size=self._body_bytes,
        )
