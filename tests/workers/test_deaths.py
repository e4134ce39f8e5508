"""Workers, the gateway and whole servers are killed or paused: nothing hangs, and what was promised is kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client as McpClient
from mcp import MCPError
from waiting import is_running, wait_until
from worker_servers import PATIENCE, WORLD, WorkersServer

from ludus.client import Episode, GroupMember, RandomPolicy, connect, rollout, text_of
from ludus.protocol.errors import EpisodeEnded, EpisodeNotFound, InfrastructureFailed
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.protocol.workers import worker_of, worker_of_session

WIRES = pytest.mark.parametrize("wire", ["channel", pytest.param("mcp", marks=pytest.mark.suite("workers"))])
ALL_WIRES = pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
LOST = (InfrastructureFailed, EpisodeNotFound)
"""How a client learns that an episode is lost: while its worker is dead, and from the next process."""

pytestmark = pytest.mark.timeout(300)


def worker(episode: Episode) -> str | None:
    return worker_of(episode.id) or worker_of_session(episode.id)


async def total(episode: Episode, number: int) -> int:
    """The sum after adding a number."""
    return int(text_of((await episode.call("add", number=number)).content).split()[0])


async def totals(episode: Episode, count: int) -> list[int]:
    """Add 1 so many times, and return each sum."""
    return [await total(episode, 1) for _ in range(count)]


@WIRES
async def test_with_a_journal_episodes_go_on_after_their_worker_was_killed(launch: Any, wire: Any) -> None:
    server: WorkersServer = await launch(journal=True)
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=index) for index in range(10)]
        for number in (1, 2, 3):
            await asyncio.gather(*(total(one, number) for one in episodes))
        pid = await server.kill("w0")
        sums = await asyncio.gather(*(total(one, 10) for one in episodes))
        assert sums == [16] * 10
        assert server.pid_of("w0") != pid
        logs = [[entry.reward.value for entry in (await one.rewards()).entries] for one in episodes]
        assert logs == [[1.0, 2.0, 3.0, 10.0]] * 10
    assert len(server.pids("w1")) == 1, "the other worker was not disturbed"


@pytest.mark.suite("workers")
@WIRES
async def test_calls_under_way_while_workers_are_killed_are_answered_once(launch: Any, wire: Any) -> None:
    server: WorkersServer = await launch(journal=True)
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=7) for _ in range(20)]

        playing = asyncio.gather(*(totals(one, 20) for one in episodes))
        for name in ("w0", "w1", "w0"):
            await asyncio.wait([playing], timeout=0.2)
            pid = await server.kill(name)
            await server.replaced(name, pid)
        assert await playing == [list(range(1, 21))] * 20
        infos = [await one.info() for one in episodes]
        assert {(info.steps, info.reward.value) for info in infos if info.reward is not None} == {(20, 20.0)}


@pytest.mark.suite("workers", first=1)
@ALL_WIRES
async def test_without_a_journal_lost_episodes_fail_at_once_and_others_go_on(launch: Any, wire: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0) for _ in range(6)]
        await asyncio.gather(*(total(one, 1) for one in episodes))
        lost = [one for one in episodes if worker(one) == "w0"]
        kept = [one for one in episodes if worker(one) == "w1"]
        assert lost
        assert kept
        pid = await server.kill("w0")
        results = await asyncio.gather(*(total(one, 1) for one in lost), return_exceptions=True)
        assert [type(result) for result in results if not isinstance(result, LOST)] == []
        assert {*await asyncio.gather(*(total(one, 1) for one in kept))} == {2}
        await server.replaced("w0", pid)
        for one in lost:
            with pytest.raises((*LOST, EpisodeEnded)):
                await one.call("add", number=1)
        again = [await ledger.start(index=0) for _ in range(6)]
        assert await asyncio.gather(*(total(one, 4) for one in again)) == [4] * 6
        assert "w0" in {worker(one) for one in again}
        await asyncio.gather(*(one.close() for one in (*kept, *again)))
        for one in lost:
            with contextlib.suppress(*LOST):
                await one.close()


@pytest.mark.suite("workers")
@pytest.mark.requirement("CHAN-26")
async def test_a_worker_that_cannot_come_back_leaves_its_requests_answered(launch: Any, tmp_path: Path) -> None:
    world = tmp_path / "fleeting_world.py"
    shutil.copy(WORLD, world)
    server: WorkersServer = await launch(journal=False, specs=(f"{world}:Ledger",))
    async with connect(server.url) as client, aiohttp.ClientSession(server.url) as session:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0) for _ in range(2)]
        (lost,) = (one for one in episodes if worker(one) == "w0")
        world.unlink()  # so that no process can take the worker's place
        await server.kill("w0")
        with pytest.raises(InfrastructureFailed):
            await lost.call("add", number=1)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect("/workers/w0/channel", protocols=(CHANNEL_SUBPROTOCOL,))
        assert refused.value.status == 410
        for method in ("step", "close"):
            params = (
                {"episode": lost.id, "key": "k", "step": 1, "tool": "add"} if method == "step" else {"episode": lost.id}
            )
            reply = await session.post(
                "/mcp", headers={"Accept": "application/json, text/event-stream"},
                json={"jsonrpc": "2.0", "id": "x", "method": f"dev.ludus/episodes/{method}", "params": params},
            )  # fmt: skip
            answer = await reply.json()
            assert (answer["id"], answer["error"]["code"]) == ("x", InfrastructureFailed.code)
        again = [await ledger.start(index=0) for _ in range(3)]
        assert {worker(one) for one in again} == {"w1"}
        assert await total(again[0], 5) == 5
        assert (await (await session.get("/ready")).json())["running"] == 4
        await asyncio.gather(*(one.close() for one in (*episodes, *again)), return_exceptions=True)
    await wait_until(lambda: "worker w0 cannot start" in server.said, PATIENCE)
    assert await server.end(signal.SIGTERM) == 0


@pytest.mark.suite("workers")
async def test_rollouts_play_lost_episodes_again(launch: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    async with connect(server.url) as client:
        ledger = client.environment("ledger")
        found = []
        async with contextlib.aclosing(rollout(ledger, RandomPolicy(seed=3), samples=40, retries=20)) as trajectories:
            async for trajectory in trajectories:
                found.append(trajectory)
                if len(found) in (20, 60, 100):
                    pid = await server.kill("w0")
                    await server.replaced("w0", pid)
        assert [one.failure for one in found if one.failure is not None] == []
        assert len({(one.task.id, one.sample) for one in found}) == len(found) == 200
        assert {worker_of(one.episode or "") for one in found} == {"w0", "w1"}


@pytest.mark.suite("workers")
async def test_an_agent_at_its_play_url_learns_that_its_worker_died(launch: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    async with connect(server.url) as client:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(2)]
        (lost,) = (one for one in episodes if worker(one) == "w0")
        assert lost.play_url is not None
        async with McpClient(lost.play_url) as agent:
            await agent.list_tools()
            pid = await server.kill("w0")
            async with asyncio.timeout(60):
                with pytest.raises(MCPError, match="died|not valid on this server"):
                    await agent.call_tool("add", {"number": 1})
        await server.replaced("w0", pid)


@pytest.mark.suite("workers")
@pytest.mark.parametrize("journal", [True, False])
async def test_a_paused_worker_is_killed_and_replaced_and_never_writes_again(launch: Any, journal: bool) -> None:
    server: WorkersServer = await launch("--unresponsive-seconds", "1", journal=journal)
    async with connect(server.url) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=index) for index in range(4)]
        await asyncio.gather(*(total(one, 1) for one in episodes))
        pid = await server.kill("w0", signal.SIGSTOP)
        results = await asyncio.gather(*(total(one, 2) for one in episodes), return_exceptions=True)
        await server.replaced("w0", pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        assert not is_running(pid)
        for one, result in zip(episodes, results, strict=True):
            if journal or worker(one) == "w1":
                assert result == 3
            else:
                assert isinstance(result, LOST)
    assert "did not answer and was killed" in server.said


@pytest.mark.suite("workers", first=1)
async def test_no_worker_outlives_a_supervisor_that_is_killed(server: WorkersServer) -> None:
    workers = [server.pid_of(name) for name in ("w0", "w1")]
    await server.end(signal.SIGKILL)
    await wait_until(lambda: not any(map(is_running, workers)), PATIENCE)


@pytest.mark.suite("workers")
async def test_not_even_a_paused_worker_outlives_a_supervisor_that_is_killed(server: WorkersServer) -> None:
    paused = await server.kill("w0", signal.SIGSTOP)
    await server.end(signal.SIGKILL)
    await wait_until(lambda: not is_running(paused), PATIENCE)


@pytest.mark.suite("workers")
@WIRES
async def test_clients_go_on_after_the_gateway_was_killed(launch: Any, wire: Any) -> None:
    server: WorkersServer = await launch(journal=True)
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=7) for _ in range(10)]

        playing = asyncio.gather(*(totals(one, 30) for one in episodes))
        for _ in range(2):
            await asyncio.wait([playing], timeout=0.2)
            await server.end(signal.SIGKILL)
            await server.start()
        assert await playing == [list(range(1, 31))] * 10


@pytest.mark.suite("workers")
@WIRES
async def test_a_start_that_is_sent_again_after_the_gateway_was_killed_gets_the_same_group(
    launch: Any, wire: Any
) -> None:
    server: WorkersServer = await launch(journal=True)
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")

        async def start() -> list[list[str]]:
            return [
                [
                    (await ledger.start(index=1, seed=5, join=GroupMember(f"key {group}", 2, place))).id
                    for place in range(2)
                ]
                for group in range(6)
            ]

        first = await start()
        assert {worker_of(one) for group in first for one in group} == {"w0", "w1"}
        await server.end(signal.SIGKILL)
        await server.start()
        fillers = [await ledger.start(index=0) for _ in range(5)]  # so that the load is another one
        assert await start() == first
        await asyncio.gather(*(one.close() for one in fillers))


@pytest.mark.suite("workers")
async def test_a_foreign_client_is_closed_with_a_reason_and_finds_its_episode_again(launch: Any) -> None:
    server: WorkersServer = await launch(journal=True)
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(f"{server.url}/channel", protocols=(CHANNEL_SUBPROTOCOL,)) as socket:
            params = '{"environment":"ledger","split":"train","index":0,"key":"k"}'
            await socket.send_str(f'{{"jsonrpc":"2.0","id":1,"method":"dev.ludus/episodes/start","params":{params}}}')
            started = (await socket.receive()).json()
            name = worker_of(started["result"]["episodes"][0]["episode"])
            assert name is not None
            await server.kill(name)
            async with asyncio.timeout(60):
                message = await socket.receive()
            assert message.type is aiohttp.WSMsgType.CLOSE
            assert message.data == 1012
            assert name in (message.extra or "")
        async with session.ws_connect(f"{server.url}/channel", protocols=(CHANNEL_SUBPROTOCOL,)) as socket:
            await socket.send_str(f'{{"jsonrpc":"2.0","id":1,"method":"dev.ludus/episodes/start","params":{params}}}')
            again = (await socket.receive()).json()
            assert again["result"]["episodes"][0]["episode"] == started["result"]["episodes"][0]["episode"]


@pytest.mark.suite("workers")
async def test_journals_hold_each_workers_own_episodes(launch: Any) -> None:
    server: WorkersServer = await launch(journal=True)
    async with connect(server.url) as client:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(4)]
        ids = {name: [one.id for one in episodes if worker(one) == name] for name in ("w0", "w1")}
        await server.end(signal.SIGKILL)
        for name in ("w0", "w1"):
            with contextlib.closing(sqlite3.connect(server.folder / f"journal.db.{name}")) as database:
                batches = b"".join(batch for (batch,) in database.execute("SELECT entries FROM batches"))
            assert [one.encode() in batches for one in ids[name]] == [True, True]
            assert not any(one.encode() in batches for other in ids if other != name for one in ids[other])
        await server.start()
