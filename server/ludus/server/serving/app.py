"""The ASGI application of one host: every transport, and the pages for operating the server."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.common.distribution import installed_version
from ludus.common.incidents import new_incident
from ludus.protocol.errors import AuthoringError, InternalError, LudusError, MethodNotFound
from ludus.protocol.methods import Scope as TokenScope
from ludus.protocol.modules import Module
from ludus.server.auth import CapabilitySigner, TokenStore
from ludus.server.durability.journal import Journal
from ludus.server.hosting.host import EpisodeHost
from ludus.server.hosting.places import surveying
from ludus.server.hosting.trial import try_environments
from ludus.server.serving import openapi
from ludus.server.serving.metrics import CONTENT_TYPE, Metrics
from ludus.server.serving.settings import ServerSettings
from ludus.server.tasks.formats import Check
from ludus.server.transports import TransportContext
from ludus.server.web import telemetry
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.guard import Guard, error_body, error_headers, refuse
from ludus.server.web.http_protocol import ConnectionLimits
from ludus.server.web.proxies import ProxyMiddleware
from ludus.telemetry.tracing import Tracing, from_environment

TRANSPORTS: Final[tuple[tuple[str, Module | None], ...]] = (
    ("ludus.server.transports.channel", Module.CHANNEL),
    ("ludus.server.transports.mcp", None),
    ("ludus.server.transports.ors", Module.ORS),
)
"""The transports, each with its module of the standard (None for the core), in the order in which they match a path.
ORS is last: it takes unmatched paths."""

WIRES: Final = frozenset({Module.CHANNEL, Module.ORS})
"""The transports that an application may be without."""

NO_JOURNAL: Final = "the journal cannot be written"

_access = logging.getLogger("ludus.access")
_logger = logging.getLogger("ludus.server.serving.app")
_INCIDENT: Final = "ludus.incident"


class Health(BaseModel):
    """The answer of `/health`: the process is running."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Whether the server accepts new episodes. If the server has tokens, only requests with a valid one get counts."""

    status: Literal["ready", "full", "unwritable", "stopping"]
    reason: str | None = None
    """Why the server is `unwritable`. Requests that get counts also get the words of the file system or database."""
    running: int | None = None
    """The number of running episodes."""
    limit: int | None = None
    """The most episodes that may run at one time."""
    queued: int | None = None
    """The number of episodes that wait to start."""


