"""uvicorn's WebSocket protocol, with limits on what arrives that are not in bytes.

Data is parsed in fair turns (`ludus.server.web.turns`), cut between frames, and frames that no ordinary client sends
close the connection (`ludus.server.web.frame_meter`). A message that is parsed pauses the reading until the application
has taken it, as in uvicorn; what has already arrived waits unparsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ludus.server.web.frame_meter import FrameMeter, FrameRefusal
from ludus.server.web.turns import FairTransport

if TYPE_CHECKING:
    from asyncio.transports import BaseTransport

FRAMES_AT_ONCE: Final = 16
"""The frames that are parsed at one time."""

FRAME_COST: Final = 15
"""What a frame costs, in the units of `Turns`."""

BYTES_PER_COST: Final = 4096
"""The bytes of a frame that cost one unit."""

_END_OF_HEAD: Final = b"\r\n\r\n"


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket connection whose frames are counted."""

    _meter: FrameMeter | None = None
    """Counts the frames; None before the upgrade is parsed."""

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
        try:
            end, frames = self._meter.cut(data, at, FRAMES_AT_ONCE, self.loop.time())
        except FrameRefusal as refusal:
            self._refuse(refusal)
            return len(data), FRAME_COST
        super().data_received(data if at == 0 and end == len(data) else data[at:end])
        return end, 1 + frames * FRAME_COST + (end - at) // BYTES_PER_COST

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
