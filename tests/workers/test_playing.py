"""Clients play on a server of several processes as on a server of one."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import aiohttp
import pytest
from mcp import Client as McpClient
from waiting import wait_until
from worker_servers import WorkersServer

from ludus.client import Episode, GroupMember, connect, text_of
from ludus.protocol.episodes import CloseParams, Outcome, ReportOutcomesParams
from ludus.protocol.errors import EpisodeNotFound, GroupNotFound, KeyConflict
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.protocol.methods import CLOSE, REPORT_OUTCOMES
from ludus.protocol.workers import WORKER_PATH, WORKER_PATH_HEADER, worker_of, worker_of_session
from ludus.server.auth.tokens import TokenFile, new_token

WIRES = pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=[True, False], ids=["journal", "no journal"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkersServer]:
    """A server with journals, and one without, which the tests share."""
    shared = WorkersServer(tmp_path_factory.mktemp("workers"), journal=request.param)
    try:
        asyncio.run(shared.start())
        yield shared
    finally:
        asyncio.run(shared.end())


@pytest.fixture
async def idle_server(launch: Any) -> WorkersServer:
    """A server on which no episode has ever run, for what depends on their number."""
    fresh: WorkersServer = await launch(journal=False)
    return fresh


def worker(episode: Episode) -> str | None:
    """The worker that an episode's id names."""
    return worker_of(episode.id) or worker_of_session(episode.id)


async def total(episode: Episode, number: int) -> str:
    """The sum after adding a number."""
    return text_of((await episode.call("add", number=number)).content).split()[0]


