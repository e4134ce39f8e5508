"""The application of a hub.

`create_hub` builds its parts in one order, and each gets those before it that it uses: the stores that all share, the
JSON API and the package index, discovery, endpoints, results, and the site. `parts_of(app)` returns them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.common.distribution import installed_version
from ludus.hub.api import accounts, blocking, device_sign_ins, organizations, packages
from ludus.hub.core.error_answers import error_response
from ludus.hub.core.peers import PREFIX
from ludus.hub.discovery.paths import any_page_may_read
from ludus.hub.discovery.routes import mount_discovery
from ludus.hub.endpoints.answers import SANDBOXED
from ludus.hub.endpoints.hosts import PlayAddress, own_endpoint, path_of_host
from ludus.hub.endpoints.mounting import EndpointParts, mount_endpoints
from ludus.hub.index import simple, upload
from ludus.hub.metrics import HubMetrics, Observer
from ludus.hub.parts.hub import Hub
from ludus.hub.people.authenticator import read_tokens
from ludus.hub.results.mounting import ResultParts, mount_results
from ludus.hub.settings.hub import HubSettings
from ludus.hub.site.mounting import mount_site
from ludus.protocol.errors import (
    Forbidden,
    InternalError,
    InvalidParams,
    LudusError,
    MethodNotFound,
    NotFound,
    PayloadTooLarge,
)
from ludus.protocol.messages import describe_invalid
from ludus.server.auth import TokenStore

_DEFAULTS: Final = ((b"cache-control", b"no-store"), tuple(part.encode() for part in SANDBOXED))

_log = logging.getLogger("ludus.hub")


class Health(BaseModel):
    """Whether the hub answers."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class HubParts:
    """The parts of a running hub."""

    hub: Hub
    """The stores that all parts share."""
    endpoints: EndpointParts
    results: ResultParts


def parts_of(app: FastAPI) -> HubParts:
    """Return the parts of the hub that an application of `create_hub` serves."""
    parts: HubParts = app.state.parts
    return parts


