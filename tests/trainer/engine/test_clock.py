"""The clock of play, on an event loop whose time only passes when nothing else is to be done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ludus.trainer.engines.clock import PlayClock
from ludus.trainer.rollouts.stragglers import Stragglers


class Skipping(asyncio.SelectorEventLoop):
    """A loop that sleeps for no time at all."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(Impatient(self))

    def time(self) -> float:
        return self.now


class Impatient(selectors.SelectSelector):
    def __init__(self, loop: Skipping) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen"
        self.loop.now += max(0.0, timeout)
        return super().select(0)


def play(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(work())


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def test_a_limit_expires_after_its_seconds_of_play() -> None:
    async def work() -> None:
        clock = PlayClock()

        async def slow() -> None:
            async with clock.limit(10):
                await asyncio.sleep(4)
                with clock.paused():
                    await asyncio.sleep(1000)
                assert round(clock.seconds(), 3) == 4
                await asyncio.sleep(1000)

        with pytest.raises(TimeoutError):
            await slow()
        assert now() == 1010

    play(work)


def test_a_limit_that_begins_in_a_pause_begins_to_count_after_it_and_pauses_may_overlap() -> None:
    async def work() -> None:
        clock = PlayClock()

        async def pause(begin: float, end: float) -> None:
            await asyncio.sleep(begin)
            with clock.paused():
                await asyncio.sleep(end - begin)

        pauses = [asyncio.create_task(pause(*when)) for when in ((0, 50), (40, 90))]
        await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            async with clock.limit(5):
                await asyncio.sleep(1000)
        assert now() == 95
        await asyncio.gather(*pauses)

    play(work)


async def sleep_within(clock: PlayClock, seconds: float, limits: list[asyncio.Timeout]) -> None:
    """Sleep for long under a limit, which is added to `limits`."""
    async with clock.limit(seconds) as limit:
        limits.append(limit)
        await asyncio.sleep(1000)


def test_no_limit_and_limits_within_limits() -> None:
    async def work() -> None:
        clock = PlayClock()
        async with clock.limit(None) as none, clock.limit(50) as outer:
            limits: list[asyncio.Timeout] = []
            with pytest.raises(TimeoutError):
                await sleep_within(clock, 3, limits)
            assert (limits[0].expired(), outer.expired(), none.expired()) == (True, False, False)
            with clock.paused():
                await asyncio.sleep(1000)
        assert now() == 1003

    play(work)


def test_a_pause_while_a_limit_is_just_expiring_harms_nothing() -> None:
    async def work() -> None:
        clock = PlayClock()

        async def slow() -> None:
            async with clock.limit(3):
                try:
                    await asyncio.sleep(1000)
                finally:
                    with clock.paused():
                        await asyncio.sleep(10)

        with pytest.raises(TimeoutError):
            await slow()
        assert now() == 13

    play(work)


@pytest.mark.parametrize(
    ("lengths", "ended_at"),
    [
        ((10, 10, 10, 1000), 70),  # the last one has `seconds` more
        ((100, 100, 100, 1000), 300),  # or twice as long as half of them took
        ((100, 100, 250, 280), 280),  # no client is late
        ((10, 1000, 1000, 1000), 1000),  # the half is not over
    ],
)
def test_stragglers_have_as_much_time_again_as_half_of_the_group_and_more(
    lengths: tuple[float, ...], ended_at: float
) -> None:
    async def work() -> None:
        clock = PlayClock()
        stragglers = Stragglers(clock, 60)
        outcomes: list[str] = []

        async def episode(length: float) -> None:
            async with stragglers.episode() as end:
                try:
                    async with end.limit(5000):
                        await asyncio.sleep(length)
                    outcomes.append("whole")
                except TimeoutError:
                    outcomes.append("cut")

        attempts = [asyncio.create_task(episode(length)) for length in lengths]
        await stragglers.wait(attempts)
        assert now() == ended_at
        assert outcomes.count("cut") == sum(length > ended_at for length in lengths)
        assert stragglers.over is ("cut" in outcomes)

    play(work)


def test_a_straggler_that_does_not_end_is_cancelled_and_one_that_waits_for_its_turn_at_once() -> None:
    async def work() -> None:
        stragglers = Stragglers(PlayClock(), 60)

        async def stuck() -> None:
            async with stragglers.episode() as end, end.limit(5000):
                try:
                    await asyncio.sleep(1000)
                finally:
                    await asyncio.sleep(1000)

        attempts = [
            asyncio.create_task(work) for work in (stuck(), asyncio.sleep(999), asyncio.sleep(1), asyncio.sleep(1))
        ]
        await stragglers.wait(attempts)
        await asyncio.gather(*attempts, return_exceptions=True)
        assert now() == 61 + 30
        assert [attempt.cancelled() for attempt in attempts] == [True, True, False, False]

    play(work)
