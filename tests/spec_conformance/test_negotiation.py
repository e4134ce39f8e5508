"""Identifiers and negotiation, in both eras of MCP (spec chapters 2 and 15)."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conformance_world as world
import pytest
from aiohttp import web
from conformance_peer import EXTENSION, LEGACY, MODERN, McpPeer, Peer, RpcError

from ludus.client.transports.channel import ChannelWire
from ludus.client.transports.mcp import McpWire
from ludus.protocol import episodes, errors, methods
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL, EXTENSION_VERSION
from ludus.server.web.serve import LudusServer

Connect = Callable[..., Any]
SUPPORT = Path(__file__).resolve().parents[1] / "support"
SETTINGS = {
    "version": "0.1",
    "channel": "/channel",
    "channelSubprotocol": "ludus.channel.v0.1",
    "play": "/play/{capability}/mcp",
}


async def initialize(peer: McpPeer, revision: str = LEGACY) -> dict[str, Any]:
    """The answer to a handshake of an older revision."""
    info = {"name": "conformance", "version": "0"}
    return await peer.mcp("initialize", protocolVersion=revision, capabilities={}, clientInfo=info)


@pytest.mark.requirement("NEG-1", "NEG-3")
async def test_discovery_announces_the_extension_with_its_settings(server: LudusServer, connect: Connect) -> None:
    found = await connect("mcp", server).mcp("server/discover")
    assert found["capabilities"]["extensions"] == {EXTENSION: SETTINGS}


@pytest.mark.requirement("NEG-2", "NEG-3")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_the_handshake_announces_the_extension_as_experimental(
    server: LudusServer, connect: Connect, revision: str
) -> None:
    found = await initialize(connect("mcp", server, revision=revision), revision)
    assert found["protocolVersion"] == revision
    assert found["capabilities"]["experimental"][EXTENSION] == SETTINGS


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


@pytest.mark.requirement("NEG-7", "NEG-8")
async def test_the_methods_answer_in_an_era_that_declares_nothing(server: LudusServer, connect: Connect) -> None:
    legacy = connect("mcp", server, revision=LEGACY)
    started = await legacy.start()
    result = await legacy.step(started["episode"], 1, "earn")
    assert result["reward"]["value"] == 1.0
    modern = connect("mcp", server)
    assert (await modern.info(started["episode"]))["steps"] == 1


@pytest.mark.requirement("NEG-9")
async def test_one_episode_goes_on_over_any_connection_era_and_wire(server: LudusServer, connect: Connect) -> None:
    episode = (await connect("channel", server).start())["episode"]
    ways: list[Peer] = [
        connect("mcp", server),
        connect("mcp", server, revision=LEGACY),
        connect("channel", server),
        connect("mcp", server),
        connect("channel", server),
    ]
    for number, peer in enumerate(ways, 1):
        assert (await peer.step(episode, number, "which"))["content"][0]["text"] == str(number)


@pytest.mark.requirement("NEG-11")
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_a_stock_client_starts_and_plays_an_episode(server: LudusServer, connect: Connect, revision: str) -> None:
    peer: McpPeer = connect("mcp", server, revision=revision)
    peer.declare = False
    listed = await peer.mcp("tools/list")
    assert "start_episode" in [tool["name"] for tool in listed["tools"]]
    begun = await peer.tool("start_episode", {"environment": "workshop", "split": "train", "index": 3})
    (block,) = begun["content"]
    text = block["text"]
    assert "Question 3?" in text
    assert "- say: " in text
    assert "Episode e_" in text
    path = re.search(r"/play/play_[\w-]+/mcp", text)
    assert path
    player: McpPeer = connect("mcp", server, path=path[0], revision=revision)
    assert (await player.tool("say", {"text": "hello"}))["content"][0]["text"] == "hello"


@pytest.mark.requirement("NEG-12")
async def test_the_control_endpoints_tools_are_the_same_for_everybody(server: LudusServer, connect: Connect) -> None:
    async def tools(*, declare: bool, revision: str = MODERN) -> str:
        peer: McpPeer = connect("mcp", server, revision=revision)
        peer.declare = declare
        return json.dumps((await peer.mcp("tools/list"))["tools"], sort_keys=True)

    before = [await tools(declare=True), await tools(declare=False), await tools(declare=False, revision=LEGACY)]
    await connect("mcp", server).start(count=3)
    after = [await tools(declare=True), await tools(declare=False), await tools(declare=False, revision=LEGACY)]
    assert len({*before, *after}) == 1


@pytest.mark.requirement("NEG-13")
async def test_a_plain_tools_result_holds_rewards_only_for_trainers_who_ask(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect
) -> None:
    for name, declare, revision, sees in (
        ("alice", True, MODERN, True),
        ("alice", False, MODERN, False),
        ("alice", False, LEGACY, False),
        ("player", True, MODERN, False),
    ):
        peer: McpPeer = connect("mcp", guarded, tokens[name], revision=revision)
        episode = (await connect("channel", guarded, tokens[name]).start())["episode"]
        peer.declare = declare
        for tool, arguments in (
            ("start_episode", {"environment": "workshop"}),
            ("call_tool", {"episode": episode, "tool": "earn"}),
        ):
            result = await peer.tool(tool, arguments)
            meta = result.pop("_meta", {}).get(EXTENSION, {})
            assert world.SECRET not in json.dumps(result)
            assert "reward" not in json.dumps({key: result[key] for key in result if key != "content"})
            assert (meta.get("reward") is not None, meta.get("metadata") == {"note": world.SECRET}) == (
                (sees, sees) if tool == "call_tool" else (False, False)
            ), (name, declare, tool)


@pytest.mark.requirement("NEG-14")
async def test_a_process_serves_over_stdio() -> None:
    code = (
        "import asyncio, conformance_world as world\n"
        "from ludus.server import EpisodeHost\n"
        "from ludus.server.transports.mcp import serve_stdio\n"
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
            assert found in json.dumps(json.loads(line)["result"])
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 30)
    assert process.returncode == 0


@pytest.mark.requirement("VER-2")
def test_the_subprotocol_names_the_version() -> None:
    assert f"ludus.channel.v{EXTENSION_VERSION}" == CHANNEL_SUBPROTOCOL


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
    wire = ChannelWire(f"http://127.0.0.1:{unused_tcp_port}", patience=0.5)
    try:
        with pytest.raises(errors.ProtocolViolation):
            await wire.request(methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams(), timeout=5)
    finally:
        await wire.close()
        await runner.cleanup()
    assert heard == []
