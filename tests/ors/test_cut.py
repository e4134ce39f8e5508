"""Connections that break at random points: every tool runs exactly once per step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from cutting import CuttingProxy

from ludus.client import connect
from ludus.protocol import EndReason, text_of
from ludus.server import Environment, Result, Task, tool

Serve = Callable[..., Awaitable[Any]]
STEPS = 4


class Ledger(Environment[Task]):
    """Writes down every execution of a step."""

    splits = {"train": [Task(id=f"t{n}") for n in range(200)]}
    ledgers: ClassVar[list[list[int]]] = []
    grades: ClassVar[list[str]] = []

    async def setup(self) -> None:
        self.ledger: list[int] = []

    async def prompt(self) -> str:
        return "Write."

    @tool
    async def write(self, number: int, slowly: bool = False) -> Result:
        """Write a number down."""
        if not self.ledger:
            self.ledgers.append(self.ledger)
        self.ledger.append(number)
        await asyncio.sleep(0.05 if slowly else 0)
        return Result(f"wrote {number}", reward=1.0)

    async def grade(self, answer: str) -> float:
        self.grades.append(answer)
        return 2.0


@pytest.mark.timeout(120)
async def test_every_step_runs_once_over_connections_that_keep_breaking(serve: Serve) -> None:
    Ledger.ledgers.clear()
    Ledger.grades.clear()
    server = await serve(Ledger)
    episodes, turns = 100, asyncio.Semaphore(10)
    async with (
        CuttingProxy(server.url, mean_bytes=8_000, seed=3).running() as proxy,
        connect(proxy.url, wire="ors", timeout=60) as client,
    ):
        environment = client.environment("ledger")

        async def play(number: int) -> None:
            async with turns, environment.episode() as episode:
                for step in range(1, STEPS + 1):
                    result = await episode.call("write", number=step, slowly=step == 2)
                    assert (result.step, text_of(result.content)) == (step, f"wrote {step}")
                graded = await episode.grade(f"answer {number}")
                assert graded.info.end_reason is EndReason.SUBMITTED
                assert graded.info.reward is not None
                assert graded.info.reward.value == STEPS + 2.0

        await asyncio.gather(*(play(number) for number in range(episodes)))
        assert proxy.cuts > 20
    assert server.app.context.host.stats().running == 0
    assert Ledger.ledgers == [list(range(1, STEPS + 1))] * episodes
    assert sorted(Ledger.grades) == sorted(f"answer {number}" for number in range(episodes))
