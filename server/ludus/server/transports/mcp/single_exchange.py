"""Serves a handshake-era request as one exchange, without an SDK session.

Without sessions, the SDK's transport opens one for each handshake-era request: tasks, memory streams and a
dispatcher, which cost more than everything else in a call. Nothing of that session outlives the request, and in JSON
mode nothing but the reply can be sent through it. The SDK serves 2026-07-28 without a session, by `serve_one`; this
module calls the same function for the earlier versions. What is not one well-formed JSON-RPC request (notifications,
responses, other HTTP methods, unreadable bodies) goes to the SDK's transport, which knows the answers to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import pydantic_core
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import modern_error_data, serve_one
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=False)


def may_be_single_exchange(scope: Scope) -> bool:
    """Return whether an HTTP request is a POST of JSON by a handshake-era client."""
    if scope["method"] != "POST":
        return False
    request = Request(scope)
    version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    return (
        version in HANDSHAKE_PROTOCOL_VERSIONS
        and content_type == "application/json"
        and check_accept_headers(request)[0]
    )


class SingleExchange:
    """The ASGI application for the requests that `may_be_single_exchange` accepts.

    Args:
        server: the MCP server. It must not have a lifespan of its own.
        others: the SDK's application for the same server. It gets the messages that are not requests.
    """

    def __init__(self, server: Server[Any], others: ASGIApp) -> None:
        self._server = server
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. The middleware in front has bounded its body."""
        request = Request(scope, receive)
        body = await request.body()
        message = _parse_request(body)
        if message is None:
            await self._others(scope, _with_body(body, receive), send)
            return
        reply = await self._answer(message, request)
        content = reply.model_dump_json(by_alias=True, exclude_unset=True)
        await Response(content, media_type="application/json")(scope, receive, send)

    async def _answer(self, message: JSONRPCRequest, request: Request) -> JSONRPCResponse | JSONRPCError:
        """Call the server's handler and return the reply."""
        metadata = ServerMessageMetadata(request_context=request, can_send_request=False)
        exchange = _Exchange(message.id, metadata)
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        connection = Connection.from_envelope(version, None, None)
        try:
            result = await serve_one(
                self._server, exchange, message.method, message.params, connection=connection, lifespan_state={}
            )
        except Exception as error:
            return JSONRPCError(jsonrpc="2.0", id=message.id, error=modern_error_data(error))
        return JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result)


@dataclass(slots=True)
class _Exchange:
    """The SDK's `DispatchContext` of a request whose reply is all that the client gets."""

    request_id: RequestId
    message_metadata: MessageMetadata
    transport: TransportContext = _TRANSPORT
    can_send_request: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Raise `NoBackChannelError`: a JSON reply has no room for a request of the server."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Drop a notification: a JSON reply has no room for one."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Drop a progress report: a JSON reply has no room for one."""


def _parse_request(body: bytes) -> JSONRPCRequest | None:
    """Return the request in a body, or None if it holds anything else."""
    try:
        message = jsonrpc_message_adapter.validate_python(pydantic_core.from_json(body), by_name=False)
    except ValueError:
        return None
    return message if isinstance(message, JSONRPCRequest) else None


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that delivers a body which has been read already."""
    unread = True

    async def replay() -> Message:
        nonlocal unread
        if not unread:
            return await receive()
        unread = False
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
