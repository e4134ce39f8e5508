"""What clients without a token can make the server keep in memory: heads, bodies and connections."""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from worlds import Playground

from ludus.protocol.bounds import MAX_BODY_VALUES
from ludus.protocol.errors import CapacityError
from ludus.server import ServerLimits
from ludus.server.serving.serve import LudusServer
from ludus.server.web.arrivals import Arrivals
from ludus.server.web.http_heads import HEAD_FIELDS

Serve = Callable[..., Awaitable[LudusServer]]
HANGS = 60
TOKENS = {"LUDUS_TOKENS": '{"tokens": []}'}
MEGABYTE = 1024 * 1024

ROUTES = (
    "/mcp", "/mcp/", "/play/play_nobody/mcp", "/create_session", "/create", "/delete", "/delete_session", "/ping",
    "/playground/call", "/playground/tasks", "/playground/task", "/playground/num_tasks", "/playground/task_range",
    "/playground/score_group", "/playground/nothing", "/metrics", "/channel", "/nothing",
)  # fmt: skip


class Wire:
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def status(self) -> int:
        """The status of one answer, whose body is read too."""
        return (await self.answer())[0]

    async def answer(self) -> tuple[int, bytes, bytes]:
        async with asyncio.timeout(HANGS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            lines = head.lower().splitlines()
            length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
            return int(head.split()[1]), head, await self.reader.readexactly(length)


@pytest.fixture
async def dial() -> AsyncIterator[Callable[[LudusServer], Awaitable[Wire]]]:
    async with AsyncExitStack() as stack:

        async def connect(server: LudusServer) -> Wire:
            port = int(server.url.rpartition(":")[2])
            wire = Wire(*await asyncio.open_connection("127.0.0.1", port))
            stack.callback(wire.writer.close)
            return wire

        yield connect


Dial = Callable[[LudusServer], Awaitable[Wire]]


def post(path: str, *fields: bytes) -> bytes:
    head = b"".join(b"%b\r\n" % field for field in fields)
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%b\r\n" % (path.encode(), head)


@pytest.mark.requirement("LIM-16")
@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("length", [b"Transfer-Encoding: chunked", b"Content-Length: 1000000"])
async def test_who_has_no_credential_is_refused_before_a_body(
    serve: Serve, dial: Dial, path: str, length: bytes
) -> None:
    """The body never ends, so an answer at all means that it was not waited for, and nothing of it is kept."""
    server = await serve(Playground, variables=TOKENS)
    wire = await dial(server)
    await wire.send(post(path, length))
    await wire.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
    assert await wire.status() in (401, 403, 404, 405), path
    (connection,) = server.server_state.connections
    assert len(connection.cycle.body) == 0  # type: ignore[union-attr]
    assert server.app.guard.arrivals.bodies == 0


async def test_bodies_that_arrive_have_a_bound_together_and_for_each_sender(serve: Serve, dial: Dial) -> None:
    limits = ServerLimits(body_bytes=MEGABYTE, arriving_bytes=8 * MEGABYTE)
    server = await serve(Playground, limits=limits)
    wires = [await dial(server) for _ in range(30)]
    for number, wire in enumerate(wires):
        key = b"X-API-Key: %d" % (number % 10)
        await wire.send(post("/mcp", b"Transfer-Encoding: chunked", b"Accept: application/json", key))
        await wire.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    arrivals = server.app.guard.arrivals
    async with asyncio.timeout(HANGS):
        while arrivals.bodies < 8 * MEGABYTE or len(arrivals._waiting) < 22:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert max(arrivals._by_sender.values()) <= 2 * MEGABYTE
    for wire in wires:
        await wire.send(b"0\r\n\r\n")
    for wire in wires:
        assert await wire.status() == 400  # what arrived is no JSON
    assert (arrivals.bodies, len(arrivals._by_sender), len(arrivals._waiting)) == (0, 0, 0)


async def test_a_body_without_room_is_refused_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.server.web.arrivals.WAIT_SECONDS", 0)
    arrivals = Arrivals(100, 50)
    async with arrivals.room("a", 50), arrivals.room("b", 50):
        with pytest.raises(CapacityError, match="arriving_bytes") as refused:
            async with arrivals.room("c", 10):
                pass
        assert refused.value.retry_after == 1.0
    async with arrivals.room("c", 50):
        assert arrivals.bodies == 50


async def test_a_body_that_is_given_up_as_it_gets_room_leaves_nothing_behind() -> None:
    arrivals = Arrivals(100, 50)
    async with AsyncExitStack() as rooms:
        await rooms.enter_async_context(arrivals.room("a", 50))
        async with arrivals.room("b", 50):
            waiting = asyncio.create_task(rooms.enter_async_context(arrivals.room("c", 50)))
            await asyncio.sleep(0)
        assert arrivals.bodies == 100, "`c` has got the room of `b`"
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
    assert (arrivals.bodies, len(arrivals._by_sender), len(arrivals._waiting)) == (0, 0, 0)


async def test_at_the_limit_the_connection_that_waits_longest_makes_room(serve: Serve, dial: Dial) -> None:
    server = await serve(Playground, limits=ServerLimits(max_connections=3))
    slow = [await dial(server) for _ in range(3)]
    for wire in slow:
        await wire.send(b"GET /health HTTP/1.1\r\nHost: local")
    for _ in range(2):
        wire = await dial(server)
        await wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await wire.status() == 200
        assert len(server.server_state.connections) <= 3
    status, head, body = await slow[0].answer()
    assert (status, json.loads(body)["error"]["data"]["limit"]) == (503, "max_connections")
    assert b"retry-after:" in head


async def test_heads_have_a_bound_together(serve: Serve, dial: Dial) -> None:
    limits = ServerLimits(body_bytes=1024, arriving_bytes=256 * 1024)
    server = await serve(Playground, limits=limits)
    wires = [await dial(server) for _ in range(8)]
    for wire in wires:
        await wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 30_000)
    answers = [asyncio.ensure_future(wire.status()) for wire in wires]  # they arrive in turns, so any two have room
    for refused in itertools.islice(asyncio.as_completed(answers), 6):
        assert await refused == 503
    arrivals = server.app.guard.arrivals
    assert arrivals.heads <= 64 * 1024
    waiting = [(wire, answer) for wire, answer in zip(wires, answers, strict=True) if not answer.done()]
    assert len(waiting) == 2
    for wire, answer in waiting:
        await wire.send(b"\r\n\r\n")
        assert await answer == 200
    assert arrivals.heads == 0


