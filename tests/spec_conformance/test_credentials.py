"""Two credentials, two planes, and what never travels (spec chapters 3 and 14)."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import conformance_world as world
import pytest
from conformance_peer import OPENRPC, ChannelPeer, McpPeer, OrsPeer, Peer, RpcError, until, validate

from ludus.protocol import episodes, errors, methods
from ludus.server import ServerLimits
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file
from ludus.server.web.serve import LudusServer, ServeError, build
from ludus.server.web.settings import ServerSettings

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


@pytest.mark.requirement("CRED-2", "CHAN-2", "CHAN-4")
@pytest.mark.parametrize("header", [None, "Bearer ", "Bearer ludus_wrong", "Basic YTpi", "Bearer play_AAAA"])
async def test_without_a_valid_token_the_control_plane_is_closed(guarded: LudusServer, header: str | None) -> None:
    headers = {"Authorization": header} if header is not None else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/environments/list", "params": {}}
        async with session.post(guarded.url + "/mcp", json=body) as response:
            reply = await response.json()
            assert response.status == 401
            assert reply["error"]["code"] == 4010
        upgrade = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(), "Sec-WebSocket-Protocol": "ludus.channel.v0.1",
        }  # fmt: skip
        async with session.get(guarded.url + "/channel", headers=upgrade) as response:
            reply = await response.json()
            assert response.status == 401
            validate("Failure", reply)
            assert (reply["id"], reply["error"]["code"]) == (None, 4010)


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


@pytest.mark.requirement("CRED-4", "CRED-13")
async def test_a_test_split_needs_its_own_scope_and_shows_ids_only(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect, wire: str
) -> None:
    where = {"environment": "workshop", "split": "test"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("tasks/list", where),
        ("tasks/get", {**where, "index": 0}),
        ("tasks/get", {**where, "task": "p-100"}),
        ("tasks/sample", where),
        ("outcomes/report", {**where, "outcomes": [], "key": "k"}),
        ("episodes/start", {**where, "key": "k"}),
    ]
    for name in ("alice", "tester", "examiner", "root"):
        peer = connect(wire, guarded, tokens[name])
        for method, params in asked:
            if name == "alice":
                with pytest.raises(RpcError) as caught:
                    await peer.call(method, **params)
                assert caught.value.code == 4030, method
            else:
                result = await peer.call(method, **params)
                rows = result.get("tasks", [result["task"]] if "task" in result else [])
                rows += [one["task"] for one in result.get("episodes", ())]
                assert all(row["fields"] == {} and row["id"].startswith("p-10") for row in rows)
                if method == "episodes/start":
                    info = await peer.info(result["episodes"][0]["episode"])
                    assert info["task"]["fields"] == {}


@pytest.mark.requirement("CRED-5")
async def test_to_other_principals_an_episode_does_not_exist(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect, wire: str
) -> None:
    alice, bob, root = (connect(wire, guarded, tokens[name]) for name in ("alice", "bob", "root"))
    started = await alice.call("episodes/start", **START, key="k")
    episode, group = started["episodes"][0]["episode"], started["group"]
    requests: list[tuple[str, dict[str, Any]]] = [
        ("episodes/step", {"step": 1, "tool": "earn", "key": "x"}),
        ("episodes/grade", {"answer": "", "key": "x"}),
        ("episodes/rewards", {}),
        ("episodes/get", {}),
        ("episodes/fork", {"key": "x"}),
        ("episodes/close", {}),
    ]
    for method, params in requests:
        answers = []
        for named in (episode, "e_nobodynobody1"):
            with pytest.raises(RpcError) as caught:
                await bob.call(method, episode=named, **params)
            assert caught.value.code == 4044, method
            answers.append((caught.value.message.replace(named, "?"), str(caught.value.data).replace(named, "?")))
        assert answers[0] == answers[1]
    with pytest.raises(RpcError) as caught:
        await bob.call("groups/score", group=group, candidates={episode: {"messages": []}}, key="x")
    assert caught.value.code in (4044, 4045)
    assert (await alice.info(episode))["steps"] == 0
    assert (await root.info(episode))["episode"] == episode
    assert (await root.step(episode, 1, "earn"))["reward"]["value"] == 1.0


@pytest.mark.requirement("CRED-6")
async def test_a_token_that_may_not_read_rewards_sees_none(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect, wire: str
) -> None:
    player = connect(wire, guarded, tokens["player"])
    episode = (await player.start(index=0))["episode"]
    result = await player.step(episode, 1, "earn", key="a")
    assert (result["reward"], result["metadata"]) == (None, {})
    assert await player.step(episode, 1, "earn", key="a") == result
    infos = [await player.info(episode)]
    graded = await player.grade(episode, "no")
    assert graded["reward"] is None
    infos += [graded["info"], (await player.call("episodes/close", episode=episode))["info"]]
    assert [info["reward"] for info in infos] == [None] * 3


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
    await until(lambda: peer.socket is not None and peer.socket.closed)
    assert peer.socket.close_code == 3000
    assert world.RUNS["earn"] == 0


# ── play capabilities ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("CRED-8", "CRED-9")
async def test_a_capability_opens_its_own_episode_and_cannot_be_guessed(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect
) -> None:
    alice = connect("mcp", guarded, tokens["alice"])
    first, second = [await alice.start(index=index) for index in (0, 1)]
    for one, other in ((first, second), (second, first)):
        player: McpPeer = connect("mcp", guarded, path=one["play"]["path"])
        await player.tool("earn")
        assert (await alice.info(one["episode"]))["steps"] == 1
        assert (await alice.info(other["episode"]))["steps"] == (0 if one is first else 1)
        capability = one["play"]["path"].split("/")[2].removeprefix("play_")
        assert len(base64.urlsafe_b64decode(capability + "=" * (-len(capability) % 4))) * 8 >= 128
        assert other["episode"] not in one["play"]["path"]


@pytest.mark.requirement("CRED-8", "CRED-10")
async def test_a_capability_expires_when_it_said(serve: Serve, connect: Connect) -> None:
    server = await serve(*world.WORLD, capability_seconds=1.0, limits=ServerLimits(grace_seconds=0.3))
    peer = connect("channel", server)
    before = time.time()
    started = await peer.start()
    assert before <= started["play"]["expiresAt"] <= time.time() + 1.0
    player: McpPeer = connect("mcp", server, path=started["play"]["path"])
    await until(lambda: time.time() >= started["play"]["expiresAt"])
    status, reply = await player.post("tools/list", {})
    assert (status, reply["error"]["code"]) == (404, 4011)
    assert (await peer.info(started["episode"]))["status"] == "running"


@pytest.mark.requirement("CRED-10", "CRED-9")
async def test_a_capability_that_was_changed_is_refused(server: LudusServer, connect: Connect) -> None:
    started = await connect("channel", server).start()
    capability = started["play"]["path"].split("/")[2]
    forged = [capability[:index] + ("A" if capability[index] != "A" else "B") + capability[index + 1 :]
              for index in range(5, len(capability), 7)]  # fmt: skip
    for wrong in [*forged, capability[:-1], capability + "A", "play_", "x", "play_" + "A" * 80, started["episode"]]:
        player: McpPeer = connect("mcp", server, path=f"/play/{wrong}/mcp")
        status, reply = await player.post("tools/list", {})
        assert (status, reply["error"]["code"]) == (404, 4011), wrong
        assert "tools" not in reply


@pytest.mark.requirement("CRED-11", "PLAY-7")
async def test_neither_credential_opens_the_other_plane(
    guarded: LudusServer, tokens: dict[str, str], connect: Connect
) -> None:
    alice = connect("mcp", guarded, tokens["alice"])
    started = await alice.start()
    capability = started["play"]["path"].split("/")[2]
    for wire in ("mcp", "channel"):
        with pytest.raises((RpcError, aiohttp.WSServerHandshakeError)):
            await connect(wire, guarded, capability).call("environments/list")
    player: McpPeer = connect("mcp", guarded, tokens["root"], path=started["play"]["path"])
    with pytest.raises(RpcError) as caught:
        await player.exchange("dev.ludus/episodes/rewards", {"episode": started["episode"]})
    assert caught.value.code == -32601
    result = await player.tool("earn")
    assert "reward" not in json.dumps(result)


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


@pytest.mark.requirement("SEC-3", "CHAN-3", "CHAN-4")
@pytest.mark.parametrize(
    ("headers", "statuses"),
    [
        ({"Origin": "https://evil.example"}, {403}),
        ({"Origin": "null"}, {403}),
        ({"Host": "evil.example"}, {403, 421}),
        ({"Host": "127.0.0.1.evil.example:80", "Origin": "http://127.0.0.1.evil.example"}, {403, 421}),
    ],
    ids=str,
)
async def test_pages_of_others_and_names_of_others_are_refused(
    server: LudusServer, headers: dict[str, str], statuses: set[int]
) -> None:
    started_before = server.app.context.host.stats().started
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(), "Sec-WebSocket-Protocol": "ludus.channel.v0.1",
    }  # fmt: skip
    async with aiohttp.ClientSession(headers=headers) as session:
        for method, path in (
            ("POST", "/mcp"),
            ("POST", "/play/x/mcp"),
            ("POST", "/create_session"),
            ("GET", "/health"),
        ):
            async with session.request(method, server.url + path, data=b"{}") as response:
                assert response.status in statuses, path
        async with session.get(server.url + "/channel", headers=upgrade) as response:
            assert response.status in statuses
            reply = await response.json()
            validate("Failure", reply)
            assert reply["id"] is None
    assert server.app.context.host.stats().started == started_before


@pytest.mark.requirement("SEC-4")
async def test_no_cors_header_is_sent_unless_asked_for(server: LudusServer) -> None:
    async with aiohttp.ClientSession(headers={"Origin": server.url}) as session:
        for method, path in (("GET", "/health"), ("OPTIONS", "/mcp"), ("POST", "/mcp"), ("GET", "/list_environments")):
            headers = {"Access-Control-Request-Method": "POST"} if method == "OPTIONS" else {}
            async with session.request(method, server.url + path, headers=headers) as response:
                assert not [name for name in response.headers if name.lower().startswith("access-control")], path


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
