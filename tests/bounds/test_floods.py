"""Floods of one client: work is refused by number and not by size alone, and other clients get their turns."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from flood_frames import CHUNK, CHUNKED, HANGS, channel, post, raw, ws_frame
from worlds import Playground

from ludus.client import connect
from ludus.protocol.bounds import MAX_FRAME_VALUES
from ludus.server import ServerLimits
from ludus.server.serving.serve import LudusServer
from ludus.server.transports.channel import REQUEST_COST, REQUESTS_PER_TICK
from ludus.server.web.frame_meter import EMPTY_BURST, FREE_FRAGMENTS
from ludus.server.web.http_heads import FREE_CHUNKS, HEAD_FIELDS
from ludus.server.web.http_protocol import BoundedHttpProtocol
from ludus.server.web.turns import SHARE_COST, TURN_COST, turns_of

Serve = Callable[..., Awaitable[LudusServer]]

MOST_OF_A_TURN = TURN_COST + 2 * SHARE_COST + REQUESTS_PER_TICK * REQUEST_COST
"""A turn's budget, with the last share and the last requests, which exceed it."""

LIST = b'{"jsonrpc":"2.0","id":1,"method":"dev.ludus/environments/list","params":{}}'
FRAGMENTS = ws_frame(b"[", final=False) + ws_frame(b" ", 0, final=False) * (FREE_FRAGMENTS + 10)
NOTHING = ws_frame(b"", final=False) + ws_frame(b"", 0, final=False) * (FREE_FRAGMENTS + 10)
BRACKETS = b"[" + b",".join([b"[]"] * (MAX_FRAME_VALUES + 1)) + b"]"


async def test_a_body_of_tiny_chunks_is_refused_with_the_reason_and_the_connection_closes(serve: Serve) -> None:
    server = await serve(Playground)
    async with raw(server.url) as wire:
        await wire.send(post("/mcp", CHUNKED) + CHUNK * 100_000)
        status, fields, body = await wire.answer()
        error = json.loads(body)["error"]
        assert (status, fields["connection"], error["code"]) == (400, "close", -32600)
        assert error["data"] == {"limit": "chunk_bytes", "minimum": 64}
        assert "chunks of 1 bytes on average; send chunks of 64 bytes or more" in error["message"]
        assert await wire.ended()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (post("/mcp") + b"a:\r\n" * (HEAD_FIELDS + 1), 431),
        (post("/mcp", CHUNKED) + b"1\r\n[\r\n0\r\n" + b"a:\r\n" * (HEAD_FIELDS + 2), 431),
        (post("/mcp", CHUNKED) + b"1\r\n[\r\n0\r\na: " + b"x" * 200_000, 431),
        (post("/mcp", CHUNKED) + b"1;" + b"x" * 200_000, 431),
    ],
    ids=["fields", "fields behind the body", "a long field behind the body", "a chunk's extension"],
)
async def test_what_surrounds_a_body_is_bounded(serve: Serve, sent: bytes, status: int) -> None:
    server = await serve(Playground)
    async with raw(server.url) as wire:
        await wire.send(sent)
        assert (await wire.answer())[0] == status
        assert await wire.ended()


async def test_ordinary_bodies_are_served_in_chunks_of_every_ordinary_size(serve: Serve) -> None:
    server = await serve(Playground)
    pad = b" " * (3 * 1024 * 1024)
    async with raw(server.url) as wire:
        for size in (len(pad), 65_536, 1400, 100):
            body = LIST + pad
            parts = [body[at : at + size] for at in range(0, len(body), size)]
            await wire.send(
                post("/mcp", CHUNKED) + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
            )
            assert (await wire.answer())[0] == 200
        small = b"".join(b"1\r\n%c\r\n" % byte for byte in LIST + b" " * (FREE_CHUNKS - len(LIST) - 1))
        await wire.send(post("/mcp", CHUNKED) + small + b"0\r\n\r\n")
        assert (await wire.answer())[0] == 200
        await wire.send(post("/mcp", b"Content-Length: %d\r\n\r\n" % len(body)) + body)
        assert (await wire.answer())[0] == 200


async def test_fields_behind_a_body_are_no_fields_of_its_head(serve: Serve) -> None:
    server = await serve(Playground, variables={"LUDUS_TOKENS": '{"tokens": []}'})
    async with raw(server.url) as wire:
        await wire.send(post("/mcp", CHUNKED) + b"1\r\n[\r\n0\r\nx-api-key: guessed\r\n\r\n")
        status, _, body = await wire.answer()
        assert (status, json.loads(body)["error"]["message"][:24]) == (401, "this server needs a toke")


