"""Ports of a sandbox: HTTP and WebSockets from the server, and programs that answer badly, too much, or not at all."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import pytest
from attacking import ATTEMPT
from sandboxing import MIB, TIGHT, settings_of

from ludus.sandbox import Port, Sandbox, SandboxPortClosed, SandboxProvider
from ludus.sandbox import box as boxes

Backend = tuple[str, SandboxProvider]

LIMITS = TIGHT.but(spawned_seconds=60, spawned_cpu_seconds=2, spawned_output=4 * MIB)


async def made(backend: Backend) -> Sandbox:
    kind, provider = backend
    return await provider.create(settings_of(kind, LIMITS).model_copy(update={"loopback": True}))


SERVER = """
import socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 8000), backlog=int(sys.argv[2]) if len(sys.argv) > 2 else 16)
def serve(c):
    try:
        exec(sys.argv[1], {"c": c, "time": time, "socket": socket, "head": c.recv(65536)})
    except OSError: pass
    finally: c.close()
print("up", flush=True)
while sys.argv[1] != "deaf":
    c, _ = listener.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
time.sleep(1000)
"""

ANSWERS = {
    "a body without end": (
        r"c.sendall(b'HTTP/1.1 200 OK\r\n\r\n')" "\nwhile True: c.sendall(b'x' * 65536)", "truncated"),
    "a body that is announced and does not come": (
        r"c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
        r"abc'); time.sleep(100)", "did not answer within"),
    "a body of chunks without end": (
        r"c.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')" "\nwhile True: "
        r"c.sendall(b'1\r\nx\r\n' * 1000)", "truncated"),
    "headers without end": (
        r"c.sendall(b'HTTP/1.1 200 OK\r\n')" "\nwhile True: " r"c.sendall(b'X-A: ' + b'a' * 1000 + b'\r\n')", "closed"),
    "one header without end": (
        r"c.sendall(b'HTTP/1.1 200 OK\r\nX: ')" "\nwhile True: c.sendall(b'a' * 65536)", "closed"),
    "nothing": ("time.sleep(100)", "did not answer within"),
    "an end at once": ("pass", "closed"),
    "no HTTP": (r"c.sendall(b'\x16\x03\x01\x00\x00' * 1000)", "closed"),
    "a body that grows when unpacked": (
        "import gzip\n" r"c.sendall(b'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
        r"\r\n' + gzip.compress(bytes(10**7)))",
        "packed"),
    "a redirect to the machine": (
        r"c.sendall(b'HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n')",
        "redirect"),
    "two lengths": (
        r"c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 9\r\n\r\nabcdefghi')", "closed"),
}  # fmt: skip


async def port_of(box: Sandbox, program: str, *more: str) -> Port:
    process = await box.spawn(["python3", "-c", SERVER, program, *more])
    assert await process.stdout.read_line() == b"up\n"
    return await box.expose(8000)


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_port_that_answers_badly_is_a_typed_error_or_a_bounded_response(
    isolating_spawn: Backend, name: str
) -> None:
    program, expected = ANSWERS[name]
    async with await made(isolating_spawn) as box, await port_of(box, program) as port:
        request = port.get("/", seconds=1.0 if "within" in expected else 30.0, limit=100_000)
        if expected in ("truncated", "redirect", "packed"):
            response = await request
            assert len(response.body) <= 100_000
            assert response.truncated == (expected == "truncated")
            assert response.status == (302 if expected == "redirect" else 200)
        else:
            with pytest.raises(SandboxPortClosed, match="within" if "within" in expected else "HTTP"):
                await request
        assert (await box.run(["true"])).ok


async def test_a_port_that_never_accepts_is_closed_and_the_sandbox_usable(
    isolating_spawn: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "_CONNECT_SECONDS", 0.3)
    async with await made(isolating_spawn) as box:
        process = await box.spawn(["python3", "-c", SERVER, "deaf", "0"])
        assert await process.stdout.read_line() == b"up\n"
        held = []

        async def fill_the_backlog() -> None:
            while True:
                held.append(await box.connect(8000))

        with pytest.raises(SandboxPortClosed, match="does not accept"):
            await fill_the_backlog()
        for one in held:
            one.close()
        assert (await box.run(["true"])).ok
        with pytest.raises(SandboxPortClosed, match="refused"):
            await box.connect(8001)


HANDSHAKE = r"""
import base64, hashlib, re
key = re.search(rb"Sec-WebSocket-Key: *(\S+)", head, re.I)[1]
accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
c.sendall(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: ")
c.sendall(accept + b"\r\n\r\n")
"""


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize(
    "frames",
    [
        r"c.sendall(b'\x82\x7f' + (2**62).to_bytes(8, 'big'))\nwhile True: c.sendall(b'x' * 65536)",
        r"while True: c.sendall(b'\x02\x7d' + b'x' * 125)",
        r"c.sendall(b'\xff' * 100000)",
    ],
    ids=["a message without end", "fragments without end", "garbage"],
)
async def test_a_websocket_that_sends_too_much_or_garbage_is_closed(isolating_spawn: Backend, frames: str) -> None:
    program = HANDSHAKE + frames.replace("\\n", "\n")
    async with (
        await made(isolating_spawn) as box,
        await port_of(box, program) as port,
        port.websocket("/", limit=100_000) as websocket,
    ):
        message = await asyncio.wait_for(websocket.receive(), 30)
        assert message.type in (aiohttp.WSMsgType.ERROR, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        assert (await box.run(["true"])).ok


async def test_messages_of_a_websocket_go_both_ways(isolating_spawn: Backend) -> None:
    program = (
        HANDSHAKE
        + r"c.recv(2); mask = c.recv(4); got = bytes(a ^ b for a, b in zip(c.recv(4), mask))"
        + ("\n" r"c.sendall(b'\x81\x04' + got[::-1]); c.recv(100)")
    )
    async with (
        await made(isolating_spawn) as box,
        await port_of(box, program) as port,
        port.websocket("/events?a=1") as websocket,
    ):
        await websocket.send_str("abcd")
        assert await asyncio.wait_for(websocket.receive_str(), 30) == "dcba"


async def test_a_program_that_listens_on_every_port_disturbs_no_other_sandbox(isolating_spawn: Backend) -> None:
    program = (
        "held = []\nfor port in range(1024, 65536):\n"
        "  try: s = socket.create_server(('127.0.0.1', port)); held.append(s)\n  except OSError: break\n"
        "print(len(held) > 40, flush=True)\nforever()"
    )
    async with await made(isolating_spawn) as box, await made(isolating_spawn) as other:
        process = await box.spawn(["python3", "-c", ATTEMPT + program])
        line = await process.stdout.read_line()
        assert line == b"True\n" or (await process.wait()).limit == "memory"
        async with await port_of(other, r"c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')") as port:
            assert (await port.get("/")).text == "ok"


async def test_sockets_within_a_sandbox_reach_nothing_outside_it(
    isolating_spawn: Backend, outside: dict[str, str]
) -> None:
    program = (
        "def dial(family, kind, where):\n"
        "  s = socket.socket(family, kind); s.settimeout(1); s.connect(where); return s\n"
        "port = int(os.environ['PORT'])\n"
        "for host in ('127.0.0.1', '10.0.0.1', '169.254.169.254', '8.8.8.8'):\n"
        "  attempt(dial, 2, 1, (host, port))\n"
        "attempt(dial, 10, 1, ('::1', port))\n"
        "attempt(dial, 1, 1, '\\0' + os.environ['ABSTRACT'])\nattempt(dial, 1, 1, os.environ['SOCKET'])\n"
        "for family in range(46):\n  for kind in (2, 3, 5):\n"
        "    if family != 1: attempt(socket.socket, family, kind)\n"
    )
    async with await made(isolating_spawn) as box:
        process = await box.spawn(["python3", "-c", ATTEMPT + program], env=outside)
        written = await process.stdout.read_all()
        assert b"BREACH" not in written
        assert written.count(b"refused") > 100
        assert (await process.wait()).exit_code == 0, await process.stderr.read_all()


async def test_buffers_of_connections_within_a_sandbox_count_as_memory_or_are_bounded(isolating_spawn: Backend) -> None:
    program = (
        "l = socket.create_server(('127.0.0.1', 9000), backlog=200)\nheld, sent = [], 0\ntry:\n"
        "  while True:\n"
        "    a = socket.create_connection(('127.0.0.1', 9000), timeout=2); b, _ = l.accept(); held += [a, b]\n"
        "    a.setblocking(False)\n    try:\n      while True: sent += a.send(b'x' * 65536)\n"
        "    except BlockingIOError: pass\nexcept OSError: pass\nprint(sent, flush=True)\nforever()"
    )
    async with await made(isolating_spawn) as box:
        process = await box.spawn(["python3", "-c", ATTEMPT + program], limits=LIMITS.but(spawned_seconds=15))
        line = await process.stdout.read_line()
        if not line:
            assert (await process.wait()).limit in ("memory", "seconds")
        else:
            assert int(line) <= LIMITS.memory
        await process.aclose()
        assert (await box.run(["true"])).ok


async def test_the_end_of_a_sandbox_ends_the_connections_to_its_ports(isolating_spawn: Backend) -> None:
    async with await made(isolating_spawn) as box:
        async with await port_of(box, "time.sleep(100)"):
            connected = await box.connect(8000)
    with connected:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(loop.sock_recv(connected, 1), 30) == b""
