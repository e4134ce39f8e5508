"""What clients know is what the server has, after every mix of kills, pauses and broken connections.

Clients play through a proxy and write down each answer (a history). A seed chooses faults: the server is killed,
stopped in order, or paused; connections break, or cannot be made; its database is killed. At the end, each acknowledged
step must be in its episode exactly once, in order and with the acknowledged reward, and each key must still give the
acknowledged answer.
"""

from __future__ import annotations

import asyncio
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cutting import CuttingProxy
from durable_server import Process
from postgres_server import PostgresServer
from stores import PostgresStore

from ludus.client import Client, Episode, connect
from ludus.protocol.episodes import StepParams, StepResult
from ludus.protocol.methods import STEP

WIRES = ["channel", "mcp", "ors"]
FAULTS = ("kill", "stop", "pause", "cut", "refuse")
EPISODES = 12
PAUSE_SECONDS = 0.05


@dataclass
class History:
    """The answers that clients got."""

    answers: dict[tuple[str, int], StepResult] = field(default_factory=dict)
    """By episode and step."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def add(self, episode: str, result: StepResult) -> None:
        """Write an answer down."""
        assert (episode, result.step) not in self.answers
        self.answers[episode, result.step] = result
        async with self.changed:
            self.changed.notify_all()

    async def reach(self, count: int) -> None:
        """Wait until there are so many answers."""
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.answers) >= count), 120)


def params_of(episode: Episode, step: int) -> StepParams:
    """One step; its number says what it adds."""
    key = f"{episode.id}/{step}"
    return StepParams(episode=episode.id, step=step, key=key, tool="add", arguments={"number": step})


async def play(client: Client, episode: Episode, history: History, over: asyncio.Event) -> None:
    """Take steps until all faults have happened, and write the answers down."""
    step = 0
    while not over.is_set():
        step += 1
        await history.add(episode.id, await request(client, params_of(episode, step)))


async def request(client: Client, params: StepParams) -> StepResult:
    """Send one step; the transport sends it again when its answer is lost."""
    return await client.environment("ledger")._wire.request(STEP, params)


async def happen(
    fault: str, served: Process, proxy: CuttingProxy, playing: asyncio.Future[Any], postgres: PostgresServer | None
) -> None:
    """Let one fault happen."""
    if fault == "kill":
        await served.restart()
    elif fault == "database":
        assert postgres is not None
        postgres.kill()
        await asyncio.to_thread(postgres.start)
    elif fault == "stop":
        await served.restart(signal.SIGTERM)
    elif fault == "cut":
        proxy.cut()
    else:
        assert served.process is not None
        proxy.refusing = fault == "refuse"
        if fault == "refuse":
            proxy.cut()
        else:
            served.process.send_signal(signal.SIGSTOP)
        await asyncio.wait([playing], timeout=PAUSE_SECONDS)
        proxy.refusing = False
        if fault == "pause":
            served.process.send_signal(signal.SIGCONT)


async def check(client: Client, episodes: list[Episode], history: History) -> None:
    """Compare what the server has with what it has answered."""
    for episode in episodes:
        entries = (await episode.rewards()).entries
        assert [entry.step for entry in entries] == list(range(1, len(entries) + 1)), "each step once, and in order"
        acknowledged = [result for (name, _), result in history.answers.items() if name == episode.id]
        assert len(acknowledged) <= len(entries) <= len(acknowledged) + 1
        for result in acknowledged:
            assert entries[result.step - 1].reward == result.reward
            total = sum(range(1, result.step + 1))
            assert result.content[0].text.startswith(f"{total} "), "no step is missing, none ran twice"  # type: ignore[union-attr]
            assert await request(client, params_of(episode, result.step)) == result, "one key has one answer"


async def run(folder: Path, wire: Any, seed: int, faults: int, database: PostgresStore | None = None) -> int:
    """Play through so many faults, check the history, and return how many steps it has."""
    chance = random.Random(seed)
    served = Process(folder, journal=None if database is None else database.name)
    postgres = None if database is None else database.server
    kinds = FAULTS if database is None else (*FAULTS, "database")
    await served.start()
    try:
        async with CuttingProxy(served.url, seed=seed).running() as proxy:
            async with connect(proxy.url, wire=wire, reconnect_seconds=120) as client:
                ledger = client.environment("ledger")
                episodes = [await ledger.start(index=number % 5, seed=number) for number in range(EPISODES)]
                history, over = History(), asyncio.Event()
                playing = asyncio.gather(*(play(client, one, history, over) for one in episodes))
                for _ in range(faults):
                    await history.reach(len(history.answers) + chance.randrange(1, 60))
                    await happen(chance.choice(kinds), served, proxy, playing, postgres)
                over.set()
                await playing
                await check(client, episodes, history)
    finally:
        await served.end()
    return len(history.answers)


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_every_acknowledged_step_is_there_once_in_order_and_with_its_reward(tmp_path: Path, wire: Any) -> None:
    assert await run(tmp_path, wire, seed=1, faults=6) > 6


@pytest.mark.suite("histories")
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("wire", WIRES)
async def test_histories_of_many_faults(tmp_path: Path, wire: Any, seed: int) -> None:
    assert await run(tmp_path, wire, seed, faults=10) > 10


@pytest.mark.suite("histories")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(200, 203))
@pytest.mark.parametrize("wire", WIRES)
async def test_histories_of_many_faults_with_a_database(
    tmp_path: Path, database: PostgresStore, wire: Any, seed: int
) -> None:
    assert await run(tmp_path, wire, seed, faults=20, database=database) > 20
