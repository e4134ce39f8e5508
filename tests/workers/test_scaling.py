"""A server adds workers while they are busy, and ends them while they are not."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest
from terminal import run_ludus
from waiting import wait_until
from worker_servers import PATIENCE, WorkersServer

from ludus.client import Episode, connect, text_of
from ludus.protocol.errors import EpisodeNotFound, ShuttingDown
from ludus.protocol.workers import worker_of
from ludus.server.serving.settings import ServerSettings
from ludus.server.workers.placements import Placements
from ludus.server.workers.pool import Pool, State, Worker
from ludus.server.workers.scaling import Scaler

pytestmark = pytest.mark.timeout(300)

FAST = (
    "--scale-up-load", "4", "--scale-down-load", "2", "--scale-up-seconds", "0.5", "--scale-down-seconds", "1",
    "--result-ttl-seconds", "0.5",
)  # fmt: skip


class Bench:
    """A scaler of 1 to 3 workers, whose loads a test sets."""

    def __init__(self, leaving: Container[str] = ()) -> None:
        settings = ServerSettings(
            workers=1, max_workers=3, scale_up_load=10, scale_down_load=5, scale_up_seconds=4, scale_down_seconds=8
        )
        self.pool = Pool(["w0"], durable=False)
        self.pool.workers["w0"].serves_at("127.0.0.1", 1)
        self.now = 0.0
        self.scaler = Scaler(self.pool, settings, lambda one: one.serves_at("127.0.0.1", 1), leaving)

    def pass_seconds(self, seconds: float, *loads: int, queued: int = 0) -> dict[str, bool]:
        """Let some seconds pass with these loads, and return the workers and whether each is retiring."""
        for _ in range(int(seconds * 2)):
            for worker, load in zip(self.pool.workers.values(), loads, strict=False):
                worker.measured(load, worker.sent, queued)
            self.now += 0.5
            self.scaler.look(self.now)
        return {name: worker.retiring for name, worker in self.pool.workers.items()}


def test_a_worker_is_added_once_the_load_was_high_long_enough() -> None:
    bench = Bench()
    assert bench.pass_seconds(60, 10) == {"w0": False}
    assert bench.pass_seconds(4, 11) == {"w0": False}
    assert bench.pass_seconds(1, 3) == {"w0": False}
    assert bench.pass_seconds(4, 11) == {"w0": False}, "the seconds are counted from the beginning again"
    assert bench.pass_seconds(0.5, 11) == {"w0": False, "w1": False}
    assert bench.pass_seconds(60, 11, 9) == {"w0": False, "w1": False}
    assert bench.pass_seconds(5, 11, 10) == {"w0": False, "w1": False, "w2": False}
    assert len(bench.pass_seconds(60, 50, 50, 50)) == 3, "three is the most"


def test_a_worker_is_added_when_starts_wait() -> None:
    assert Bench().pass_seconds(5, 1, queued=1) == {"w0": False, "w1": False}


def test_the_least_busy_worker_retires_once_the_load_was_low_and_the_last_one_never() -> None:
    bench = Bench()
    bench.pass_seconds(5, 11)
    assert bench.pass_seconds(60, 3, 3) == {"w0": False, "w1": False}, "the other one would have more than 5"
    assert bench.pass_seconds(8, 4, 1) == {"w0": False, "w1": False}
    assert bench.pass_seconds(0.5, 4, 1) == {"w0": False, "w1": True}
    assert bench.pass_seconds(60, 0, 0) == {"w0": False, "w1": True}


def test_a_retiring_worker_is_taken_back_before_another_is_added() -> None:
    bench = Bench()
    bench.pass_seconds(5, 11)
    assert bench.pass_seconds(9, 0, 0) == {"w0": False, "w1": True}
    assert bench.pass_seconds(5, 11, 0) == {"w0": False, "w1": False}


def test_nothing_is_decided_while_a_worker_is_not_up() -> None:
    bench = Bench()
    bench.pass_seconds(5, 11)
    bench.pool.workers["w1"].become(State.STARTING)
    assert bench.pass_seconds(60, 50, 0) == {"w0": False, "w1": False}


def test_a_number_is_free_again_when_no_worker_and_no_journal_has_it() -> None:
    leaving = {"w1"}
    bench = Bench(leaving)
    assert bench.pass_seconds(5, 11) == {"w0": False, "w2": False}
    del bench.pool.workers["w2"]
    leaving.clear()
    assert bench.pass_seconds(5, 11) == {"w0": False, "w1": False}


def test_sessions_that_clients_name_stay_where_they_are_when_workers_are_added() -> None:
    pool = Pool(["w0"], durable=False)
    pool.workers["w0"].serves_at("127.0.0.1", 1)
    placements = Placements(pool)
    names = [f"mine {number}" for number in range(50)]
    assert {placements.pin(name).name for name in names} == {"w0"}
    pool.workers["w1"] = Worker("w1")
    pool.workers["w1"].serves_at("127.0.0.1", 2)
    assert {placements.pin(name).name for name in names} == {"w0"}
    assert {placements.pin(f"new {number}").name for number in range(50)} == {"w0", "w1"}
    del pool.workers["w0"]
    assert {placements.pin(name).name for name in names} == {"w1"}


async def test_a_request_that_waits_for_a_worker_which_ends_for_good_is_sent_back_at_once() -> None:
    pool = Pool(["w0", "w1"], durable=True)
    leaving = pool.workers["w1"]
    leaving.become(State.STOPPING)
    waiting = asyncio.create_task(pool.reach(leaving, about_episodes=False))
    await asyncio.sleep(0)
    assert not waiting.done()
    leaving.become(State.ENDED)
    with pytest.raises(ShuttingDown, match="worker w1 has ended; send the request again"):
        await waiting
    with pytest.raises(ShuttingDown):
        await pool.reach(leaving, about_episodes=False)


async def total(episode: Episode, number: int) -> int:
    """The sum after adding a number."""
    return int(text_of((await episode.call("add", number=number)).content).split()[0])


@pytest.mark.parametrize(
    "journal",
    [pytest.param(True, id="journal"), pytest.param(False, id="no journal", marks=pytest.mark.suite("workers"))],
)
async def test_workers_come_and_go_with_the_episodes_and_lose_none(launch: Any, journal: bool) -> None:
    server: WorkersServer = await launch("--workers", "1-2", *FAST, journal=journal)
    async with connect(server.url) as client:
        ledger = client.environment("ledger")
        first = [await ledger.start(index=0) for _ in range(6)]
        assert {worker_of(one.id) for one in first} == {"w0"}
        await wait_until(lambda: len(server.pids("w1")) == 1, PATIENCE)
        second = [await ledger.start(index=0) for _ in range(4)]
        assert {worker_of(one.id) for one in second} == {"w1"}
        assert await asyncio.gather(*(total(one, 1) for one in (*first, *second))) == [1] * 10
        await asyncio.gather(*(one.close() for one in (*first[1:], *second[1:])))
        await wait_until(lambda: "ends when it has no episodes left" in server.said, PATIENCE)
        assert "worker w1 ends" in server.said
        third = await ledger.start(index=0)
        assert worker_of(third.id) == "w0"
        assert await asyncio.gather(*(total(one, 1) for one in (first[0], second[0]))) == [2, 2]
        await second[0].close()
        await wait_until(lambda: "worker w1 has no episode left" in server.said, PATIENCE)
        assert await asyncio.gather(*(total(one, 1) for one in (first[0], third))) == [3, 1]
        with pytest.raises(EpisodeNotFound):
            await second[1].info()
        more = [await ledger.start(index=0) for _ in range(6)]
        await wait_until(lambda: len(server.pids("w1")) == 2, PATIENCE)
        assert await asyncio.gather(*(total(one, 1) for one in more)) == [1] * 6
        if journal:
            assert (server.folder / "journal.db.w1").exists()
    assert "cannot start" not in server.said


@pytest.mark.suite("workers", first=1)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--workers", "3-2"), "the first number must be the smaller one"),
        (("--workers", "some"), "not a number of workers"),
        (("--workers", "1-2", "--scale-up-load", "3", "--scale-down-load", "3"), "must be less than --scale-up-load"),
        (("--ray", "auto"), "add --workers N"),
        (("--workers", "2", "--ray", "ray://10.0.0.1:10001"), "address of the Ray client"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run_ludus("serve", "guess_number", *options, cwd=tmp_path, variables={"COLUMNS": "1000", "TERM": "dumb"})
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
