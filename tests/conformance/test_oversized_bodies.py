"""The probe for bodies that are too large reads a refusal in whatever way the server closes the connection after it."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from ludus.conformance.http_probe import HttpProbe
from ludus.conformance.report import _open_probe

REFUSAL = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


async def answers(after_bytes: int, *, resets: bool) -> tuple[asyncio.Server, str]:
    """A server that refuses after so many bytes, and then closes in order or resets with the rest unread."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(after_bytes)
        writer.write(REFUSAL)
        await writer.drain()
        if resets:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        else:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.suite("planted-faults", first=1)
@pytest.mark.requirement("LIM-12")
@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("after_bytes", [50, 70_000, 3 << 20])
async def test_a_refusal_is_read_although_the_connection_breaks_while_the_body_is_sent(
    after_bytes: int, resets: bool
) -> None:
    server, url = await answers(after_bytes, resets=resets)
    async with server, _open_probe(url, 10.0, ()) as probe:
        assert isinstance(probe, HttpProbe)
        assert [await probe.oversized("/mcp", None) for _ in range(3)] == [413] * 3
