"""The MCP control endpoint: the extension's methods for trainers, and a few plain tools for stock hosts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

import mcp_types as types
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ludus.protocol.errors import Unauthenticated
from ludus.server.transports.mcp.control_tools import ControlTools
from ludus.server.transports.mcp.extension import add_extension, declares_extension, modules_of
from ludus.server.transports.mcp.http import Endpoint, Extend
from ludus.server.transports.mcp.server import Context, McpServer

if TYPE_CHECKING:
    from ludus.server.auth.principal import Principal
    from ludus.server.hosting.host import EpisodeHost
    from ludus.server.transports import TransportContext

_PRINCIPAL: Final = "ludus.principal"
"""The key of the ASGI scope under which the request's principal is stored."""

_INSTRUCTIONS: Final = (
    "A server of environments for reinforcement learning. `list_environments` lists them; `start_episode` starts an "
    "episode and says how to play it."
)


class ControlEndpoint:
    """The ASGI application of `POST /mcp`. The arguments are those of `McpTransport`."""

    def __init__(self, context: TransportContext, extend: Extend | None = None, *, back_channel: bool = False) -> None:
        self._authenticate = context.authenticate
        server = catalog_server(context.host, _principal_of_request)
        add_extension(server, context.host, _principal_of_request, modules_of(context))
        self._endpoint = Endpoint(server, context.limits.body_bytes, extend, back_channel=back_channel)
        self.run = self._endpoint.run

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one HTTP request on `CONTROL_PATH`."""
        try:
            scope[_PRINCIPAL] = self._authenticate(Headers(scope=scope), scope)
        except Unauthenticated as error:
            return _unauthorized(error)(scope, receive, send)
        return self._endpoint(scope, receive, send)


def catalog_server(host: EpisodeHost, principal_of: Callable[[Context], Principal]) -> McpServer:
    """Return an MCP server with the catalog's tools."""
    server = McpServer(_INSTRUCTIONS)
    catalog = ControlTools(host, principal_of, declares_extension)
    server.add_request_handler("tools/list", types.PaginatedRequestParams, catalog.list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, catalog.call_tool)
    return server


def _principal_of_request(ctx: Context) -> Principal:
    principal: Principal = cast(Request, ctx.request).scope[_PRINCIPAL]
    return principal


def _unauthorized(error: Unauthenticated) -> Response:
    described = error.message.replace("\\", "").replace('"', "'").encode("ascii", "replace").decode()
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": error.code, "message": error.message}}
    return Response(
        json.dumps(body),
        status_code=401,
        media_type="application/json",
        headers={"WWW-Authenticate": f'Bearer realm="ludus", error="invalid_token", error_description="{described}"'},
    )
