"""The default wire: the channel where the server has one, MCP where it has none, and no other detour."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from app_server import serving_app
from core_server import CoreOnly
from worlds import SECRET_ANSWER, Playground

from ludus.client import Client, ServerAddress, connect, sync
from ludus.protocol.errors import (
    CapacityError,
    ConnectionFailed,
    Forbidden,
    LudusError,
    ProtocolViolation,
    Unauthenticated,
)
from ludus.protocol.identifiers import CHANNEL_PATH, CONTROL_PATH, EXTENSION_ID
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.serving.app import LudusApp
from ludus.server.serving.serve import build
from ludus.server.serving.settings import ServerSettings

Peer = Callable[..., Awaitable[str]]
SCOPES = ("tasks:read", "episodes:run", "rewards:read")


@pytest.fixture
async def without_channel() -> AsyncIterator[Callable[[int], Awaitable[tuple[str, CoreOnly]]]]:
    """`url, wall = await without_channel(status)`: a server without a channel, which refuses upgrades with a status."""
    async with AsyncExitStack() as stack:

        async def start(status: int) -> tuple[str, CoreOnly]:
            settings = ServerSettings(port=0)
            app = build([Playground], settings, {})
            wall = CoreOnly(app, status)
            walled = LudusApp(app.api, app.context, app.guard, wall)
            return await stack.enter_async_context(serving_app(walled, settings)), wall

        yield start


async def play(client: Client) -> float | None:
    """Play one task."""
    async with client.environment("playground").episode(split="train", index=1) as episode:
        await asyncio.gather(*(episode.call("add") for _ in range(3)))
        graded = await episode.grade(f"{SECRET_ANSWER}-1")
        return None if graded.reward is None else graded.reward.value


async def test_a_server_with_a_channel_is_used_over_it(serve: Any) -> None:
    server = await serve(Playground)
    async with connect(server.url) as client:
        assert client.wire == "auto"
        assert await play(client) is not None
        assert client.wire == "channel"


@pytest.mark.parametrize("status", [403, 404, 405, 426])
async def test_a_server_without_a_channel_is_used_over_mcp(status: int, without_channel: Any) -> None:
    url, wall = await without_channel(status)
    async with connect(url, reconnect_seconds=0.2) as client:
        await asyncio.gather(*(client.environments() for _ in range(5)))
        assert client.wire == "mcp"
        assert await play(client) is not None
    assert wall.paths.count(CHANNEL_PATH) == 1
    assert set(wall.paths) == {CHANNEL_PATH, CONTROL_PATH}
    with pytest.raises(LudusError, match=f"HTTP {status}"):
        async with connect(url, wire="channel", reconnect_seconds=0.2) as client:
            await client.environments()


async def test_an_address_and_the_blocking_client_negotiate_too(without_channel: Any) -> None:
    url, _ = await without_channel(404)
    async with ServerAddress(url).client() as client:
        assert await play(client) is not None

    def blocking() -> str:
        with sync.connect(url) as client:
            assert client.environments()
            return client.wire

    assert await asyncio.to_thread(blocking) == "mcp"


async def test_a_bad_token_is_refused_and_not_tried_elsewhere(serve: Any) -> None:
    _, record = new_token("trainer", SCOPES)
    file = TokenFile(tokens=(record,)).model_dump_json()
    server = await serve(Playground, variables={"LUDUS_TOKENS": file})
    for token in ("", "ludus_wrong"):
        async with connect(server.url, token=token) as client:
            with pytest.raises(Unauthenticated):
                await client.environments()
            assert client.wire == "auto"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """`url = await peer(status, …)`: a server that answers upgrades with a status, and MCP as if it had everything."""
    async with AsyncExitStack() as stack:

        async def start(
            upgrade: int, settings: Any, asked: list[str], protocol: str | None = None, channel: Any = None
        ) -> str:
            async def refuse(request: web.Request) -> web.StreamResponse:
                asked.append("channel")
                if upgrade != 101:
                    return web.Response(status=upgrade)
                socket = web.WebSocketResponse(protocols=(protocol,) if protocol else ())
                await socket.prepare(request)
                return socket

            async def mcp(request: web.Request) -> web.Response:
                body = await request.json()
                asked.append(body["method"])
                found: Any = {"capabilities": {"extensions": {EXTENSION_ID: settings} if settings is not None else {}}}
                result = found if body["method"] == "server/discover" else {"environments": []}
                return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": result})

            app = web.Application()
            app.router.add_get(CHANNEL_PATH, channel or refuse)
            app.router.add_post(CONTROL_PATH, mcp)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return f"http://127.0.0.1:{runner.addresses[0][1]}"

        yield start


CHANNEL = {"channel": {"path": CHANNEL_PATH, "subprotocol": "ludus.channel.v0.2"}}


@pytest.mark.parametrize(
    ("upgrade", "protocol", "kind"),
    [
        (101, None, ProtocolViolation), (101, "ludus.channel.v9.9", ProtocolViolation), (400, None, ConnectionFailed),
        (401, None, Unauthenticated), (429, None, CapacityError), (500, None, ConnectionFailed),
        (503, None, ConnectionFailed),
    ],
)  # fmt: skip
async def test_no_other_refusal_leads_to_mcp(
    upgrade: int, protocol: str | None, kind: type[LudusError], peer: Peer
) -> None:
    asked: list[str] = []
    url = await peer(upgrade, {"version": "0.2", "modules": {}}, asked, protocol)
    async with connect(url, reconnect_seconds=0.2, patience_seconds=0) as client:
        with pytest.raises(kind):
            await client.environments()
    assert set(asked) == {"channel"}


@pytest.mark.parametrize("settings", [None, {"version": "0.2", "modules": CHANNEL}], ids=["nothing", "a channel"])
async def test_after_a_403_mcp_is_used_only_if_the_settings_have_no_channel(settings: Any, peer: Peer) -> None:
    asked: list[str] = []
    async with connect(await peer(403, settings, asked)) as client:
        with pytest.raises(Forbidden):
            await client.environments()
    assert asked == ["channel", "server/discover"]
    asked.clear()
    async with connect(await peer(403, {"version": "0.2", "modules": {"later": {}}}, asked)) as client:
        assert await client.environments() == ()
    assert asked == ["channel", "server/discover", "dev.ludus/environments/list"]


async def test_a_channel_that_worked_once_is_not_given_up_for_mcp(peer: Peer) -> None:
    asked: list[str] = []

    async def once(request: web.Request) -> web.StreamResponse:
        asked.append("channel")
        if len(asked) > 1:
            return web.Response(status=404)
        socket = web.WebSocketResponse(protocols=("ludus.channel.v0.2",))
        await socket.prepare(request)
        sent = json.loads(await socket.receive_str())
        await socket.send_json({"jsonrpc": "2.0", "id": sent["id"], "result": {"environments": []}})
        await socket.close()
        return socket

    url = await peer(101, {"version": "0.2", "modules": {}}, asked, channel=once)
    async with connect(url, reconnect_seconds=0.2) as client:
        assert await client.environments() == ()
        with pytest.raises(ConnectionFailed, match="404"):
            await client.environments()
        assert client.wire == "channel"
    assert set(asked) == {"channel"}
