"""Messages between the service and its workers: a JSON object and bytes, over a pair of sockets.

A message is the length of both parts, then the JSON, then the bytes. The bytes are a line of a stream, which the
service passes on without reading it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any, Final, NamedTuple, Self

_LENGTHS: Final = struct.Struct("!II")
MOST_BYTES: Final = 1 << 30


class Received(NamedTuple):
    """A message."""

    head: dict[str, Any]
    body: bytes


class Link:
    """One end of the connection of a worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """Return the link over one end of a pair of sockets, which it closes."""
        return cls(*await asyncio.open_connection(sock=end))

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message, unless the other end is gone."""
        if not self._writer.is_closing():
            data = json.dumps(head).encode()
            self._writer.write(_LENGTHS.pack(len(data), len(body)) + data + body)

    async def drain(self) -> None:
        """Wait until the other end has read enough. It does nothing if that end is gone."""
        try:
            await self._writer.drain()
        except (ConnectionError, OSError):
            return

    async def receive(self) -> Received | None:
        """Return the next message; None if the other end is gone."""
        try:
            sizes = _LENGTHS.unpack(await self._reader.readexactly(_LENGTHS.size))
            if sum(sizes) > MOST_BYTES:
                return None
            head = json.loads(await self._reader.readexactly(sizes[0]))
            return Received(head, await self._reader.readexactly(sizes[1]))
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            return None

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
