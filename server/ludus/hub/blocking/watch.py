"""What this process of the hub knows of blocked wheels, and what it ends when one is blocked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ludus.hub.blocking.store import Blocks

LOOK_SECONDS: Final = 1.0
"""How old what is known of blocks may be: so long after a block by another process this one acts on it."""

log = logging.getLogger("ludus.hub.blocking")


class BlockWatch:
    """Reads the blocked wheels again and again.

    Args:
        blocks: the blocked wheels.

    Attributes:
        reasons: the reasons by the digests of the wheels, as of the last look.
        on_change: called, each in a task of its own, when they have changed.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.reasons: Mapping[str, str] = {}
        self.on_change: list[Callable[[], Awaitable[None]]] = []
        self._blocks = blocks
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    async def look(self, *, now: bool = False) -> None:
        """Read the blocks, if the last look is too long ago.

        Args:
            now: read them in any case, and wait until this process has ended what is blocked.

        Raises:
            HubUnavailable: the database cannot be used. What cannot be checked does not run.
        """
        async with self._looking:
            if now or time.monotonic() - self._looked_at >= LOOK_SECONDS:
                await self._look()
        if now and self._ending:
            await asyncio.wait(set(self._ending))

    async def begin(self) -> None:
        """Look now, and again and again from now on."""
        await self.look(now=True)
        self._watching = asyncio.create_task(self._watch(), name="blocks")

    async def close(self) -> None:
        """Stop looking."""
        tasks = [*self._ending, *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:
                log.warning("the blocked wheels could not be read: %s", error)

    async def _look(self) -> None:
        reasons = await asyncio.to_thread(self._blocks.reasons)
        changed, self.reasons = reasons != self.reasons, reasons
        self._looked_at = time.monotonic()
        if reasons:
            await asyncio.to_thread(self._blocks.end_open, reasons)
        for end in self.on_change if changed else ():
            task = asyncio.create_task(self._end(end))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, end: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await end()
            except Exception:
                log.exception("what is blocked could not be ended")