@pytest.mark.parametrize("ending", [b"", b"\r\n"])
async def test_heads_of_very_many_fields_are_refused(serve: Serve, dial: Dial, ending: bytes) -> None:
    server = await serve(Playground)
    wire = await dial(server)
    await wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * (HEAD_FIELDS + 1) + ending)
    assert await wire.status() == 431


@pytest.mark.parametrize("path", ["/mcp", "/play/{play}", "/playground/tasks", "/create"])
async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(serve: Serve, dial: Dial, path: str) -> None:
    server = await serve(Playground)
    if "{play}" in path:
        capability, _ = server.app.context.signer.sign("e_nobody", [])
        path = f"/play/{capability}/mcp"
    wire = await dial(server)
    body = b"[" + b"[]," * MAX_BODY_VALUES + b"[]]"
    fields = (b"Accept: application/json", b"X-Session-ID: new")
    await wire.send(post(path, b"Content-Length: %d" % len(body), *fields) + body)
    status, _, answer = await wire.answer()
    assert status == 413
    assert b"JSON values" in answer
    wire = await dial(server)
    text = json.dumps({"text": ",[{" * MAX_BODY_VALUES}).encode()
    await wire.send(post(path, b"Content-Length: %d" % len(text), *fields) + text)
    assert (await wire.answer())[0] != 413  # a long text is one value


