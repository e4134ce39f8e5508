"""What the text demands of clients, shown on ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import conformance_world as world
import pytest
from aiohttp import web
from conformance_peer import SUBPROTOCOL

from ludus.client import connect
from ludus.client.transports.channel import ChannelWire
from ludus.client.transports.mcp import McpWire
from ludus.protocol import episodes, errors, methods
from ludus.server import ServerLimits
from ludus.server.durability.journal import Asked, MemoryJournal
from ludus.server.serving.serve import LudusServer

Serve = Callable[..., Awaitable[LudusServer]]
Kind = Literal["channel", "mcp"]
BOTH = pytest.mark.parametrize("kind", ["channel", "mcp"])


@pytest.mark.requirement("KEY-1", "STEP-1")
@BOTH
async def test_every_new_request_has_a_key_of_its_own(serve: Serve, kind: Kind) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(grace_seconds=0.3))
    journal = server.app.context.host.journal
    assert isinstance(journal, MemoryJournal)
    asked: list[Asked] = []
    async with connect(server.url, wire=kind) as client:
        environment = client.environment("workshop")
        groups: set[str] = set()
        for _ in range(3):
            async with environment.episode(split="train", index=0) as episode:
                for _ in range(4):
                    await episode.call("earn")
                await asyncio.gather(*(episode.call("which") for _ in range(4)))
                await episode.grade("x")
                asked += [entry for entry in journal.read(episode.id) if isinstance(entry, Asked)]
                groups.add(episode.group)
    steps = [entry for entry in asked if entry.tool is not None]
    assert [entry.step for entry in steps] == [*range(1, 9)] * 3
    assert len({(entry.episode, entry.key) for entry in asked}) == len(asked) == 27
    assert len(groups) == world.RUNS["setup"] == 3


@pytest.mark.requirement("KEY-1")
@BOTH
async def test_reports_forks_and_scores_have_keys_of_their_own(serve: Serve, kind: Kind) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(grace_seconds=0.3))
    async with connect(server.url, wire=kind) as client:
        environment = client.environment("workshop")
        outcome = episodes.Outcome(task="p-0", reward=1.0, passed=True)
        assert [await environment.report_outcomes("train", [outcome]) for _ in range(3)] == [1, 2, 3]
        async with environment.episode(split="train", index=0) as episode:
            forks = [await episode.fork() for _ in range(3)]
            assert len({fork.id for fork in forks}) == 3


async def answering(port: int, reply: Callable[[Any], dict[str, Any]]) -> tuple[web.AppRunner, list[Any]]:
    """A server on both control wires that gives every request the same kind of answer."""
    heard: list[Any] = []

    async def on_channel(http: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await socket.prepare(http)
        async for message in socket:
            asked = json.loads(message.data)
            heard.append(asked)
            await socket.send_json({"jsonrpc": "2.0", "id": asked["id"], **reply(asked)})
        return socket

    async def on_mcp(http: web.Request) -> web.Response:
        asked = await http.json()
        heard.append(asked)
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], **reply(asked)})

    app = web.Application()
    app.router.add_get("/channel", on_channel)
    app.router.add_post("/mcp", on_mcp)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, heard


@pytest.mark.requirement("ERR-5")
@BOTH
@pytest.mark.parametrize("code", [9999, 1, -32050])
async def test_an_unknown_error_is_raised_and_not_asked_again(kind: Kind, code: int, unused_tcp_port: int) -> None:
    error = {"code": code, "message": "from the future", "data": {"x": 1}}
    runner, heard = await answering(unused_tcp_port, lambda _: {"error": error})
    wire = (ChannelWire if kind == "channel" else McpWire)(f"http://127.0.0.1:{unused_tcp_port}")
    try:
        with pytest.raises(errors.LudusError, match="from the future") as caught:
            await wire.request(methods.LIST_ENVIRONMENTS, episodes.ListEnvironmentsParams(), timeout=10)
    finally:
        await wire.close()
        await runner.cleanup()
    assert type(caught.value) is errors.LudusError
    assert (caught.value.data["code"], caught.value.data["x"]) == (code, 1)
    assert len(heard) == 1


@pytest.mark.requirement("ERR-4")
@BOTH
async def test_the_message_of_an_error_decides_nothing(kind: Kind, unused_tcp_port: int) -> None:
    error = {"code": 4093, "message": "episode not found, try again later", "data": {"endReason": "closed"}}
    runner, heard = await answering(unused_tcp_port, lambda _: {"error": error})
    wire = (ChannelWire if kind == "channel" else McpWire)(f"http://127.0.0.1:{unused_tcp_port}")
    try:
        with pytest.raises(errors.EpisodeEnded):
            await wire.request(methods.GET_EPISODE, episodes.GetEpisodeParams(episode="e"), timeout=10)
    finally:
        await wire.close()
        await runner.cleanup()
    assert len(heard) == 1


@pytest.mark.requirement("MTH-1", "VER-1", "CONT-1")
@BOTH
@pytest.mark.parametrize(
    "result",
    [
        {"step": 1, "content": [{"type": "text", "text": "x"}], "surprise": 1},
        {"step": 1, "content": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]},
        {"step": "one", "content": []},
        {"content": []},
        {"step": 1, "content": [], "endReason": "tired"},
    ],
    ids=str,
)
async def test_an_answer_outside_this_version_is_a_violation(
    kind: Kind, result: dict[str, Any], unused_tcp_port: int
) -> None:
    runner, _ = await answering(unused_tcp_port, lambda _: {"result": result})
    wire = (ChannelWire if kind == "channel" else McpWire)(f"http://127.0.0.1:{unused_tcp_port}")
    params = episodes.StepParams(episode="e", step=1, tool="t", key="k")
    try:
        with pytest.raises(errors.ProtocolViolation):
            await wire.request(methods.STEP, params, timeout=10)
    finally:
        await wire.close()
        await runner.cleanup()


@pytest.mark.requirement("MTH-3")
@BOTH
async def test_defaults_that_were_left_out_are_filled_in(kind: Kind, unused_tcp_port: int) -> None:
    runner, _ = await answering(unused_tcp_port, lambda _: {"result": {"step": 1, "content": []}})
    wire = (ChannelWire if kind == "channel" else McpWire)(f"http://127.0.0.1:{unused_tcp_port}")
    params = episodes.StepParams(episode="e", step=1, tool="t", key="k")
    try:
        result = await wire.request(methods.STEP, params, timeout=10)
    finally:
        await wire.close()
        await runner.cleanup()
    assert result == episodes.StepResult(step=1, content=())


@pytest.mark.requirement("REW-4")
async def test_an_unscored_episode_counts_in_no_mean(serve: Serve) -> None:
    from ludus.client.summary import summarize
    from ludus.protocol.trajectory import Trajectory

    server = await serve(*world.WORLD, limits=ServerLimits(grace_seconds=0.3))
    played: list[Trajectory] = []
    async with connect(server.url) as client:
        for index, tool in enumerate(("earn", "judge", "earn")):
            async with client.environment("workshop").episode(split="train", index=index) as episode:
                await episode.call(tool)
                await episode.call("finish", word="x")
                info = await episode.info()
                played.append(
                    Trajectory(
                        environment="workshop", split="train", task=info.task, policy="test", status=info.status,
                        end_reason=info.end_reason, reward=info.reward, started_at=0.0, seconds=1.0,
                    )
                )  # fmt: skip
    summary = summarize(played)
    assert (summary.episodes, summary.scored, summary.unscored, summary.mean) == (3, 2, 1, 1.0)
