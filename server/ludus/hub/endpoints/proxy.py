"""The routes of endpoints: `/e/{owner}/{name}[@version]/...`.

Below this path an endpoint is a Ludus server with all of its transports: MCP at `/mcp`, episodes for agents at
`/play/...`, ORS, and the channel at `/channel`. `/logs` is the hub's own: what the endpoint has written, for its owner.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ludus.hub.core.runner import without_admin
from ludus.hub.endpoints.exchanges import HttpExchange
from ludus.hub.endpoints.hosts import path_of_host
from ludus.hub.endpoints.releases import Address, parse_address, process_of
from ludus.hub.endpoints.shared_logs import lines_at, merged, own_lines
from ludus.protocol.errors import EpisodeFailed, LudusError, NotFound, PayloadTooLarge
from ludus.protocol.workers import worker_of_capability
from ludus.server.workers import requests as workers
from ludus.server.workers.connection import body_too_large, error_answer
from ludus.server.workers.pool import lost
from ludus.server.workers.routing import Place, place_of, target_of_mcp

if TYPE_CHECKING:
    from ludus.hub.endpoints.gateways import EndpointGateway
    from ludus.hub.endpoints.guards import Guards
    from ludus.hub.endpoints.pool import Endpoints
    from ludus.server.auth.principal import Principal
    from ludus.server.web.guard import Origins
    from ludus.server.workers.upstream import Headers

LOGS: Final = "/logs"
"""The path of an endpoint's log, below the endpoint."""


class Upgrade(NamedTuple):
    """Where an upgrade to a WebSocket goes."""

    gateway: EndpointGateway
    target: bytes
    """The path and query below the endpoint."""
    sender: Principal
    stays: bool
    """Whether no other process of the hub may answer its requests."""


class EndpointRoutes:
    """The ASGI application of all endpoints.

    Args:
        endpoints: the endpoints.
        guards: checks who may use them.
        origins: the hosts and pages that may open channels; other requests were checked before.
        domain: the domain below which endpoints have host names of their own.
    """

    def __init__(self, endpoints: Endpoints, guards: Guards, origins: Origins, domain: str) -> None:
        self._endpoints = endpoints
        self._guards = guards
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
            request = Request(_with_bearer(scope))
            stays = self._guards.stays(request)
            sender = None if await self._is_elsewhere(address, stays=stays) else await self._admit(request, address)
            gateway = await self._endpoints.gateway(address)
        except LudusError as error:
            await self._refuse(error, Request(scope, receive), send)
            return
        asked = self._asked(raw, scope)
        await HttpExchange(gateway, scope, receive, send, target, asked, sender, stays=stays).run()

    async def find_channel(self, target: bytes, headers: Headers) -> Upgrade:
        """Return where an upgrade goes, and its sender.

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
        request = Request(_with_bearer({"type": "http", "headers": list(headers)}))
        sender = await self._admit(request, address)
        if sender is None:
            raise NotFound("there is no channel at this address; it is /channel, below the endpoint")
        return Upgrade(await self._endpoints.gateway(address), below, sender, self._guards.stays(request))

    async def _is_elsewhere(self, address: Address, *, stays: bool) -> bool:
        """Return whether another process has the episode of an agent's URL. That process checks the capability.

        Raises:
            InfrastructureFailed: the process has ended, with the episode.
        """
        place, named = place_of(address.rest)
        process = process_of(worker_of_capability(named)) if place is Place.PLAY else None
        peers = self._endpoints.neighbors.peers
        if process is None or process == peers.own or stays:
            return False
        if await peers.find(process) is None:
            raise lost()  # whether there is such a package, this does not say
        return True

    async def _refuse(self, error: LudusError, request: Request, send: Send) -> None:
        """Answer a request that reaches no gateway. An MCP client gets the error of a lost episode as a reply."""
        path = unquote((request.scope.get("raw_path") or request.url.path.encode()).decode("latin-1"))
        identifier = None
        if isinstance(error, EpisodeFailed):
            try:
                identifier = target_of_mcp(await self._body(request))[1]
            except PayloadTooLarge as too_large:
                error = too_large
            except ClientDisconnect:
                return
        await _error(path, error, identifier)(request.scope, request.receive, send)

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            PayloadTooLarge: it is larger than an endpoint accepts.
            ClientDisconnect: the client has left.
        """
        limit, parts, size = self._endpoints.settings.limits.server.body_bytes, list[bytes](), 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise body_too_large(limit)
            parts.append(part)
        return b"".join(parts)

    def _asked(self, raw: bytes, scope: Scope) -> bytes:
        """Return the path and query of a request as its client sent them."""
        host = next((value for name, value in scope["headers"] if name == b"host"), None)
        prefix = path_of_host(host, self._domain) or ""
        query = scope.get("query_string", b"")
        return raw.removeprefix(prefix.encode()) + (b"?" + query if query else b"")

    async def _admit(self, request: Request, address: Address) -> Principal | None:
        """Return the sender of a request as the endpoint gets it: the hub itself, or as in `Guards.admit`."""
        if self._guards.runner.sent(request):
            return self._guards.runner.principal
        secret = self._endpoints.secret(address.owner, address.name)
        viewer = await asyncio.to_thread(self._guards.admit, request, address, secret)
        return without_admin(viewer) if viewer is not None else None

    async def _logs(self, request: Request, address: Address) -> Response:
        """Return the log of an endpoint as text; with `?follow=1`, also what it goes on to write.

        It has the lines of all processes of the hub, with their names; another process that asks gets those of this
        one alone.
        """
        await asyncio.to_thread(self._guards.admit_to_logs, Request(_with_bearer(request.scope)), address)
        gateway = await self._endpoints.gateway(address)
        follow = request.query_params.get("follow", "") in ("1", "true")
        lines = own_lines(gateway.releases.newest.ring, follow=follow)
        peers = self._endpoints.neighbors.peers
        if peers.others and not self._guards.stays(request):
            raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
            target = self._asked(raw, request.scope).decode("latin-1")
            parts = {one.name: lines_at(peers, one, request, target) for one in peers.others}
            lines = merged({**parts, peers.own: lines}, follow=follow)
        return StreamingResponse(lines, media_type="text/plain; charset=utf-8", headers={"cache-control": "no-store"})


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


def _error(path: str, error: LudusError, identifier: Any = None) -> Response:
    """Return the answer with an error.

    Args:
        path: the path of the request.
        error: the error.
        identifier: the JSON-RPC id of the request; None if it is not known.
    """
    address, asked = parse_address(path), workers.Request()
    rest = address.rest if address is not None else path
    status, body, headers = error_answer(asked, rest, error, place_of(rest)[0], identifier)
    return Response(body, status, headers=headers, media_type="application/json")
