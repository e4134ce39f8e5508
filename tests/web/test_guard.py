from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from loop_clock import advance

from ludus.server import ServerLimits
from ludus.server.web.guard import Origins

START = Callable[..., Awaitable[Any]]
CONNECT = Callable[[Any], Awaitable[Any]]

UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: ludus.channel.v0.2\r\n"
)


def get(path: str = "/health", host: str = "localhost", extra: bytes = b"") -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (path.encode(), host.encode(), extra)


async def assert_healthy(server: Any, connect: CONNECT) -> None:
    wire = await connect(server)
    await wire.send(get())
    assert await wire.answer() == (200, b'{"status":"ok"}')


NAMES = (
    ("localhost", None, 200),
    ("LOCALHOST:9999", None, 200),
    ("127.0.0.1:8000", None, 200),
    ("[::1]:8000", None, 200),
    ("localhost.", None, 200),
    ("localhost", "http://localhost:3000", 200),
    ("localhost", "https://127.0.0.1", 200),
    ("evil.example", None, 421),
    ("localhost.evil.example", None, 421),
    ("127.0.0.1.evil.example", None, 421),
    ("user@localhost", None, 421),
    ("localhost/x", None, 421),
    ("localhost:port", None, 421),
    ("[::1", None, 421),
    ("", None, 421),
    ("evil.example:8000", "http://evil.example:8000", 421),
    ("localhost", "http://evil.example", 403),
    ("localhost", "http://localhost.evil.example", 403),
    ("localhost", "http://evil.example/http://localhost", 403),
    ("localhost", "null", 403),
    ("localhost", "", 403),
    ("localhost", "file://", 403),
    ("localhost", "http://[::1", 403),
)


async def test_only_this_machines_names_and_pages_are_served_on_loopback(start: START, connect: CONNECT) -> None:
    server = await start()
    for host, origin, status in NAMES:
        header = b"" if origin is None else b"Origin: %s\r\n" % origin.encode()
        plain, upgrade = await connect(server), await connect(server)
        await plain.send(get(host=host, extra=header))
        assert (await plain.answer())[0] == status, (host, origin)
        await upgrade.send(get("/channel", host, header + UPGRADE))
        assert (await upgrade.answer())[0] == {200: 101}.get(status, status), (host, origin)


async def test_a_request_without_a_host_is_refused(start: START, connect: CONNECT) -> None:
    wire = await connect(await start())
    await wire.send(b"GET /health HTTP/1.1\r\n\r\n")
    assert (await wire.answer())[0] in (400, 421)


async def test_listed_hosts_and_origins_are_served(start: START, connect: CONNECT) -> None:
    server = await start(allow_hosts=("lab.example", "*.lab.example", "box:9000"), allow_origins=("https://a.example",))
    for host, origin, status in (
        ("lab.example:1", b"https://a.example", 200),
        ("deep.lab.example", b"https://lab.example", 200),
        ("box:9000", b"http://box:9000", 200),
        ("box:9001", b"http://box:9000", 421),
        ("otherlab.example", b"https://a.example", 421),
        ("box:9000", b"http://box:9001", 403),
    ):
        wire = await connect(server)
        await wire.send(get(host=host, extra=b"Origin: %s\r\n" % origin))
        assert (await wire.answer())[0] == status, (host, origin)


def test_where_every_host_is_accepted_the_same_name_makes_no_page_trusted() -> None:
    origins = Origins(None, ("https://a.example",))
    assert origins.refusal(b"evil.example", None) is None
    assert origins.refusal(b"evil.example", b"http://evil.example") is not None
    assert origins.refusal(b"any.example", b"https://a.example") is None


@pytest.mark.parametrize("path", ["/mcp", "/play/play_x/mcp", "/yard/tasks"])
async def test_a_refusal_has_the_form_of_its_wire(start: START, connect: CONNECT, path: str) -> None:
    wire = await connect(await start())
    await wire.send(get(path, extra=b"Origin: http://evil.example\r\n"))
    _, body = await wire.answer()
    answer = json.loads(body)
    assert answer["error"]["code"] == 4030
    assert "--allow-origin" in answer["error"]["message"]
    assert ("jsonrpc" in answer) == (not path.startswith("/yard"))
    assert ("detail" in answer) == path.startswith("/yard")


