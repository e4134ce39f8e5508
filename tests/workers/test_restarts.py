"""Workers are restarted one by one, and the whole server stops, in order."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from waiting import is_running, wait_until
from worker_servers import PATIENCE, WORLD, WorkersServer

from ludus.client import Episode, connect, text_of
from ludus.protocol.errors import EpisodeNotFound, InfrastructureFailed
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.protocol.workers import worker_of

WIRES = pytest.mark.parametrize("wire", ["channel", "mcp"])
pytestmark = [pytest.mark.timeout(300), pytest.mark.suite("workers")]


async def total(episode: Episode, number: int) -> int:
    """The sum after adding a number."""
    return int(text_of((await episode.call("add", number=number)).content).split()[0])


@WIRES
async def test_with_journals_clients_notice_nothing_of_a_rolling_restart_but_time(launch: Any, wire: Any) -> None:
    server: WorkersServer = await launch(journal=True)
    rolled = False
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=7) for _ in range(8)]

        async def play(episode: Episode) -> int:
            count = 0
            while not rolled or count < 10:
                count += 1
                assert await total(episode, 1) == count
            return count

        async def start() -> None:
            while not rolled:
                async with ledger.episode(index=1) as episode:
                    assert await total(episode, 3) == 3

        playing = [asyncio.ensure_future(play(one)) for one in episodes]
        starting = asyncio.ensure_future(start())
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        await wait_until(lambda: "all workers were restarted" in server.said, PATIENCE)
        rolled = True
        counts = await asyncio.gather(*playing)
        await starting
        for episode, count in zip(episodes, counts, strict=True):
            info = await episode.info()
            assert info.steps == count
    assert [len(server.pids(name)) for name in ("w0", "w1")] == [2, 2]
    assert "killed" not in server.said


@WIRES
async def test_without_a_journal_a_worker_finishes_its_episodes_and_gets_no_new_ones(launch: Any, wire: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    async with connect(server.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0) for _ in range(4)]
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        await wait_until(lambda: "restarting the workers one by one" in server.said, PATIENCE)
        first = [await ledger.start(index=0) for _ in range(6)]
        assert {worker_of(one.id) for one in first} == {"w1"}, "w0 is the first to be restarted"
        assert await asyncio.gather(*(total(one, 1) for one in episodes)) == [1] * 4
        for name, other in (("w0", "w1"), ("w1", "w0")):
            mine = [one for one in (*episodes, *first) if worker_of(one.id) == name]
            assert [await total(one, 0) for one in mine] == [1 if one in episodes else 0 for one in mine]
            (pid,) = server.pids(name)
            assert len(server.pids(other)) == (1 if name == "w0" else 2)
            await asyncio.gather(*(one.close() for one in mine))
            await server.replaced(name, pid)
            assert not is_running(pid)
        await wait_until(lambda: "all workers were restarted" in server.said, PATIENCE)


async def test_a_worker_without_a_journal_is_restarted_when_its_time_is_up(launch: Any) -> None:
    server: WorkersServer = await launch("--drain-seconds", "0.5", journal=False)
    async with connect(server.url) as client:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(2)]
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        await wait_until(lambda: "all workers were restarted" in server.said, PATIENCE)
        for one in episodes:
            with pytest.raises((EpisodeNotFound, InfrastructureFailed)):
                await one.call("add", number=1)


async def test_one_worker_alone_can_be_restarted_while_clients_play(launch: Any) -> None:
    server: WorkersServer = await launch("--workers", "1", journal=True)
    async with connect(server.url) as client:
        ledger = client.environment("ledger")
        episode = await ledger.start(index=0)
        assert await total(episode, 1) == 1
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        await wait_until(lambda: len(server.pids("w0")) == 2 or "restarting" in server.said, PATIENCE)
        assert await total(episode, 1) == 2
        assert await total(await ledger.start(index=0), 5) == 5


async def test_a_second_request_for_a_restart_during_one_is_refused_with_a_line(launch: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    async with connect(server.url) as client:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(2)]
        assert server.process is not None
        for _ in range(2):
            server.process.send_signal(signal.SIGHUP)
            await wait_until(lambda: "one by one" in server.said, PATIENCE)
        await wait_until(lambda: "being restarted already" in server.said, PATIENCE)
        await asyncio.gather(*(one.close() for one in episodes))
        await wait_until(lambda: "all workers were restarted" in server.said, PATIENCE)


async def test_a_stop_lets_running_calls_end_and_leaves_no_process(server: WorkersServer) -> None:
    workers = [server.pid_of(name) for name in ("w0", "w1")]
    async with connect(server.url, reconnect_seconds=1.0) as client:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(4)]
        await asyncio.gather(*(total(one, 1) for one in episodes))
        async with aiohttp.ClientSession() as session:
            async with session.ws_connect(f"{server.url}/channel", protocols=(CHANNEL_SUBPROTOCOL,)):
                assert await server.end(signal.SIGTERM) == 0
        assert not any(map(is_running, workers))
        with pytest.raises(Exception, match="cannot reach"):
            await client.environments()
        client._session.open_episodes.clear()
    assert "Traceback" not in server.said


async def test_a_server_that_was_stopped_goes_on_with_its_episodes(launch: Any) -> None:
    server: WorkersServer = await launch(journal=True)
    async with connect(server.url) as client:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(4)]
        await asyncio.gather(*(total(one, 1) for one in episodes))
        assert await server.end(signal.SIGTERM) == 0
        await server.start()
        assert await asyncio.gather(*(total(one, 2) for one in episodes)) == [3] * 4


async def refused(folder: Path, *options: str) -> str:
    """What `ludus serve` prints as it refuses to start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ludus.cli", "serve", *options, cwd=folder,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode not in (0, None)
    text = " ".join(said.decode().replace("│", " ").split())
    assert "Traceback" not in text
    return text


async def test_settings_that_contradict_each_other_are_refused_with_a_sentence(tmp_path: Path) -> None:
    ledger = f"{WORLD}:Ledger"
    (tmp_path / "one.db").touch()
    for name in ("many.db.w0", "many.db.w1", "many.db.w2"):
        (tmp_path / name).touch()
    for options, sentence in {
        ("--workers", "2", "--stdio"): "--workers needs an address",
        ("--workers", "2", "--reload"): "leave out --workers",
        ("--workers", "2", "--worker", "a"): "leave out --worker",
        ("--workers", "0"): "workers",
        ("--workers", "2", "--split", "train"): "--split works only with --stdio",
        ("--worker", "Not An Id"): "--worker",
        ("--workers", "2", "--journal", "one.db"): "has the journal of a server without workers",
        ("--workers", "2", "--journal", "."): "is a folder",
        ("--journal", "many.db"): "--workers 3",
        ("--workers", "2", "--host", "0.0.0.0"): "refusing to listen",
        ("--workers", "2", "--journal", "nowhere/at/all.db"): "nowhere/at",
    }.items():
        assert sentence in await refused(tmp_path, ledger, "--port", "0", *options), options
    assert "has no" in await refused(tmp_path, f"{WORLD}:Nothing", "--port", "0", "--workers", "2")


async def test_two_servers_cannot_have_one_journal(launch: Any, tmp_path: Path) -> None:
    await launch(journal=True)
    said = await refused(tmp_path, f"{WORLD}:Ledger", "--port", "0", "--workers", "2", "--journal", "journal.db")
    assert "another server uses it" in said