class LudusApp:
    """The application that uvicorn serves.

    Attributes:
        api: the FastAPI application inside.
        context: the context that was passed to the transports.
        guard: the middleware that checks hosts, origins and body sizes.
    """

    def __init__(self, api: FastAPI, context: TransportContext, guard: Guard, outermost: ASGIApp) -> None:
        self.api = api
        self.context = context
        self.guard = guard
        self.connection_limits = ConnectionLimits(context.limits.max_connections, guard.arrivals)
        """The limits that the HTTP protocol applies to connections."""
        self._outermost = outermost

    def surround(self, layer: Callable[[ASGIApp], ASGIApp]) -> None:
        """Put a layer around everything."""
        self._outermost = layer(self._outermost)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection, request or lifespan."""
        if scope["type"] == "lifespan":
            send = self._without_traceback(send)
        return self._outermost(scope, receive, send)

    def _without_traceback(self, send: Send) -> Send:
        """Leave the traceback out of the log when the application cannot start for a reason that a message explains."""

        async def say(message: Message) -> None:
            host = self.context.host
            if message["type"] == "lifespan.startup.failed" and (host.startup.refusal or host.sandboxes.refusal):
                message = {**message, "message": ""}
            await send(message)

        return say


def create_app(
    host: EpisodeHost,
    settings: ServerSettings | None = None,
    tokens: TokenStore | None = None,
    wires: frozenset[Module] = WIRES,
) -> LudusApp:
    """Return the application; its lifespan enters and leaves `host`.

    Args:
        host: the runtime that the transports serve. There are agent endpoints only if it has a signer.
        settings: the settings of the server.
        tokens: the trainer tokens; None for open mode.
        wires: the transports to serve besides MCP; the server does not announce the others.
    """
    settings = settings or ServerSettings()
    signer = host.signer or CapabilitySigner.random()
    context = TransportContext(
        host=host, limits=host.limits, signer=signer, origins=settings.origins, quotas=host.places.quotas,
        tokens=tokens, wires=wires,
    )  # fmt: skip
    if tokens is not None:
        host.admit_secrets = tokens.leave_out
    metrics = Metrics(host)
    traces = from_environment()
    api = FastAPI(
        title="Ludus",
        summary="Reinforcement-learning environments for language-model agents.",
        description=openapi.DESCRIPTION,
        version=installed_version(),
        lifespan=_lifespan(host, traces, settings.check),
        redirect_slashes=False,
        redoc_url=None,
        # Those of `ludus.server.serving.openapi` depend on the token and the path prefix of a request.
        docs_url=None,
        openapi_url=None,
        # FastAPI's spans hold raw paths, and a play path is a credential. `ludus.server.web.telemetry` uses routes.
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    _add_pages(api, context, metrics, metrics_open=settings.metrics_open)
    for name, module in TRANSPORTS:
        if module is not None and module not in wires:
            continue
        api.router.routes.extend(importlib.import_module(name).routes(context))
    api.add_exception_handler(LudusError, _answer_error)
    api.add_exception_handler(Exception, _answer_fault)
    api.router.default = _answer_unmatched(api.router.default)
    openapi.add_documentation(api, context)
    inner: ASGIApp = _Dispatch(api)
    if settings.access_log:
        inner = _AccessLog(inner)
    if traces is not None:
        inner = telemetry.SpanMiddleware(inner, traces)
    arrivals = Arrivals(host.limits.arriving_bytes, host.limits.body_bytes)
    strangers = context.quotas.strangers if tokens is not None and context.quotas.strangers.limited else None
    guard = metrics.guard = Guard(inner, settings.origins, host.limits.body_bytes, arrivals, strangers, context.knows)
    outermost: ASGIApp = guard
    if settings.cors:
        outermost = CORSMiddleware(
            guard,
            allow_origins=settings.allow_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["mcp-session-id", "mcp-protocol-version", "retry-after"],
        )
    if rules := settings.proxies:
        outermost = ProxyMiddleware(outermost, rules)
    return LudusApp(api, context, guard, outermost)


def _lifespan(
    host: EpisodeHost, traces: Tracing | None, check: Check
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if traces is not None:
                stack.push_async_callback(asyncio.to_thread, traces.flush)
            await stack.enter_async_context(host)
            try:
                await try_environments(host, check)
            except AuthoringError as error:
                host.startup.refusal = error
                raise
            await stack.enter_async_context(surveying(host))
            lifespans = dict.fromkeys(getattr(route, "lifespan", nullcontext) for route in api.router.routes)
            for enter in lifespans:
                await stack.enter_async_context(enter())
            yield

    return lifespan


def _add_pages(api: FastAPI, context: TransportContext, metrics: Metrics, *, metrics_open: bool) -> None:
    host = context.host

    @api.get("/health", tags=["Operation"], summary="Whether the process answers")
    async def health() -> Health:
        return Health()

    @api.get(
        "/ready",
        tags=["Operation"],
        summary="Whether new episodes are welcome",
        responses={503: {"model": Readiness}},
        response_model_exclude_none=True,
    )
    async def ready(request: Request, response: Response) -> Readiness:
        stats, limit = host.stats(), host.limits.max_episodes
        state: Literal["ready", "full", "unwritable", "stopping"] = "ready" if stats.running < limit else "full"
        trouble = journal_trouble(host.journal)
        if trouble is not None:
            state = "unwritable"
        if not host.ready:
            state = "stopping"
        if state != "ready":
            response.status_code = 503
        if not context.identified(request.headers, request.scope):
            return Readiness(status=state, reason=NO_JOURNAL if trouble is not None else None)
        reason = f"{NO_JOURNAL}: {trouble}" if trouble is not None else None
        return Readiness(status=state, reason=reason, running=stats.running, limit=limit, queued=stats.queued)

    @api.get("/metrics", tags=["Operation"], summary="Prometheus metrics", response_class=Response)
    async def show_metrics(request: Request) -> Response:
        if not metrics_open:
            context.authenticate(request.headers, request.scope).require(TokenScope.ADMIN)
        return Response(metrics.render(), media_type=CONTENT_TYPE)


def journal_trouble(journal: Journal | None) -> str | None:
    """Return why a journal cannot be written at present; None if it can."""
    if journal is None:
        return None
    return journal.trouble or (journal.refusal.message if journal.refusal is not None else None)


async def _answer_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, LudusError):
        raise error
    body = error_body(request.url.path, error)
    return Response(body, error.http_status, error_headers(error), media_type="application/json")


def _answer_unmatched(app: ASGIApp) -> ASGIApp:
    """Return the application for paths without a route. Starlette refuses a WebSocket there with 403 instead of 404."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await refuse(scope, receive, send, MethodNotFound("this server has no WebSocket at this path"))
        else:
            await app(scope, receive, send)

    return answer


async def _answer_fault(request: Request, error: Exception) -> Response:
    incident = request.scope[_INCIDENT] = new_incident()
    return await _answer_error(request, _fault(incident))


def _fault(incident: str) -> InternalError:
    return InternalError(f"the server failed; its log has the cause under incident {incident}", incident=incident)


class _Dispatch:
    """Middleware that passes requests directly to the transports' own routes, and answers what fails.

    FastAPI's middleware and the patterns of the routes before them took 15 to 20 µs, a fifth of an ORS call. Each
    unexpected error is logged once, under the incident that is reported to the peer.
    """

    def __init__(self, api: FastAPI) -> None:
        self._api = api
        self._routes: list[BaseRoute] = []
        """The routes that are marked as `direct`, from startup on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._routes = [route for route in self._api.router.routes if getattr(route, "direct", False)]
            await self._api(scope, receive, send)
            return
        try:
            if scope["type"] == "http":
                for route in self._routes:
                    match, matched_scope = route.matches(scope)
                    if match is Match.FULL:
                        scope.update(matched_scope)
                        await route.handle(scope, receive, send)
                        return
            await self._api(scope, receive, send)
        except LudusError as error:
            if _INCIDENT not in scope:
                await refuse(scope, receive, send, error)
        except ClientDisconnect:
            _logger.debug("a client left before its request for %s had arrived", telemetry.route_of(scope["path"]))
        except Exception:
            incident = scope.get(_INCIDENT) or new_incident()
            route_name = telemetry.route_of(scope["path"])
            _logger.exception("serving %s failed (incident %s)", route_name, incident, extra={"incident": incident})
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1011, "reason": f"incident {incident}"})
            elif _INCIDENT not in scope:
                with suppress(RuntimeError):  # the answer had begun, so uvicorn closes the connection
                    await refuse(scope, receive, send, _fault(incident))


class _AccessLog:
    """Middleware that logs client, method, route, status and milliseconds of each request.

    Paths may be credentials; routes never are.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            status = 101 if message["type"] == "websocket.accept" else message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            client = scope.get("client") or ("-", 0)
            method = scope.get("method", "WEBSOCKET")
            milliseconds = (time.perf_counter() - began) * 1000
            route = telemetry.route_of(scope["path"])
            _access.info("%s %s %s %d %.1f ms", client[0], method, route, status, milliseconds)
