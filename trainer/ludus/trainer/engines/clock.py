"""The clock for time limits on episodes. It is paused during weight updates, which are not the policy's time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class PlayClock:
    """A clock that counts only the time during which an engine samples. Each engine has one, for one event loop.

    async with engine.clock.limit(300.0) as limit:    # raises TimeoutError, as asyncio.timeout does
        ...
    with clock.paused():                              # the engine, around an update
        ...
    """

    def __init__(self) -> None:
        self._pauses = 0
        self._stopped_at = 0.0
        self._lost = 0.0
        """The total of all pauses that have ended, in seconds."""
        self._deadlines: dict[asyncio.Timeout, float] = {}
        """The deadlines of the active limits, in this clock's seconds."""

    def seconds(self) -> float:
        """Return this clock's time, from an arbitrary beginning."""
        now = self._stopped_at if self._pauses else asyncio.get_running_loop().time()
        return now - self._lost

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock; pauses may overlap."""
        time = asyncio.get_running_loop().time
        if not self._pauses:
            self._stopped_at = time()
            for limit in self._deadlines:
                _reschedule(limit, None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._lost += time() - self._stopped_at
                for limit, deadline in self._deadlines.items():
                    _reschedule(limit, deadline + self._lost)

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        """Raise TimeoutError if the body takes longer than `seconds`; None sets no limit. `expired()` of the yielded
        timeout distinguishes this limit's error from another's; `end_now` ends it early.
        """
        async with asyncio.timeout(None) as limit:
            if seconds is not None:
                self._deadlines[limit] = deadline = self.seconds() + seconds
                if not self._pauses:
                    limit.reschedule(deadline + self._lost)
            try:
                yield limit
            finally:
                self._deadlines.pop(limit, None)

    def end_now(self, limit: asyncio.Timeout) -> None:
        """Let an active limit expire at once, whether the clock is paused or not."""
        if self._deadlines.pop(limit, None) is not None:
            _reschedule(limit, asyncio.get_running_loop().time())


def _reschedule(limit: asyncio.Timeout, when: float | None) -> None:
    if not limit.expired():  # an expired limit stays active until its body has ended
        limit.reschedule(when)
