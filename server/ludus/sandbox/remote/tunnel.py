"""A connection to a port of a sandbox on another machine: both sides copy bytes between a socket and the channel.

Each direction has a window: a side sends at most `WINDOW` bytes that the other has not passed on yet.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ludus.sandbox.core.processes import WINDOW
from ludus.sandbox.remote.channel import Channel
from ludus.sandbox.remote.messages import PIECE, WireError


class Tunnel:
    """One side of a connection.

    Args:
        channel: carries the bytes.
        stream: the stream of the request that made the connection.
        end: a connected, non-blocking socket, which the tunnel closes.
        on_end: called once, when both directions have ended.
    """

    def __init__(self, channel: Channel, stream: int, end: socket.socket, on_end: Callable[[], None]) -> None:
        self._channel = channel
        self._stream = stream
        self._end = end
        self._on_end = on_end
        self._room = WINDOW
        self._has_room = asyncio.Event()
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        """What the other side has sent; b"" at its end."""
        self._unpassed = 0
        self._clean = False
        self._task = asyncio.get_running_loop().create_task(self._copy())
        self._task.add_done_callback(self._finish)

    def hear(self, event: dict[str, Any], body: bytes) -> None:
        """Take an event of the other side.

        Raises:
            WireError: it has sent more than its window allows.
        """
        if "grant" in event:
            self._room += int(event["grant"])
            self._has_room.set()
        elif "reset" in event:
            self._task.cancel()
        else:
            self._unpassed += len(body)
            if self._unpassed > WINDOW:
                raise WireError("a connection to a port has sent more than its window allows")
            self._arrived.put_nowait(body)

    def close(self) -> None:
        """End the connection."""
        self._task.cancel()

    async def wait(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.gather(self._task, return_exceptions=True)

    async def _copy(self) -> None:
        directions = [asyncio.create_task(self._outward()), asyncio.create_task(self._inward())]
        try:
            await asyncio.gather(*directions)
            self._clean = True
        except OSError:
            pass
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    def _finish(self, _: asyncio.Task[None]) -> None:
        self._end.close()
        if not self._clean:
            self._channel.post_event(self._stream, {"reset": True})
        self._on_end()

    async def _outward(self) -> None:
        """Send what arrives on the socket."""
        loop = asyncio.get_running_loop()
        while True:
            while self._room <= 0:
                self._has_room.clear()
                await self._has_room.wait()
            data = await loop.sock_recv(self._end, min(PIECE, self._room))
            self._room -= len(data)
            await self._channel.send_event(self._stream, {}, data)
            if not data:
                return

    async def _inward(self) -> None:
        """Pass on what the other side sends."""
        loop = asyncio.get_running_loop()
        while data := await self._arrived.get():
            await loop.sock_sendall(self._end, data)
            self._unpassed -= len(data)
            self._channel.post_event(self._stream, {"grant": len(data)})
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)
