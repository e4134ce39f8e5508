"""Fair turns: how much of what has arrived is parsed in one turn of the event loop, over all connections.

How this works:

1. One read of a socket may bring 256 KiB, which can be 40,000 chunks of one byte or frames without content. Parsed at
   once, the reads of a hundred connections would hold the event loop for seconds, and every other client would wait.
2. `FairTransport` takes the data of one connection and parses it in pieces. What a piece costs is counted in units of
   about one microsecond of work: a chunk or a header is one, a frame some, the start of a request a hundred.
3. `Turns` shares each turn of the loop: `TURN_COST` for all connections together, and `SHARE_COST` for each in its
   turn. Connections with more data wait in a queue, first come, first served, and their sockets are not read.
4. A connection whose data fits into one share is parsed at once while the turn has room, and otherwise at the beginning
   of the next one, before those that have used their share: it waits for a turn, and not for everyone.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

__all__ = ["FairTransport"]


TURN_COST: Final = 4_000
"""The units that all connections together may use in one turn of the loop before others wait for the next one."""

SHARE_COST: Final = 400
"""The units after which a connection waits for its next turn. Its last piece may exceed them."""

LINGER_BYTES: Final = 1024 * 1024
"""The most bytes that are read and discarded after a refusal before the connection is closed."""

FLOW: Final = 1
"""Parsing stops because what was parsed is not taken yet."""

ROOM: Final = 2
"""Parsing stops until there is room for a large message."""

FRESH_COST: Final = TURN_COST * 3 // 4
"""The units of a turn that may go to those who wait for their first share, while others wait for a further one."""

Piece = Callable[[bytes, int], tuple[int, int]]
"""Parses a piece of data that begins at an index, and returns the index of its end and what it has cost."""


class Turns:
    """Shares the turns of one event loop.

    Args:
        loop: the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._units_left = TURN_COST
        self._fresh: deque[Callable[[], int]] = deque()
        """Those that wait for their first share."""
        self._waiting: deque[Callable[[], int]] = deque()
        """Those that wait for a further share."""
        self._scheduled = False
        self.most_spent = 0
        """The most units that one turn has used so far."""
        self.count = 0
        """How many turns have used any."""

    @property
    def free(self) -> bool:
        """Whether the turn has room for the first share of another one."""
        return self._units_left > 0 and not self._fresh

    def spend(self, cost: int) -> None:
        """Count work that is done in this turn."""
        self._units_left -= cost
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._begin)

    def join(self, work: Callable[[], int], *, fresh: bool) -> None:
        """Call `work` in a turn that has room for it; it returns what it has cost.

        Args:
            work: the work, of at most one share.
            fresh: whether it is the first share of what is to be done.
        """
        (self._fresh if fresh else self._waiting).append(work)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._begin)

    async def wait(self, cost: int, *, fresh: bool = True) -> None:
        """Wait for a turn that has room for work, unless this one has, and count it. See `join`."""
        # Work of more than one share must not go before the first shares of others.
        fresh = fresh and cost <= SHARE_COST
        if self._units_left > 0 and not self._fresh and (fresh or not self._waiting):
            self.spend(cost)
            return
        ready = self._loop.create_future()

        def begin() -> int:
            # Canceled while it waited: what it would have cost goes to others.
            if ready.done():
                return 0
            ready.set_result(None)
            return cost

        self.join(begin, fresh=fresh)
        await ready

    def _begin(self) -> None:
        """Begin a turn with what has waited longest."""
        # Before the work: what it spends or joins needs a turn after this one.
        self._scheduled = False
        spent = TURN_COST - self._units_left
        if spent > self.most_spent:
            self.most_spent = spent
        self.count += 1
        self._units_left = TURN_COST
        fresh, waiting = self._fresh, self._waiting
        if fresh or waiting:
            # Without a reserve, a stream of new connections would keep the waiting ones from ever going on.
            reserve = TURN_COST - FRESH_COST if waiting else 0
            while fresh and self._units_left > reserve:
                self._units_left -= fresh.popleft()()
            while waiting and self._units_left > 0:
                self._units_left -= waiting.popleft()()
        if (fresh or waiting or self._units_left < TURN_COST) and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._begin)


_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = weakref.WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """Return what shares the turns of an event loop; all connections of the loop share one."""
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = Turns(loop)
    return turns


