"""A TCP proxy that cuts its connections after random numbers of bytes, in the middle of whatever passes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_ENDLESS = 1 << 62


class CuttingProxy:
    """Passes bytes on until a connection has had its share, then resets it.

    Args:
        target: the URL of the server.
        mean_bytes: how much a connection passes on the average; None cuts only on request.
        seed: for where the cuts fall.
    """

    def __init__(self, target: str, mean_bytes: float | None = None, seed: int = 0) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self._mean = mean_bytes
        self._random = random.Random(seed)
        self._open: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.url = ""
        self.cuts = 0
        self.connections = 0
        self.connected = asyncio.Event()
        """Set when a connection is made and can be cut; a test clears it to wait for the next one."""
        self.refusing = False
        """Whether new connections are reset at once."""
        self._expected: dict[bytes, asyncio.Event] = {}

    def expect(self, part: bytes) -> asyncio.Event:
        """Return an event that is set once these bytes have been passed on from now on, in one piece."""
        return self._expected.setdefault(part, asyncio.Event())

    def cut(self) -> None:
        """Reset every connection now."""
        for writer in list(self._open):
            writer.transport.abort()
        self.cuts += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CuttingProxy]:
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in list(self._open):
                writer.transport.abort()
            for pump in list(self._pumps):
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            self.connected.set()
            writer.transport.abort()
            return
        try:
            back_reader, back_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:  # the server is away
            self.connected.set()
            writer.transport.abort()
            return
        pair = {writer, back_writer}
        self._open |= pair
        self.connected.set()
        share = [int(self._random.expovariate(1 / self._mean)) if self._mean else _ENDLESS]
        for source, sink in ((reader, back_writer), (back_reader, writer)):
            pump = asyncio.get_running_loop().create_task(self._pump(source, sink, share, pair))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        share: list[int],
        pair: set[asyncio.StreamWriter],
    ) -> None:
        try:
            while data := await source.read(4096):
                passed = data[: max(0, share[0])]
                share[0] -= len(data)
                sink.write(passed)
                await sink.drain()
                for part in [one for one in self._expected if one in passed]:
                    self._expected.pop(part).set()
                if share[0] <= 0:
                    self.cuts += 1
                    break
        except ConnectionError:
            pass
        finally:
            for writer in pair:
                writer.transport.abort()
            self._open -= pair
