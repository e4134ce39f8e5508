"""A limit on the memory for incomplete requests, for each sender and for all together."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ludus.protocol.errors import CapacityError

WAIT_SECONDS: Final = 10.0
"""How long a body waits for room before its request is refused."""

SHARES: Final = 4
"""One sender may use at most this fraction of the room (1 / `SHARES`)."""


class Arrivals:
    """The bytes of heads and bodies that are arriving.

    Args:
        total: the most bytes at one time.
        largest: the largest body. `total` and each sender's share are at least this size.
    """

    def __init__(self, total: int, largest: int) -> None:
        self.total = max(total, largest)
        self.share = max(self.total // SHARES, largest)
        self.bodies = 0
        """The sum of the sizes that bodies being read may reach."""
        self.heads = 0
        """Bytes of incomplete heads."""
        self._by_sender: Counter[object] = Counter()
        self._waiting: deque[tuple[object, int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def room(self, sender: object, size: int) -> AsyncIterator[None]:
        """Reserve room for a body of `size` bytes while entered, and wait for it in order.

        Raises:
            CapacityError: no room was free within `WAIT_SECONDS`.
        """
        await self.reserve(sender, size)
        try:
            yield
        finally:
            self.give_back(sender, size)

    async def reserve(self, sender: object, size: int) -> None:
        """Reserve room for `size` bytes, and wait for it in order. `give_back` ends that.

        Raises:
            CapacityError: no room was free within `WAIT_SECONDS`.
        """
        if not self._fits(sender, size):
            await self._wait(sender, size)
        else:
            self._take(sender, size)

    def heads_fit(self) -> bool:
        """Return whether incomplete heads leave room for more."""
        return self.heads <= self.total // SHARES

    def _fits(self, sender: object, size: int) -> bool:
        return self.bodies + size <= self.total and self._by_sender[sender] + size <= self.share

    def _take(self, sender: object, size: int) -> None:
        self.bodies += size
        self._by_sender[sender] += size

    def give_back(self, sender: object, size: int) -> None:
        """Give room back that `reserve` has taken."""
        self.bodies -= size
        self._by_sender[sender] -= size
        if not self._by_sender[sender]:
            del self._by_sender[sender]
        self._admit()

    async def _wait(self, sender: object, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (sender, size, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn
        except BaseException as error:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif turn.done() and not turn.cancelled():
                self.give_back(sender, size)
            if isinstance(error, TimeoutError):
                raise CapacityError(
                    f"too many large requests arrive at this time ({self.total} bytes, arriving_bytes, of which one "
                    f"sender has {self.share} at most); send fewer at once, or try again",
                    limit="arriving_bytes",
                    retryAfter=1.0,
                ) from None
            raise

    def _admit(self) -> None:
        """Give room to waiting bodies in order. A sender whose share is used up does not delay the others."""
        for entry in list(self._waiting):
            sender, size, turn = entry
            if self.bodies >= self.total:
                return
            if turn.done():
                self._waiting.remove(entry)
            elif self._fits(sender, size):
                self._waiting.remove(entry)
                self._take(sender, size)
                turn.set_result(None)
