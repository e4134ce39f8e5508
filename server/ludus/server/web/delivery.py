"""Delivery of replies: whether the peer has received a reply, as far as TCP shows.

If a request without an idempotency key arrives a second time, the server must know whether the client received the
first answer. The rule:

* A reply is **delivered** if the peer used the connection for another request; or closed the connection in order after
  it had acknowledged every byte; or had acknowledged every byte and the connection was still intact `SETTLE_SECONDS`
  later; or if the reply itself closed the connection, as in HTTP/1.0 and with `Connection: close`.
* A reply is **lost** if the connection broke before its last byte was written, was closed while bytes of it were
  unacknowledged, or was reset within `SETTLE_SECONDS` after it. A reset means that data was lost (RFC 1122, 4.2.2.13):
  a peer sends one when it closes a connection that still holds unread data.
* Until one of these is known, the reply is **unsettled**.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Delivery", "watch"]


SETTLE_SECONDS: Final = 0.25
"""How long after a reply a reset makes it lost, and an intact connection does not yet make it delivered."""

PATIENCE_SECONDS: Final = 10.0
"""The time after which a reply that is still not acknowledged counts as lost."""

LOOK_SECONDS: Final = 0.05
"""How often an unsettled reply is checked while a request waits for the verdict."""

EXTENSION: Final = "ludus.connection"
"""The key of the ASGI scope's extensions under which its `WatchedHttpProtocol` is stored."""


class Delivery:
    """The delivery of one reply: `verdict` is None while unsettled, true for delivered, false for lost."""

    __slots__ = ("_changed", "_connection", "_loop", "_lost_at", "_sent_at", "_verdict")

    def __init__(self, connection: WatchedHttpProtocol | None = None) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop() if connection is None else connection.loop
        self._lost_at: float | None = None
        """The time at which a completely sent reply was lost, on the event loop's clock."""
        self._sent_at: float | None = None
        self._verdict: bool | None = None
        self._changed: asyncio.Event | None = None

    def sent(self) -> None:
        """Record that the whole reply was passed to the connection."""
        if self._verdict is None and self._sent_at is None:
            self._sent_at = self._loop.time()
            if self._connection is None:
                self.settle(delivered=True)
            elif self._changed is not None:
                self._changed.set()

    def settle(self, *, delivered: bool) -> None:
        """Set the verdict, unless there is one."""
        if self._verdict is None:
            self._verdict = delivered
            self._connection = None
            if self._sent_at is not None and not delivered:
                self._lost_at = self._loop.time()
            if self._changed is not None:
                self._changed.set()

    @property
    def was_sent(self) -> bool:
        """Whether the whole reply was passed to the connection."""
        return self._sent_at is not None

    @property
    def verdict(self) -> bool | None:
        """The verdict so far: true for delivered, false for lost, None while unsettled."""
        if self._verdict is None and self._sent_at is not None and self._connection is not None:
            age = self._loop.time() - self._sent_at
            if age >= SETTLE_SECONDS:
                # Not earlier: data that is acknowledged has reached the peer's system, which resets if its process
                # never reads it.
                if not self._connection.holds_back():
                    self.settle(delivered=True)
                elif age >= PATIENCE_SECONDS:
                    self.settle(delivered=False)
        return self._verdict

    def lost_after(self, moment: float) -> bool:
        """Return whether the whole reply was sent, and was lost after `moment` on the event loop's clock."""
        return self._lost_at is not None and self._lost_at > moment

    async def wait(self) -> bool:
        """Wait for the verdict, and return it: true for delivered."""
        while (verdict := self.verdict) is None:
            self._changed = self._changed or asyncio.Event()
            # Acknowledgments make no event, so the verdict is looked at again every `LOOK_SECONDS`.
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._sent_at is not None else None):
                    await self._changed.wait()
        return verdict

    def closed(self, *, acknowledged: bool) -> None:
        """Settle when the connection has ended. `acknowledged` says that the peer has everything that was written."""
        self.settle(delivered=self.was_sent and acknowledged)

    def reset(self) -> None:
        """Settle when the connection was reset."""
        connection, sent_at = self._connection, self._sent_at
        late = sent_at is not None and self._loop.time() - sent_at >= SETTLE_SECONDS
        self.settle(delivered=late and connection is not None and not connection.holds_back())


class WatchedHttpProtocol(HttpToolsProtocol):
    """An HTTP connection that follows the delivery of a reply on request (`watch`)."""

    _delivery: Delivery | None = None

    def watch(self) -> Delivery:
        """Follow the reply to the request that is being handled."""
        if self._delivery is not None:
            # It is of an earlier request on this connection.
            self._delivery.closed(acknowledged=True)
        delivery = Delivery(self)
        if self.transport.is_closing() or (self.cycle is not None and self.cycle.disconnected):
            delivery.settle(delivered=False)
        self._delivery = delivery
        return delivery

    def on_message_begin(self) -> None:
        """Begin a request, and settle the earlier reply: a peer that sends another request has read it."""
        delivery = self._delivery
        if delivery is not None and delivery.was_sent:
            delivery.settle(delivered=True)
            self._delivery = None
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: self}  # type: ignore[dict-item]

    def eof_received(self) -> None:
        """Settle the reply when the peer has closed its side; the connection is then closed."""
        if self._delivery is not None:
            self._delivery.closed(acknowledged=not self.holds_back())
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle the reply of a connection that is lost."""
        if self._delivery is not None:
            if exc is None:
                self._delivery.closed(acknowledged=True)
            else:
                self._delivery.reset()
            self._delivery = None
        super().connection_lost(exc)

    def holds_back(self) -> bool:
        """Return whether written bytes are not acknowledged yet, or can no longer be acknowledged."""
        # Bytes that the event loop still holds are not in the socket's count.
        if self.transport.get_write_buffer_size():
            return True
        sock: socket.socket | None = self.transport.get_extra_info("socket")
        if sock is None:
            return False
        try:
            return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or _unacknowledged(sock) > 0
        except OSError:
            return True


def watch(scope: Mapping[str, Any]) -> Delivery:
    """Follow the reply to a request. Under an HTTP server other than Ludus's own, a sent reply counts as delivered."""
    connection: WatchedHttpProtocol | None = (scope.get("extensions") or {}).get(EXTENSION)
    return connection.watch() if connection is not None else Delivery()


def _unacknowledged(sock: socket.socket) -> int:
    """Return the number of bytes that wait for the peer's acknowledgment; 0 if the system does not report it."""
    try:
        import fcntl
        import termios
    except ImportError:
        return 0
    (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
    return int(count)
