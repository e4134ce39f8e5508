"""Spans of HTTP requests and WebSocket connections, if tracing is on. Otherwise nothing here runs after startup."""

from __future__ import annotations

from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.telemetry.tracing import TRACE_FIELDS, Tracing


class SpanMiddleware:
    """Middleware that makes a span per HTTP request and per WebSocket connection, named by method and route.

    Spans hold no paths, headers or query strings, because a play path is a credential.
    """

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request inside its span."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope.get("method", "WEBSOCKET")
        route = route_of(scope["path"])
        attributes = {"http.request.method": method, "http.route": route}
        parent = self._tracing.context_of({name: carrier[name] for name in TRACE_FIELDS if name in carrier})
        with self._tracing.span(f"{method} {route}", attributes, kind="SERVER", parent=parent) as span:

            async def noting_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status: Any = message["status"]
                    span.set_attribute("http.response.status_code", status)
                await send(message)

            await self._app(scope, receive, noting_status)


def route_of(path: str) -> str:
    """Return the route of a path, without any part that a caller chose."""
    if path.startswith("/play/"):
        return "/play/{capability}/mcp"
    if path.startswith("/workers/") and path.endswith("/channel"):
        return "/workers/{worker}/channel"
    if path in _FIXED_PATHS:
        return path
    head, _, second = path[1:].partition("/")
    if second in ORS_NAMES:
        return f"/{{environment}}/{second}"
    return f"/{head}" if head in ORS_NAMES and not second else "/{ors}"


ORS_NAMES: Final = frozenset(
    {
        "version", "list_environments", "create_session", "create", "ping", "delete", "delete_session", "tools",
        "splits", "tasks", "num_tasks", "task", "get_task", "task_range", "get_task_range", "prompt", "messages",
        "task_tools", "call", "score_group",
    }
)  # fmt: skip
"""The last parts of ORS's paths, which callers do not choose."""

_FIXED_PATHS: Final = frozenset({"/mcp", "/channel", "/health", "/ready", "/metrics", "/docs", "/openapi.json"})
