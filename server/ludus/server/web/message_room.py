"""The room of one client's large messages, among all that arrives at the server (`ludus.server.web.arrivals`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ludus.protocol.errors import CapacityError
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.turns import ROOM, FairTransport


class MessageRoom:
    """Reserves room for messages before they are read; meanwhile the client is read no further.

    Args:
        arrivals: all that arrives.
        sender: identifies the client.
        transport: the client's connection.
        refuse: called when there was no room for too long.
    """

    def __init__(
        self, arrivals: Arrivals, sender: object, transport: FairTransport, refuse: Callable[[CapacityError], None]
    ) -> None:
        self._arrivals = arrivals
        self._sender = sender
        self._transport = transport
        self._refuse = refuse
        self._arriving = 0
        """The room of the message that is arriving."""
        self._used = 0
        """The room of messages that have arrived and are in use."""
        self._waiting: asyncio.Task[None] | None = None

    def need(self, size: int) -> None:
        """Read no further until there is room for `size` bytes of the message that is arriving."""
        size -= self._arriving
        if size > 0 and self._waiting is None:
            self._transport.hold(ROOM)
            self._waiting = asyncio.get_running_loop().create_task(self._wait(size))

    async def _wait(self, size: int) -> None:
        try:
            await self._arrivals.reserve(self._sender, size)
            self._arriving += size
        except CapacityError as error:
            self._refuse(error)
        finally:
            self._waiting = None
            self._transport.release(ROOM)

    def arrived(self) -> None:
        """Note that the message is in use from now on."""
        self._used += self._arriving
        self._arriving = 0

    def give_back(self) -> None:
        """Give back the room of messages that have arrived."""
        if self._used:
            used, self._used = self._used, 0
            self._arrivals.give_back(self._sender, used)

    def close(self) -> None:
        """Give back all room."""
        if self._waiting is not None:
            self._waiting.cancel()
        self.arrived()
        self.give_back()