@pytest.mark.suite("workers", first=1)
@WIRES
async def test_starts_are_spread_over_the_workers_and_episodes_keep_their_state(
    idle_server: WorkersServer, wire: Any
) -> None:
    async with connect(idle_server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = await asyncio.gather(*(ledger.start(index=index % 5, seed=index) for index in range(20)))
        counts = Counter(map(worker, episodes))
        assert abs(counts["w0"] - counts["w1"]) <= 4, "equal, but for what a health check sees late"
        for count in (1, 2, 3):
            sums = await asyncio.gather(*(total(one, number) for number, one in enumerate(episodes)))
            assert sums == [str(number * count) for number in range(20)]
        graded = await asyncio.gather(*(one.grade(str(3 * number)) for number, one in enumerate(episodes)))
        assert [one.reward.value for one in graded if one.reward is not None] == [1.0] * 20
        await asyncio.gather(*(one.close() for one in episodes))


@pytest.mark.suite("workers")
@WIRES
async def test_the_next_episode_goes_to_the_worker_with_fewer(idle_server: WorkersServer, wire: Any) -> None:
    async with connect(idle_server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        first = [await ledger.start(index=0) for _ in range(4)]
        gone = [one for one in first if worker(one) == "w0"]
        await asyncio.gather(*(one.close() for one in gone))
        # The gateway learns of the end from the next health check.
        second: list[Episode] = []
        async with asyncio.timeout(60):
            while Counter(map(worker, second))["w0"] - Counter(map(worker, second))["w1"] != 2:
                await asyncio.gather(*(one.close() for one in second))
                second = [await ledger.start(index=0) for _ in range(2)]


@pytest.mark.suite("workers", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_group_and_its_forks_are_on_one_worker(server: WorkersServer, wire: Any) -> None:
    async with connect(server.url, wire=wire) as client, client.environment("ledger").group(6, index=1) as group:
        assert len({worker(one) for one in group}) == 1
        assert worker_of(group.id) == worker(group[0])
        await group[0].call("add", number=2)
        fork = await group[0].fork()
        assert worker(fork) == worker(group[0])
        assert await total(fork, 3) == "5"
        assert await total(group[0], 1) == "3"


@pytest.mark.suite("workers", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_start_under_a_key_that_was_used_reaches_the_worker_that_had_it(
    idle_server: WorkersServer, wire: Any
) -> None:
    ids = set()
    for turn in range(3):
        async with connect(idle_server.url, wire=wire) as client:  # a connection of its own
            ledger = client.environment("ledger")
            members = [await ledger.start(index=1, seed=5, join=GroupMember("key", 4, place)) for place in range(4)]
            ids.add(tuple(one.id for one in members))
            if turn == 0:
                filler = [await ledger.start(index=0) for _ in range(3)]
                assert worker(members[0]) not in {worker(one) for one in filler}, "its worker is the busier one"
            with pytest.raises(KeyConflict):
                await ledger.start(index=2, seed=5, join=GroupMember("key", 4, 0))
            client._session.open_episodes.clear()  # so that the next client finds them
    assert len(ids) == 1


@pytest.mark.suite("workers", first=1)
async def test_an_agent_with_a_stock_mcp_client_plays_at_the_play_url(server: WorkersServer) -> None:
    async with connect(server.url) as client:
        ledger = client.environment("ledger")
        for _ in range(2):
            episode = await ledger.start(index=0)
            assert episode.play_url is not None
            assert episode.play_url.startswith(f"{server.url}/play/play_{worker(episode)}.")
            async with McpClient(episode.play_url) as agent:
                tools = (await agent.list_tools()).tools
                assert "add" in {tool.name for tool in tools}
                result = await agent.call_tool("add", {"number": 7})
                assert not result.is_error
            assert (await episode.info()).steps == 1


async def test_a_stock_mcp_host_begins_and_plays_at_the_control_endpoint(server: WorkersServer) -> None:
    async with McpClient(f"{server.url}/mcp") as host:
        for _ in range(3):
            begun = await host.call_tool("start_episode", {"environment": "ledger"})
            text = begun.content[0].text  # type: ignore[union-attr]
            episode = text.split()[1]
            assert worker_of(episode) in ("w0", "w1")
            assert f"{server.url}/play/play_{worker_of(episode)}." in text
            played = await host.call_tool("call_tool", {"episode": episode, "tool": "add", "arguments": {"number": 3}})
            assert played.content[0].text.startswith("3 ")  # type: ignore[union-attr]


class Foreign:
    """A WebSocket client that knows nothing of workers."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.count = 0

    async def ask(self, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
        """Send requests as one array, and return the replies in the order of the requests."""
        first = self.count
        self.count += len(requests)
        frame = [
            {"jsonrpc": "2.0", "id": first + place, "method": f"dev.ludus/{method}", "params": params}
            for place, (method, params) in enumerate(requests)
        ]
        await self.socket.send_str(json.dumps(frame))
        replies: dict[int, Any] = {}
        async with asyncio.timeout(60):
            while len(replies) < len(requests):
                found = json.loads((await self.socket.receive()).data)
                for reply in found if isinstance(found, list) else [found]:
                    replies[reply["id"]] = reply.get("result", reply.get("error"))
        return [replies[first + place] for place in range(len(requests))]


@pytest.mark.suite("workers")
@pytest.mark.requirement("CHAN-24")
async def test_one_array_for_episodes_of_both_workers_is_answered_completely_and_in_order(
    idle_server: WorkersServer,
) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(f"{idle_server.url}/channel", protocols=(CHANNEL_SUBPROTOCOL,)) as socket:
            foreign = Foreign(socket)
            start = {"environment": "ledger", "split": "train", "index": 0}
            started = await foreign.ask(*(("episodes/start", {**start, "key": f"k{place}"}) for place in range(8)))
            ids = [one["episodes"][0]["episode"] for one in started]
            assert Counter(map(worker_of, ids)) == {"w0": 4, "w1": 4}
            step = {"tool": "add"}
            steps = [
                ("episodes/step", {**step, "episode": one, "step": at, "arguments": {"number": at}, "key": str(at)})
                for at in (1, 2, 3)
                for one in ids
            ]
            done = await foreign.ask(*steps, ("episodes/step", {"episode": 7}), ("nonsense", {}))
            sums = [one["content"][0]["text"].split()[0] for one in done[:24]]
            assert sums == ["1"] * 8 + ["3"] * 8 + ["6"] * 8
            assert [one["code"] for one in done[24:]] == [-32602, -32601]
            again = await foreign.ask(("episodes/start", {**start, "key": "k3"}), *steps[:8])
            assert again[0]["episodes"][0]["episode"] == ids[3]
            assert [one["content"][0]["text"].split()[0] for one in again[1:]] == ["1"] * 8
            await socket.ping(b"are you there")
            await socket.send_str("no JSON")
            assert json.loads((await socket.receive()).data)["error"]["code"] == -32700


async def test_the_upgrade_says_where_the_channel_of_each_worker_is(server: WorkersServer) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/channel", "/workers/w0/channel", "/workers/w1/channel"):
            async with session.ws_connect(server.url + path, protocols=(CHANNEL_SUBPROTOCOL,)) as socket:
                assert socket._response.headers[WORKER_PATH_HEADER] == WORKER_PATH
                await socket.send_str('{"jsonrpc":"2.0","id":1,"method":"dev.ludus/environments/list"}')
                assert "result" in json.loads((await socket.receive()).data)
        for path in ("/workers/w2/channel", "/workers/W0/channel", "/workers/channel", "/workers//channel"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(server.url + path, protocols=(CHANNEL_SUBPROTOCOL,))
            assert refused.value.status == 404
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{server.url}/channel")
        assert refused.value.status == 400


@pytest.mark.suite("workers")
async def test_plain_ors_requests_play_in_sessions_of_both_kinds_of_ids(idle_server: WorkersServer) -> None:
    async with aiohttp.ClientSession(idle_server.url) as session:

        async def post(path: str, sid: str = "", **body: Any) -> tuple[int, Any]:
            headers = {"X-Session-ID": sid, "Accept": "application/json"} if sid else {"Accept": "application/json"}
            async with session.post(path, json=body or None, headers=headers) as response:
                text = await response.text()
                return response.status, json.loads(text) if response.content_type == "application/json" else text

        sids = [(await post("/create_session"))[1]["sid"] for _ in range(4)]
        assert Counter(map(worker_of_session, sids)) == {"w0": 2, "w1": 2}
        for sid in (*sids, "chosen", "w7.chosen", "w0.chosen", "another one"):
            status, created = await post("/create", sid, env_name="ledger", split="train", index=0)
            assert (status, created) == (200, {"sid": sid})
            for number, expected in ((2, '"2 '), (3, '"5 ')):
                status, events = await post("/ledger/call", sid, name="add", input={"number": number})
                assert status == 200
                assert expected.strip('"') in events, sid
            assert (await post("/ping", sid))[0] == 200
            assert (await post("/delete", sid))[0] == 200
        assert (await post("/ledger/call", "unknown", name="add", input={"number": 1}))[0] == 404


@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_ids_of_no_worker_and_of_no_episode_are_not_found(server: WorkersServer, wire: Any) -> None:
    async with connect(server.url, wire=wire) as client:
        await client.environments()
        for odd in ("e_w0.unknown", "e_w7.unknown", "e_unknown", "e_W0.x", "e_.x", "e_w0.", "x" * 5000, "é", "\n"):
            with pytest.raises(EpisodeNotFound):
                await client._session.wire.request(CLOSE, CloseParams(episode=odd))
        with pytest.raises(GroupNotFound):
            await client.score_group("g_w1.unknown", {})


async def test_play_addresses_of_another_worker_or_spelling_are_refused(server: WorkersServer) -> None:
    async with connect(server.url) as client, aiohttp.ClientSession() as session:
        episode = await client.environment("ledger").start(index=0)
        assert episode.play_url is not None
        own = str(worker(episode))
        other = {"w0": "w1", "w1": "w0"}[own]
        for wrong in (
            episode.play_url.replace(f"play_{own}.", f"play_{other}."),
            episode.play_url.replace(f"play_{own}.", "play_"),
            episode.play_url.replace(f"play_{own}.", "play_w9."),
        ):
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            headers = {"Accept": "application/json, text/event-stream"}
            async with session.post(wrong, json=request, headers=headers) as response:
                assert response.status == 404


async def has_requests(session: aiohttp.ClientSession, count: int) -> bool:
    """Return whether so many requests came to the workers over MCP."""
    metrics = await (await session.get("/metrics")).text()
    return sum(map(float, re.findall(r'wire="mcp"} (.+)', metrics))) >= count


@pytest.mark.suite("workers")
@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_report_of_outcomes_reaches_every_worker(idle_server: WorkersServer, wire: Any) -> None:
    counts = []
    for number in range(1, 7):
        async with connect(idle_server.url, wire=wire) as client:
            params = ReportOutcomesParams(
                environment="ledger",
                split="train",
                outcomes=(Outcome(task="t1", reward=1.0, passed=True),),
                key=f"report {number}",
            )
            counts.append((await client._session.wire.request(REPORT_OUTCOMES, params)).recorded)
        if wire == "channel":  # the others get it while the answer is on its way
            async with aiohttp.ClientSession(idle_server.url) as session:
                await wait_until(partial(has_requests, session, number))
    assert counts == [1, 2, 3, 4, 5, 6]


@pytest.mark.suite("workers")
async def test_pages_answer_for_all_workers(idle_server: WorkersServer) -> None:
    async with connect(idle_server.url) as client, aiohttp.ClientSession(idle_server.url) as session:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(4)]
        assert (await (await session.get("/health")).json()) == {"status": "ok"}
        ready = await (await session.get("/ready")).json()
        assert ready == {"status": "ready", "running": 4, "limit": 100_000, "queued": 0}
        metrics = await (await session.get("/metrics")).text()
        assert 'ludus_episodes_running{worker="w0"} 2.0' in metrics
        assert 'ludus_episodes_running{worker="w1"} 2.0' in metrics
        assert metrics.count("# TYPE ludus_episodes_running gauge") == 1
        assert (await session.get("/nothing/here")).status == 404
        assert (await session.get("/openapi.json")).status == 200
        assert (await session.head("/health")).status in (200, 405)
        await asyncio.gather(*(one.close() for one in episodes))


@pytest.mark.suite("workers")
async def test_tokens_are_required_and_scopes_hold_behind_the_gateway(launch: Any) -> None:
    token, record = new_token("trainer", ("tasks:read", "episodes:run", "rewards:read"))
    server = await launch(journal=False, variables={"LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json()})
    async with connect(server.url, token=token) as client, aiohttp.ClientSession(server.url) as session:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(4)]
        assert len({worker(one) for one in episodes}) == 2
        assert [await total(one, 2) for one in episodes] == ["2"] * 4
        headers = {"Authorization": f"Bearer {token}"}
        assert (await session.get("/metrics", headers=headers)).status == 403
        assert (await session.get("/metrics")).status == 401
        assert await (await session.get("/ready")).json() == {"status": "ready"}
        for path in ("/channel", "/workers/w0/channel"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(path, protocols=(CHANNEL_SUBPROTOCOL,))
            assert refused.value.status == 401
        await asyncio.gather(*(one.close() for one in episodes))
