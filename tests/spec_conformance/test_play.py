"""The play plane (module `play`)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import LEGACY, MODERN, McpPeer, Peer, RpcError
from waiting import wait_until

from ludus.server import ServerLimits
from ludus.server.serving.serve import LudusServer

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
    await wait_until(lambda: server.app.context.host.stats().kept == 0)
    for revision in (MODERN, LEGACY):
        player: McpPeer = connect("mcp", server, path=started["play"]["path"], revision=revision)
        assert (await player.mcp("tools/list"))["tools"] == []
        assert (await player.tool("earn"))["isError"]
    assert world.RUNS["earn"] == 0


@pytest.mark.requirement("PLAY-15")
@pytest.mark.parametrize("arguments", [{}, {"answer": 5}, {"answer": "x", "more": 1}, {"answer": None}])
async def test_an_answer_that_does_not_fit_is_shown_to_the_agent_as_an_error_and_not_submitted(
    trainer: Peer, play: Play, arguments: dict[str, Any]
) -> None:
    started = await trainer.start()
    player = play(started)
    shown = await player.tool("submit_answer", arguments)
    assert shown["isError"] is True
    assert "answer" in shown["content"][0]["text"]
    info = await trainer.info(started["episode"])
    assert (info["status"], info["steps"], world.RUNS["grade"]) == ("running", 0, 0)
    assert (await player.tool("submit_answer", {"answer": "x"}))["isError"] is False


@pytest.mark.requirement("PLAY-16", "PLAY-9")
async def test_a_call_that_fails_the_episode_names_the_incident_and_later_calls_of_any_name_run_nothing(
    trainer: Peer, play: Play
) -> None:
    started = await trainer.start("faulty", index=0)
    player = play(started)
    failed = await player.tool("crash")
    incident = (await trainer.info(started["episode"]))["incident"]
    assert (failed["isError"], incident in failed["content"][0]["text"]) == (True, True)
    for name in ("crash", "submit_answer", "no_such_tool"):
        late = await player.tool(name)
        assert late["isError"] is True
        assert "over" in late["content"][0]["text"]
    assert world.RUNS["crash"] == 1


@pytest.mark.requirement("PLAY-17")
async def test_a_marked_call_that_skips_or_reuses_a_key_is_refused_by_code(trainer: Peer, play: Play) -> None:
    player = play(await trainer.start())
    await player.tool("earn", _meta={"dev.ludus/step": {"step": 1, "key": "a"}})
    wrong: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
        (4091, {"step": 7, "key": "b"}, {}),
        (4091, {"step": 1, "key": "b"}, {}),
        (4092, {"key": "a"}, {"amount": 3.0}),
    ]
    for code, mark, arguments in wrong:
        with pytest.raises(RpcError) as caught:
            await player.tool("earn", arguments, _meta={"dev.ludus/step": mark})
        assert caught.value.code == code
    assert world.RUNS["earn"] == 1


@pytest.mark.requirement("STEP-5", "PLAY-10")
@BOTH_ERAS
async def test_mcps_notice_of_cancellation_does_not_cancel_a_step(trainer: Peer, play: Play, revision: str) -> None:
    started = await trainer.start()
    player, other = play(started, revision), play(started, revision)
    running = asyncio.create_task(player.tool("wait", {"gate": "g"}))
    await wait_until(lambda: world.RUNS["begin g"] == 1)
    await other.notify("notifications/cancelled", requestId=1)
    world.GATES["g"].set()
    assert (await running)["content"][0]["text"] == "g"
    assert (await trainer.info(started["episode"]))["reward"]["value"] == 1.0
