"""The channel: opening, frames, and lost connections (module `channel`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import conformance_world as world
import pytest
from aiohttp import web
from conformance_peer import SUBPROTOCOL, ChannelPeer
from waiting import wait_until

from ludus.client.transports.channel import ChannelWire
from ludus.protocol import episodes, methods
from ludus.server import ServerLimits
from ludus.server.serving.serve import LudusServer
from ludus.server.transports import channel as server_channel

Connect = Callable[..., Any]
Serve = Callable[..., Awaitable[LudusServer]]


@pytest.fixture
async def peer(server: LudusServer, connect: Connect) -> ChannelPeer:
    peer: ChannelPeer = connect("channel", server)
    await peer.connect()
    return peer


def request(identifier: Any, method: str = "environments/list", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": "dev.ludus/" + method, "params": params}


def step(identifier: Any, episode: str, number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    key = f"{episode}-{number}"
    return request(identifier, "episodes/step", episode=episode, step=number, tool=tool, arguments=arguments, key=key)


@pytest.mark.requirement("CHAN-1")
async def test_our_client_offers_the_subprotocol(server: LudusServer) -> None:
    wire = ChannelWire(server.url)
    try:
        result = await wire.request(methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams(), timeout=10)
    finally:
        await wire.close()
    assert len(result.environments) == len(world.WORLD)


@pytest.mark.requirement("CHAN-8")
async def test_one_answer_does_not_wait_for_another(peer: ChannelPeer) -> None:
    first, second = [(await peer.start())["episode"] for _ in range(2)]
    await peer.frame([step("slow", first, 1, "wait", gate="g"), step("quick", second, 1, "earn"), request("list")])
    assert {(await peer.reply())["id"] for _ in range(2)} == {"quick", "list"}
    world.GATES["g"].set()
    assert (await peer.reply())["id"] == "slow"


@pytest.mark.requirement("CHAN-14", "SEC-7")
@pytest.mark.parametrize("size", [5_001, 100_000])
async def test_a_frame_that_is_too_large_runs_nothing(serve: Serve, connect: Connect, size: int) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(body_bytes=5000, grace_seconds=0.3))
    peer, other = connect("channel", server), connect("channel", server)
    episode = (await other.start())["episode"]
    await peer.frame(json.dumps(step("x", episode, 1, "earn")) + " " * size)
    await wait_until(lambda: not peer.stray.empty() or peer.socket.closed)
    if not peer.stray.empty():
        assert (await peer.reply())["error"]["code"] == 4130
    assert (await other.info(episode))["steps"] == 0
    assert world.RUNS["earn"] == 0


@pytest.mark.requirement("CHAN-15")
async def test_answers_that_are_ready_at_one_time_share_a_frame(peer: ChannelPeer) -> None:
    await peer.frame([request(f"q{number}") for number in range(64)])
    for _ in range(64):
        await peer.reply()
    assert len(peer.frames) < 16


@pytest.mark.requirement("CHAN-16")
async def test_reading_goes_on_when_answers_have_made_room(
    server: LudusServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_channel, "MAX_IN_FLIGHT", 4)
    peer: ChannelPeer = connect("channel", server)
    ids = [(await peer.start())["episode"] for _ in range(4)]
    for episode in ids:
        await peer.frame(step(episode, episode, 1, "wait", gate="g"))
    await wait_until(lambda: world.RUNS["begin g"] == 4)
    for number in range(50):
        await peer.frame(request(f"q{number}"))
    assert peer.stray.empty()
    world.GATES["g"].set()
    assert {(await peer.reply())["id"] for _ in range(54)} == {*ids, *(f"q{number}" for number in range(50))}


# ── our client against a server that loses connections ─────────────────────────────────────────────────────────────


@pytest.fixture
async def flaky(unused_tcp_port: int) -> Any:
    """`flaky(frames)`: a channel that reads so many frames on its first connection and cuts it without an answer."""
    runners: list[web.AppRunner] = []
    heard: list[list[dict[str, Any]]] = []

    async def start(frames: int) -> tuple[str, list[list[dict[str, Any]]]]:
        async def serve_channel(http: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
            await socket.prepare(http)
            mine: list[dict[str, Any]] = []
            heard.append(mine)
            first, seen = len(heard) == 1, 0
            async for message in socket:
                seen += 1
                asked = json.loads(message.data)
                asked = asked if isinstance(asked, list) else [asked]
                mine += asked
                if first and seen == frames:
                    assert http.transport is not None
                    http.transport.abort()
                elif not first:
                    result: dict[str, Any] = {"environments": []}
                    for one in asked:
                        await socket.send_json({"jsonrpc": "2.0", "id": one["id"], "result": result})
            return socket

        app = web.Application()
        app.router.add_get("/channel", serve_channel)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
        return f"http://127.0.0.1:{unused_tcp_port}", heard

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.mark.requirement("CHAN-10", "CHAN-18", "KEY-1")
async def test_our_client_sends_unanswered_requests_again_unchanged_and_in_order(flaky: Any) -> None:
    url, heard = await flaky(2)
    wire = ChannelWire(url, reconnect_seconds=5)
    ask = methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams()
    try:
        first = [asyncio.create_task(wire.request(*ask, timeout=10)) for _ in range(3)]
        await wait_until(lambda: len(heard) == 1 and len(heard[0]) == 3)
        second = [asyncio.create_task(wire.request(*ask, timeout=10)) for _ in range(3)]
        await asyncio.gather(*first, *second)
    finally:
        await wire.close()
    assert heard[1][:6] == heard[0]
    ids = [one["id"] for one in heard[1]]
    assert len(set(ids)) == len(ids) == 6


@pytest.mark.requirement("CHAN-6")
async def test_our_client_reads_answers_alone_and_in_batches(unused_tcp_port: int) -> None:
    async def serve_channel(http: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await socket.prepare(http)
        waiting: list[dict[str, Any]] = []
        async for message in socket:
            asked = json.loads(message.data)
            for one in asked if isinstance(asked, list) else [asked]:
                waiting.append({"jsonrpc": "2.0", "id": one["id"], "result": {"environments": []}})
            if len(waiting) == 3:
                await socket.send_json(waiting[2])
                await socket.send_json(waiting[:2])
        return socket

    app = web.Application()
    app.router.add_get("/channel", serve_channel)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    wire = ChannelWire(f"http://127.0.0.1:{unused_tcp_port}")
    ask = methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams()
    try:
        results = await asyncio.gather(*(wire.request(*ask, timeout=10) for _ in range(3)))
    finally:
        await wire.close()
        await runner.cleanup()
    assert [result.environments for result in results] == [()] * 3


# ── nonsense ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("SEC-7")
async def test_nonsense_over_any_wire_stops_no_other_client(server: LudusServer, connect: Connect) -> None:
    good: ChannelPeer = connect("channel", server)
    episode = (await good.start())["episode"]
    junk = [b"\x00" * 300, b"\xff\xfe{}", b"[" * 5000, b'{"a":' * 3000, b'"\\ud800"', b"GET / HTTP/9.9\r\n\r\n"]
    number = 0
    async with aiohttp.ClientSession() as session:
        for body in junk:
            for path in ("/mcp", "/play/x/mcp", "/create", "/workshop/call", "/workshop/tasks", "/nowhere"):
                async with session.post(server.url + path, data=body, headers={"X-Session-ID": "x"}) as response:
                    assert response.status < 500, (path, body[:20])
                    await response.read()
            async with session.ws_connect(server.url + "/channel", protocols=(SUBPROTOCOL,)) as socket:
                await socket.send_bytes(body)
                await socket.send_str(body.decode("latin-1"))
            name, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(name, int(port))
            writer.write(body + b"\r\n\r\n")
            writer.close()
            number += 1
            assert (await good.step(episode, number, "earn"))["reward"]["value"] == 1.0
            del reader


@pytest.mark.requirement("CHAN-9", "STEP-9")
@pytest.mark.parametrize("one_frame", [True, False], ids=["one frame", "two frames"])
@pytest.mark.parametrize(
    ("method", "params"), [("grade", {"answer": "x", "key": "g"}), ("close", {})], ids=["grade", "close"]
)
async def test_a_step_behind_what_ends_its_episode_does_not_run(
    peer: ChannelPeer, method: str, params: dict[str, Any], one_frame: bool
) -> None:
    episode = (await peer.start())["episode"]
    first = request("first", f"episodes/{method}", episode=episode, **params)
    second = request("second", "episodes/step", episode=episode, step=1, tool="earn", key="s")
    for frame in [[first, second]] if one_frame else [first, second]:
        await peer.frame(frame)
    replies = {reply["id"]: reply for reply in [await peer.reply() for _ in range(2)]}
    assert "result" in replies["first"]
    assert replies["second"]["error"]["code"] == 4093
    assert world.RUNS["earn"] == 0


@pytest.mark.requirement("CHAN-9", "FORK-2")
async def test_a_fork_in_front_of_a_step_has_the_state_before_it_and_the_step_the_state_after_earlier_ones(
    peer: ChannelPeer,
) -> None:
    episode = (await peer.start())["episode"]
    steps = [request(n, "episodes/step", episode=episode, step=n, tool="earn", key=f"s{n}") for n in (1, 2, 3)]
    fork = request("fork", "episodes/fork", episode=episode, step=None, key="f")
    await peer.frame([steps[0]])
    assert "result" in await peer.reply()
    await peer.frame([fork, *steps[1:]])
    replies = {reply["id"]: reply for reply in [await peer.reply() for _ in range(3)]}
    assert "result" in replies["fork"], replies["fork"]
    assert (await peer.info(replies["fork"]["result"]["episode"]["episode"]))["steps"] == 1
    assert [replies[n]["result"]["step"] for n in (2, 3)] == [2, 3]
