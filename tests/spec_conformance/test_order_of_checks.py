"""Which error comes first when several hold, and what HTTP makes of it (chapter 7 of the core)."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import conformance_world as world
import pytest
from conformance_peer import McpPeer, Peer, RpcError

from ludus.server import ServerLimits
from ludus.server.serving.serve import LudusServer

Connect = Callable[..., Any]
Serve = Callable[..., Awaitable[LudusServer]]
TRAIN = {"environment": "workshop", "split": "train"}


async def code_of(answer: Awaitable[Any]) -> int:
    """The code of the error that comes."""
    with pytest.raises(RpcError) as caught:
        await answer
    return caught.value.code


@pytest.mark.requirement("ERR-7")
async def test_what_a_caller_may_comes_before_what_it_sends(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect, wire: str
) -> None:
    reader, alice = connect(wire, guarded, tokens["reader"]), connect(wire, guarded, tokens["alice"])
    assert await code_of(reader.exchange("dev.ludus/nothing/like/it", {})) == -32601
    assert await code_of(reader.call("episodes/start", nonsense=1)) == 4030
    assert await code_of(reader.call("episodes/get", episode="unknown")) == 4030
    assert await code_of(alice.call("tasks/get", environment="unknown", split="unknown", task=7)) == -32602
    assert await code_of(alice.call("tasks/get", environment="unknown", split="unknown", index=0)) == 4041
    assert await code_of(alice.call("tasks/get", environment="workshop", split="unknown", index=0)) == 4042
    assert await code_of(alice.call("tasks/get", environment="workshop", split="test", task="unknown")) == 4030
    assert await code_of(alice.call("tasks/get", **TRAIN, task="unknown")) == 4043


@pytest.mark.requirement("ERR-7")
async def test_the_declaration_comes_after_the_method_and_before_the_scope(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect
) -> None:
    reader: McpPeer = connect("mcp", guarded, tokens["reader"])
    reader.declare = False
    assert await code_of(reader.exchange("dev.ludus/nothing/like/it", {})) == -32601
    assert await code_of(reader.call("episodes/start", nonsense=1)) == -32021


@pytest.mark.requirement("ERR-7")
async def test_the_key_comes_before_the_end_the_end_before_the_number_and_the_number_before_the_turn(
    peer: Peer,
) -> None:
    episode = (await peer.start())["episode"]
    await peer.step(episode, 1, "earn", key="a", turn={"number": 5})
    assert await code_of(peer.step("unknown", 0, "earn", key="a")) == -32602
    assert await code_of(peer.step("unknown", 9, "earn", key="a")) == 4044
    assert await code_of(peer.step(episode, 9, "earn", key="a", turn={"number": 1})) == 4092
    assert await code_of(peer.step(episode, 9, "earn", turn={"number": 1})) == 4091
    assert await code_of(peer.step(episode, 2, "earn", turn={"number": 1})) == -32602
    await peer.call("episodes/close", episode=episode)
    assert await code_of(peer.step(episode, 0, "earn")) == -32602
    assert await code_of(peer.step(episode, 9, "earn", key="a")) == 4092
    assert await code_of(peer.step(episode, 9, "earn", turn={"number": 1})) == 4093
    assert world.RUNS["earn"] == 1


@pytest.mark.requirement("ERR-7")
async def test_the_key_comes_before_what_a_start_a_score_or_a_report_names_and_after_the_episode_of_a_fork(
    peer: Peer,
) -> None:
    started = await peer.start(key="k")
    fork = {"episode": started["episode"], "key": "k"}
    await peer.call("episodes/fork", **fork)
    group = (await peer.info(started["episode"]))["group"]
    await peer.call("groups/score", group=group, candidates={started["episode"]: {"messages": []}}, key="k")
    await peer.call("outcomes/report", **TRAIN, outcomes=[], key="k")
    nowhere = {"environment": "unknown", "split": "unknown", "key": "k"}
    assert await code_of(peer.call("episodes/start", **nowhere)) == 4092
    assert await code_of(peer.call("groups/score", group="unknown", candidates={}, key="k")) == 4092
    assert await code_of(peer.call("outcomes/report", **nowhere, outcomes=[])) == 4092
    assert await code_of(peer.call("episodes/fork", episode="unknown", key="k")) == 4044
    assert await code_of(peer.call("episodes/fork", **fork, step=0)) == 4092


@pytest.mark.requirement("ERR-7")
async def test_what_is_named_comes_before_room(serve: Serve, connect: Connect, wire: str) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(max_episodes=1, queue_seconds=0.02, grace_seconds=0.3))
    peer = connect(wire, server)
    await peer.start()
    assert await code_of(peer.call("episodes/start", **TRAIN, task="unknown", key="k")) == 4043
    assert await code_of(peer.call("episodes/start", **TRAIN, key="k")) == 4290


@pytest.mark.requirement("ERR-8")
async def test_an_error_of_a_method_has_the_status_of_a_result(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect
) -> None:
    alice: McpPeer = connect("mcp", guarded, tokens["alice"])
    started = await alice.start()
    running, ended = started["episode"], (await alice.start())["episode"]
    await alice.step(running, 1, "earn", key="a")
    await alice.call("episodes/close", episode=ended)
    step: dict[str, Any] = {"episode": running, "step": 2, "tool": "earn", "key": "b"}
    asked: list[tuple[int, str, dict[str, Any]]] = [
        (4030, "tasks/get", {"environment": "workshop", "split": "test", "index": 0}),
        (4041, "splits/list", {"environment": "unknown"}),
        (4042, "tasks/list", {"environment": "workshop", "split": "unknown"}),
        (4043, "tasks/get", {**TRAIN, "task": "unknown"}),
        (4044, "episodes/get", {"episode": "unknown"}),
        (4045, "groups/score", {"group": "unknown", "candidates": {}, "key": "k"}),
        (4091, "episodes/step", {**step, "step": 9}),
        (4092, "episodes/step", {**step, "key": "a"}),
        (4093, "episodes/step", {**step, "episode": ended, "step": 1}),
        (4220, "episodes/start", {"environment": "plain", "split": "train", "seed": 1, "key": "k"}),
        (5001, "episodes/start", {"environment": "faulty", "split": "train", "index": 1, "key": "k"}),
    ]
    for code, method, params in asked:
        status, reply = await alice.post("dev.ludus/" + method, params)
        assert (reply["error"]["code"], status) == (code, 200)


@pytest.mark.requirement("ERR-9")
async def test_a_refusal_of_a_whole_exchange_has_a_failure_without_an_id_as_its_body(
    guarded: LudusServer, tokens: dict[str, str]
) -> None:
    allowed = {"Authorization": f"Bearer {tokens['alice']}"}
    large = b" " * (ServerLimits().body_bytes + 1)
    asked: list[tuple[int, int, str, dict[str, str], bytes]] = [
        (401, 4010, "/mcp", {}, b"{}"),
        (403, 4030, "/mcp", {**allowed, "Origin": "http://other.example"}, b"{}"),
        (404, 4011, "/play/play_forged/mcp", {}, b"{}"),
        (413, 4130, "/mcp", allowed, large),
        (421, -32600, "/mcp", {**allowed, "Host": "other.example"}, b"{}"),
    ]
    async with aiohttp.ClientSession() as http:
        for status, code, path, headers, body in asked:
            async with http.post(guarded.url + path, data=io.BytesIO(body), headers=headers) as response:
                failure = await response.json()
                assert (response.status, failure["error"]["code"], failure["id"]) == (status, code, None)
                assert failure["error"]["message"]
