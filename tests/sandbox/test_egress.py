"""The proxy of a box, over real sockets: what it lets through, and what it makes of those who want more."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address

import h11
import pytest
from free_ports import free_port
from origins import OK, Handle, Origin, echo, endless, origin, silent

from ludus.sandbox import NetworkUse
from ludus.sandbox.core.allowlist import Address, Allowlist
from ludus.sandbox.network import proxy as egress
from ludus.sandbox.network.proxy import EgressProxy, Resolve

LOOPBACK = ip_address("127.0.0.1")


class Names:
    """A resolver that knows a few names, and how often it was asked."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known = {name.replace("_", "."): found for name, found in known.items()}
        self.asked: list[str] = []

    async def __call__(self, name: str) -> list[Address]:
        self.asked.append(name)
        if name not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        return [ip_address(address) for address in self.known[name]]


@asynccontextmanager
async def way_out(
    *allowed: str, traffic: int = 1 << 20, names: Resolve | None = None
) -> AsyncIterator[tuple[EgressProxy, int]]:
    """A proxy that is open, and its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = EgressProxy(listener, Allowlist(allowed), traffic, names or Names(allowed_test=["127.0.0.1"]))
    proxy.begin()
    try:
        yield proxy, listener.getsockname()[1]
    finally:
        await proxy.aclose()


async def asked(port: int, request: str | bytes, *, end: bool = False) -> bytes:
    """What comes back for a request, to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(10):
            writer.write(request.encode("latin-1") if isinstance(request, str) else request)
            if end:
                writer.write_eof()
            return await reader.read()
    finally:
        writer.transport.abort()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends, or breaks."""
    kept = b""
    try:
        while part := await reader.read(65536):
            kept += part
    except ConnectionError:
        pass
    return kept


def lists(target: Origin) -> tuple[str, str]:
    """A list with a name for an origin, and its address."""
    return f"allowed.test:{target.port}", f"127.0.0.1:{target.port}"


async def test_a_tunnel_carries_bytes_both_ways_and_ends_half_by_half() -> None:
    async with origin(echo) as target, way_out(*lists(target)) as (proxy, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT allowed.test:{target.port} HTTP/1.1\r\nHost: whatever.test\r\n\r\nearly ".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"\0\xff late")
        writer.write_eof()
        assert await reader.read() == b"early \0\xff late"
        writer.close()
        assert await proxy.finish() == (NetworkUse(f"allowed.test:{target.port}", None, 1),)


async def test_a_plain_request_reaches_the_host_of_its_address_and_not_of_its_host_header() -> None:
    async with origin() as target, origin() as other, way_out(*lists(target)) as (_, port):
        said = await asked(
            port,
            f"GET HTTP://ALLOWED.test.:{target.port}?q=1 HTTP/1.1\r\nHost: 127.0.0.1:{other.port}\r\n"
            "Proxy-Authorization: secret\r\nConnection: X-Private\r\nX-Private: hop\r\nX-Kept: yes\r\n\r\n",
        )
        assert said.endswith(b"\r\n\r\norigin")
        head = bytes(target.seen).lower()
        assert head.startswith(b"get /?q=1 http/1.1\r\n")
        assert f"host: allowed.test:{target.port}\r\n".encode() in head
        assert b"x-kept: yes" in head
        assert not {b"secret", b"x-private", str(other.port).encode()} & set(head.split())
        assert b"hop" not in head
        assert other.connections == 0


async def test_bodies_pass_in_both_framings_and_with_a_client_that_waits_for_100_continue() -> None:
    async def add(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"expect" not in head.lower()
        body = await (reader.readuntil(b"0\r\n\r\n") if b"chunked" in head else reader.readexactly(5))
        writer.write(
            b"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
        await writer.drain()

    async with origin(add) as target, way_out(*lists(target)) as (_, port):
        url = f"http://allowed.test:{target.port}/"
        length = await asked(port, f"POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
        assert length.startswith(b"HTTP/1.1 201 Made\r\n")
        assert b"\r\n5\r\nhello\r\n0\r\n" in length
        chunks = "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
        chunked = await asked(port, f"PUT {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")
        assert b"hel" in chunked
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"hello")
        assert b"hello" in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    "target",
    [
        "other.test:{port}", "127.0.0.1:{other}", "allowed.test:{other}", "allowed.test.evil.test:{port}",
        "127.0.0.2:{port}", "localhost:{port}", "[::1]:{port}", "[::ffff:127.0.0.2]:{port}", "169.254.169.254:80",
        "allowed.test:443",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["CONNECT {target}", "GET http://{target}/"])
async def test_what_is_not_on_the_list_is_refused_by_name(target: str, form: str) -> None:
    async with origin() as allowed, origin() as other, way_out(*lists(allowed)) as (proxy, port):
        wanted = target.format(port=allowed.port, other=other.port)
        said = await asked(port, f"{form.format(target=wanted)} HTTP/1.1\r\nHost: allowed.test:{allowed.port}\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 403 Refused\r\n")
        (use,) = await proxy.finish()
        assert use.refused == "it is not on the allowlist"
        assert str(use).startswith("network: refused ")
        assert str(use).encode() in said
        assert allowed.connections == other.connections == 0


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "user@allowed.test", "allowed.test\\@127.0.0.1",
        "[fe80::1%251]", "allowed.test#", "allowed.test%00",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["CONNECT {host}:{port}", "GET http://{host}:{port}/"])
async def test_hosts_that_programs_read_differently_are_no_hosts(host: str, form: str) -> None:
    async with origin() as target, way_out(*lists(target)) as (proxy, port):
        said = await asked(port, f"{form.format(host=host, port=target.port)} HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 400 ")
        assert target.connections == 0
        assert await proxy.finish() == ()


@pytest.mark.parametrize(
    ("addresses", "reached"),
    [
        (["127.0.0.1"], False), (["169.254.169.254"], False), (["10.0.0.1", "::1"], False),
        (["::ffff:127.0.0.1"], False),
        (["0.0.0.0"], False), (["127.0.0.1", "127.0.0.2"], True), ([], False),
    ],
)  # fmt: skip
async def test_a_name_leads_to_no_address_inside_unless_the_list_has_it(addresses: list[str], reached: bool) -> None:
    async with origin(host="127.0.0.1") as trap, origin(host="127.0.0.2") as listed:
        names = Names(allowed_test=addresses)
        async with way_out(f"allowed.test:{trap.port}", f"allowed.test:{listed.port}", f"127.0.0.2:{listed.port}",
                           names=names) as (proxy, port):  # fmt: skip
            for wanted in (trap.port, listed.port):
                said = await asked(port, f"GET http://allowed.test:{wanted}/ HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (said.endswith(b"origin"), trap.connections, listed.connections) == (reached, 0, int(reached))
            assert names.asked == ["allowed.test"] * 2, "the address that was checked is the one that is connected to"
            refused = [use.refused for use in await proxy.finish() if use.refused]
            assert all("neither a public address" in why for why in refused)
            assert len(refused) == (1 if reached else 2 if addresses else 0)


async def test_this_machines_own_address_is_not_the_world_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert egress.is_own(LOOPBACK)
    assert not egress.is_own(ip_address("1.1.1.1"))
    monkeypatch.setattr(egress, "is_public", lambda address: True)
    async with origin() as target, way_out(f"allowed.test:{target.port}") as (_, port):
        said = await asked(port, f"GET http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 403 ")
        assert target.connections == 0


async def test_the_systems_resolver_is_asked_where_no_other_is_given() -> None:
    assert LOOPBACK in await egress.look_up("localhost")
    with pytest.raises(socket.gaierror):
        await egress.look_up("name.invalid")


SHAPES = {
    "length and chunks": "{post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": "{post}Content-Length: 4\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": "{post}Content-Length: 4, 5\r\n\r\nhello",
    "a length with a sign": "{post}Content-Length: +5\r\n\r\nhello",
    "an unknown framing": "{post}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two framings": "{post}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": "{post}Content-Length : 5\r\n\r\nhello",
    "no host": "GET {url} HTTP/1.1\r\n\r\n",
    "two hosts": "GET {url} HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "a space in the address": "GET {url} x HTTP/1.1\r\nHost: x\r\n\r\n",
    "no version": "GET {url}\r\n\r\n",
    "a version to come": "GET {url} HTTP/2.0\r\nHost: x\r\n\r\n",
    "a null byte": "GET {url} HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
    "a return alone": "GET {url} HTTP/1.1\r\nHost: x\r\nX: a\rY: b\r\n\r\n",
    "a tunnel with a body": "CONNECT allowed.test:{port} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    "no proxy request": "GET /secret HTTP/1.1\r\nHost: allowed.test:{port}\r\n\r\n",
    "all of a server": "OPTIONS * HTTP/1.1\r\nHost: allowed.test:{port}\r\n\r\n",
    "another scheme": "GET https://allowed.test:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "a file": "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "a greeting of TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a greeting of SOCKS": "\x05\x01\x00\r\n\r\n",
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_request_of_two_meanings_is_refused(shape: str) -> None:
    async with origin() as target, way_out(*lists(target)) as (_, port):
        url = f"http://allowed.test:{target.port}/"
        said = await asked(
            port, SHAPES[shape].format(url=url, post=f"POST {url} HTTP/1.1\r\nHost: x\r\n", port=target.port), end=True
        )
        assert said[:10] in (b"HTTP/1.1 4", b"HTTP/1.1 5"), said
        assert target.connections == 0


async def test_a_second_request_behind_the_first_is_never_carried_out() -> None:
    async with origin() as target, way_out(*lists(target)) as (proxy, port):
        first = f"POST http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
        said = await asked(port, first + "GET http://other.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.count(b"HTTP/1.1") == 1
        assert b"other.test" not in target.seen
        assert b"connection: close" in said.lower()
        assert [use.target for use in await proxy.finish()] == [f"allowed.test:{target.port}"]


async def test_bytes_of_any_kind_get_an_answer_or_none_and_reach_no_host(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(5)
    parts = [
        b"CONNECT ", b"GET ", b"http://", b"allowed.test", b":", b"443", b"127.0.0.1", b"[::1]", b"/", b"?", b"#", b"@",
        b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"Host: x\r\n", b"Content-Length: ", b"5", b"\r\n", b"\r\n\r\n", b"\n",
        b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"\0", b"\xff", b"%2e", b"..", b"\\", b"xn--",
    ]  # fmt: skip
    async with origin() as target, way_out(*lists(target)) as (_, port):
        for _ in range(300):
            request = b"".join(chance.choices(parts, k=chance.randrange(1, 16)))
            said = await asked(port, request, end=True)
            assert said[:11] in (b"", b"HTTP/1.1 40", b"HTTP/1.1 43", b"HTTP/1.1 50"), (request, said)
        assert target.connections == 0
    assert caplog.records == []


@pytest.mark.parametrize(
    "nonsense",
    [
        b"", b"\x16\x03\x01 hello", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)  # fmt: skip
async def test_what_an_origin_says_that_is_not_http_does_not_pass(nonsense: bytes) -> None:
    async with origin(nonsense) as target, way_out(*lists(target)) as (_, port):
        said = await asked(port, f"GET http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 502 "), said


async def test_a_body_that_breaks_ends_the_request_on_both_sides() -> None:
    async with origin(silent) as target, way_out(*lists(target)) as (_, port):
        head = f"POST http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        said = await asked(port, head + "nonsense\r\n")
        assert not said.startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(5):
            await target.ended.wait()


async def test_a_host_that_cannot_be_reached_is_not_one_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = free_port()

    async def slow(name: str) -> list[Address]:
        await asyncio.Event().wait()
        return []

    async with way_out(f"127.0.0.1:{nobody}", "unknown.test") as (proxy, port):
        for wanted in (f"127.0.0.1:{nobody}", "unknown.test:80"):
            said = await asked(port, f"CONNECT {wanted} HTTP/1.1\r\nHost: x\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 502 ")
        assert [use.refused for use in await proxy.finish()] == [None, None]
    monkeypatch.setattr(egress, "_DIAL_SECONDS", 0.1)
    async with way_out("slow.test", names=slow) as (_, port):
        assert (await asked(port, "CONNECT slow.test:80 HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 504 ")


# ── those who want too much ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_head_that_is_too_large_is_refused() -> None:
    async with origin() as target, way_out(*lists(target)) as (_, port):
        head = f"GET http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\nX: " + "a" * 1_000_000
        assert (await asked(port, head)).startswith(b"HTTP/1.1 431 ")
        assert target.connections == 0


async def test_a_head_of_too_many_lines_is_refused_in_both_directions() -> None:
    lines = "".join(f"X-{number}: x\r\n" for number in range(200))
    async with origin() as target, way_out(*lists(target)) as (_, port):
        said = await asked(port, f"GET http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\n{lines}\r\n")
        assert said.startswith(b"HTTP/1.1 431 ")
        assert target.connections == 0
    async with origin(f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode()) as target, way_out(*lists(target)) as (_, port):
        said = await asked(port, f"GET http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 502 ")


class Turns:
    """Counts what the proxy reads in one turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = self.all = self.most = 0
        real = h11.Connection.next_event

        def counting(connection: h11.Connection) -> object:
            self._now += 1
            self.all += 1
            self.most = max(self.most, self._now)
            return real(connection)

        monkeypatch.setattr(h11.Connection, "next_event", counting)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._now = 0


