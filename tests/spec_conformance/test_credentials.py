"""Two credentials, two planes, and what never travels (spec chapters 3 and 14)."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import conformance_world as world
import pytest
from conformance_peer import OPENRPC, ChannelPeer, McpPeer, OrsPeer, Peer, RpcError
from waiting import wait_until

from ludus.protocol import episodes, errors, methods
from ludus.server import ServerLimits
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file
from ludus.server.serving.serve import LudusServer, ServeError, build
from ludus.server.serving.settings import ServerSettings

Connect = Callable[..., Any]
Serve = Callable[..., Awaitable[LudusServer]]
EVERYTHING = ("tasks:read", "episodes:run", "rewards:read")
START: dict[str, Any] = {"environment": "workshop", "split": "train", "index": 0}


@pytest.mark.requirement("CRED-1")
async def test_our_client_sends_its_token_on_every_wire(guarded: LudusServer, tokens: dict[str, str]) -> None:
    from ludus.client.transports.channel import ChannelWire
    from ludus.client.transports.mcp import McpWire

    for kind in (ChannelWire, McpWire):
        wire = kind(guarded.url, tokens["alice"])
        try:
            result = await wire.request(methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams(), timeout=10)
            assert len(result.environments) == len(world.WORLD)
        finally:
            await wire.close()
        wire = kind(guarded.url, "ludus_wrong")
        try:
            with pytest.raises(errors.Unauthenticated):
                await wire.request(methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams(), timeout=10)
        finally:
            await wire.close()


@pytest.mark.requirement("CRED-3", "MTH-5", "MTH-6")
async def test_a_method_needs_its_scope(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect, wire: str
) -> None:
    alice = connect(wire, guarded, tokens["alice"])
    started = await alice.call("episodes/start", **START, key="k")
    episode, group = started["episodes"][0]["episode"], started["group"]
    before = await alice.info(episode)
    params: dict[str, dict[str, Any]] = {
        "episodes/start": {**START, "key": "x"},
        "episodes/step": {"episode": episode, "step": 1, "tool": "earn", "key": "x"},
        "episodes/grade": {"episode": episode, "answer": "", "key": "x"},
        "episodes/rewards": {"episode": episode},
        "episodes/get": {"episode": episode},
        "episodes/fork": {"episode": episode, "key": "x"},
        "episodes/close": {"episode": episode},
        "groups/score": {"group": group, "candidates": {}, "key": "x"},
        "outcomes/report": {"environment": "workshop", "split": "train", "outcomes": [], "key": "x"},
        "worlds/list": {},
        "worlds/get": {"world": "w"},
        "worlds/branch": {"world": "w", "key": "x"},
        "worlds/reset": {"world": "w", "version": 0, "key": "x"},
        "worlds/delete": {"world": "w"},
    }
    for name, scopes in (("reader", {"tasks:read"}), ("player", {"tasks:read", "episodes:run"})):
        peer = connect(wire, guarded, tokens[name])
        for method in OPENRPC.values():
            if method["x-scope"] in scopes:
                continue
            with pytest.raises(RpcError) as caught:
                await peer.call(method["name"].removeprefix("dev.ludus/"), **params[method["name"][10:]])
            assert caught.value.code == 4030, method["name"]
            assert method["x-scope"] in caught.value.message
    assert await alice.info(episode) == before


@pytest.mark.requirement("CRED-7")
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_tokens_a_server_listens_to_this_machine_only(address: str, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="ludus token create"):
        build(world.WORLD, ServerSettings(host=address), {})
    _, record = new_token("trainer", ("admin",))
    file = tmp_path / "tokens.json"
    file.write_text(TokenFile(tokens=(record,)).model_dump_json(), "utf-8")
    assert build(world.WORLD, ServerSettings(host=address, token_file=file), {})
    assert build(world.WORLD, ServerSettings(host="127.0.0.1"), {})


@pytest.mark.requirement("CHAN-21")
async def test_a_channel_ends_when_its_token_is_revoked(
    serve: Serve, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.server.transports.channel.RECHECK_SECONDS", 0.0)
    file = tmp_path / "tokens.json"
    token, record = new_token("trainer", EVERYTHING)
    write_token_file(file, TokenFile(tokens=(record,)))
    server = await serve(*world.WORLD, token_file=file, limits=ServerLimits(grace_seconds=0.3))
    peer: ChannelPeer = connect("channel", server, token)
    episode = (await peer.start())["episode"]
    write_token_file(file, TokenFile(tokens=(new_token("other", EVERYTHING)[1],)))
    monkeypatch.setattr(server.app.context.tokens, "_next_look", 0.0)
    await peer.frame(
        {
            "jsonrpc": "2.0", "id": "late", "method": "dev.ludus/episodes/step",
            "params": {"episode": episode, "step": 1, "tool": "earn", "key": "k"},
        }
    )  # fmt: skip
    assert peer.socket is not None
    await wait_until(lambda: peer.socket is not None and peer.socket.closed)
    assert peer.socket.close_code == 3000
    assert world.RUNS["earn"] == 0


# ── what never travels ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("CRED-12", "PLAY-6", "ORS-11")
async def test_private_fields_are_in_no_message_of_any_wire(server: LudusServer, connect: Connect) -> None:
    answer = re.compile(rf"{world.SECRET}-\d")
    channel: ChannelPeer = connect("channel", server)
    mcp: McpPeer = connect("mcp", server)
    ors: OrsPeer = connect("ors", server)
    seen: list[str] = []
    for peer in (channel, mcp):
        for split in ("train", "validation", "test", "endless"):
            where = {"environment": "workshop", "split": split}
            await peer.call("tasks/list", **where, limit=3)
            await peer.call("tasks/sample", **where)
            episode = (await peer.start(split=split, index=0))["episode"]
            for number, tool in enumerate(("earn", "sing", "refuse", "say"), 1):
                await peer.step(episode, number, tool)
            await peer.grade(episode, "wrong")
            await peer.info(episode)
            seen.append(json.dumps(await ors.ask("POST", "/workshop/tasks", {"split": split})))
        for tool in ("crash", "hang", "wrong_type", "below"):
            episode = (await peer.start("faulty", task="p-0"))["episode"]
            with pytest.raises(RpcError) as caught:
                await peer.step(episode, 1, tool)
            seen.append(f"{caught.value}{caught.value.data}")
    seen += channel.frames + mcp.bodies
    assert len(seen) > 60
    assert not [text for text in seen if answer.search(text)]


@pytest.mark.requirement("CRED-14", "SEC-1")
async def test_credentials_are_in_no_log_metric_or_error(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    token, record = new_token("trainer", ("admin",))
    text = TokenFile(tokens=(record,)).model_dump_json()
    with caplog.at_level(logging.DEBUG):
        server = await serve(*world.WORLD, variables={"LUDUS_TOKENS": text}, access_log=True, log_level="DEBUG")
        peer = connect("mcp", server, token)
        started = await peer.start("workshop", secrets={"KEY": "hunter2hunter2"})
        capability = started["play"]["path"].split("/")[2]
        player: McpPeer = connect("mcp", server, path=started["play"]["path"])
        await player.tool("earn")
        with pytest.raises(RpcError):
            await player.tool("sing")
        crashing = await peer.start("faulty", task="p-0", secrets={"KEY": "hunter2hunter2"})
        with pytest.raises(RpcError) as caught:
            await peer.step(crashing["episode"], 1, "crash")
        async with aiohttp.ClientSession(headers=peer.headers) as session:
            async with session.get(server.url + "/metrics") as response:
                metrics = await response.text()
            async with session.get(f"{server.url}{started['play']['path']}") as response:
                refused = await response.text()
    everything = "\n".join([caplog.text, metrics, refused, str(caught.value), str(caught.value.data)])
    assert "/play/" in caplog.text
    for secret in (token, token.removeprefix("ludus_"), capability, "hunter2hunter2"):
        assert secret not in everything


# ── browsers and tokens at rest ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("SEC-5")
def test_a_token_cannot_be_read_back_from_what_is_stored() -> None:
    token, record = new_token("trainer", ("admin",))
    stored = TokenFile(tokens=(record,)).model_dump_json()
    assert token not in stored
    assert token.removeprefix("ludus_") not in stored
    assert re.search(r"sha256:[0-9a-f]{64}", stored)


@pytest.mark.requirement("SEC-6")
async def test_ids_of_episodes_and_groups_hold_64_random_bits(peer: Peer) -> None:
    started = [await peer.call("episodes/start", **START, key=f"k{number}") for number in range(20)]
    for name in [one["group"] for one in started] + [one["episodes"][0]["episode"] for one in started]:
        assert len(base64.urlsafe_b64decode(name[2:])) * 8 >= 64
    assert len({one["episodes"][0]["episode"][2:6] for one in started}) > 10
