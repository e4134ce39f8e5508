"""Connections cut at random points: every episode is started once, every tool runs once per step, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from cutting import CuttingProxy

from ludus.client import connect
from ludus.protocol import EndReason, Task
from ludus.protocol.errors import ConnectionFailed
from ludus.server import Environment, Result, tool

STEPS = 5
PATIENCE = 40.0
"""The most seconds between two answers; a request that waits for an answer that was lost would wait longer."""


class Ledger(Environment[Task]):
    """Writes down every setup and every execution of its tool."""

    splits = {"train": [Task(id="only")]}
    ledgers: ClassVar[list[list[int]]] = []
    grades: ClassVar[list[str]] = []

    def setup(self) -> None:
        self.ledger: list[int] = []
        self.ledgers.append(self.ledger)

    def prompt(self) -> str:
        return "Count to five."

    @tool
    async def write(self, number: int) -> Result:
        """Write a number down."""
        await asyncio.sleep(0)
        self.ledger.append(number)
        return Result(f"{len(self.ledger)}", reward=1.0)

    def grade(self, answer: str) -> float:
        self.grades.append(answer)
        return 2.0


@asynccontextmanager
async def showing_what_waits(seconds: float) -> AsyncIterator[Callable[[], None]]:
    """Fail if the function that it gives is not called for these seconds, and name the place where each task waits."""
    loop = asyncio.get_running_loop()
    waiting: list[str] = []

    def look() -> None:
        waiting.extend(f"{task.get_name()}: {' > '.join(places_of(task))}" for task in asyncio.all_tasks())

    timer = loop.call_later(seconds - 1, look)

    def progress() -> None:
        nonlocal timer
        timer.cancel()
        timer = loop.call_later(seconds - 1, look)
        limit.reschedule(loop.time() + seconds)

    try:
        async with asyncio.timeout(seconds) as limit:
            yield progress
    except TimeoutError:
        raise AssertionError("\n".join(["these tasks wait:", *sorted(waiting)])) from None
    finally:
        timer.cancel()


def places_of(task: asyncio.Task[Any]) -> Iterator[str]:
    """Yield the functions that a task is in, the outermost first."""
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        if (frame := getattr(coroutine, "cr_frame", None)) is not None:
            yield f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        coroutine = getattr(coroutine, "cr_await", None)


async def play_through(serve: Any, wire: Literal["channel", "mcp"], episodes: int, at_once: int, mean: float) -> Any:
    """Play episodes through a cutting proxy. Returns it."""
    Ledger.ledgers.clear()
    Ledger.grades.clear()
    server = await serve(Ledger)
    turns = asyncio.Semaphore(at_once)
    async with (
        CuttingProxy(server.url, mean_bytes=mean, seed=7).running() as proxy,
        connect(proxy.url, wire=wire, timeout=60) as client,
    ):
        environment = client.environment("ledger")

        async def play(number: int, answered: Callable[[], None]) -> None:
            async with turns, environment.episode() as episode:
                for step in range(1, STEPS + 1):
                    result = await episode.call("write", number=step)
                    answered()
                    assert (result.step, result.content[0].text) == (step, str(step))  # type: ignore[union-attr]
                graded = await episode.grade(f"answer {number}")
                assert graded.info.end_reason is EndReason.SUBMITTED
                assert graded.info.reward is not None
                assert graded.info.reward.value == STEPS + 2.0

        async with showing_what_waits(PATIENCE) as progress:
            await asyncio.gather(*(play(number, progress) for number in range(episodes)))
        assert server.app.context.host.stats().running == 0
        return proxy


@pytest.mark.requirement("KEY-2", "STEP-5", "CHAN-18")
@pytest.mark.timeout(180)
async def test_a_thousand_episodes_over_a_channel_that_keeps_breaking(serve: Any) -> None:
    proxy = await play_through(serve, "channel", episodes=1000, at_once=40, mean=30_000)
    assert proxy.cuts > 100
    assert Ledger.ledgers == [list(range(1, STEPS + 1))] * 1000
    assert sorted(Ledger.grades) == sorted(f"answer {number}" for number in range(1000))


@pytest.mark.requirement("KEY-2", "STEP-5")
async def test_episodes_over_http_that_keeps_breaking(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    proxy = await play_through(serve, "mcp", episodes=60, at_once=10, mean=8_000)
    assert proxy.cuts > 20
    assert Ledger.ledgers == [list(range(1, STEPS + 1))] * 60
    assert sorted(Ledger.grades) == sorted(f"answer {number}" for number in range(60))
    assert "incident" not in caplog.text, "a client that leaves is no fault of the server"


@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_an_episode_that_has_ended_keeps_what_it_earned_though_its_close_fails(serve: Any, wire: Any) -> None:
    server = await serve(Ledger)
    async with CuttingProxy(server.url).running() as proxy:
        client = connect(proxy.url, wire=wire, reconnect_seconds=0.1)
        environment = client.environment("ledger")
        async with environment.episode() as episode:
            graded = await episode.grade("done")
            proxy.refusing = True
            proxy.cut()
        assert graded.reward is not None
        assert graded.reward.value == 2.0
        proxy.refusing = False
        async with client:
            running = await environment.start()
            proxy.refusing = True
            proxy.cut()
            with pytest.raises(ConnectionFailed):
                await running.__aexit__(None, None, None)
            proxy.refusing = False