CRUMBS = b"1\r\nx\r\n" * 5_000 + b"0\r\n\r\n"
"""A body of which every byte is a piece of its own."""


async def crumbled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CRUMBS)
    await writer.drain()


async def gathered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Tell how much a body has, and in how many bytes it came."""
    await reader.readuntil(b"\r\n\r\n")
    body = b""
    while not body.endswith(b"0\r\n\r\n"):
        body += await reader.read(65536)
    answer = b"%d %d" % (body.count(b"x"), len(body))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
    await writer.drain()


async def test_bodies_in_crumbs_arrive_in_larger_pieces_and_leave_the_event_loop_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(monkeypatch)
    async with origin(gathered) as taker, origin(crumbled) as giver, way_out(*lists(taker), *lists(giver)) as (_, port):
        post = f"POST http://allowed.test:{taker.port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        get = f"GET http://allowed.test:{giver.port}/ HTTP/1.1\r\nHost: x\r\n\r\n"
        watching = asyncio.create_task(turns.watch())
        sent = await asyncio.gather(*(asked(port, post.encode() + CRUMBS) for _ in range(2)))
        got = await asyncio.gather(*(asked(port, get) for _ in range(2)))
        watching.cancel()
    for one in sent:
        pieces, size = map(int, one.rpartition(b"\r\n\r\n")[2].split())
        assert (pieces, size < len(CRUMBS) / 2) == (5_000, True)
    assert [(one.count(b"x"), len(one) < len(CRUMBS) / 2) for one in got] == [(5_000, True)] * 2
    assert turns.all > 4 * 5_000
    assert turns.most < 2_000


async def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "_HEAD_SECONDS", 0.2)
    async with way_out("allowed.test") as (_, port):
        assert (await asked(port, "GET http://allowed.test/ HTTP/1.1\r\nX: ")).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("form", ["GET http://allowed.test:{port}/", "CONNECT allowed.test:{port}"])
async def test_what_passes_is_bounded_for_all_connections_together(form: str) -> None:
    handle: Handle = endless if form.startswith("GET") else echo
    async with origin(handle) as target, way_out(*lists(target), traffic=1 << 20) as (proxy, port):
        request = f"{form.format(port=target.port)} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request + b"y" * (2 << 20 if handle is echo else 0))
        async with asyncio.timeout(10):
            assert len(await rest(reader)) <= 1 << 20
        writer.transport.abort()
        assert proxy.spent
        assert (await asked(port, request)).startswith(b"HTTP/1.1 503 ")
        assert "the traffic limit was reached" in {use.refused for use in await proxy.finish()}


async def test_connections_beyond_those_at_one_time_wait_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "_AT_ONCE", 2)
    async with origin(echo) as target, way_out(*lists(target)) as (_, port):
        connect = f"CONNECT allowed.test:{target.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in pairs:
            writer.write(connect)
        for reader, _ in pairs[:2]:
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert target.connections == 2
        pairs[0][1].transport.abort()
        assert b" 200 " in await pairs[2][0].readuntil(b"\r\n\r\n")
        for _, writer in pairs:
            writer.transport.abort()


async def test_a_command_has_a_number_of_connections_and_the_next_has_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress, "_PER_COMMAND", 3)
    async with origin(OK) as target, way_out(*lists(target)) as (proxy, port):
        request = f"GET http://allowed.test:{target.port}/ HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(3):
            assert (await asked(port, request)).endswith(b"origin")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.encode())
        used = await proxy.finish()
        assert [(use.connections, use.refused) for use in used] == [
            (3, None), (1, "the command has already opened 3 connections"),
        ]  # fmt: skip
        assert await rest(reader) == b""
        writer.transport.abort()
        proxy.begin()
        assert (await asked(port, request)).endswith(b"origin")


async def test_distinct_destinations_are_bounded() -> None:
    async with way_out("allowed.test") as (proxy, port):
        for number in range(150):
            await asked(port, f"CONNECT host{number}.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        used = await proxy.finish()
        assert len(used) == 101
        assert sum(use.connections for use in used) == 150


async def test_connections_end_with_their_command() -> None:
    async with origin(silent) as target, way_out(*lists(target)) as (proxy, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT allowed.test:{target.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        late_reader, late = await asyncio.open_connection("127.0.0.1", port)
        await proxy.finish()
        async with asyncio.timeout(5):
            await target.ended.wait()
            assert await rest(reader) == b""
            late.write(f"CONNECT allowed.test:{target.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            proxy.begin()
            assert await rest(late_reader) == b""
        for one in (writer, late):
            one.transport.abort()
        assert target.connections == 1
