"""The routes of the MCP endpoints, whose transport is loaded with the first request.

Importing the MCP SDK takes a quarter of the time in which a server starts, and many servers never get an MCP request.
So a task waits for the first one, loads the transport in a thread, enters it, and leaves it when the server stops:
contexts of anyio must be left by the task that has entered them. From then on, the routes lead to the endpoints
themselves. A worker loads it at once, because its gateway counts a start as done soon after it has passed it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ludus.server.transports.mcp.route import routes_of

if TYPE_CHECKING:
    from ludus.server.transports import TransportContext
    from ludus.server.transports.mcp.transport import McpTransport


class LazyTransport:
    """The MCP transport, which is loaded with the first request.

    Args:
        context: what the application passes to every transport.
    """

    def __init__(self, context: TransportContext) -> None:
        self._context = context
        self._asked = asyncio.Event()
        self._loaded: asyncio.Future[McpTransport] | None = None
        self.routes = routes_of(_FirstRequests(self, "agents"), _FirstRequests(self, "control"), self.run, ["POST"])

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve while entered. It may be entered again after exit."""
        self._asked = asyncio.Event()
        self._loaded = asyncio.get_running_loop().create_future()
        ended = asyncio.Event()
        keeper = asyncio.create_task(self._keep(self._loaded, ended), name="mcp-transport")
        try:
            if self._context.host.ids.worker is not None:
                await self.loaded()
            yield
        finally:
            ended.set()
            if not self._asked.is_set():
                keeper.cancel()
            await asyncio.wait([keeper])
            self._loaded = None
            if not keeper.cancelled():
                keeper.result()

    async def _keep(self, loaded: asyncio.Future[McpTransport], ended: asyncio.Event) -> None:
        await self._asked.wait()
        try:
            transport = await asyncio.to_thread(self._load)
            async with transport.run():
                apps = [route.app for route in self.routes]
                for route, served in zip(self.routes, transport.routes(), strict=True):
                    route.app = served.app
                loaded.set_result(transport)
                await ended.wait()
                for route, app in zip(self.routes, apps, strict=True):
                    route.app = app
        except Exception as error:
            if loaded.done():
                raise
            loaded.set_exception(error)

    def _load(self) -> McpTransport:
        from ludus.server.transports.mcp.transport import McpTransport

        return McpTransport(self._context)

    async def loaded(self) -> McpTransport:
        """Return the transport once it serves.

        Raises:
            Exception: it could not be loaded or entered.
            RuntimeError: the server does not run.
        """
        if self._loaded is None:
            raise RuntimeError("the server does not run, so it serves no MCP request")
        self._asked.set()
        return await asyncio.shield(self._loaded)


class _FirstRequests:
    """The application of a route until the transport serves."""

    def __init__(self, transport: LazyTransport, kind: Literal["agents", "control"]) -> None:
        self._transport = transport
        self._kind: Literal["agents", "control"] = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint: ASGIApp = getattr(await self._transport.loaded(), self._kind)
        await endpoint(scope, receive, send)


def routes(context: TransportContext) -> list[BaseRoute]:
    """Return the routes of all endpoints, with and without a slash at the end."""
    return [*LazyTransport(context).routes]
