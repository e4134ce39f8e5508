"""What our client makes of a server's answer about its workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from ludus.client.transports.channel import ChannelWire
from ludus.protocol.episodes import GetEpisodeParams, ListEnvironmentsParams
from ludus.protocol.errors import InfrastructureFailed, ProtocolViolation
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.protocol.methods import GET_EPISODE, LIST_ENVIRONMENTS
from ludus.protocol.workers import WORKER_PATH, WORKER_PATH_HEADER

Pretend = Callable[..., object]


class Pretender:
    """A server that answers every request on the general channel with an empty list, and refuses workers' channels."""

    def __init__(self, worker_path: str, refuse_with: int) -> None:
        self.worker_path = worker_path
        self.refuse_with = refuse_with
        self.asked: list[str] = []
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        self.server = TestServer(app)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path != "/channel":
            return web.Response(status=self.refuse_with)
        socket = web.WebSocketResponse(protocols=(CHANNEL_SUBPROTOCOL,))
        socket.headers[WORKER_PATH_HEADER] = self.worker_path
        await socket.prepare(request)
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break
            identifier = message.json()["id"]
            await socket.send_json({"jsonrpc": "2.0", "id": identifier, "result": {"environments": []}})
        return socket


@pytest.fixture
async def pretend() -> AsyncIterator[Callable[..., object]]:
    """`server, wire = await pretend(path, status)`: a server that says so, and a client of it."""
    opened: list[tuple[Pretender, ChannelWire]] = []

    async def start(worker_path: str, refuse_with: int = 404) -> tuple[Pretender, ChannelWire]:
        pretender = Pretender(worker_path, refuse_with)
        await pretender.server.start_server()
        wire = ChannelWire(str(pretender.server.make_url("/")), "secret", reconnect_seconds=1.0)
        opened.append((pretender, wire))
        return pretender, wire

    yield start
    for pretender, wire in opened:
        await wire.close()
        await pretender.server.close()


@pytest.mark.requirement("CHAN-25")
@pytest.mark.parametrize(
    "path",
    ["http://evil.example/{worker}", "//evil.example/{worker}", "{worker}", "/workers", "/{worker}/{worker}", ""],
)
async def test_a_path_that_is_none_of_the_server_is_refused_and_gets_no_token(pretend: Pretend, path: str) -> None:
    pretender, wire = await pretend(path)  # type: ignore[misc]
    with pytest.raises(ProtocolViolation, match=WORKER_PATH_HEADER):
        await wire.request(LIST_ENVIRONMENTS, ListEnvironmentsParams())
    assert pretender.asked == ["/channel"]


@pytest.mark.requirement("CHAN-26")
async def test_a_worker_that_is_gone_fails_the_requests_about_its_episodes(pretend: Pretend) -> None:
    pretender, wire = await pretend(WORKER_PATH, 410)  # type: ignore[misc]
    await wire.request(LIST_ENVIRONMENTS, ListEnvironmentsParams())
    with pytest.raises(InfrastructureFailed):
        await wire.request(GET_EPISODE, GetEpisodeParams(episode="e_w3.x"))
    assert pretender.asked == ["/channel", "/workers/w3/channel"]
    await wire.request(LIST_ENVIRONMENTS, ListEnvironmentsParams())


async def test_where_workers_paths_lead_nowhere_everything_goes_over_the_general_channel(pretend: Pretend) -> None:
    pretender, wire = await pretend(WORKER_PATH, 404)  # type: ignore[misc]
    await wire.request(LIST_ENVIRONMENTS, ListEnvironmentsParams())
    for _ in range(2):
        with pytest.raises(ProtocolViolation, match="malformed"):  # the answer of the pretender, so it was asked
            await wire.request(GET_EPISODE, GetEpisodeParams(episode="e_w3.x"))
    assert pretender.asked == ["/channel", "/workers/w3/channel"]
