"""uvicorn's HTTP protocol, with bounds on how long and how large a request may take to arrive.

uvicorn over httptools waits for ever for a head or a body that trickles, and lets a head grow without end. Timers per
request would tax every request for the sake of the bad ones; here each connection notes when it began to wait, and one
sweep a second looks for those that waited too long.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ludus.protocol.errors import InvalidRequest, LudusError, PayloadTooLarge
from ludus.server.guard import error_body

HEAD_BYTES: Final = 64 * 1024
"""The largest request line with headers."""

SWEEP_SECONDS: Final = 0.5
"""How often connections are looked at."""

_STATUS_LINES: Final = {
    400: b"HTTP/1.1 400 Bad Request\r\n",
    408: b"HTTP/1.1 408 Request Timeout\r\n",
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
}


class BoundedHttpProtocol(HttpToolsProtocol):
    """An HTTP connection that remembers since when its peer owes it something."""

    _owed_since: float | None = None
    """When the peer began to owe the rest of a head or body; None while it owes nothing."""
    _head_bytes: int = 0
    _in_head: bool = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer connected, and owes a head."""
        self._owed_since = self.loop.time()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a head without end is refused."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(431, PayloadTooLarge(f"the head of the request is larger than {HEAD_BYTES} bytes"))

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the form of our other refusals."""
        self._refuse(400, InvalidRequest("this is not an HTTP request, or one broken beyond reading"))
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request began."""
        self._owed_since = self.loop.time()
        self._head_bytes = 0
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there; a body may follow."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The whole request is there."""
        self._owed_since = None
        super().on_message_complete()

    def sweep(self, now: float, patience: float) -> None:
        """End the connection if its peer has owed the rest of a request for longer than `patience` seconds."""
        since = self._owed_since
        if since is None or now - since < patience or self.flow.read_paused:
            return
        if self._in_head and self._answering():
            return
        self._refuse(408, InvalidRequest(f"the request did not arrive within {patience:g} s"))

    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete)

    def _refuse(self, status: int, error: LudusError) -> None:
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        ours_to_answer = not self.pipeline and (
            cycle is None or cycle.response_complete or not (self._in_head or cycle.response_started)
        )
        if ours_to_answer and (self._in_head or cycle is None or not cycle.response_complete):
            body = error_body("", error)
            self.transport.write(
                _STATUS_LINES[status]
                + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
                + body
            )
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self._owed_since = None
        self.transport.close()


async def sweep_for_ever(connections: set[Any], patience: float) -> None:
    """Sweep a server's connections until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(min(SWEEP_SECONDS, patience / 2))
        now = loop.time()
        for connection in list(connections):
            if isinstance(connection, BoundedHttpProtocol):
                connection.sweep(now, patience)