class FairTransport:
    """A connection's transport, whose data is parsed in fair turns. All that is not here is the transport's own.

    Args:
        transport: the transport.
        piece: parses a piece of the data.
        flush: called when the connection's turn has ended, before another connection's begins.
        whole_shares: whether a pause takes effect only when the connection has used its share of the turn.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        piece: Piece,
        *,
        flush: Callable[[], None] | None = None,
        whole_shares: bool = False,
    ) -> None:
        # The connection changes its protocol.
        if isinstance(transport, FairTransport):
            transport = transport.inner
        self.inner = transport
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self._piece = piece
        self._flush = flush
        self._whole_shares = whole_shares
        self._turns = turns_of(asyncio.get_running_loop())
        self._data = b""
        self._at = 0
        self._held = 0
        """Why the protocol wants no data for now: `FLOW`, `ROOM`, or both."""
        self._paused = False
        """Whether the socket is not read."""
        self._queued = False
        self._fresh = True
        """Whether nothing of what waits was parsed yet."""
        self._parsing = False
        self._discarded: int | None = None
        """Bytes that were discarded since `linger`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def behind(self) -> bool:
        """Whether data has arrived that is not parsed yet."""
        return bool(self._data)

    @property
    def held(self) -> bool:
        """Whether the protocol wants no data for now."""
        return bool(self._held)

    @property
    def lingering(self) -> bool:
        """Whether what arrives is discarded until the connection closes."""
        return self._discarded is not None

    def linger(self) -> None:
        """Close the sending side, and discard what the peer still sends.

        A connection that is closed with unread data is reset, and the peer would lose what was written last. The
        connection closes with the peer's side, or after `LINGER_BYTES`; its protocol sees to the time.
        """
        self._discarded = 0
        self._data, self._at, self._held = b"", 0, 0
        with contextlib.suppress(NotImplementedError, RuntimeError, OSError):
            # A transport of TLS cannot close one side.
            self.inner.write_eof()
        self._settle()

    def received(self, data: bytes) -> None:
        """Take data that has arrived, and parse it in this turn if that has room."""
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.inner.close()
            return
        # The socket was resumed by another holder of the transport.
        if self._paused:
            self.inner.pause_reading()
        turns = self._turns
        if self._data:
            self._data, self._at = self._data[self._at :] + data, 0
        elif self._held or not turns.free:
            self._data, self._at = data, 0
        else:  # the usual case: nothing waits, and the data is one piece
            self._data, self._at, self._parsing = data, 0, True
            try:
                end, cost = self._piece(data, 0)
            finally:
                self._parsing = False
            turns.spend(cost)
            if end >= len(data) or not self._data:
                self._data, self._fresh = b"", True
                if self._flush is not None:
                    self._flush()
                if self._paused:
                    self._settle()
                return
            self._at, self._fresh = end, False
            if cost < SHARE_COST:
                turns.spend(self._read())
        self._settle()

    def pause_reading(self) -> None:
        """Parse nothing for now. The socket is read until something has arrived, so that pauses are cheap."""
        self._held |= FLOW

    def resume_reading(self) -> None:
        """Parse what waits, in turns, and then read on."""
        self._held &= ~FLOW
        if self._data:
            self._settle()

    def hold(self, reason: int) -> None:
        """Parse nothing until `release` is called for the same reason."""
        self._held |= reason

    def release(self, reason: int) -> None:
        """Parse what waits, in turns, and then read on, unless there is another reason against it."""
        self._held &= ~reason
        self._settle()

    def take_unparsed(self) -> bytes:
        """Return the data that is not parsed yet, and forget it."""
        data, self._data, self._at = self._data[self._at :], b"", 0
        self._settle()
        return data

    def put_back(self, data: bytes) -> None:
        """Parse data before that which waits."""
        self._data, self._at = data + self._data[self._at :], 0
        self._settle()

    def _read(self) -> int:
        """Parse pieces until the connection's share of the turn is used, and return the cost."""
        cost = 0
        self._parsing = True
        try:
            while cost < SHARE_COST and self._at < len(self._data):
                if self._held and not (self._held == FLOW and cost and self._whole_shares):
                    break
                end, spent = self._piece(self._data, self._at)
                # Unless it was taken meanwhile.
                if self._data:
                    self._at = end
                cost += spent
        finally:
            self._parsing = False
        if self._at >= len(self._data):
            self._data, self._at = b"", 0
        if self._flush is not None:
            self._flush()
        return cost

    def _turn(self) -> int:
        self._queued = False
        if self.inner.is_closing():
            self._data, self._at = b"", 0
            return 0
        cost = 0 if self._held else self._read()
        self._fresh = not self._data
        self._settle()
        return cost

    def _settle(self) -> None:
        """Wait for a turn if data waits, and read the socket only if none does."""
        # The piece that is being parsed has caused this; its caller settles once, when it is done.
        if self._parsing:
            return
        if self._data and not self._held and not self._queued:
            self._queued = True
            self._turns.join(self._turn, fresh=self._fresh)
        paused = bool(self._data)
        if paused is not self._paused:
            self._paused = paused
            if paused:
                self.inner.pause_reading()
            else:
                self.inner.resume_reading()
