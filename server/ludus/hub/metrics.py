"""The metrics and traces of a hub.

`Observer` times every request and counts it by route, which is a pattern such as `/{owner}/{name}` and never a path
that a client chose; with OpenTelemetry's variables set, it also makes a span of each. `HubMetrics` collects these and
what the parts of the hub count, on request. Names are like those of servers (`serving/metrics.py`): base units, and
`_total` for counters.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.hub.access.visibility import PUBLIC
from ludus.hub.core.peers import PREFIX
from ludus.hub.core.request_times import REQUEST_SECONDS, Times
from ludus.hub.database.tables import Package, Version
from ludus.hub.endpoints.pool import Endpoints
from ludus.hub.parts.hub import Hub
from ludus.telemetry.tracing import TRACE_FIELDS, Tracing, from_environment

OTHER: Final = "other"
"""The route of requests that have none."""

ENDPOINT: Final = "/e/{endpoint}"
"""The route of everything below an endpoint."""

ENDPOINT_STATES: Final = ("ready", "starting", "failed", "stopped")

_LABELS: Final = (*map(str, REQUEST_SECONDS), "+Inf")


class Observer:
    """ASGI middleware that times requests, and makes spans of them if tracing is on.

    Args:
        app: the application.
        hub: the hub, whose `requests` it counts in.
        routes: the application that has the routes.
    """

    def __init__(self, app: ASGIApp, hub: Hub, routes: Starlette) -> None:
        self._app = app
        self._times = hub.requests
        self._routes = routes
        self._names: dict[object, str] = {}
        self._tracing = from_environment("ludus-hub")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            await send(message)

        began = time.perf_counter()
        with self._span(self._tracing, scope) as span:
            try:
                await self._app(scope, receive, noting_status)
            finally:
                route = self._route(scope)
                self._times.setdefault((route, f"{status // 100}xx"), Times()).add(time.perf_counter() - began)
                if span is not None:
                    span.update_name(f"{scope['method']} {route}")
                    span.set_attribute("http.route", route)
                    span.set_attribute("http.response.status_code", status)

    def _span(self, tracing: Tracing | None, scope: Scope) -> Any:
        if tracing is None:
            return nullcontext()
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        parent = tracing.context_of({name: fields[name] for name in TRACE_FIELDS if name in fields})
        method = scope["method"]
        return tracing.span(method, {"http.request.method": method}, kind="SERVER", parent=parent)

    def _route(self, scope: Scope) -> str:
        """Return the pattern of a request that was served; the router notes what it has found in the scope."""
        path = getattr(scope.get("route"), "path", None)
        if isinstance(path, str):
            return path
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return ENDPOINT if scope["path"].startswith(("/e/", PREFIX)) else OTHER
        if not self._names:
            routes = [route for route in self._routes.routes if isinstance(route, Route)]
            self._names = {route.endpoint: route.path for route in reversed(routes)}
        return self._names.get(endpoint, ENDPOINT if scope["path"].startswith("/e/") else OTHER)


class HubMetrics(Collector):
    """All metrics of a hub's `/metrics`.

    Args:
        hub: the hub.
        endpoints: its endpoints.
    """

    def __init__(self, hub: Hub, endpoints: Endpoints) -> None:
        self._hub = hub
        self._endpoints = endpoints
        self._stored: tuple[datetime | None, tuple[int, int, int]] | None = None
        """What the registry holds, and its last change when that was counted."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        """Return the exposition text. This blocks."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return no metrics, because registering must not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        packages, versions, size = self._held()
        yield GaugeMetricFamily("ludus_hub_packages", "Public packages in the catalog.", packages)
        yield GaugeMetricFamily("ludus_hub_versions", "Published versions.", versions)
        yield GaugeMetricFamily("ludus_hub_stored_bytes", "Bytes of the wheels of all public versions.", size)
        events = CounterMetricFamily("ludus_hub_events", "What the hub has done since it started.", labels=["event"])
        for name, count in sorted(self._hub.counts.items()):
            events.add_metric([name], count)
        yield events
        requests = HistogramMetricFamily(
            "ludus_hub_request_seconds", "Time to serve a request, by route and status.", labels=["route", "status"]
        )
        for (route, status), times in sorted(self._hub.requests.items()):
            buckets = list(zip(_LABELS, accumulate(times.buckets), strict=True))
            requests.add_metric([route, status], buckets, times.seconds)
        yield requests
        servers = list(self._endpoints.servers())
        states = Counter(server.state for server in servers)
        family = GaugeMetricFamily("ludus_hub_endpoints", "Versions that were asked for, by state.", labels=["state"])
        for state in ENDPOINT_STATES:
            family.add_metric([state], states[state])
        yield family
        load = sum(server.load for server in servers)
        yield GaugeMetricFamily("ludus_hub_episodes_running", "Episodes of all endpoints that have not ended.", load)

    def _held(self) -> tuple[int, int, int]:
        """Return the numbers of public packages and versions, and the bytes of wheels; counted after each change."""
        with self._hub.database.reading() as session:
            changed = session.execute(select(func.max(Version.changed_at))).scalar()
            if self._stored is None or self._stored[0] != changed:
                shown = select(func.count()).where(Package.latest != "", PUBLIC.visible())
                packages = session.execute(shown).scalar() or 0
                kept = select(func.count(), func.coalesce(func.sum(Version.size), 0)).select_from(Version)
                kept = kept.join(Package, Package.id == Version.package_id).where(PUBLIC.visible())
                versions, size = session.execute(kept).one()
                self._stored = (changed, (int(packages), int(versions), int(size)))
        return self._stored[1]
