"""OpenTelemetry spans, if an exporter is configured. Otherwise nothing here runs after startup."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""OpenTelemetry's own variables. Setting one of them turns spans on."""

_logger = logging.getLogger("ludus.telemetry")


class Telemetry(NamedTuple):
    """A tracer, and the function that sends what its exporter has buffered and stops it."""

    tracer: Tracer
    close: Callable[[], None]


def from_environment(variables: Mapping[str, str] = os.environ) -> Telemetry | None:
    """Return the telemetry that OpenTelemetry's variables configure; None if they are unset or packages are missing."""
    if not any(variables.get(name) for name in ENDPOINT_VARIABLES):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        _logger.warning("spans are configured but not installed: pip install 'ludus-rl[telemetry]'")
        return None

    provider = TracerProvider(resource=Resource.create({"service.name": variables.get("OTEL_SERVICE_NAME", "ludus")}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Telemetry(provider.get_tracer("ludus.server"), provider.shutdown)


class SpanMiddleware:
    """Middleware that makes a span per HTTP request and per WebSocket connection, named by method and route.

    Spans hold no paths, headers or query strings, because a play path is a credential.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request inside its span."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope.get("method", "WEBSOCKET")
        route = route_of(scope["path"])
        with self._tracer.start_as_current_span(
            f"{method} {route}",
            context=extract({name: carrier[name] for name in ("traceparent", "tracestate") if name in carrier}),
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
            attributes={"http.request.method": method, "http.route": route},
        ) as span:

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
    return path if path in _FIXED_PATHS else "/{ors}"


_FIXED_PATHS: Final = frozenset({"/mcp", "/channel", "/health", "/ready", "/metrics", "/docs", "/openapi.json"})
