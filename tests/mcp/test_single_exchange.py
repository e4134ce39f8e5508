"""A handshake-era request served without a session gets the bytes that the SDK's session sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server import streamable_http_manager
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Message

from ludus.server.transports.mcp.http import Endpoint
from ludus.server.transports.mcp.server import Context, McpServer

BODY_BYTES = 4096
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}


class EchoServer(McpServer):
    """One tool that repeats its text, refuses the text "refuse" and notifies its client on everything else."""

    def __init__(self) -> None:
        super().__init__(instructions="Say something.")
        self.notified = asyncio.Event()
        self.add_request_handler("tools/call", types.CallToolRequestParams, self._call)
        self.add_request_handler("tools/list", types.PaginatedRequestParams, self._list)
        self.add_notification_handler("notifications/roots/list_changed", types.NotificationParams, self._changed)

    async def _call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = (params.arguments or {})["text"]
        if text == "refuse":
            raise MCPError(types.INVALID_PARAMS, "refused", {"why": None})
        await ctx.session.report_progress(1, 2, "halfway")
        await ctx.session.send_notification(types.ToolListChangedNotification(), related_request_id=ctx.request_id)
        if text == "ask":
            await ctx.session.send_request(types.PingRequest(), types.EmptyResult)
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"{text} {ctx.protocol_version}")])

    async def _list(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema={"type": "object"})])

    async def _changed(self, ctx: Context, params: types.NotificationParams | None) -> None:
        self.notified.set()


def request(method: str, params: Any = None, **members: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, **members}
    return json.dumps(message if params is None else {**message, "params": params}).encode()


def call(text: Any, **params: Any) -> bytes:
    return request("tools/call", {"name": "echo", "arguments": {"text": text}, **params})


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
BODIES = {
    "call": call("hello"),
    "call with umlauts and a null": call("h\u00e4llo \u2028 \x00"),
    "call with a progress token": call("hello", _meta={"progressToken": 1}),
    "call that asks the client": call("ask"),
    "refused call": call("refuse"),
    "call without a name": request("tools/call", {"arguments": {}}),
    "params that are a list": request("tools/call", [1]),
    "no params": request("tools/call"),
    "string id": request("ping", id="abc"),
    "id of null": request("ping", id=None),
    "id of true": request("ping", id=True),
    "fractional id": request("ping", id=1.5),
    "list": request("tools/list"),
    "list with a cursor": request("tools/list", {"cursor": "x"}),
    "initialize": request("initialize", INITIALIZE),
    "initialize of an unknown version": request("initialize", {**INITIALIZE, "protocolVersion": "1999-01-01"}),
    "initialize without params": request("initialize"),
    "unknown method": request("tools/burn"),
    "unknown method of 2026-07-28": request("server/discover"),
    "notification": json.dumps({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).encode(),
    "cancellation": json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    ).encode(),
    "response": json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(),
    "batch": json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]).encode(),
    "wrong version of JSON-RPC": request("ping", jsonrpc="1.0"),
    "no JSON": b"{",
    "empty": b"",
    "bytes that are not UTF-8": b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
    "deep nesting": b"[" * 2000 + b"]" * 2000,
    "too large": call("x" * BODY_BYTES),
}


async def send(app: ASGIApp, body: bytes, headers: dict[str, str], method: str = "POST") -> tuple[int, Any, bytes]:
    """Return the status, the headers and the body of a reply."""
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": body[:9], "more_body": True}, {"type": "http.request", "body": body[9:]}]

    async def receive() -> Any:
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def collect(message: Message) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/mcp", "query_string": b"", "headers": raw, "root_path": ""}
    await asyncio.wait_for(app(scope, receive, collect), 20)
    return sent[0]["status"], sorted(sent[0]["headers"]), b"".join(part.get("body", b"") for part in sent[1:])


@asynccontextmanager
async def running(server: EchoServer) -> AsyncIterator[tuple[ASGIApp, ASGIApp]]:
    """Ludus's application and the SDK's own, for the same server."""
    endpoint = Endpoint(server, BODY_BYTES)
    sdk = StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=BODY_BYTES)
    async with endpoint.run(), sdk.run():
        yield endpoint, sdk.asgi_app


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_every_message_gets_the_bytes_of_the_sdks_session(body: Any) -> None:
    async with running(EchoServer()) as (ludus, sdk):
        assert await send(ludus, body, HEADERS) == await send(sdk, body, HEADERS)


@pytest.mark.parametrize(
    "changed",
    [
        {"mcp-protocol-version": "2024-11-05"},
        {"mcp-protocol-version": None},
        {"accept": "text/event-stream"},
        {"accept": "application/json"},
        {"accept": "*/*"},
        {"accept": None},
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=utf-8"},
        {"content-type": None},
        {"mcp-session-id": "of-some-other-server"},
    ],
    ids=str,
)
async def test_every_header_gets_the_bytes_of_the_sdks_session(changed: Any) -> None:
    headers = {name: value for name, value in {**HEADERS, **changed}.items() if value is not None}
    async with running(EchoServer()) as (ludus, sdk):
        assert await send(ludus, call("hello"), headers) == await send(sdk, call("hello"), headers)


@pytest.mark.parametrize("method", ["DELETE", "PUT", "HEAD"])
async def test_other_http_methods_get_the_answer_of_the_sdk(method: Any) -> None:
    async with running(EchoServer()) as (ludus, sdk):
        assert await send(ludus, b"", HEADERS, method) == await send(sdk, b"", HEADERS, method)


async def test_a_notification_reaches_its_handler() -> None:
    server = EchoServer()
    async with running(server) as (ludus, _):
        status, _, _ = await send(ludus, BODIES["notification"], HEADERS)
        assert status == 202
        await asyncio.wait_for(server.notified.wait(), 10)


async def test_a_request_opens_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the SDK opened a session")

    monkeypatch.setattr(streamable_http_manager, "StreamableHTTPServerTransport", refuse)
    async with running(EchoServer()) as (ludus, _):
        status, _, body = await send(ludus, call("hello"), HEADERS)
    assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "hello 2025-11-25")
