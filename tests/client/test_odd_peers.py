"""The client against peers that misbehave: everything comes back as one of our errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from ludus.client import Client, connect
from ludus.client.transports._ors_http import _read_reply
from ludus.protocol.errors import (
    ConnectionFailed,
    EnvironmentNotFound,
    Forbidden,
    InvalidRequest,
    LudusError,
    ParseError,
    ProtocolViolation,
    ServerError,
    Unauthenticated,
)
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Peer = Callable[..., Awaitable[Client]]

ENVIRONMENTS: dict[str, list[object]] = {"environments": []}


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """`client = await peer(channel=…, mcp=…, wire=…)`: a client of a server with these handlers."""
    async with AsyncExitStack() as stack:

        async def start(
            channel: Handler | None = None, mcp: Handler | None = None, wire: Any = "channel", **options: Any
        ) -> Client:
            app = web.Application()
            if channel is not None:
                app.router.add_get("/channel", channel)
            if mcp is not None:
                app.router.add_post("/mcp", mcp)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            options = {"timeout": 10, "reconnect_seconds": 0.3, **options}
            return await stack.enter_async_context(connect(f"http://127.0.0.1:{port}", wire=wire, **options))

        yield start


def speaking(answer: Callable[[web.WebSocketResponse, str], Awaitable[bool]]) -> Handler:
    """A channel whose `answer` gets each frame, until it returns False and the connection is reset."""

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(CHANNEL_SUBPROTOCOL,))
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT and not await answer(socket, message.data):
                assert request.transport is not None
                request.transport.abort()
                break
        return socket

    return handle


def items(frame: str) -> list[dict[str, Any]]:
    parsed = json.loads(frame)
    return parsed if isinstance(parsed, list) else [parsed]


async def test_unanswered_requests_are_sent_again_unchanged_and_in_order(peer: Peer) -> None:
    frames: list[str] = []

    async def answer(socket: web.WebSocketResponse, frame: str) -> bool:
        frames.append(frame)
        if len(frames) < 3:
            return False
        await socket.send_json([{"jsonrpc": "2.0", "id": r["id"], "result": ENVIRONMENTS} for r in items(frame)])
        return True

    client = await peer(speaking(answer))
    await asyncio.gather(*(client.environments() for _ in range(5)))
    assert len(items(frames[0])) == 5
    assert frames[0] == frames[1] == frames[2]


async def test_a_request_that_breaks_every_connection_is_given_up(peer: Peer) -> None:
    async def answer(socket: web.WebSocketResponse, frame: str) -> bool:
        return False

    client = await peer(speaking(answer), reconnect_seconds=60)
    with pytest.raises(ConnectionFailed, match="connections that broke"):
        await client.environments()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("no json", ProtocolViolation),
        ({"jsonrpc": "2.0", "id": 1}, ProtocolViolation),
        ({"jsonrpc": "2.0", "id": 1, "result": {"environments": 3}}, ProtocolViolation),
        ({"jsonrpc": "2.0", "id": 1, "result": None}, ProtocolViolation),
        ({"jsonrpc": "2.0", "id": 1, "error": "bad"}, ProtocolViolation),
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": 4041, "message": "none", "data": None}}, EnvironmentNotFound),
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": 987, "message": "new"}}, LudusError),
        ({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}}, ParseError),
        (3, ProtocolViolation),
    ],
)
async def test_odd_replies_are_typed_errors_and_the_next_request_is_answered(
    peer: Peer, reply: Any, kind: type[LudusError]
) -> None:
    async def answer(socket: web.WebSocketResponse, frame: str) -> bool:
        identifier = items(frame)[0]["id"]
        if identifier == 1:
            await socket.send_str(reply if isinstance(reply, str) else json.dumps(reply))
        else:
            await socket.send_json({"jsonrpc": "2.0", "id": identifier, "result": ENVIRONMENTS})
        return True

    client = await peer(speaking(answer))
    with pytest.raises(kind) as raised:
        await client.environments()
    assert type(raised.value) is kind
    assert await client.environments() == ()


async def test_answers_to_no_request_are_ignored(peer: Peer) -> None:
    async def answer(socket: web.WebSocketResponse, frame: str) -> bool:
        identifier = items(frame)[0]["id"]
        answers = [{"jsonrpc": "2.0", "id": one, "result": ENVIRONMENTS} for one in (99, "x", identifier, identifier)]
        await socket.send_json(answers)
        return True

    client = await peer(speaking(answer))
    assert await client.environments() == ()
    assert await client.environments() == ()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Unauthenticated),
        (403, Forbidden),
        (404, ConnectionFailed),
        (200, ConnectionFailed),
        (503, ConnectionFailed),
    ],
)
async def test_a_refused_upgrade_says_why(peer: Peer, status: int, kind: type[LudusError]) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    client = await peer(refuse)
    with pytest.raises(kind) as raised:
        await client.environments()
    assert type(raised.value) is kind
    assert client.url in str(raised.value)


async def test_a_channel_of_another_protocol_is_not_used(peer: Peer) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    client = await peer(handle)
    with pytest.raises(ProtocolViolation, match=CHANNEL_SUBPROTOCOL):
        await client.environments()


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ({"status": 200, "text": "<html>"}, ProtocolViolation),
        ({"status": 401}, Unauthenticated),
        ({"status": 403}, Forbidden),
        ({"status": 404}, ProtocolViolation),
        ({"status": 503}, ConnectionFailed),
        ({"status": 400, "text": '{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}'}, InvalidRequest),
        ({"status": 200, "text": '{"jsonrpc":"2.0","id":1,"result":{"environments":1}}'}, ProtocolViolation),
        ({"status": 500, "text": '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}'}, ServerError),
    ],
)
async def test_odd_http_answers_are_typed_errors(peer: Peer, response: Any, kind: type[LudusError]) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(**response)

    client = await peer(mcp=handle, wire="mcp")
    with pytest.raises(kind):
        await client.environments()


async def test_the_http_envelope_is_that_of_the_revision_and_streams_are_read(peer: Peer) -> None:
    seen: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.update(headers=request.headers, body=await request.json())
        answer = {"jsonrpc": "2.0", "id": seen["body"]["id"], "result": {**ENVIRONMENTS, "resultType": "complete"}}
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
        text = f": hello\r\n\r\ndata: {json.dumps(note)}\r\n\r\nevent: message\r\ndata: {json.dumps(answer)}\r\n\r\n"
        return web.Response(text=text, content_type="text/event-stream")

    client = await peer(mcp=handle, wire="mcp", token="ludus_x")
    assert await client.environments() == ()
    assert seen["headers"]["MCP-Protocol-Version"] == "2026-07-28"
    assert seen["headers"]["Mcp-Method"] == seen["body"]["method"] == "dev.ludus/environments/list"
    assert seen["headers"]["Authorization"] == "Bearer ludus_x"
    meta = seen["body"]["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert "dev.ludus/episodes" in meta["io.modelcontextprotocol/clientCapabilities"]["extensions"]
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "ludus"


async def test_an_extension_event_of_an_ors_server_that_is_not_json_is_a_violation() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text='event: ludus\ndata: {"seed":\n\n', content_type="text/event-stream")

    app = web.Application()
    app.router.add_get("/", answer)
    async with TestClient(TestServer(app)) as client, client.get("/") as response:
        with pytest.raises(ProtocolViolation, match="not JSON"):
            await _read_reply(response, None)