def create_hub(
    settings: HubSettings | None = None, tokens: TokenStore | None = None, play_address: PlayAddress = own_endpoint
) -> FastAPI:
    """Return the application of a hub; `parts_of` returns its parts.

    Args:
        settings: the settings; by default those of a hub on loopback.
        tokens: the operator's tokens; by default those that the settings and the environment variables name.
        play_address: where versions run; by default at the hub's own endpoints.

    Raises:
        AuthoringError: others can reach the hub and it has no accounts and no tokens, or the token file cannot be used.
        HubUnavailable: the database cannot be used.
    """
    settings = settings or HubSettings()
    hub = Hub(settings, tokens if tokens is not None else read_tokens(settings))
    app = FastAPI(
        title="Ludus hub",
        summary="A registry of reinforcement-learning environments.",
        version=installed_version(),
        lifespan=_lifespan(hub),
        redoc_url=None,
        docs_url=None,  # that page loads its program from a content-delivery network
        openapi_url="/api/openapi.json",
        # FastAPI's spans hold raw paths, and a play path is a credential. `ludus.hub.metrics` uses routes.
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    for module in (packages, accounts, device_sign_ins, organizations, blocking, simple, upload):
        app.include_router(module.router(hub))
    _add_errors(app, hub)
    # Routes of discovery lie below `/e/`, which endpoints match whole, and pages of the site match nearly every path.
    mount_discovery(app, hub)
    endpoints = mount_endpoints(app, hub)
    _add_operation(app, HubMetrics(hub, endpoints.pool), hub)
    results = mount_results(app, hub, play_address)
    mount_site(app, hub, results, play_address)
    app.state.parts = HubParts(hub, endpoints, results)
    app.add_middleware(HubGuard, hub=hub)
    app.add_middleware(Observer, hub=hub, routes=app)
    return app


def _lifespan(hub: Hub) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        try:
            await hub.begin()
            yield
        finally:
            await hub.close()

    return running


def _add_operation(app: FastAPI, collected: HubMetrics, hub: Hub) -> None:
    @app.get("/health", tags=["Operation"], summary="Whether the hub and its database answer")
    def health() -> Health:
        hub.check()
        return Health()

    @app.get("/metrics", tags=["Operation"], summary="Prometheus metrics", response_class=Response)
    def metrics(request: Request) -> Response:
        hub.authenticator.principal(request, counted=False)
        return Response(collected.render(), media_type=CONTENT_TYPE_LATEST)


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _add_errors(app: FastAPI, hub: Hub) -> None:
    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, LudusError)
        hub.counts[f"refused:{type(error).__name__}"] += 1
        if error.http_status >= 500:
            _log.error("%s %s failed: %s", request.method, request.url.path, error.message)
        return error_response(error)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first: Any = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return error_response(InvalidParams(f"{place}: {describe_invalid(first)}"))

    async def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            return error_response(_WrongMethod(f"{request.method} is not possible here"))
        if error.status_code == 404:
            return error_response(NotFound("the hub has nothing at this address"))
        return error_response(InvalidParams(str(error.detail)))

    async def fault(request: Request, error: Exception) -> Response:
        return error_response(InternalError("the hub failed; its log has the cause"))

    app.add_exception_handler(LudusError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(Exception, fault)


class _WrongMethod(MethodNotFound):
    """A method that the address does not have."""

    http_status = 405


class HubGuard:
    """ASGI middleware that checks hosts, origins and the sizes of bodies. See `ludus.server.web.guard`.

    Bodies are counted as they arrive and not kept, because uploads go to the disk. Answers that do not say who may keep
    them may be kept by no cache, because most of them depend on who asks. Answers without a policy of their own, which
    only pages of the site have, get one that lets nothing in them run: some are other people's.
    """

    def __init__(self, app: ASGIApp, hub: Hub) -> None:
        self._app = app
        self._hub = hub
        self._origins = hub.settings.origins
        self._most = hub.settings.limits.body_bytes
        self._public = not hub.settings.on_loopback
        self._domain = hub.settings.endpoints.domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if self._public and scope["type"] == "http" and any_page_may_read(scope["method"], scope["path"]):
            origin = None  # the specification asks for it; on loopback it would show a page what runs on this machine
        error = self._origins.refusal(headers.get(b"host"), origin) or self._misuse(scope, headers)
        length = headers.get(b"content-length", b"0")
        if error is None and (b"%00" in scope.get("raw_path", b"") or b"%00" in scope["query_string"]):
            error = InvalidParams("the address holds a null character; no name has one")
        if error is None and not (len(length) < 18 and length.isdigit() and int(length) <= self._most):
            error = self._too_large()

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [*message.get("headers", ())]
                names = {name.lower() for name, _ in kept}
                kept += [field for field in _DEFAULTS if field[0] not in names]
                message = {**message, "headers": kept}
            await send(message)

        if error is not None:
            self._hub.counts[f"refused:{type(error).__name__}"] += 1
            await error_response(error)(scope, receive, guarded)
            return
        received = 0

        async def counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                raise self._too_large()
            return message

        await self._app(scope, counting, guarded)

    def _misuse(self, scope: Scope, headers: dict[bytes, bytes]) -> LudusError | None:
        """Return the error for a request that a page of another site makes a browser send to an endpoint.

        Such a request for an image or a frame has no `Origin`, and would start the endpoint.
        """
        elsewhere = headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and b"origin" not in headers
        if not elsewhere or (self._public and any_page_may_read(scope["method"], scope["path"])):
            return None
        if scope["path"].startswith(("/e/", PREFIX)) or path_of_host(headers.get(b"host"), self._domain) is not None:
            return Forbidden("pages of other sites may not use the endpoints of this hub")
        return None

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"the request is larger than the {self._most} bytes this hub accepts", limit="body_bytes"
        )
