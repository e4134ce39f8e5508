"""What clients may send the gateway: everything HTTP allows, and nothing without a bound."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from waiting import wait_until
from worker_servers import PATIENCE, WorkersServer

from ludus.client import connect
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.protocol.workers import worker_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.suite("workers")]

LIST = b'{"jsonrpc":"2.0","id":1,"method":"dev.ludus/environments/list","params":{}}'
MCP = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\n"
)


@pytest.fixture
async def server(launch: Any) -> WorkersServer:
    """A server that is impatient and takes little."""
    found: WorkersServer = await launch("--body-bytes", "100000", journal=False)
    return found


@asynccontextmanager
async def talking(server: WorkersServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A plain connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE):
            yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """One answer with a length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(status.split()[1]), headers, body


async def test_requests_of_every_form_are_answered(server: WorkersServer) -> None:
    plain = MCP + b"Content-Length: %d\r\n\r\n" % len(LIST) + LIST
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(LIST[at : at + 7]), LIST[at : at + 7]) for at in range(0, len(LIST), 7))
    chunked = MCP + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    async with talking(server) as (reader, writer):
        writer.write(plain + chunked + plain)  # in one piece
        for _ in range(3):
            status, _, body = await answer(reader)
            assert (status, json.loads(body)["id"]) == (200, 1)
        for byte in plain:  # in the smallest pieces
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await answer(reader))[0] == 200
        writer.write(MCP + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(LIST))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(LIST)
        assert (await answer(reader))[0] == 200
        writer.write(b"GET http://localhost/he%61lth HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await answer(reader))[0] == 200
        writer.write(b"HEAD /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 405")
    async with talking(server) as (reader, writer):
        writer.write(plain.replace(b"HTTP/1.1", b"HTTP/1.0"))
        whole = await reader.read()
        assert whole.startswith(b"HTTP/1.1 200")
        assert b"chunked" not in whole.lower()
        assert json.loads(whole.partition(b"\r\n\r\n")[2])["id"] == 1
    async with talking(server) as (reader, writer):
        writer.write(b"GET /list_environments HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await answer(reader))[2].startswith(b"[")
        assert await reader.read() == b""
    async with talking(server) as (reader, writer):
        writer.write(
            b"GET /list_environments HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
        )
        assert (await answer(reader))[0] == 200


REFUSED: list[tuple[bytes, int]] = [
    (b"nonsense\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000, 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * 300, 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * 300 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n", 400),
    (MCP + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (MCP + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    (MCP + b"Content-Length: 100001\r\n\r\n", 413),
    (MCP + b"Transfer-Encoding: chunked\r\n\r\n7d00\r\n" + b"x" * 32000 + b"\r\n186a0\r\n" + b"x" * 100_000, 413),
    (b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n", 403),
    (b"GET /workers/load HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    (b"GET /workers/load HTTP/1.1\r\nHost: localhost\r\nLudus-Gateway: guess\r\n\r\n", 404),
]


async def test_what_is_no_request_or_too_much_is_refused_and_the_server_serves_on(server: WorkersServer) -> None:
    for sent, status in REFUSED:
        async with talking(server) as (reader, writer):
            writer.write(sent)
            assert (await answer(reader))[0] == status, sent[:200]
        async with connect(server.url) as client:
            assert await client.environments()


def ports_of_children(pid: int) -> list[int]:
    """The ports on which the children of a process listen."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    inodes = {
        os.readlink(f"/proc/{child}/fd/{fd}")[8:-1]
        for child in children
        for fd in os.listdir(f"/proc/{child}/fd")
        if os.readlink(f"/proc/{child}/fd/{fd}").startswith("socket:")
    }
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes]


async def test_workers_serve_their_gateway_alone(server: WorkersServer) -> None:
    ports = ports_of_children(server.pid)
    assert len(ports) == 2
    async with aiohttp.ClientSession() as session:
        for port in ports:
            for headers in ({}, {"Ludus-Gateway": "guess 127.0.0.1"}):
                async with session.get(f"http://127.0.0.1:{port}/ready", headers=headers) as response:
                    assert response.status == 400
                    assert "for the gateway alone" in await response.text()


async def test_slow_requests_are_ended(launch: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    pieces = [
        b"GET /health HTT",
        MCP + b"Content-Length: 50\r\n\r\n{",
        b"POST /ping HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: a\r\nContent-Length: 50\r\n\r\n{",
    ]
    for piece in pieces:
        async with talking(server) as (reader, writer):
            writer.write(piece)
            assert (await answer(reader))[0] in (408, 404)


async def flood(socket: aiohttp.ClientWebSocketResponse, frame: str) -> None:
    """Send a frame again and again, and read nothing."""
    while True:
        await socket.send_str(frame)


async def test_a_client_that_does_not_read_is_not_read_either(server: WorkersServer) -> None:
    def resident() -> int:
        return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async with connect(server.url) as client, aiohttp.ClientSession() as session:
        await client.environments()
        before = resident()
        for path in ("/channel", "/workers/w0/channel"):
            async with session.ws_connect(server.url + path, protocols=(CHANNEL_SUBPROTOCOL,)) as socket:
                request = '{"jsonrpc":"2.0","id":1,"method":"dev.ludus/environments/list"}'
                frame = f"[{','.join([request] * 1000)}]"

                flooding = asyncio.ensure_future(flood(socket, frame))
                done, _ = await asyncio.wait([flooding], timeout=3)
                flooding.cancel()
                assert not done, "the writer waits for the server, and the server for the reader"
                assert resident() - before < 200 * 2**20
                assert await asyncio.wait_for(client.environments(), PATIENCE)


BROKEN_FRAMES: list[tuple[bytes, int]] = [
    (b"\x81\x02{}", 1002),
    (b"\xc1\x80\0\0\0\0", 1002),
    (b"\x83\x80\0\0\0\0", 1002),
    (b"\x80\x80\0\0\0\0", 1002),
    (b"\x09\x80\0\0\0\0", 1002),
    (b"\x89\xfe\x01\x00\0\0\0\0", 1002),
    (b"\x81\x81\0\0\0\0\xff", 1007),
    (b"\x81\xff" + struct.pack(">Q", 2**40) + b"\0\0\0\0", 1009),
    (b"\x88\x82\0\0\0\0\x03\xe8", 1000),
]
UPGRADE = (
    b"GET /channel HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: %b\r\n\r\n" % CHANNEL_SUBPROTOCOL.encode()
)


async def test_frames_that_break_the_protocol_close_their_connection_alone(server: WorkersServer) -> None:
    async with connect(server.url) as client:
        await client.environments()
        for frame, code in BROKEN_FRAMES:
            async with talking(server) as (reader, writer):
                writer.write(UPGRADE + frame)
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
                rest = await reader.read()
                assert rest[0] == 0x88
                assert struct.unpack(">H", rest[2:4])[0] == code, frame
            assert await client.environments()


async def test_a_message_in_fragments_is_read(server: WorkersServer) -> None:
    async with talking(server) as (reader, writer):
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        message = b'{"jsonrpc":"2.0","id":"a","method":"dev.ludus/environments/list"}'
        zero = b"\0\0\0\0"
        writer.write(
            b"\x01\x8a" + zero + message[:10] + b"\x89\x80" + zero + b"\x80" + bytes([0x80 | 55]) + zero + message[10:]
        )
        assert await reader.readexactly(2) == b"\x8a\x00"
        head = await reader.readexactly(4)
        assert head[0] == 0x81
        assert b'"id":"a"' in await reader.readexactly(int.from_bytes(head[2:4], "big"))


async def test_large_requests_and_frames_pass_and_larger_ones_are_refused_by_name(server: WorkersServer) -> None:
    async with connect(server.url) as client, aiohttp.ClientSession() as session:
        episode = await client.environment("ledger").start(index=0)
        step: dict[str, Any] = {"episode": episode.id, "step": 1, "tool": "add", "key": "k"}
        other = {"w0": "w1", "w1": "w0"}[str(worker_of(episode.id))]
        for path in ("/channel", f"/workers/{worker_of(episode.id)}/channel", f"/workers/{other}/channel"):
            async with session.ws_connect(
                server.url + path, protocols=(CHANNEL_SUBPROTOCOL,), max_msg_size=0
            ) as socket:
                for size, code in ((90_000, -32602 if path == "/channel" else None), (120_000, 4130)):
                    body = {
                        "jsonrpc": "2.0",
                        "id": 1,
                        "method": "dev.ludus/episodes/step",
                        "params": {**step, "pad": "x" * size},
                    }
                    await socket.send_str(json.dumps(body))
                    reply = json.loads((await socket.receive()).data)
                    assert code is None or reply["error"]["code"] == code


@pytest.mark.parametrize("sent", [b"HEAD x/y HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HEAD /health HTTP/1.1\r\n\r\n"])
async def test_a_refused_request_for_a_head_gets_no_body(server: WorkersServer, sent: bytes) -> None:
    async with talking(server) as (reader, writer):
        writer.write(sent)
        head, end, rest = (await reader.read()).partition(b"\r\n\r\n")
        assert (head[:13], end, rest) == (b"HTTP/1.1 400 ", b"\r\n\r\n", b"")


def descriptors(server: WorkersServer) -> int:
    """How many files and sockets the gateway has open."""
    return len(os.listdir(f"/proc/{server.pid}/fd"))


async def test_a_client_that_stays_behind_its_refusal_is_disconnected(server: WorkersServer) -> None:
    before = descriptors(server)
    plain = MCP + b"Content-Length: %d\r\n\r\n" % len(LIST) + LIST
    async with talking(server) as (reader, writer):
        writer.write(plain * 3 + b"broken\r\n\r\n")
        assert [(await answer(reader))[0] for _ in range(4)] == [200, 200, 200, 400]
        assert await reader.read() == b""
        await wait_until(lambda: descriptors(server) <= before, PATIENCE)


async def test_many_connections_that_come_and_go_leave_nothing(server: WorkersServer) -> None:
    async with aiohttp.ClientSession() as session:
        await (await session.get(f"{server.url}/version")).read()
    before = descriptors(server)
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(_rude(server, number))
    await wait_until(lambda: descriptors(server) <= before + 2, PATIENCE)
    assert "Traceback" not in server.said


async def _rude(server: WorkersServer, number: int) -> None:
    """A connection that is dropped at some point of a request."""
    body = MCP + b"Content-Length: %d\r\n\r\n" % len(LIST) + LIST
    async with talking(server) as (reader, writer):
        writer.write(body[: (number * 7) % len(body)] if number % 2 else body)
        if number % 3 == 0:
            await writer.drain()
        if number % 4 == 0:
            await reader.read(1) if number % 2 == 0 else None
        writer.transport.abort()