async def test_pipelined_requests_wait_unparsed_until_those_before_are_answered(serve: Serve) -> None:
    server = await serve(Playground)
    request = post("/mcp", b"Content-Length: %d\r\n\r\n" % len(LIST)) + LIST
    async with raw(server.url) as wire:
        await wire.send(request * 1000)
        (connection,) = server.server_state.connections
        assert isinstance(connection, BoundedHttpProtocol)
        longest = 0
        for _ in range(1000):
            assert (await wire.answer())[0] == 200
            longest = max(longest, len(connection.pipeline))
        assert longest <= 1024 // len(request) + 2


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (FRAGMENTS, "a message in 1001 fragments of 1 bytes on average; send fragments of 64 bytes or more"),
        (NOTHING, "a message in 1001 fragments of 0 bytes on average|more than 1000 pings"),
        (
            ws_frame(b"", 9) * (EMPTY_BURST + 50),
            "more than 1000 pings, pongs and empty frames at one time, or 100 per second",
        ),
        (ws_frame(b"", 10) * (EMPTY_BURST + 50), "more than 1000 pings, pongs and empty frames"),
        (ws_frame(b"") * (EMPTY_BURST + 50), "more than 1000 pings, pongs and empty frames"),
    ],
    ids=["fragments", "empty fragments", "pings", "pongs", "empty frames"],
)
async def test_frames_that_no_ordinary_client_sends_close_the_channel_with_the_reason(
    serve: Serve, frames: bytes, reason: str
) -> None:
    server = await serve(Playground)
    async with channel(server.url) as wire:
        await wire.send(frames)
        code, text = await wire.close_frame()
        assert code == 1008
        assert re.match(reason, text), text
        assert await wire.ended()


async def test_a_frame_of_too_many_values_is_refused_and_the_channel_goes_on(serve: Serve) -> None:
    server = await serve(Playground)
    async with channel(server.url) as wire:
        await wire.send(ws_frame(BRACKETS) + ws_frame(LIST))
        _, refused = await wire.frame()
        assert json.loads(refused)["error"]["code"] == 4130
        _, listed = await wire.frame()
        assert json.loads(listed)["id"] == 1


async def test_an_ordinary_stream_of_pings_and_fragments_is_served(serve: Serve) -> None:
    server = await serve(Playground)
    async with channel(server.url) as wire:
        part = b" " * 4096
        await wire.send(ws_frame(LIST, final=False) + ws_frame(part, 0, final=False) * 900 + ws_frame(b" ", 0))
        for _ in range(400):
            await wire.send(ws_frame(b"ping", 9) + ws_frame(LIST))
        pongs, replies = 0, 0
        while (pongs, replies) != (400, 401):
            opcode, payload = await wire.frame()
            if opcode == 10:
                pongs += 1
            else:
                assert opcode == 1
                found = json.loads(payload)
                replies += len(found) if isinstance(found, list) else 1


async def test_large_messages_wait_for_room_and_give_it_back(serve: Serve) -> None:
    limits = ServerLimits(body_bytes=1024 * 1024, arriving_bytes=4 * 1024 * 1024)
    server = await serve(Playground, limits=limits)
    arrivals = server.app.guard.arrivals
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(channel(server.url)) for _ in range(12)]
        large = ws_frame(LIST + b" " * 900_000)
        for wire in wires:
            await wire.send(large[:200_000])
        async with asyncio.timeout(HANGS):
            while arrivals.bodies < 900_000 or not arrivals._waiting:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert arrivals.bodies <= arrivals.share
        for wire in wires:
            wire.writer.write(large[200_000:])
        for wire in wires:
            assert json.loads((await wire.frame())[1])["id"] == 1
    async with asyncio.timeout(HANGS):
        while arrivals.bodies:  # noqa: ASYNC110
            await asyncio.sleep(0)


UNKNOWN = [
    {"jsonrpc": "2.0", "id": at, "method": "dev.ludus/episodes/step", "params": {"episode": "e", "step": 1,
     "tool": "nothing", "arguments": {}, "key": f"{at}"}}
    for at in range(1000)
]  # fmt: skip
FLOODS = {
    "chunks": CHUNK * 20_000,
    "pipeline": (post("/mcp", b"Content-Length: %d\r\n\r\n" % len(LIST)) + LIST) * 100,
    "heads": post("/mcp") + b"a:\r\n" * 20_000,
    "fragments": FRAGMENTS,
    "pings": ws_frame(b"", 9) * 5_000,
    "empty frames": ws_frame(b"") * 5_000,
    "unknown episodes": ws_frame(json.dumps(UNKNOWN).encode()) * 2,
    "unknown episodes, one by one": ws_frame(json.dumps(UNKNOWN[:1]).encode()) * 1000,
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_no_turn_does_more_than_its_share_while_another_client_steps(serve: Serve, flood: str) -> None:
    server = await serve(Playground)
    turns = turns_of(asyncio.get_running_loop())
    web = flood in ("chunks", "pipeline", "heads")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(server.url, wire="channel"))
        await client.environments()
        wires = [await stack.enter_async_context((raw if web else channel)(server.url)) for _ in range(30)]
        opening = post("/mcp", CHUNKED) if flood == "chunks" else b""
        for wire in wires:
            wire.writer.write(opening + FLOODS[flood])
        took = []
        for _ in range(10):
            before = turns.count
            await client.environments()
            took.append(turns.count - before)
    assert turns.most_spent <= MOST_OF_A_TURN
    assert max(took) <= 60, took
