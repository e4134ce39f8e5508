"""Identifiers and negotiation, in both eras of MCP (spec chapters 2 and 15)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conformance_world as world
import pytest
from aiohttp import web
from conformance_peer import EXTENSION, LEGACY, McpPeer, RpcError

from ludus.client.transports.channel import ChannelWire
from ludus.client.transports.mcp import McpWire
from ludus.protocol import episodes, errors, methods
from ludus.protocol.identifiers import EXTENSION_VERSION
from ludus.protocol.modules import Module
from ludus.server.serving.serve import LudusServer

Connect = Callable[..., Any]
SUPPORT = Path(__file__).resolve().parents[1] / "support"


async def initialize(peer: McpPeer, revision: str = LEGACY) -> dict[str, Any]:
    """The answer to a handshake of an older revision."""
    info = {"name": "conformance", "version": "0"}
    return await peer.mcp("initialize", protocolVersion=revision, capabilities={}, clientInfo=info)


@pytest.mark.requirement("NEG-5")
async def test_our_client_declares_the_extension_with_every_request(unused_tcp_port: int) -> None:
    seen: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append(body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"])
        result = {"environments": [], "splits": [], "resultType": "complete"}
        if body["method"].endswith("environments/list"):
            result.pop("splits")
        else:
            result.pop("environments")
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": result})

    app = web.Application()
    app.router.add_post("/mcp", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    wire = McpWire(f"http://127.0.0.1:{unused_tcp_port}")
    try:
        await wire.request(methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams())
        await wire.request(methods.LIST_SPLITS, episodes.ListSplitsParams(environment="e"))
    finally:
        await wire.close()
        await runner.cleanup()
    assert seen == [{EXTENSION: {"version": EXTENSION_VERSION}}] * 2


@pytest.mark.requirement("NEG-6", "MTH-5")
async def test_a_modern_request_that_does_not_declare_the_extension_is_refused(
    server: LudusServer, connect: Connect
) -> None:
    peer: McpPeer = connect("mcp", server)
    peer.declare = False
    with pytest.raises(RpcError) as caught:
        await peer.start()
    assert caught.value.code == -32021
    assert EXTENSION in caught.value.data["requiredCapabilities"]["extensions"]
    assert world.RUNS["setup"] == 0


@pytest.mark.requirement("NEG-6")
async def test_a_request_that_declares_another_version_is_refused(server: LudusServer, connect: Connect) -> None:
    peer: McpPeer = connect("mcp", server)
    peer.version = "9.9"
    with pytest.raises(RpcError, match=r"speaks version .* declares '9\.9'") as caught:
        await peer.start()
    assert caught.value.code == -32021
    assert caught.value.data["requiredCapabilities"]["extensions"][EXTENSION]["version"] == EXTENSION_VERSION
    assert world.RUNS["setup"] == 0


@pytest.mark.requirement("NEG-11", "NEG-15")
async def test_a_client_that_knows_only_tools_starts_an_episode(server: LudusServer, connect: Connect) -> None:
    peer: McpPeer = connect("mcp", server)
    peer.declare = False
    tools = {tool["name"]: tool["inputSchema"] for tool in (await peer.mcp("tools/list"))["tools"]}
    assert tools["start_episode"]["required"] == ["environment"]
    assert tools["start_episode"]["properties"].keys() == {"environment", "split", "task", "index", "seed"}
    begun = await peer.tool("start_episode", {"environment": "workshop", "seed": 3})
    text = begun["content"][0]["text"]
    control = connect("channel", server)
    info = await control.info(text.split()[1])
    splits = (await control.call("splits/list", environment="workshop"))["splits"]
    assert info["task"]["split"] == next(split["name"] for split in splits if split["type"] == "train")
    assert info["seed"] == 3
    assert "/play/play_" in text


@pytest.mark.requirement("NEG-14")
async def test_a_process_serves_over_stdio() -> None:
    code = (
        "import asyncio, conformance_world as world\n"
        "from ludus.server import EpisodeHost\n"
        "from ludus.server.transports.mcp.stdio import serve_stdio\n"
        "async def main():\n"
        "    async with EpisodeHost(world.WORLD) as host:\n"
        "        await serve_stdio(host)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=SUPPORT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    peer = McpPeer("")
    assert process.stdin
    assert process.stdout
    try:
        for method, params, found in (
            ("server/discover", {}, EXTENSION),
            ("dev.ludus/splits/list", {"environment": "workshop"}, "endless"),
        ):
            process.stdin.write(peer.body(method, params).encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), 30)
            result = json.loads(line)["result"]
            assert found in json.dumps(result)
            if method == "server/discover":
                settings = result["capabilities"]["extensions"][EXTENSION]
                absent = {"play", "tokens", "channel", "ors"}
                assert settings["modules"].keys() == set(Module) - absent
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 30)
    assert process.returncode == 0


@pytest.mark.requirement("VER-3")
@pytest.mark.parametrize("chosen", [(), ("ludus.channel.v9.9",)], ids=["none", "other"])
async def test_our_client_leaves_a_channel_that_speaks_something_else(
    unused_tcp_port: int, chosen: tuple[str, ...]
) -> None:
    heard: list[Any] = []

    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=chosen)
        await socket.prepare(request)
        heard.extend([message async for message in socket])
        return socket

    app = web.Application()
    app.router.add_get("/channel", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    wire = ChannelWire(f"http://127.0.0.1:{unused_tcp_port}", reconnect_seconds=0.5)
    try:
        with pytest.raises(errors.ProtocolViolation):
            await wire.request(methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams(), timeout=5)
    finally:
        await wire.close()
        await runner.cleanup()
    assert heard == []