# ── HTTP as its specifications have it ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("blanks", [b"  ", b"\t", b" \t "])
async def test_blanks_after_a_headers_value_are_no_part_of_it(serve: Serve, dial: Dial, blanks: bytes) -> None:
    server = await serve(Playground)
    wire = await dial(server)
    body = b'{"split":"train"}'
    await wire.send(post("/playground/num_tasks", b"Content-Length: %d%b" % (len(body), blanks)) + body)
    assert (await wire.answer())[::2] == (200, b'{"num_tasks":12}')
    await wire.send(
        b"GET /health HTTP/1.1\r\nHost: localhost%b\r\nOrigin: http://localhost%b\r\n\r\n" % (blanks, blanks)
    )
    assert await wire.status() == 200


@pytest.mark.parametrize("path", ["/health", "/playground/tasks", "/mcp", "/docs", "/nothing"])
async def test_an_answer_to_http_1_0_is_never_chunked(serve: Serve, dial: Dial, path: str) -> None:
    server = await serve(Playground)
    wire = await dial(server)
    body = b'{"split":"train"}'
    method = b"GET" if path in ("/health", "/docs", "/nothing") else b"POST"
    await wire.send(
        b"%b %b HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (method, path.encode(), len(body)) + body
    )
    async with asyncio.timeout(HANGS):
        answer = await wire.reader.read()
    head, _, _ = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()


async def test_a_stream_to_http_1_0_ends_with_its_connection(serve: Serve, dial: Dial) -> None:
    server = await serve(Playground)
    started = await _session(server)
    wire = await dial(server)
    body = json.dumps({"name": "slow", "input": {}}).encode()
    fields = b"X-Session-ID: %b\r\nContent-Length: %d\r\n" % (started.encode(), len(body))
    await wire.send(b"POST /playground/call HTTP/1.0\r\nHost: localhost\r\n" + fields + b"\r\n" + body)
    async with asyncio.timeout(HANGS):
        answer = await wire.reader.read()
    head, _, events = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert events.startswith(b"event: task_id")
    assert events.rstrip().endswith(b"data:") or b"event: end" in events


async def _session(server: LudusServer) -> str:
    def ask(path: str, body: dict[str, Any], **headers: str) -> bytes:
        request = urllib.request.Request(
            server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
        )
        with urllib.request.urlopen(request, timeout=HANGS) as answer:
            return bytes(answer.read())

    sid = json.loads(await asyncio.to_thread(ask, "/create_session", {}, Accept="application/json"))["sid"]
    body = {"env_name": "playground", "split": "train", "index": 0}
    await asyncio.to_thread(ask, "/create", body, **{"X-Session-ID": sid})
    return str(sid)


@pytest.mark.parametrize("path", ["/mcp", "/play/play_x/mcp", "/playground/tasks", "/nothing", "/health"])
@pytest.mark.parametrize("megabytes", [5, 12])
async def test_a_client_that_sends_first_and_reads_later_gets_its_413(serve: Serve, path: str, megabytes: int) -> None:
    server = await serve(Playground)

    def send() -> int:
        request = urllib.request.Request(server.url + path, b"x" * (megabytes * MEGABYTE), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=HANGS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert await asyncio.to_thread(send) == 413


@pytest.mark.parametrize("length", [b"Transfer-Encoding: chunked", b"Content-Length: 1000000000000"])
async def test_what_is_thrown_away_has_a_bound(
    serve: Serve, dial: Dial, length: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.server.web.http_protocol.DISCARDED_BYTES", MEGABYTE)
    server = await serve(Playground, variables=TOKENS)
    wire = await dial(server)
    await wire.send(post("/playground/tasks", length, b"Connection: close"))
    assert await wire.status() in (401, 413)
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            await wire.send(chunk)
            sent += len(chunk)
            await asyncio.sleep(0)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(send(), HANGS)
    assert sent < 64 * MEGABYTE


async def test_the_control_plane_answers_with_and_without_a_slash(serve: Serve) -> None:
    server = await serve(Playground)
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def ask(path: str) -> Any:
        request = urllib.request.Request(server.url + path, json.dumps(hello).encode(), accept)
        with urllib.request.urlopen(request, timeout=HANGS) as answer:
            return json.loads(answer.read())

    first, second = [await asyncio.to_thread(ask, path) for path in ("/mcp", "/mcp/")]
    assert first == second
    assert "result" in first
