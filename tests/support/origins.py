"""Servers of the tests' own that stand for hosts on the internet: they keep what they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\norigin"


@dataclass
class Origin:
    """A server on this machine's loopback."""

    port: int = 0
    seen: bytearray = field(default_factory=bytearray)
    """All that it was sent."""
    connections: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether a connection has ended, on the other side."""


@asynccontextmanager
async def origin(answer: bytes | Handle = OK, host: str = "127.0.0.1") -> AsyncIterator[Origin]:
    """A server that answers each request's head with `answer`, and closes; or leaves it all to a function."""
    about = Origin()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        about.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            if isinstance(answer, bytes):
                await _answered(about, reader, writer, answer)
            else:
                await answer(reader, writer)
        except OSError:
            pass
        finally:
            about.ended.set()
            writer.transport.abort()

    server = await asyncio.start_server(serve, host, 0)
    about.port = server.sockets[0].getsockname()[1]
    try:
        yield about
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answered(about: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes) -> None:
    while b"\r\n\r\n" not in about.seen:
        data = await reader.read(65536)
        if not data:
            return
        about.seen += data
    writer.write(answer)
    await writer.drain()
    writer.write_eof()
    while data := await reader.read(65536):
        about.seen += data


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send everything back, and end when the other side has."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
    await writer.drain()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An answer that never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """No answer at all."""
    while await reader.read(65536):
        pass
