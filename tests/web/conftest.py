from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ludus.server.authoring.environment import Environment
from ludus.server.serving.serve import LudusServer, serving
from ludus.server.serving.settings import ServerSettings
from ludus.server.tasks.loading import load_environment

YARD = Path(__file__).with_name("yard.py")
PATIENCE = 10.0

Start = Callable[..., Awaitable[LudusServer]]


class Wire:
    """A TCP connection that sends exactly the given bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, server: LudusServer) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2])))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of one answer."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")), 0
            )
            return int(head.split()[1]), await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


@pytest.fixture
def yard_file() -> Path:
    return YARD


@pytest.fixture(scope="session")
def yard() -> type[Environment[Any]]:
    return load_environment(f"{YARD}:Yard")


@pytest.fixture
async def start(yard: type[Environment[Any]]) -> AsyncIterator[Start]:
    """Starts real servers of the yard, and ends them."""
    async with AsyncExitStack() as stack:

        async def begin(variables: dict[str, str] | None = None, **settings: Any) -> LudusServer:
            return await stack.enter_async_context(serving([yard], ServerSettings(port=0, **settings), variables))

        yield begin


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[LudusServer], Awaitable[Wire]]]:
    """Opens raw connections, and closes them."""
    async with AsyncExitStack() as stack:

        async def begin(server: LudusServer) -> Wire:
            wire = await Wire.open(server)
            stack.push_async_callback(wire.close)
            return wire

        yield begin
