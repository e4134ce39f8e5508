"""Reward logs, common rules of methods, errors, content (spec chapters 4.1, 11, 12 and 13)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import OPENRPC, SCHEMA, ChannelPeer, McpPeer, OrsPeer, Peer, RpcError

from ludus.server.serving.serve import LudusServer

Connect = Callable[..., Any]


@pytest.mark.requirement("REW-8")
async def test_a_running_episode_without_rewards_has_a_total_of_zero_with_the_reason(peer: Peer) -> None:
    total = (await peer.rewards((await peer.start())["episode"]))["total"]
    assert (total["value"], total["reason"]) == (0.0, "no reward was given")


@pytest.mark.requirement("REW-5", "REW-2")
async def test_an_unscored_step_makes_the_total_unscored(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    await peer.step(episode, 1, "earn")
    judged = await peer.step(episode, 2, "judge")
    assert judged["reward"]["value"] is None
    await peer.step(episode, 3, "finish", arguments={"word": "x"})
    total = (await peer.rewards(episode))["total"]
    assert (total["value"], total["reason"]) == (None, "the judge gave no verdict")
    assert (await peer.info(episode))["reward"]["value"] is None


# ── common rules ───────────────────────────────────────────────────────────────────────────────────────────────────


async def ended_world(peer: Peer) -> str:
    """Return the id of a world in which no episode plays."""
    started = await peer.call("episodes/start", environment="shop", split="train", world={}, key="shop")
    [episode] = started["episodes"]
    await peer.call("episodes/close", episode=episode["episode"])
    return str(episode["world"]["id"])


def valid_params(started: dict[str, Any], kept: str) -> dict[str, dict[str, Any]]:
    """Params of every method that a server would accept.

    Args:
        started: the result of a start.
        kept: a world in which no episode plays.
    """
    where = {"environment": "workshop", "split": "train"}
    episode = started["episodes"][0]["episode"]
    return {
        "environments/list": {},
        "splits/list": {"environment": "workshop"},
        "tasks/list": where,
        "tasks/get": {**where, "index": 0},
        "tasks/sample": where,
        "episodes/start": {**where, "key": "s"},
        "episodes/step": {"episode": episode, "step": 1, "tool": "earn", "key": "a"},
        "episodes/rewards": {"episode": episode},
        "episodes/get": {"episode": episode},
        "episodes/fork": {"episode": episode, "key": "f"},
        "groups/score": {"group": started["group"], "candidates": {episode: {"messages": []}}, "key": "g"},
        "outcomes/report": {**where, "outcomes": [], "key": "o"},
        "episodes/grade": {"episode": episode, "answer": "", "key": "b"},
        "episodes/close": {"episode": episode},
        "worlds/list": {},
        "worlds/get": {"world": kept},
        "worlds/branch": {"world": kept, "key": "c"},
        "worlds/reset": {"world": kept, "version": 0, "key": "d"},
        "worlds/delete": {"world": kept},
    }


@pytest.mark.requirement("MTH-1", "MTH-3", "VER-1", "NEG-8")
async def test_every_method_answers_minimal_params_with_a_result_that_the_schema_knows(peer: Peer) -> None:
    started = await peer.call("episodes/start", environment="workshop", split="train", key="k")
    asked = valid_params(started, await ended_world(peer))
    assert {"dev.ludus/" + method for method in asked} == OPENRPC.keys()
    for method, params in asked.items():
        await peer.call(method, **params)


@pytest.mark.requirement("MTH-8", "CHAN-22")
async def test_what_mcp_adds_to_params_and_results_is_no_field_of_the_extension(
    server: LudusServer, connect: Connect
) -> None:
    mcp, channel = connect("mcp", server), connect("channel", server)
    _, reply = await mcp.post("dev.ludus/environments/list", {"_meta": {"progressToken": 7}})
    added = reply["result"].keys() - {"environments"}
    assert added <= {"_meta", "resultType"}
    with pytest.raises(RpcError, match="_meta") as caught:
        await channel.call("environments/list", _meta={})
    assert caught.value.code == -32602
    assert await channel.call("environments/list") == {"environments": reply["result"]["environments"]}


@pytest.mark.requirement("MTH-2", "CONT-6")
async def test_half_of_a_surrogate_pair_in_params_is_refused(peer: Peer) -> None:
    half = "\ud800"
    episode = (await peer.start())["episode"]
    for method, params in (
        ("splits/list", {"environment": half}),
        ("episodes/get", {"episode": half}),
        ("episodes/grade", {"episode": episode, "answer": half, "key": "k"}),
        ("episodes/step", {"episode": episode, "step": 1, "tool": "earn", "key": half}),
    ):
        with pytest.raises(RpcError) as caught:
            await peer.call(method, **params)
        assert caught.value.code == -32602, method
    assert (await peer.info(episode))["steps"] == 0
    step = await peer.step(episode, 1, half)
    assert step["error"]["code"] == "unknown_tool", "the name of a tool is chosen by the policy"


@pytest.mark.requirement("MTH-2", "MTH-5", "MTH-6")
async def test_params_that_do_not_fit_are_refused_by_name_and_change_nothing(peer: Peer, server: LudusServer) -> None:
    started = await peer.call("episodes/start", environment="workshop", split="train", key="k")
    episode = started["episodes"][0]["episode"]
    before = await peer.info(episode)
    for method, params in valid_params(started, await ended_world(peer)).items():
        schema = SCHEMA["$defs"][OPENRPC["dev.ludus/" + method]["x-params"]]
        wrong: list[tuple[str, dict[str, Any]]] = [("surprise", {**params, "surprise": 1})]
        for field in schema.get("required", ()):
            wrong.append((field, {key: value for key, value in params.items() if key != field}))
            wrong.append((field, {**params, field: [[1]]}))
            wrong.append((field, {**params, field: None}))
        for field, given in wrong:
            with pytest.raises(RpcError) as caught:
                await peer.call(method, **given)
            assert caught.value.code == -32602, (method, given)
            assert field in caught.value.message, (method, given, caught.value.message)
    assert await peer.info(episode) == before
    assert server.app.context.host.stats().running == 1


@pytest.mark.requirement("MTH-2")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_json_does_not_have_are_refused_on_every_wire(
    server: LudusServer, connect: Connect, number: str
) -> None:
    outcome = f'[{{"task":"p-0","reward":{number},"passed":true}}]'
    params = f'{{"environment":"workshop","split":"train","key":"k","outcomes":{outcome}'
    channel: ChannelPeer = connect("channel", server)
    await channel.frame(f'{{"jsonrpc":"2.0","id":"n","method":"dev.ludus/outcomes/report","params":{params}}}}}')
    reply = await channel.reply()
    assert reply["error"]["code"] in (-32700, -32600, -32602)
    mcp: McpPeer = connect("mcp", server)
    meta = json.loads(mcp.body("x", {}))["params"]["_meta"]
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"dev.ludus/outcomes/report",'
        f'"params":{params},"_meta":{json.dumps(meta)}}}}}'
    )
    _, answer = await mcp.post("dev.ludus/outcomes/report", body)
    assert answer["error"]["code"] in (-32700, -32600, -32602)
    good = {"environment": "workshop", "split": "train", "key": "k2"}
    outcomes = [{"task": "p-0", "reward": 1.0, "passed": True}]
    assert (await channel.call("outcomes/report", **good, outcomes=outcomes))["recorded"] == 1


@pytest.mark.requirement("MTH-6", "NEG-10")
@pytest.mark.parametrize("method", ["dev.ludus/episodes/stop", "dev.ludus/", "episodes/step", "tools/lisst", ""])
async def test_a_method_that_is_not_there_is_not_found(server: LudusServer, connect: Connect, method: str) -> None:
    for wire in ("channel", "mcp"):
        with pytest.raises(RpcError) as caught:
            await connect(wire, server).exchange(method, {})
        assert caught.value.code in ((-32601,) if method else (-32601, -32600, -32602, -32020)), wire


@pytest.mark.requirement("ERR-6")
async def test_a_fault_of_the_server_is_reported_by_incident_alone(
    peer: Peer, server: LudusServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError(world.SECRET)

    monkeypatch.setattr(server.app.context.host.catalog, "find", broken)
    with pytest.raises(RpcError) as caught:
        await peer.call("splits/list", environment="workshop")
    assert caught.value.code == -32603
    assert world.SECRET not in f"{caught.value.message}{caught.value.data}"
    assert caught.value.data["incident"] in caplog.text


@pytest.mark.requirement("CONT-4")
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "\n", "  two  spaces ", "a\r\nb\rc\n", "\u2028\u2029\u0085", "\u00a0\u3000x",
        "é e\u0301 🙂 \U0010ffff",
        "\x00\x01\x1f\x7f", "data: x\n\nevent: end\n", " " * 9000 + "x", '{"json": "inside"}\\', "‮rtl",
    ],
    ids=ascii,
)  # fmt: skip
async def test_text_arrives_unchanged_on_every_wire(server: LudusServer, connect: Connect, text: str) -> None:
    for wire in ("channel", "mcp"):
        peer = connect(wire, server)
        started = await peer.start()
        result = await peer.step(started["episode"], 1, "say", arguments={"text": text})
        assert result["content"] == [{"type": "text", "text": text}], wire
    player: McpPeer = connect("mcp", server, path=started["play"]["path"])
    assert (await player.tool("say", {"text": text}))["content"] == [{"type": "text", "text": text}]
    ors: OrsPeer = connect("ors", server)
    reply = await ors.call(await ors.open(), "say", {"text": text})
    assert [block["text"] for block in reply["output"]["blocks"]] == [text]


@pytest.mark.requirement("CONT-1")
async def test_prompts_have_a_message_and_images_are_base64(peer: Peer) -> None:
    started = await peer.start()
    assert len(started["prompt"]) >= 1
    image = (await peer.step(started["episode"], 1, "look"))["content"][1]
    assert image == {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
