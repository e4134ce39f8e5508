"""The clock of play, which stands still while an engine takes new weights: no policy is slow for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class PlayClock:
    """Time limits on the time during which an engine samples. Each engine has one; for one event loop only.

    async with engine.clock.limit(300.0) as limit:    # raises TimeoutError, as asyncio.timeout does
        ...
    with clock.paused():                              # the engine, around an update
        ...
    """

    def __init__(self) -> None:
        self._pauses = 0
        self._stopped_at = 0.0
        self._lost = 0.0
        """Seconds of all pauses that have ended."""
        self._deadlines: dict[asyncio.Timeout, float] = {}
        """Of the limits in force, on this clock."""

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
        """Raise TimeoutError when the body takes longer; no limit when None. `expired()` of the yielded
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
        """Let a limit that is in force expire at once, paused or not."""
        if self._deadlines.pop(limit, None) is not None:
            _reschedule(limit, asyncio.get_running_loop().time())


def _reschedule(limit: asyncio.Timeout, when: float | None) -> None:
    if not limit.expired():  # one that has expired is in force until its body has been left
        limit.reschedule(when)
