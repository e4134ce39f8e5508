"""The limit of open episodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class EpisodeSlots(asyncio.Semaphore):
    """A semaphore of which several slots can be taken at once, for the seats of a match."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count
        """The number of slots, taken or free."""
        self._many = asyncio.Lock()

    @asynccontextmanager
    async def held(self, count: int) -> AsyncIterator[None]:
        """Hold `count` slots during the body. Matches collect their slots one after the other, so that two of them
        never wait for each other's."""
        acquired = 0
        try:
            async with self._many:
                for acquired in range(1, count + 1):
                    try:
                        await self.acquire()
                    except BaseException:
                        acquired -= 1
                        raise
            yield
        finally:
            for _ in range(acquired):
                self.release()
