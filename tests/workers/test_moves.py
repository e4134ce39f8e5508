"""Episodes move to another process while clients play, and nothing is lost, run twice or left behind."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stores import PostgresStore
from waiting import is_running, wait_until
from worker_servers import PATIENCE, WorkersServer

from ludus.client import Episode, connect, text_of
from ludus.protocol.workers import worker_of

WORLD = Path(__file__).with_name("moving_world.py")
SPECS = (f"{WORLD}:Waiting", f"{WORLD}:Acting")

pytestmark = pytest.mark.timeout(600)


async def total(episode: Episode, number: int, *, wait: bool = False) -> int:
    """The sum after adding a number."""
    return int(text_of((await episode.call("add", number=number, wait=wait)).content))


def notes(server: WorkersServer) -> Counter[str]:
    """How often each thing happened, over all processes."""
    file = server.folder / "notes.txt"
    return Counter(line.rpartition(" ")[0] for line in (file.read_text("utf-8") if file.exists() else "").splitlines())


def workers_of(database: PostgresStore) -> list[str]:
    """The workers that have journals in a database."""
    return database.sql("SELECT worker FROM ludus.leases").split()


def children(server: WorkersServer) -> list[int]:
    """The processes of the workers, also those that are not in use yet or any more."""
    return [*map(int, Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split())]


def move(server: WorkersServer) -> None:
    """Let all episodes move to new processes."""
    os.kill(server.pid, signal.SIGHUP)


async def moved(server: WorkersServer, times: int = 1) -> None:
    """Wait until all episodes have moved."""
    await wait_until(lambda: server.said.count("all workers were restarted") >= times, PATIENCE)


async def test_a_call_under_way_during_a_move_is_repeated_by_the_next_process_and_answered_once(launch: Any) -> None:
    server: WorkersServer = await launch("--workers", "1", journal=True, specs=SPECS)
    async with connect(server.url) as client:
        episode = await client.environment("waiting").start()
        assert await total(episode, 1) == 1
        call = asyncio.ensure_future(total(episode, 2, wait=True))
        await wait_until(lambda: notes(server)["run 2"] == 1, PATIENCE)
        move(server)
        await moved(server)
        await wait_until(lambda: notes(server)["run 2"] == 2, PATIENCE)
        (server.folder / "go").touch()
        assert await call == 3
        assert [entry.reward.value for entry in (await episode.rewards()).entries] == [1.0, 2.0]
        old = server.pids("w0")[0]
        await wait_until(lambda: not is_running(old), PATIENCE)
        assert notes(server)["teardown"] == 1, "the old process has torn its part of the episode down"
    assert "killed" not in server.said


@pytest.mark.suite("workers")
async def test_a_call_that_acts_on_the_outside_is_waited_for_and_runs_once(launch: Any) -> None:
    server: WorkersServer = await launch("--workers", "1", journal=True, specs=SPECS)
    async with connect(server.url) as client:
        episode = await client.environment("acting").start()
        call = asyncio.ensure_future(total(episode, 2, wait=True))
        await wait_until(lambda: notes(server)["run 2"] == 1, PATIENCE)
        move(server)
        await asyncio.wait([call], timeout=1.0)
        assert not call.done()
        (server.folder / "go").touch()
        assert await call == 2
        await moved(server)
        assert await total(episode, 3) == 5
    assert notes(server)["run 2"] == 1


@pytest.mark.suite("workers")
async def test_a_worker_keeps_its_process_while_the_next_one_cannot_load_the_environments(launch: Any) -> None:
    world = WORLD.with_name("moving_world.py")
    server: WorkersServer = await launch(
        "--workers", "1", journal=True, specs=("edited_world.py:Waiting",), files=[world]
    )
    async with connect(server.url) as client:
        episode = await client.environment("waiting").start()
        (server.folder / "edited_world.py").write_text("this is no Python", "utf-8")
        move(server)
        await moved(server)
        assert "worker w0 keeps its process" in server.said
        assert await total(episode, 1) == 1
        shutil.copy(world, server.folder / "edited_world.py")
        move(server)
        await moved(server, 2)
        assert await total(episode, 1) == 2
        assert len(server.pids("w0")) == 2


@pytest.mark.suite("workers")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_with_fewer_workers_the_others_finish_their_episodes_and_end_with_their_journals(
    launch: Any, store: str, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue("database") if store == "postgres" else None
    journal = True if database is None else database.name
    server: WorkersServer = await launch("--result-ttl-seconds", "0.5", journal=journal, specs=SPECS)
    async with connect(server.url) as client:
        waiting = client.environment("waiting")
        episodes = [await waiting.start() for _ in range(6)]
        assert {worker_of(one.id) for one in episodes} == {"w0", "w1"}
        await asyncio.gather(*(total(one, 1) for one in episodes))
        await server.end(signal.SIGTERM)
        server.options = tuple("1" if option == "2" else option for option in server.options)
        await server.start()
        assert await asyncio.gather(*(total(one, 1) for one in episodes)) == [2] * 6
        more = [await waiting.start() for _ in range(4)]
        assert {worker_of(one.id) for one in more} == {"w0"}
        left = (server.folder / "journal.db.w1").exists if database is None else lambda: "w1" in workers_of(database)
        assert left()
        await asyncio.gather(*(one.close() for one in episodes if worker_of(one.id) == "w1"))
        await wait_until(lambda: "worker w1 has no episode left" in server.said, PATIENCE)
        await wait_until(lambda: not left(), PATIENCE)
        assert await total(next(one for one in episodes if worker_of(one.id) == "w0"), 1) == 3
        assert await total(await waiting.start(), 1) == 1


async def cut_moves(server: WorkersServer, cuts: int, seed: int, wire: Any) -> int:
    """Kill a process of the server at random points during moves, check all histories, and return the steps."""
    chance = random.Random(seed)
    acknowledged: Counter[str] = Counter()
    over = asyncio.get_running_loop().create_future()

    async def play(episode: Episode) -> None:
        while not over.done():
            count = acknowledged[episode.id] + 1
            assert await total(episode, count) == count * (count + 1) // 2
            acknowledged[episode.id] = count
            await asyncio.wait([over], timeout=0.1)  # so that the moves are not slowed down by very many steps

    async with connect(server.url, wire=wire, reconnect_seconds=120) as client:
        waiting = client.environment("waiting")
        episodes = [await waiting.start() for _ in range(12)]
        playing = asyncio.gather(*map(play, episodes))
        for number in range(1, cuts + 1):
            move(server)
            await asyncio.wait([playing], timeout=chance.uniform(0, 2.5))
            os.kill(chance.choice(children(server)), signal.SIGKILL)
            await moved(server, number)
        over.set_result(None)
        await playing
        for one in episodes:
            entries = (await one.rewards()).entries
            assert [entry.reward.value for entry in entries] == [*range(1, acknowledged[one.id] + 1)]
            await one.close()
    return acknowledged.total()


@pytest.mark.suite("moves")
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("seed", range(17))
async def test_moves_that_are_cut_at_random_points_lose_no_step_and_run_none_twice(
    launch: Any, seed: int, store: str, wire: Any, request: pytest.FixtureRequest
) -> None:
    journal = True if store == "sqlite" else request.getfixturevalue("database").name
    server: WorkersServer = await launch(journal=journal, specs=SPECS)
    assert await cut_moves(server, 10, seed, wire) > 10
