"""Room for requests that have not arrived whole: no number of senders fills the memory with halves of requests."""

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
"""One sender has this part of the room at most."""


class Arrivals:
    """Bytes of heads and bodies that are on their way.

    Args:
        total: how many there may be.
        largest: the largest body; there is always room for one.
    """

    def __init__(self, total: int, largest: int) -> None:
        self.total = max(total, largest)
        self.share = max(self.total // SHARES, largest)
        self.bodies = 0
        """Bytes that bodies may grow to that are being read."""
        self.heads = 0
        """Bytes of heads that are not complete."""
        self._by_sender: Counter[object] = Counter()
        self._waiting: deque[tuple[object, int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def room(self, sender: object, size: int) -> AsyncIterator[None]:
        """Hold room for a body of `size` bytes while entered, waiting for it in turn.

        Raises:
            CapacityError: there was none in time.
        """
        if not self._fits(sender, size):
            await self._wait(sender, size)
        else:
            self._take(sender, size)
        try:
            yield
        finally:
            self.bodies -= size
            self._by_sender[sender] -= size
            if not self._by_sender[sender]:
                del self._by_sender[sender]
            self._admit()

    def heads_fit(self) -> bool:
        """Return whether incomplete heads leave room for more."""
        return self.heads <= self.total // SHARES

    def _fits(self, sender: object, size: int) -> bool:
        return self.bodies + size <= self.total and self._by_sender[sender] + size <= self.share

    def _take(self, sender: object, size: int) -> None:
        self.bodies += size
        self._by_sender[sender] += size

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
                self.bodies -= size
                self._by_sender[sender] -= size
                self._admit()
            if isinstance(error, TimeoutError):
                raise CapacityError(
                    f"too many large requests arrive at this time ({self.total} bytes, arriving_bytes, of which one "
                    f"sender has {self.share} at most); send fewer at once, or try again",
                    limit="arriving_bytes",
                    retryAfter=1.0,
                ) from None
            raise

    def _admit(self) -> None:
        """Give room to those that wait, in their order; one whose own share is used up does not delay the others."""
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
