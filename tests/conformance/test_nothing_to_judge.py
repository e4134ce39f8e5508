"""A check that found nothing to judge says `skipped` with the reason, and a conforming server is never failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from urllib.parse import urlsplit

import pytest
from worlds import Playground

from ludus.conformance import conform
from ludus.protocol.identifiers import MAX_FRAME_HEADER
from ludus.server import Environment, Task, tool
from ludus.server.serving.serve import LudusServer

Serve = Callable[..., Awaitable[LudusServer]]
CLOSED_TOO_LARGE = b"\x88\x02\x03\xf1"
"""A frame that closes a WebSocket with 1009."""


class Worthless(Environment[Task]):
    """Its steps earn nothing."""

    splits = {"train": [Task(id="only")]}

    def prompt(self) -> str:
        return "Wait."

    @tool
    def wait(self) -> str:
        """Wait."""
        return "waited"


EARNS_NOTHING = {
    "log": "no step earned a reward", "components": "no reward has components", "after": "no step earned a reward",
    "closed": "no step earned a reward", "total": "neither the steps nor the grade earned a reward",
}  # fmt: skip


async def test_checks_of_rewards_are_skipped_where_nothing_is_earned(
    serve: Serve,
) -> None:
    server = await serve(Worthless)
    report = await conform(server.url, checks=[f"channel/{name}" for name in EARNS_NOTHING])
    assert {verdict.check: verdict.detail for verdict in report.of("skipped")} == EARNS_NOTHING
    assert report.counts()["skipped"] == len(EARNS_NOTHING)
    assert report.counts()["passed"] == 0
    assert report.by_module()["channel"]["skipped"] == len(EARNS_NOTHING)


async def test_the_same_checks_pass_where_rewards_are_earned(serve: Serve) -> None:
    server = await serve(Playground)
    report = await conform(server.url, checks=[f"channel/{name}" for name in EARNS_NOTHING])
    assert {verdict.check for verdict in report.of("passed")} == set(EARNS_NOTHING), report.verdicts


async def test_capabilities_that_live_longer_than_the_check_are_not_said_to_expire(
    serve: Serve,
) -> None:
    server = await serve(Playground)
    report = await conform(server.url, checks=["play/expiry", "play/unguessable"])
    assert {verdict.check: verdict.status for verdict in report.verdicts} == {
        "unguessable": "passed", "expiry": "skipped",
    }  # fmt: skip


async def test_private_texts_are_not_searched_where_no_message_came(serve: Serve) -> None:
    server = await serve(Playground)
    report = await conform(server.url, checks=["play/private"], private=["text"])
    (verdict,) = report.verdicts
    assert (verdict.status, verdict.detail) == ("skipped", "no message came over this wire")


@pytest.fixture
async def closing_early() -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """`url = await closing_early(url)`: the server behind a relay that closes as soon as a frame's header is too large,
    and reads nothing more of it, as a server may."""
    async with AsyncExitStack() as stack:

        async def start(url: str) -> str:
            server = await asyncio.start_server(lambda r, w: _relay(url, r, w), "127.0.0.1", 0)
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield start


async def _relay(url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    parts = urlsplit(url)
    above, below = await asyncio.open_connection(parts.hostname, parts.port)
    limit = 0

    async def down() -> None:
        nonlocal limit
        while data := await above.read(1 << 16):
            for line in data.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.strip().lower() == MAX_FRAME_HEADER.lower().encode():
                    limit = int(value)
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    answers = asyncio.create_task(down())
    try:
        while data := await reader.read(1 << 16):
            if limit and data[0] & 0x0F == 1 and data[1] & 0x7F == 127 and int.from_bytes(data[2:10], "big") > limit:
                writer.write(CLOSED_TOO_LARGE)
                await writer.drain()
                writer.transport.abort()
                break
            below.write(data)
            await below.drain()
    finally:
        answers.cancel()
        await asyncio.gather(answers, return_exceptions=True)
        for stream in (below, writer):
            stream.close()
            with suppress(OSError):
                await stream.wait_closed()


async def test_a_server_that_closes_at_the_header_of_a_large_frame_conforms(
    serve: Serve, closing_early: Callable[[str], Awaitable[str]]
) -> None:
    server = await serve(Playground)
    url = await closing_early(server.url)
    report = await conform(url, checks=["channel/large_frame"])
    (verdict,) = report.verdicts
    assert (verdict.status, verdict.detail) == ("passed", "")
