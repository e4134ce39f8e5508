"""uvicorn's WebSocket protocol, with limits on what arrives that are not in bytes.

Data is parsed in fair turns (`ludus.server.web.turns`), cut between frames, and frames that no ordinary client sends
close the connection (`ludus.server.web.frame_meter`). A large message waits until there is room for it among all that
arrives (`ludus.server.web.arrivals`). A message that is parsed pauses the reading until the application has taken it,
as in uvicorn; what has already arrived waits unparsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ludus.protocol.errors import CapacityError
from ludus.server.web.frame_meter import LARGE_BYTES, TRY_AGAIN_LATER, FrameMeter, FrameRefusal
from ludus.server.web.http_protocol import NO_LIMITS
from ludus.server.web.message_room import MessageRoom
from ludus.server.web.turns import FairTransport

if TYPE_CHECKING:
    from asyncio.transports import BaseTransport

    from uvicorn._types import ASGIReceiveEvent
    from websockets.frames import Frame

FRAMES_AT_ONCE: Final = 8
"""The frames that are parsed at one time."""

FRAME_COST: Final = 30
"""What a frame costs, in the units of `Turns`."""

BYTES_PER_COST: Final = 4096
"""The bytes of a frame that cost one unit as they arrive."""

BYTES_PER_COST_AT_END: Final = 1024
"""The bytes of a large message that cost one unit once it is complete: it is unmasked and decoded then."""

MOST_REASON: Final = 120
"""The most characters of a reason in a close frame."""

_END_OF_HEAD: Final = b"\r\n\r\n"


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket connection whose frames are counted."""

    _meter: FrameMeter | None = None
    """Counts the frames; None before the upgrade is parsed."""
    _room: MessageRoom | None = None
    """The room of large messages; None before the first one."""

    def connection_made(self, transport: BaseTransport) -> None:
        """Take the connection."""
        self._fair = FairTransport(transport, self._piece, whole_shares=True)  # type: ignore[arg-type]
        super().connection_made(self._fair)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Parse data in fair turns."""
        self._fair.received(data)

    def _piece(self, data: bytes, at: int) -> tuple[int, int]:
        """Parse a piece of the data; see `Piece`."""
        if self._meter is None:  # the upgrade, which uvicorn has written whole
            self._meter = FrameMeter()
            end = data.index(_END_OF_HEAD, at) + len(_END_OF_HEAD)
            super().data_received(data[at:end])
            return end, FRAME_COST
        before = self._meter.message_bytes
        try:
            end, frames = self._meter.cut(data, at, FRAMES_AT_ONCE, self.loop.time())
        except FrameRefusal as refusal:
            self._refuse(refusal)
            return len(data), FRAME_COST
        if self._meter.message_bytes > LARGE_BYTES:
            self._need_room(self._meter.message_bytes)
        super().data_received(data if at == 0 and end == len(data) else data[at:end])
        cost = 1 + frames * FRAME_COST + (end - at) // BYTES_PER_COST
        if before > LARGE_BYTES and not self._meter.message_bytes:
            cost += before // BYTES_PER_COST_AT_END
        return end, cost

    def _need_room(self, size: int) -> None:
        if self._room is None:
            headers = dict(self.scope["headers"])
            sender = headers.get(b"authorization") or headers.get(b"x-api-key") or (self.client or ("",))[0]
            arrivals = getattr(self.config.app, "connection_limits", NO_LIMITS).arrivals
            self._room = MessageRoom(arrivals, sender, self._fair, self._refuse_for_room)
        self._room.need(size)

    def _refuse_for_room(self, error: CapacityError) -> None:
        self._refuse(FrameRefusal(error.message[:MOST_REASON], TRY_AGAIN_LATER))

    def send_receive_event_to_app(self) -> None:
        """Pass a message on, with the room that it has."""
        if self._room is not None:
            self._room.arrived()
        super().send_receive_event_to_app()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message; the application has no use for those before, and their room is given back."""
        if self._room is not None and self.queue.empty():
            self._room.give_back()
        return await super().receive()

    def handle_text(self, event: Frame) -> None:
        """Take a frame; the parser keeps it until the next one has arrived, so its content is removed."""
        super().handle_text(event)
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        """Take a frame, as in `handle_text`."""
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """Take a frame, as in `handle_text`."""
        super().handle_cont(event)
        event.data = b""

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back all room."""
        if self._room is not None:
            self._room.close()
        super().connection_lost(exc)

    def _refuse(self, refusal: FrameRefusal) -> None:
        """Close the connection with a reason; what still arrives is discarded."""
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(refusal.code, refusal.reason)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": refusal.code, "reason": refusal.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
        self._fair.linger()
