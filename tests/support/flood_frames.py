"""What floods consist of: chunks, frames and heads that are as small as they can be, and connections that send them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL

HANGS = 60
FIELDS = b"Host: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1\r\nx\r\n"


class Raw:
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One answer with a length: its status, its fields and its body."""
        async with asyncio.timeout(HANGS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status, *lines = head.strip().split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self.reader.readexactly(int(fields.get("content-length", "0")))
        return int(status.split()[1]), fields, body

    async def frame(self) -> tuple[int, bytes]:
        """One frame of the server: its opcode and its payload."""
        async with asyncio.timeout(HANGS):
            first, size = await self.reader.readexactly(2)
            if size >= 126:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
            return first & 0x0F, await self.reader.readexactly(size)

    async def close_frame(self) -> tuple[int, str]:
        """The code and the reason with which the server closes a channel; other frames before it are skipped."""
        while True:
            opcode, payload = await self.frame()
            if opcode == 8:
                return int.from_bytes(payload[:2], "big"), payload[2:].decode()

    async def ended(self) -> bool:
        """Whether the server closes the connection."""
        async with asyncio.timeout(HANGS):
            return await self.reader.read() == b""


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Raw]:
    """A connection to a server."""
    connection = Raw(*await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2])))
    try:
        yield connection
    finally:
        connection.writer.close()


@asynccontextmanager
async def channel(url: str, token: str = "") -> AsyncIterator[Raw]:
    """An open channel whose frames the test writes itself."""
    async with raw(url) as connection:
        fields = b"Authorization: Bearer %b\r\n" % token.encode() if token else b""
        await connection.send(
            b"GET /channel HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%b"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Protocol: %b\r\n\r\n" % (fields, CHANNEL_SUBPROTOCOL.encode())
        )
        assert (await connection.answer())[0] == 101
        yield connection


def post(path: str, *fields: bytes) -> bytes:
    """The head of a request, which ends with its last field."""
    return b"POST %b HTTP/1.1\r\n%b%b" % (path.encode(), FIELDS, b"".join(fields))


def ws_frame(payload: bytes, opcode: int = 1, *, final: bool = True) -> bytes:
    """A frame of a client."""
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    return bytes((opcode | (0x80 if final else 0),)) + length + bytes(4) + payload
