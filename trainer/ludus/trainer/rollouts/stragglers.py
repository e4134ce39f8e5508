"""Stragglers, the last episodes of a group: how long the group waits for them, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.trainer.engines.clock import PlayClock

SETTLE_SECONDS: Final = 30.0
"""How long a straggler may take to close its episode and read its reward."""


@dataclass(slots=True, eq=False)
class EpisodeEnd:
    """The time limits of one episode, with a way to end the episode early."""

    clock: PlayClock
    """The engine's clock."""
    continuations: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])
    """The tasks that continue the episode in forks; they are canceled, since what they had earned is no return."""
    parts: list[EpisodeEnd] = field(default_factory=list["EpisodeEnd"])
    """Those of the seats of a match, which end together, or of the tasks of a chain."""
    over: bool = False
    """Whether the time is up."""
    _whole: asyncio.Timeout | None = None

    def part(self) -> EpisodeEnd:
        """Return the limits of one seat of the match, or of the next task of the chain, whose limits these are."""
        self.parts.append(EpisodeEnd(self.clock, over=self.over))
        return self.parts[-1]

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        """Limit the time of the body. The first body is the whole episode; bodies inside it are its turns."""
        async with self.clock.limit(seconds) as limit:
            self._whole = self._whole or limit
            if self.over and self._whole is limit:
                self.clock.end_now(limit)
            yield limit

    def now(self) -> None:
        """Let the time limit of the whole episode expire now, or of the whole match or chain."""
        self.over = True
        for part in self.parts:
            part.now()
        for task in self.continuations:
            task.cancel()
        if self._whole is not None:
            self.clock.end_now(self._whole)


@dataclass(slots=True, eq=False)
class Stragglers:
    """A watcher that ends the last episodes of one group when they keep the others waiting.

    Once half of the episodes have ended, the rest may take `seconds` more, or twice as long as that half took if that
    is longer. Episodes that still run then are truncated with the reward that they have earned. Episodes that cannot
    be closed, or have not begun, are left out.
    """

    clock: PlayClock
    """The engine's clock."""
    seconds: float
    over: bool = False
    """Whether the time has ended, so that no further episode may begin."""
    _playing: dict[asyncio.Task[Any] | None, EpisodeEnd] = field(
        default_factory=dict["asyncio.Task[Any] | None", EpisodeEnd]
    )

    @asynccontextmanager
    async def episode(self) -> AsyncIterator[EpisodeEnd]:
        """Register the current task's episode. Its time limits must come from the yielded object."""
        task, end = asyncio.current_task(), EpisodeEnd(self.clock)
        self._playing[task] = end
        try:
            yield end
        finally:
            del self._playing[task]

    async def wait(self, attempts: Sequence[asyncio.Task[Any]]) -> None:
        """Wait until all tasks have ended, and cancel those that take too long."""
        began, running = self.clock.seconds(), set(attempts)
        while 2 * len(running) > len(attempts):
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        if not running:
            return
        seconds = max(self.seconds, 2 * (self.clock.seconds() - began))
        try:
            async with self.clock.limit(seconds):
                await asyncio.wait(running)
        except TimeoutError:
            await self._end([attempt for attempt in running if not attempt.done()])

    async def _end(self, late: Sequence[asyncio.Task[Any]]) -> None:
        self.over = True
        for attempt in late:
            if (end := self._playing.get(attempt)) is not None:
                end.now()
            else:
                attempt.cancel()
        _, running = await asyncio.wait(late, timeout=SETTLE_SECONDS)
        for attempt in running:
            attempt.cancel()
