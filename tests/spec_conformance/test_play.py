"""The play plane (spec chapter 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import LEGACY, MODERN, McpPeer, Peer, until

from ludus.server import ServerLimits
from ludus.server.web.serve import LudusServer

Connect = Callable[..., Any]
Serve = Callable[..., Awaitable[LudusServer]]
BOTH_ERAS = pytest.mark.parametrize("revision", [MODERN, LEGACY])


@pytest.fixture
async def trainer(server: LudusServer, connect: Connect) -> Peer:
    """A principal that starts episodes and sees everything."""
    peer: Peer = connect("channel", server)
    return peer


@pytest.fixture
def play(server: LudusServer, connect: Connect) -> Callable[..., McpPeer]:
    """`play(started, revision=…)`: a stock client at an episode's play plane."""

    def make(started: dict[str, Any], revision: str = MODERN) -> McpPeer:
        player: McpPeer = connect("mcp", server, path=started["play"]["path"], revision=revision)
        player.declare = False
        return player

    return make


Play = Callable[..., McpPeer]


@pytest.mark.requirement("PLAY-1")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_stock_clients_of_every_older_revision_shake_hands(trainer: Peer, play: Play, revision: str) -> None:
    player = play(await trainer.start(), revision)
    found = await player.mcp(
        "initialize", protocolVersion=revision, capabilities={}, clientInfo={"name": "stock", "version": "0"}
    )
    assert found["protocolVersion"] == revision
    assert (await player.tool("say", {"text": "x"}))["content"][0]["text"] == "x"


@pytest.mark.requirement("PLAY-1")
async def test_both_planes_speak_the_same_revisions(
    trainer: Peer, play: Play, server: LudusServer, connect: Connect
) -> None:
    here = await play(await trainer.start()).mcp("server/discover")
    there = await connect("mcp", server).mcp("server/discover")
    assert here["supportedVersions"] == there["supportedVersions"]
    assert MODERN in here["supportedVersions"]


LEAKS = re.compile(r'reward|component|metadata|"(fields|task|seed|split|grade|step|status)"\s*:', re.IGNORECASE)


@pytest.mark.requirement("PLAY-6")
@BOTH_ERAS
async def test_a_failure_on_the_play_plane_shows_no_cause(trainer: Peer, play: Play, revision: str) -> None:
    for tool in ("crash", "hang", "not_a_number", "below"):
        started = await trainer.start("faulty", task="p-0")
        player = play(started, revision)
        result = await player.tool(tool)
        assert result["isError"]
        assert world.SECRET not in json.dumps(result)
        assert not LEAKS.search(json.dumps(result))


@pytest.mark.requirement("PLAY-13", "KEEP-4")
async def test_a_forgotten_episode_has_no_tools_and_says_so(serve: Serve, connect: Connect) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(result_ttl_seconds=0.02, grace_seconds=0.3))
    trainer = connect("channel", server)
    started = await trainer.start()
    await trainer.call("episodes/close", episode=started["episode"])
    await until(lambda: server.app.context.host.stats().kept == 0)
    for revision in (MODERN, LEGACY):
        player: McpPeer = connect("mcp", server, path=started["play"]["path"], revision=revision)
        assert (await player.mcp("tools/list"))["tools"] == []
        assert (await player.tool("earn"))["isError"]
    assert world.RUNS["earn"] == 0
