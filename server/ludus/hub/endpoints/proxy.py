"""The routes of endpoints: `/e/{owner}/{name}[@version]/...`.

Below this path an endpoint is a Ludus server with all of its transports: MCP at `/mcp`, episodes for agents at
`/play/...`, ORS, and the channel at `/channel`. `/logs` is the hub's own: what the endpoint has written, for its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ludus.hub.endpoints.exchanges import HttpExchange
from ludus.hub.endpoints.hosts import path_of_host
from ludus.hub.endpoints.releases import Address, parse_address
from ludus.hub.endpoints.runner import without_admin
from ludus.protocol.errors import LudusError, NotFound
from ludus.server.web.guard import error_body, error_headers

if TYPE_CHECKING:
    from ludus.hub.endpoints.gateways import EndpointGateway
    from ludus.hub.endpoints.guards import Guards
    from ludus.hub.endpoints.pool import Endpoints
    from ludus.hub.endpoints.runner import Runner
    from ludus.server.auth.principal import Principal
    from ludus.server.web.guard import Origins
    from ludus.server.workers.upstream import Headers

LOGS: Final = "/logs"
"""The path of an endpoint's log, below the endpoint."""


class EndpointRoutes:
    """The ASGI application of all endpoints.

    Args:
        endpoints: the endpoints.
        guards: checks who may use them.
        origins: the hosts and pages that may open channels; other requests were checked before.
        domain: the domain below which endpoints have host names of their own.
        runner: the hub's own principal.
    """

    def __init__(self, endpoints: Endpoints, guards: Guards, origins: Origins, domain: str, runner: Runner) -> None:
        self._endpoints = endpoints
        self._guards = guards
        self._runner = runner
        self._origins = origins
        self._domain = domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":  # the hub's own server hands these over before
            await receive()
            await send({"type": "websocket.close", "code": 1011, "reason": "this HTTP server cannot pass channels on"})
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        try:
            address, target = _split(raw, scope.get("query_string", b""))
            if address.rest == LOGS:
                await (await self._logs(Request(scope), address))(scope, receive, send)
                return
            sender = await self._admit(Request(_with_bearer(scope)), address)
            gateway = await self._endpoints.gateway(address)
        except LudusError as error:
            await _error(unquote(raw.decode("latin-1")), error)(scope, receive, send)
            return
        await HttpExchange(gateway, scope, receive, send, target, sender).run()

    async def find_channel(self, target: bytes, headers: Headers) -> tuple[EndpointGateway, bytes, Principal]:
        """Return the gateway of an upgrade, the path below the endpoint, and the sender.

        Args:
            target: the path and query of the upgrade.
            headers: its headers.

        Raises:
            LudusError: there is no such endpoint, or the client may not use it.
        """
        raw, _, query = target.partition(b"?")
        fields = dict(headers)
        refusal = self._origins.refusal(fields.get(b"host"), fields.get(b"origin"))
        if refusal is not None:
            raise refusal
        prefix = path_of_host(fields.get(b"host"), self._domain)
        address, below = _split(raw if prefix is None else prefix.encode() + raw, query)
        sender = await self._admit(Request(_with_bearer({"type": "http", "headers": list(headers)})), address)
        if sender is None:
            raise NotFound("there is no channel at this address; it is /channel, below the endpoint")
        return await self._endpoints.gateway(address), below, sender

    async def _admit(self, request: Request, address: Address) -> Principal | None:
        """Return the sender of a request as the endpoint gets it: the hub itself, or as in `Guards.admit`."""
        if self._runner.sent(request):
            return self._runner.principal
        secret = self._endpoints.secret(address.owner, address.name)
        viewer = await asyncio.to_thread(self._guards.admit, request, address, secret)
        return without_admin(viewer) if viewer is not None else None

    async def _logs(self, request: Request, address: Address) -> Response:
        """Return the log of an endpoint as text; with `?follow=1`, also what it goes on to write."""
        await asyncio.to_thread(self._guards.admit_to_logs, Request(_with_bearer(request.scope)), address)
        gateway = await self._endpoints.gateway(address)
        ring = gateway.releases.newest.ring
        follow = request.query_params.get("follow", "") in ("1", "true")

        async def lines() -> AsyncIterator[bytes]:
            async for line in ring.follow(on=follow):
                yield line.encode("utf-8", "replace") + b"\n"

        return StreamingResponse(lines(), media_type="text/plain; charset=utf-8", headers={"cache-control": "no-store"})


def _split(raw: bytes, query: bytes) -> tuple[Address, bytes]:
    """Return the address of a path, and the path and query below the endpoint.

    Raises:
        NotFound: the path leads to no endpoint.
    """
    parts = raw.split(b"/", 4)
    path = "/".join(unquote(part.decode("latin-1")) for part in parts[:4])
    below = b"/" + parts[4] if len(parts) > 4 else b""
    address = parse_address(path)
    if address is None or address.rest:
        raise NotFound("no endpoint has this address; it is /e/OWNER/NAME or /e/OWNER/NAME@VERSION, and what follows")
    target = (below or b"/") + (b"?" + query if query else b"")
    return address._replace(rest=unquote(below.decode("latin-1"))), target


def _with_bearer(scope: Any) -> Any:
    """Return the scope with the token of `X-API-Key`, as ORS clients send it, where all others have theirs."""
    headers = dict(scope["headers"])
    if b"authorization" in headers or b"x-api-key" not in headers:
        return scope
    return {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + headers[b"x-api-key"])]}


def _error(path: str, error: LudusError) -> Response:
    address = parse_address(path)
    body = error_body(address.rest if address is not None else path, error)
    return Response(body, error.http_status, headers=error_headers(error), media_type="application/json")
