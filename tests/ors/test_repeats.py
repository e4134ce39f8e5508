"""Calls that are sent again without a key: the delivery of the first reply decides whether the tool runs again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from waiting import wait_until

from ludus.protocol.rewards import Reward
from ludus.server import Environment, Result, Task, tool

Serve = Callable[..., Awaitable[Any]]


class Gated(Environment[Task]):
    """Counts its runs; a tool waits for its gate, where it has one."""

    splits = {"train": [Task(id="only")]}
    runs: ClassVar[Counter[str]] = Counter()
    gates: ClassVar[dict[str, asyncio.Event]] = {}
    began: ClassVar[asyncio.Event]

    async def prompt(self) -> str:
        return "Work."

    @tool(concurrent=True)
    async def work(self, tag: str) -> Result:
        """Work."""
        self.runs[tag] += 1
        self.began.set()
        if gate := self.gates.get(tag):
            await gate.wait()
        return Result(f"{tag}: run {self.runs[tag]}", reward=1.0)

    @classmethod
    async def score_group(cls, task: Task, candidates: Any) -> list[Reward]:
        cls.runs["score"] += 1
        if gate := cls.gates.get("score"):
            await gate.wait()
        return [Reward(value=float(cls.runs["score"])) for _ in candidates]


class Line:
    """One TCP connection to the server, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def post(self, path: str, body: Any, version: str = "1.1", **headers: str) -> None:
        """Send a request of the session."""
        content = json.dumps(body).encode()
        lines = {"Host": "localhost", "X-Session-ID": "s", "Content-Length": str(len(content)), **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"POST {path} HTTP/{version}\r\n{head}\r\n".encode() + content)

    def call(self, tag: str, version: str = "1.1", **headers: str) -> None:
        """Ask for a run."""
        self.post("/call", {"name": "work", "input": {"tag": tag}}, version, **headers)

    async def reply(self) -> bytes:
        """A whole reply: to its last chunk or the length it states, or to the end of the connection."""
        content = b""
        async with asyncio.timeout(30):
            while piece := await self._reader.read(65536):
                content += piece
                head, found, rest = content.partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                if found and (len(rest) >= int(length[1]) if length else content.endswith(b"\r\n0\r\n\r\n")):
                    break
        return content

    async def text(self) -> str:
        """What a call came to."""
        content = await self.reply()
        found = re.search(rb'"text":"([^"]*)"', content)
        assert found is not None, content
        return found[1].decode()

    async def first_event(self) -> bytes:
        """What comes first, while the reply is not finished."""
        async with asyncio.timeout(30):
            await self._reader.readuntil(b"\r\n\r\n")
            return await self._reader.readuntil(b"\r\n\r\n")

    def reset(self) -> None:
        """Break off, so that the server learns it at once."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close in order."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


Dial = Callable[[], Awaitable[Line]]


@pytest.fixture
async def server(serve: Serve) -> Any:
    Gated.runs.clear()
    Gated.gates.clear()
    Gated.began = asyncio.Event()
    return await serve(Gated)


@pytest.fixture
async def dial(server: Any) -> AsyncIterator[Dial]:
    """`line = await dial()`: a connection to a server on which the session `s` plays."""
    parts = urlsplit(server.url)
    lines: list[Line] = []

    async def connect() -> Line:
        line = Line(*await asyncio.open_connection(parts.hostname, parts.port))
        lines.append(line)
        return line

    first = await connect()
    first.post("/create", {"split": "train", "index": 0})
    assert b"200 OK" in await first.reply()
    yield connect
    for line in lines:
        line.writer.transport.abort()


async def begun() -> None:
    """Wait until a tool runs."""
    async with asyncio.timeout(30):
        await Gated.began.wait()
    Gated.began.clear()


@pytest.mark.requirement("ORS-16")
@pytest.mark.parametrize("moment", ["while it runs", "after it ran", "after the connection ended"])
async def test_a_fast_call_whose_connection_was_reset_first_is_not_run_again(
    dial: Dial, server: Any, moment: str
) -> None:
    line = await dial()
    line.call("x")
    line.reset()
    await wait_until(lambda: Gated.runs["x"] == 1)
    if moment != "while it runs":
        await wait_until(lambda: not server.app.context.host.busy())
    if moment == "after the connection ended":
        await wait_until(lambda: len(server.server_state.connections) == 1)
    again = await dial()
    again.call("x")
    assert await again.text() == "x: run 1"
    again.call("x")
    assert await again.text() == "x: run 2"


@pytest.mark.requirement("ORS-16")
async def test_a_fast_call_whose_reply_lay_unread_when_the_connection_was_closed_is_not_run_again(dial: Dial) -> None:
    line = await dial()
    line.writer.transport.pause_reading()  # type: ignore[attr-defined]
    line.call("x")
    await wait_until(lambda: Gated.runs["x"] == 1)
    line.writer.transport.abort()
    again = await dial()
    again.call("x")
    assert await again.text() == "x: run 1"


@pytest.mark.requirement("ORS-16")
async def test_an_equal_call_waits_until_the_earlier_one_is_settled_and_then_runs(dial: Dial) -> None:
    gate = Gated.gates["x"] = asyncio.Event()
    one, two = await dial(), await dial()
    one.call("x")
    await begun()
    two.call("x")
    assert b": ping" in await two.first_event()
    assert Gated.runs["x"] == 1
    gate.set()
    assert await one.text() == "x: run 1"
    assert await two.text() == "x: run 2"


@pytest.mark.requirement("ORS-16")
async def test_of_equal_calls_that_wait_one_takes_up_what_was_lost_and_the_others_run(dial: Dial) -> None:
    gate = Gated.gates["x"] = asyncio.Event()
    lines = [await dial() for _ in range(4)]
    lines[0].call("x")
    await begun()
    for line in lines[1:]:
        line.call("x")
        await line.first_event()
    lines[0].reset()
    gate.set()
    assert [await line.text() for line in lines[1:]] == ["x: run 1", "x: run 2", "x: run 3"]


@pytest.mark.requirement("ORS-16")
async def test_a_call_that_waits_and_whose_client_leaves_is_not_run(dial: Dial) -> None:
    gate = Gated.gates["x"] = asyncio.Event()
    one, two, three = await dial(), await dial(), await dial()
    one.call("x")
    await begun()
    two.call("x")
    await two.first_event()
    two.reset()
    three.call("x")
    await three.first_event()
    gate.set()
    assert await one.text() == "x: run 1"
    assert await three.text() == "x: run 2"
    assert Gated.runs["x"] == 2


@pytest.mark.requirement("ORS-16")
async def test_a_lost_call_that_was_resumed_is_settled(dial: Dial) -> None:
    gate = Gated.gates["x"] = asyncio.Event()
    one, two = await dial(), await dial()
    one.call("x")
    task_id = (await one.first_event()).split(b"data: ")[1].strip().decode()
    one.reset()
    gate.set()
    two.post("/call", {"name": "work", "input": {"tag": "x"}, "task_id": task_id})
    assert await two.text() == "x: run 1"
    two.call("x")
    assert await two.text() == "x: run 2"


@pytest.mark.requirement("ORS-16")
async def test_a_client_that_moved_on_gets_no_old_reply(dial: Dial) -> None:
    one, two = await dial(), await dial()
    one.call("x")
    one.reset()
    await wait_until(lambda: Gated.runs["x"] == 1)
    two.call("y")
    assert await two.text() == "y: run 1"
    two.call("x")
    assert await two.text() == "x: run 2"


@pytest.mark.requirement("ORS-16")
async def test_parallel_calls_that_break_together_are_all_resumed(dial: Dial) -> None:
    gates = [Gated.gates.setdefault(tag, asyncio.Event()) for tag in "abc"]
    lines = [await dial() for _ in range(3)]
    for line, tag in zip(lines, "abc", strict=True):
        line.call(tag)
        await begun()
    for line in lines:
        line.reset()
    again = [await dial() for _ in range(3)]
    for line, tag in zip(again, "abc", strict=True):
        line.call(tag)
    for gate in gates:
        gate.set()
    assert [await line.text() for line in again] == ["a: run 1", "b: run 1", "c: run 1"]


@pytest.mark.requirement("ORS-16")
async def test_after_a_reply_every_equal_call_runs_however_the_connection_ends(dial: Dial) -> None:
    runs = 0
    for version, headers, closes in (
        ("1.1", {}, False),
        ("1.1", {"Connection": "close"}, True),
        ("1.0", {}, True),
        ("1.1", {}, False),
    ):
        line = await dial()
        line.call("x", version, **headers)
        runs += 1
        content = await line.reply()
        assert f"run {runs}".encode() in content
        connections = [one for one in content.split(b"\r\n") if one.lower().startswith(b"connection:")]
        assert connections == ([b"connection: close"] if closes else [b"connection: keep-alive"])
        await line.close()
    kept, other = await dial(), await dial()
    for line in (kept, kept, other, kept, other):
        line.call("x")
        runs += 1
        assert await line.text() == f"x: run {runs}"


@pytest.mark.requirement("ORS-16")
async def test_a_client_that_half_closes_before_its_reply_has_lost_it(dial: Dial) -> None:
    gate = Gated.gates["x"] = asyncio.Event()
    one, two = await dial(), await dial()
    one.call("x")
    await begun()
    one.writer.write_eof()
    two.call("x")
    gate.set()
    assert await two.text() == "x: run 1"


@pytest.mark.requirement("ORS-16")
async def test_a_large_reply_that_is_reset_half_read_is_not_made_again(dial: Dial) -> None:
    tag = "x" * 3_000_000
    one, two = await dial(), await dial()
    one.call(tag)
    await wait_until(lambda: Gated.runs[tag] == 1)
    await one.first_event()
    one.reset()
    two.call(tag)
    assert b'"reward":1.0' in await two.reply()
    assert Gated.runs[tag] == 1


@pytest.mark.requirement("ORS-16")
async def test_a_group_is_scored_once_when_the_reply_was_lost(dial: Dial) -> None:
    body: dict[str, Any] = {"candidates": [{"messages": []}]}
    one, two = await dial(), await dial()
    one.post("/score_group", body)
    one.reset()
    await wait_until(lambda: Gated.runs["score"] == 1)
    two.post("/score_group", body)
    assert b'"reward":1.0' in await two.reply()
    two.post("/score_group", body)
    assert b'"reward":2.0' in await two.reply()


async def test_true_and_1_are_different_calls(dial: Dial) -> None:
    line = await dial()
    for number, value in enumerate((True, 1, 1.0)):
        line.post("/call", {"name": "work", "input": {"tag": value}}, Idempotency_Key="k")
        status = (await line.reply()).split(b" ")[1]
        assert status == (b"200" if number == 0 else b"409")
