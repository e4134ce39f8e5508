"""A route of an MCP endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

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
