"""The routes of MCP endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ludus.protocol.identifiers import CONTROL_PATH, PLAY_PATH

Lifespan = Callable[[], AbstractAsyncContextManager[None]]


class McpRoute(Route):
    """A route of an MCP endpoint."""

    direct = True
    """The application passes requests directly to this route, without FastAPI's middleware."""

    def __init__(self, path: str, endpoint: ASGIApp, lifespan: Lifespan, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.lifespan = lifespan

    def handle(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # type: ignore[override]
        """Serve a matched request. Starlette's own `handle` answers a method that is not allowed here."""
        if self.methods is not None and scope["method"] in self.methods:
            return self.app(scope, receive, send)
        return super().handle(scope, receive, send)


def routes_of(agents: ASGIApp, control: ASGIApp, lifespan: Lifespan, methods: list[str]) -> list[McpRoute]:
    """Return the routes of both endpoints, with and without a slash at the end: clients and proxies add one."""
    return [
        McpRoute(path + slash, endpoint, lifespan, methods)
        for path, endpoint in ((PLAY_PATH, agents), (CONTROL_PATH, control))
        for slash in ("", "/")
    ]
