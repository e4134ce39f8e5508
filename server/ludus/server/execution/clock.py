"""Deadlines for environment code that exclude the time spent waiting for a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["current_clock"]


class Clock:
    """A deadline that moves later by the time during which all calls under it wait for a thread.

    The clock runs as soon as one call under it runs, so a check that hangs is stopped even while other checks wait.

    Args:
        deadline: when the time ends, in seconds of the event loop's clock.
        schedule: called with the new deadline, or None while the clock stands still, and with the seconds waited.
    """

    __slots__ = ("_loop", "_running", "_schedule", "_stopped", "_waiting", "deadline")

    def __init__(self, deadline: float, schedule: Callable[[float | None, float], None]) -> None:
        self.deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._schedule = schedule
        self._waiting = 0
        self._running = 0
        self._stopped: float | None = None
        """The time since which the clock stands still; None while it runs."""

    def wait(self) -> None:
        """Note that a call under this clock begins to wait for a thread."""
        self._waiting += 1
        self._turn()

    def go_on(self) -> None:
        """Note that a call under this clock no longer waits."""
        self._waiting -= 1
        self._turn()

    def work(self) -> None:
        """Note that a call under this clock has a thread."""
        self._running += 1
        if self._waiting:
            self._turn()

    def rest(self) -> None:
        """Note that a call under this clock has ended."""
        self._running -= 1
        if self._waiting:
            self._turn()

    def move(self, deadline: float) -> None:
        """Set another deadline."""
        self.deadline = deadline
        if self._stopped is None:
            self._schedule(deadline, 0.0)

    def _turn(self) -> None:
        stop = self._waiting > 0 and not self._running
        if stop == (self._stopped is not None):
            return
        now = self._loop.time()
        if stop:
            self._stopped = now
            self._schedule(None, 0.0)
        elif self._stopped is not None:
            waited = now - self._stopped
            self._stopped = None
            self.deadline += waited
            self._schedule(self.deadline, waited)


CLOCK: Final[ContextVar[Callable[[], Clock] | None]] = ContextVar("ludus_clock", default=None)
"""Returns the clock of the environment code that runs in the current task, always the same one."""


def current_clock() -> Clock | None:
    """Return the clock of the environment code that runs in the current task; None outside of such code."""
    get = CLOCK.get()
    return None if get is None else get()


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Raise `TimeoutError` when the body takes longer than `seconds`, not counting the time it waits for threads."""
    async with asyncio.timeout(seconds) as timeout:

        def schedule(deadline: float | None, waited: float) -> None:
            if not timeout.expired():
                timeout.reschedule(deadline)

        clock = Clock(asyncio.get_running_loop().time() + seconds, schedule)
        token = CLOCK.set(lambda: clock)
        try:
            yield
        finally:
            CLOCK.reset(token)
