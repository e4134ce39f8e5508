"""The play plane (spec chapter 5)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import EXTENSION, LEGACY, MODERN, McpPeer, Peer, RpcError, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ludus.server import ServerLimits
from ludus.server.web.serve import LudusServer

Connect = Callable[..., Any]
Serve = Callable[..., Awaitable[LudusServer]]
BOTH_ERAS = pytest.mark.parametrize("revision", [MODERN, LEGACY])


@pytest.fixture
async def trainer(server: LudusServer, connect: Connect) -> Peer:
    """Somebody who starts episodes and sees everything."""
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


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


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


@pytest.mark.requirement("PLAY-2")
@BOTH_ERAS
async def test_the_tools_are_those_of_the_episode(trainer: Peer, play: Play, revision: str) -> None:
    starts: tuple[dict[str, Any], ...] = ({}, {"tools": ["say", "earn"]}, {"environment": "plain"})
    for start in starts:
        started = await trainer.start(**start)
        listed = (await play(started, revision).mcp("tools/list"))["tools"]
        shown = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed]
        gradable = start.get("environment") != "plain"
        assert shown[: len(started["tools"])] == started["tools"]
        assert [tool["name"] for tool in shown[len(started["tools"]) :]] == (["submit_answer"] if gradable else [])


@pytest.mark.requirement("PLAY-3", "PLAY-6")
@BOTH_ERAS
async def test_an_answer_is_handed_in_without_telling_the_grade(trainer: Peer, play: Play, revision: str) -> None:
    replies = []
    for answer in (f"{world.SECRET}-0", "wrong"):
        started = await trainer.start(index=0)
        player = play(started, revision)
        tool = (await player.mcp("tools/list"))["tools"][-1]
        assert tool["inputSchema"]["required"] == ["answer"]
        assert tool["inputSchema"]["properties"]["answer"]["type"] == "string"
        replies.append(text_of(await player.tool("submit_answer", {"answer": answer})))
        info = await trainer.info(started["episode"])
        assert info["endReason"] == "submitted"
        assert info["reward"]["value"] == float(answer != "wrong")
    assert replies[0] == replies[1]


@pytest.mark.requirement("PLAY-4", "PLAY-5")
@BOTH_ERAS
async def test_a_call_is_a_step_and_its_answer_the_observation(trainer: Peer, play: Play, revision: str) -> None:
    started = await trainer.start()
    player = play(started, revision)
    results = [await player.tool(name, arguments) for name, arguments in (
        ("say", {"text": "hello"}), ("look", {}), ("refuse", {}), ("say", {"text": 3}), ("which", {}),
    )]  # fmt: skip
    assert results[0]["content"] == [{"type": "text", "text": "hello"}]
    assert results[1]["content"][1] == {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    assert [bool(result.get("isError")) for result in results] == [False, False, True, True, False]
    assert text_of(results[2]) == "you may not do that here"
    assert text_of(results[4]) == "5"
    assert not [result for result in results if "structuredContent" in result]
    assert (await trainer.info(started["episode"]))["steps"] == 5


LEAKS = re.compile(r'reward|component|metadata|"(fields|task|seed|split|grade|step|status)"\s*:', re.IGNORECASE)
ACTIONS = st.lists(
    st.sampled_from(["earn", "judge", "say", "roll", "look", "refuse", "which", "finish", "submit_answer", "sing"]),
    min_size=1,
    max_size=6,
)


@pytest.mark.requirement("PLAY-6", "CRED-12")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, revision=st.sampled_from([MODERN, LEGACY]), split=st.sampled_from(["train", "test"]))
def test_nothing_on_the_play_plane_tells_of_rewards_tasks_or_other_episodes(
    actions: list[str], revision: str, split: str
) -> None:
    asyncio.run(_play_and_listen(actions, revision, split))


async def _play_and_listen(actions: list[str], revision: str, split: str) -> None:
    from conformance_peer import ChannelPeer

    from ludus.server.web.serve import serving
    from ludus.server.web.settings import ServerSettings

    async with serving(world.WORLD, ServerSettings(port=0, limits=ServerLimits(grace_seconds=0.1)), {}) as server:
        trainer = ChannelPeer(server.url)
        mine, other = await trainer.start(split=split), await trainer.start(split=split)
        player = McpPeer(server.url, path=mine["play"]["path"], revision=revision)
        player.declare = False
        arguments = {"say": {"text": "x"}, "finish": {"word": "x"}, "submit_answer": {"answer": "x"}}
        try:
            for number, action in enumerate(actions):
                key = {"dev.ludus/step": {"key": f"k{number}"}}
                await player.post("tools/call", {"name": action, "arguments": arguments.get(action, {}), "_meta": key})
                await player.post("tools/call", {"name": action, "arguments": {"wrong": 1}})
            for method, params in (
                ("tools/list", {}), ("prompts/list", {}), ("prompts/get", {"name": "task"}),
                ("prompts/get", {"name": "other"}), ("server/discover", {}), ("resources/list", {}), ("x/y", {}),
            ):  # fmt: skip
                await player.post(method, params)
            await trainer.call("episodes/close", episode=mine["episode"])
            await player.post("tools/call", {"name": "earn", "arguments": {}})
        finally:
            await player.close()
            await trainer.close()
    own_words = [json.dumps(tool["description"])[1:-1] for tool in mine["tools"]] + ["$schema"]
    for body in player.bodies:
        for words in own_words:
            body = body.replace(words, "")
        assert world.SECRET not in body
        assert other["episode"] not in body
        assert other["play"]["path"].split("/")[2] not in body
        assert mine["task"]["id"] not in body
        assert not LEAKS.search(body), body


@pytest.mark.requirement("PLAY-6")
@BOTH_ERAS
async def test_a_failure_on_the_play_plane_tells_no_cause(trainer: Peer, play: Play, revision: str) -> None:
    for tool in ("crash", "hang", "not_a_number", "below"):
        started = await trainer.start("faulty", task="p-0")
        player = play(started, revision)
        result = await player.tool(tool)
        assert result["isError"]
        assert world.SECRET not in json.dumps(result)
        assert not LEAKS.search(json.dumps(result))


@pytest.mark.requirement("PLAY-7", "CRED-11")
@BOTH_ERAS
async def test_the_play_plane_does_not_know_the_extension(trainer: Peer, play: Play, revision: str) -> None:
    from conformance_peer import OPENRPC

    started = await trainer.start()
    player = play(started, revision)
    player.declare = True
    for method in OPENRPC:
        with pytest.raises(RpcError) as caught:
            await player.exchange(method, {"episode": started["episode"]})
        assert caught.value.code == -32601, method
    opening = "server/discover" if revision == MODERN else "initialize"
    params = {} if revision == MODERN else {
        "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "x", "version": "0"},
    }  # fmt: skip
    assert EXTENSION not in json.dumps(await player.mcp(opening, **params))


@pytest.mark.requirement("PLAY-8")
@BOTH_ERAS
async def test_the_prompt_is_an_mcp_prompt_and_the_instructions(trainer: Peer, play: Play, revision: str) -> None:
    player = play(await trainer.start(index=4), revision)
    (prompt,) = (await player.mcp("prompts/list"))["prompts"]
    messages = (await player.mcp("prompts/get", name=prompt["name"]))["messages"]
    assert messages == [{"role": "user", "content": {"type": "text", "text": "Question 4?"}}]
    opening = "server/discover" if revision == MODERN else "initialize"
    params = {} if revision == MODERN else {
        "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "x", "version": "0"},
    }  # fmt: skip
    assert (await player.mcp(opening, **params))["instructions"] == "Question 4?"


@pytest.mark.requirement("PLAY-9", "LIFE-9")
@BOTH_ERAS
@pytest.mark.parametrize("how", ["finish", "submit_answer", "close", "limit"])
async def test_a_call_after_the_end_runs_nothing_and_says_so(
    trainer: Peer, play: Play, revision: str, how: str
) -> None:
    started = await trainer.start(limits={"maxSteps": 1} if how == "limit" else None)
    player = play(started, revision)
    match how:
        case "finish":
            await player.tool("finish", {"word": "x"})
        case "submit_answer":
            await player.tool("submit_answer", {"answer": "x"})
        case "close":
            await trainer.call("episodes/close", episode=started["episode"])
        case _:
            await player.tool("say", {"text": "x"})
    before = await trainer.info(started["episode"])
    for name, arguments in (("earn", {}), ("submit_answer", {"answer": "y"}), ("submit_answer", {}), ("sing", {})):
        result = await player.tool(name, arguments)
        assert result["isError"]
        assert "over" in text_of(result)
    assert world.RUNS["earn"] == 0
    assert await trainer.info(started["episode"]) == before
    assert (await player.mcp("tools/list"))["tools"]


@pytest.mark.requirement("PLAY-10", "STEP-5")
@BOTH_ERAS
async def test_a_step_runs_to_its_end_without_its_player(trainer: Peer, play: Play, revision: str) -> None:
    started = await trainer.start()
    player = play(started, revision)
    gate = world.GATES["g"] = asyncio.Event()
    call = asyncio.create_task(player.tool("wait", {"gate": "g"}))
    await until(lambda: world.RUNS["begin g"] == 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await player.close()
    gate.set()
    await until(lambda: world.RUNS["end g"] == 1)
    assert text_of(await play(started, revision).tool("which")) == "2"
    assert (await trainer.rewards(started["episode"]))["total"]["value"] == 1.0


@pytest.mark.requirement("PLAY-11")
@BOTH_ERAS
async def test_a_tool_that_is_not_there_is_mcps_own_error(trainer: Peer, play: Play, revision: str) -> None:
    player = play(await trainer.start(tools=["say"]), revision)
    for name in ("sing", "earn", "start_episode"):
        with pytest.raises(RpcError) as caught:
            await player.tool(name)
        assert caught.value.code == -32602
    assert world.RUNS["earn"] == 0


@pytest.mark.requirement("PLAY-12")
@BOTH_ERAS
async def test_a_marked_call_is_done_once(trainer: Peer, play: Play, revision: str) -> None:
    started = await trainer.start()
    player = play(started, revision)

    async def call(name: str, **mark: Any) -> dict[str, Any]:
        return await player.tool(name, _meta={"dev.ludus/step": mark})

    first = await call("earn", step=1, key="a")
    assert await call("earn", step=1, key="a") == first
    assert await call("earn", key="a") == first
    assert await call("earn", key="b") != first
    assert world.RUNS["earn"] == 2
    for name, mark, code in (
        ("earn", {"step": 4, "key": "c"}, 4091),
        ("earn", {"step": 1, "key": "c"}, 4091),
        ("which", {"step": 1, "key": "a"}, 4092),
        ("earn", {"step": 3}, -32602),
        ("earn", {"key": ""}, -32602),
        ("earn", {"key": "d", "more": 1}, -32602),
    ):
        with pytest.raises(RpcError) as caught:
            await call(name, **mark)
        assert caught.value.code == code, mark
    assert world.RUNS["earn"] == 2


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
