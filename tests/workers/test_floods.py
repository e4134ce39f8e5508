"""Floods over the gateway of two workers: refused as by one process, and no worker is replaced."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from flood_frames import CHUNK, CHUNKED, channel, post, raw, ws_frame
from worker_servers import WorkersServer

from ludus.client import connect, text_of
from ludus.protocol.bounds import MAX_FRAME_VALUES
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.web.frame_meter import EMPTY_BURST, FREE_FRAGMENTS
from ludus.server.web.http_heads import HEAD_FIELDS

pytestmark = pytest.mark.timeout(300)

CONNECTIONS = 30
ROUNDS = 4
LIST = b'{"jsonrpc":"2.0","id":1,"method":"dev.ludus/environments/list","params":{}}'
FRAGMENTS = ws_frame(b"[", final=False) + ws_frame(b" ", 0, final=False) * (FREE_FRAGMENTS + 10)
BRACKETS = b"[" + b",".join([b"[]"] * (MAX_FRAME_VALUES + 1)) + b"]"


@pytest.mark.suite("workers", first=1)
@pytest.mark.parametrize("flood", ["chunks", "pings", "heads", "fragments", "pipeline"])
async def test_no_worker_is_replaced_under_a_flood_and_another_client_goes_on(launch: Any, flood: str) -> None:
    """The limit on silence is far below the time that the flood's parsing in single turns would take."""
    server: WorkersServer = await launch("--unresponsive-seconds", "2", journal=False)
    pids = [server.pid_of(name) for name in ("w0", "w1")]
    async with connect(server.url) as client:
        episodes = [await client.environment("ledger").start(index=0) for _ in range(2)]
        assert episodes[0].play_url is not None
        play = urlsplit(episodes[0].play_url).path
        request = post(play, b"Content-Length: %d\r\n\r\n" % len(LIST)) + LIST
        sent = {
            "chunks": post(play, CHUNKED) + CHUNK * 300_000, "pings": ws_frame(b"", 9) * 200_000,
            "heads": post(play) + b"a:\r\n" * 200_000, "fragments": FRAGMENTS * 20, "pipeline": request * 1000,
        }[flood]  # fmt: skip

        async def attack() -> None:
            for _ in range(ROUNDS):
                try:
                    async with (
                        raw(server.url) if flood in ("chunks", "heads", "pipeline") else channel(server.url) as wire
                    ):
                        await wire.send(sent)
                        await wire.reader.read(1)
                except ConnectionError:
                    continue

        attacks = asyncio.gather(*(attack() for _ in range(CONNECTIONS)))
        count = 0
        while not attacks.done() or count < 10:
            count += 1
            results = await asyncio.gather(*(one.call("add", number=1) for one in episodes))
            assert all(text_of(result.content).split()[0] == str(count) for result in results)
        await attacks
    assert [server.pid_of(name) for name in ("w0", "w1")] == pids
    assert "takes its place" not in server.said


@pytest.mark.suite("workers")
async def test_two_workers_refuse_with_the_words_of_one_process(launch: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    async with raw(server.url) as wire:
        await wire.send(post("/play/play_nothing/mcp", CHUNKED) + CHUNK * 100_000)
        status, fields, body = await wire.answer()
        assert (status, fields["connection"]) in ((400, "close"), (404, "close"))
    async with connect(server.url) as client:
        episode = await client.environment("ledger").start(index=0)
        assert episode.play_url is not None
        async with raw(server.url) as wire:
            await wire.send(post(urlsplit(episode.play_url).path, CHUNKED) + CHUNK * 100_000)
            status, fields, body = await wire.answer()
            assert (status, fields["connection"]) == (400, "close")
            error = json.loads(body)["error"]
            assert error["data"] == {"limit": "chunk_bytes", "minimum": 64}
            assert "chunks of 1 bytes on average; send chunks of 64 bytes or more" in error["message"]
            assert await wire.ended()
    for sent in (
        post("/mcp") + b"a:\r\n" * (HEAD_FIELDS + 2),
        post("/mcp", CHUNKED) + b"1\r\n[\r\n0\r\n" + b"a:\r\n" * (HEAD_FIELDS + 2),
        post("/mcp", CHUNKED) + b"1;" + b"x" * 200_000,
    ):
        async with raw(server.url) as wire:
            await wire.send(sent)
            assert (await wire.answer())[0] == 431
            assert await wire.ended()
    for frames, reason in (
        (FRAGMENTS, "a message in 1001 fragments of 1 bytes on average; send fragments of 64 bytes or more"),
        (ws_frame(b"", 9) * (EMPTY_BURST + 50), "more than 1000 pings, pongs and empty frames at one time"),
        (ws_frame(b"") * (EMPTY_BURST + 50), "more than 1000 pings, pongs and empty frames at one time"),
    ):
        async with channel(server.url) as wire:
            await wire.send(frames)
            code, text = await wire.close_frame()
            assert (code, text[: len(reason)]) == (1008, reason)
            assert await wire.ended()
    async with channel(server.url) as wire:
        await wire.send(ws_frame(BRACKETS) + ws_frame(LIST))
        assert json.loads((await wire.frame())[1])["error"]["code"] == 4130
        assert json.loads((await wire.frame())[1])["id"] == 1


@pytest.mark.suite("workers")
async def test_ordinary_bodies_and_messages_pass_the_gateway(launch: Any) -> None:
    server: WorkersServer = await launch(journal=False)
    body = LIST + b" " * (3 * 1024 * 1024)
    async with raw(server.url) as wire:
        for size in (65_536, 1400, 100):
            parts = [body[at : at + size] for at in range(0, len(body), size)]
            await wire.send(
                post("/mcp", CHUNKED) + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
            )
            assert (await wire.answer())[0] == 200
        await wire.send(post("/mcp", b"Content-Length: %d\r\n\r\n" % len(body)) + body)
        assert (await wire.answer())[0] == 200
    async with channel(server.url) as wire:
        for _ in range(20):
            await wire.send(ws_frame(body))
        replies = 0
        while replies < 20:
            found = json.loads((await wire.frame())[1])
            replies += len(found) if isinstance(found, list) else 1


@pytest.mark.suite("workers", first=1)
async def test_workers_count_the_requests_of_strangers_together_and_serve_valid_tokens(launch: Any) -> None:
    token, record = new_token("trainer", ("tasks:read", "episodes:run", "rewards:read"))
    variables = {"LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json()}
    options = ("--limit", "stranger_requests_per_second=0.01")
    server: WorkersServer = await launch(*options, journal=False, variables=variables)
    ask = b"GET /nosuch HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answers: list[tuple[int, dict[str, str], bytes]] = []
    for _ in range(10):
        async with raw(server.url) as wire:
            await wire.send(ask)
            answers.append(await wire.answer())
    assert [status for status, _, _ in answers] == [404] + [429] * 9
    _, fields, body = answers[-1]
    assert json.loads(body)["error"]["data"]["limit"] == "stranger_requests_per_second"
    assert int(fields["retry-after"]) > 0
    async with connect(server.url, token=token) as client:
        await client.environment("ledger").start(index=0)
