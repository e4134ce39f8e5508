"""A server in front of a hub that holds requests, loses answers or forwards both, for tests of clients."""

from __future__ import annotations

import asyncio
import threading

from hubs import HubProcess


def length_in(head: bytes) -> int:
    """The length of a body."""
    return next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"content-length" in line.lower())


class Door:
    """A server in front of a hub, in a thread: it holds, drops or forwards connections."""

    def __init__(self, hub: HubProcess | None = None, *, lost_answers: int = 0) -> None:
        self.hub = hub
        self.lost_answers = lost_answers
        self.requests = 0
        self.address = ""
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._answer, "127.0.0.1")
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        async with server:
            await self._over.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(length_in(head))
                self.requests += 1
                if self.hub is None:
                    await self._over.wait()
                    return
                inner, outer = await asyncio.open_connection("127.0.0.1", self.hub.port)
                outer.write(head.replace(b"keep-alive", b"close") + body)
                answer = await inner.readuntil(b"\r\n\r\n")
                answer += await inner.readexactly(length_in(answer))
                outer.close()
                if b"/points" in head and self.lost_answers > 0:
                    self.lost_answers -= 1
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