async def test_pages_may_read_answers_only_with_cors(start: START, connect: CONNECT) -> None:
    page = b"Origin: https://a.example\r\n"
    for cors, shown in ((False, False), (True, True)):
        wire = await connect(await start(allow_origins=("https://a.example",), cors=cors))
        await wire.send(get(extra=page + b"Connection: close\r\n"))
        assert (b"access-control-allow-origin" in await wire.rest()) == shown


@pytest.fixture
async def small(start: START) -> Any:
    """A server that takes little and waits briefly."""
    return await start(limits=ServerLimits(body_bytes=2048), request_seconds=5)


@pytest.mark.parametrize("path", ["/mcp", "/play/play_x/mcp", "/yard/tasks", "/health", "/nosuch"])
async def test_a_body_that_announces_too_much_is_refused_and_the_connection_goes_on(
    small: Any, connect: CONNECT, path: str
) -> None:
    wire = await connect(small)
    await wire.send(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2049\r\n\r\n" % path.encode())
    status, body = await wire.answer()
    assert (status, json.loads(body)["error"]["data"]) == (413, {"limit": "body_bytes", "maximum": 2048})
    await wire.send(b"x" * 2049 + get())
    assert (await wire.answer())[0] == 200


@pytest.mark.parametrize(("path", "refusal"), [("/mcp", 413), ("/yard/tasks", 413), ("/nosuch", 404)])
async def test_a_chunked_body_is_refused_once_it_is_too_large(
    small: Any, connect: CONNECT, path: str, refusal: int
) -> None:
    wire = await connect(small)
    await wire.send(b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode())
    for _ in range(3):
        await wire.send(b"400\r\n" + b"x" * 1024 + b"\r\n")
    assert (await wire.answer())[0] == refusal


async def test_a_chunked_body_that_fits_arrives_whole(small: Any, connect: CONNECT) -> None:
    wire = await connect(small)
    await wire.send(b"POST /yard/num_tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    await wire.send(b"Transfer-Encoding: chunked\r\n\r\n")
    body = b'{"split":"train"}'
    for byte in body:
        await wire.send(b"1\r\n%c\r\n" % byte)
    await wire.send(b"0\r\n\r\n")
    status, answer = await wire.answer()
    assert (status, json.loads(answer)) == (200, {"num_tasks": 1})


@pytest.mark.parametrize(
    "length", [b"-1", b"abc", b"1e3", b"99999999999999999999999999", b"9" * 5000, b"5\r\nContent-Length: 6"]
)
async def test_a_nonsensical_length_is_refused(small: Any, connect: CONNECT, length: bytes) -> None:
    wire = await connect(small)
    await wire.send(b"POST /yard/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n" % length)
    assert (await wire.answer())[0] in (400, 413)
    await assert_healthy(small, connect)


@pytest.mark.suite("breadth", first=2)
@pytest.mark.parametrize(
    ("beginning", "drip"),
    [
        (b"", b""),
        (b"GET /hea", b"x"),
        (b"GET /health HTTP/1.1\r\nHost: local", b"x"),
        (b"GET /health HTTP/1.1\r\n", b"A: b\r\n"),
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", b"x"),
        (b"POST /yard/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", b"x"),
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea", b"x"),
    ],
)
async def test_a_request_that_trickles_ends_within_its_time(
    small: Any, connect: CONNECT, beginning: bytes, drip: bytes
) -> None:
    wire = await connect(small)
    await wire.send(beginning)
    ending = asyncio.create_task(wire.rest())
    for _ in range(13):
        await assert_healthy(small, connect)  # which also lets the server read what was sent
        if ending.done():
            break
        advance(0.7)
        with suppress(ConnectionError):
            await wire.send(drip)
    assert ending.done(), "the drips keep the connection open"
    try:
        answer = await ending
    except ConnectionResetError:
        pass  # A drip that met the closed socket: the kernel then throws away the answer that was on its way.
    else:
        assert b" 408 " in answer
        assert b"did not arrive within 5 s" in answer
    await assert_healthy(small, connect)


async def test_a_head_without_end_is_refused(start: START, connect: CONNECT) -> None:
    server = await start()
    for beginning in (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", b"GET /", b"GET / HTTP/1.1\r\n"):
        wire = await connect(server)
        await wire.send(beginning)
        filling = b"A: b\r\n" * 2000 if beginning.endswith(b"\r\n") else b"a" * 12_000
        answer = asyncio.create_task(wire.rest())
        with suppress(ConnectionError):
            for _ in range(20):
                await wire.send(filling)
        try:
            assert b" 431 " in await answer
        except ConnectionResetError:
            pass
    await assert_healthy(server, connect)


async def test_requests_on_one_connection_that_come_quickly_are_all_answered(small: Any, connect: CONNECT) -> None:
    wire = await connect(small)
    await wire.send(get() * 20)
    assert [(await wire.answer())[0] for _ in range(20)] == [200] * 20


async def test_a_slow_answer_is_not_cut_by_the_time_limit_for_requests(start: START, connect: CONNECT) -> None:
    wire = await connect(await start(request_seconds=0.2))
    create = b'{"env_name":"yard","split":"train","index":0}'
    call = b'{"name":"wait","input":{"seconds":0.8}}'
    for path, body, extra in ((b"/create", create, b""), (b"/yard/call", call, b"Connection: close\r\n")):
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: slow\r\n%bContent-Length: %d\r\n\r\n"
        await wire.send(head % (path, extra, len(body)) + body)
        if not extra:
            assert (await wire.answer())[0] == 200
    answer = await wire.rest()
    assert b" 200 " in answer
    assert b'"text":"waited"' in answer


async def test_a_client_that_stays_behind_its_refusal_is_disconnected(start: START, connect: CONNECT) -> None:
    server = await start(request_seconds=0.2)
    wire = await connect(server)
    await wire.send(get() * 3 + b"broken\r\n\r\n")
    assert [(await wire.answer())[0] for _ in range(4)] == [200, 200, 200, 400]
    assert await wire.rest() == b""
    async with asyncio.timeout(60):
        while server.server_state.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_an_idle_connection_is_left_alone(start: START, connect: CONNECT) -> None:
    server = await start(request_seconds=0.2)
    wire = await connect(server)
    for _ in range(2):
        await wire.send(get())
        assert (await wire.answer())[0] == 200
        advance(0.8)
        for _ in range(3):
            await assert_healthy(server, connect)
    await wire.send(get())
    assert (await wire.answer())[0] == 200


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /hea",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        b"POST /yard/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        get("/channel", extra=UPGRADE),
        get("/channel", extra=UPGRADE) + b"\x81\xfe",
    ],
)
async def test_an_abrupt_disconnect_leaves_the_server_healthy(
    start: START, connect: CONNECT, beginning: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start()
    for _ in range(5):
        wire = await connect(server)
        await wire.send(beginning)
        wire.writer.transport.abort()
    await assert_healthy(server, connect)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / NONSENSE\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /health HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", 421),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: \xff\xfe\r\n\r\n", 403),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", 401),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-API-Key: \xff\xfe\r\n\r\n", 401),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic \xff\xfe\r\n\r\n", 401),
    ],
)
async def test_bytes_that_are_no_text_are_refused_as_the_callers_fault(
    start: START, connect: CONNECT, request_: bytes, status: int
) -> None:
    server = await start({"LUDUS_TOKENS": '{"tokens": []}'})
    wire = await connect(server)
    await wire.send(request_)
    assert (await wire.answer())[0] == status
    await assert_healthy(server, connect)


async def test_refusals_are_counted(start: START, connect: CONNECT) -> None:
    server = await start()
    wire = await connect(server)
    await wire.send(get(host="evil.example"))
    await wire.answer()
    await wire.send(get(extra=b"Origin: http://evil.example\r\n"))
    await wire.answer()
    await wire.send(get("/metrics"))
    _, metrics = await wire.answer()
    assert b'ludus_requests_refused_total{error="Misdirected"} 1.0' in metrics
    assert b'ludus_requests_refused_total{error="Forbidden"} 1.0' in metrics


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),
        (b"\x81\xfe\x20\x00\0\0\0\0" + b"x" * 8192, 1009),
        (b"\x81\x02{}", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
    ],
)
async def test_a_frame_that_may_not_be_closes_the_channel_with_its_code(
    small: Any, connect: CONNECT, frame: bytes, code: int
) -> None:
    wire = await connect(small)
    await wire.send(get("/channel", extra=UPGRADE))
    assert (await wire.answer())[0] == 101
    await wire.send(frame)
    closing = await wire.rest()
    assert closing[0] == 0x88
    assert int.from_bytes(closing[2:4], "big") == code
    await assert_healthy(small, connect)
