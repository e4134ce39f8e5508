"""Requests of a sandbox over a cassette: recorded once from real servers, then replayed with nothing sent outside."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from origins import origin
from sandboxing import TIGHT, leftovers, opened, settings_of

from ludus.sandbox import (
    Cassette,
    CassetteError,
    CassetteMiss,
    RunResult,
    Sandbox,
    SandboxProvider,
    SandboxSettings,
    SandboxUnsupported,
)
from ludus.sandbox.cassettes.authority import Authority

Backend = tuple[str, SandboxProvider]

FETCH = """
import sys, urllib.request, urllib.error
def fetch(url, data=None, **headers):
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=25) as response:
            return response.status, sorted(response.headers.items()), response.read()
    except urllib.error.HTTPError as error:
        return error.code, [], error.read()
"""


@asynccontextmanager
async def web(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    """A server whose answers all differ, as its address and the requests that it has had."""
    seen: list[str] = []
    numbers = count(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line.split(":")[1]) for line in head.lower().split("\r\n") if "content-length" in line), 0)
        body = await reader.readexactly(length)
        seen.append(head + body.decode("latin-1"))
        number = next(numbers)
        status = "503 Out Of Order" if "/broken" in head else "200 OK"
        answer = bytes([0xFF, number]) if "/binary" in head else f"answer {number} to {body.decode()}".encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(answer)}\r\nSet-Cookie: session=hidden{number}; Path=/\r\n"
            f"X-Number: {number}\r\n\r\n".encode()
            + answer
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield (f"https://{host}" if tls else f"http://{host}"), seen


def secure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ssl.SSLContext:
    """The TLS settings of a server whose authority this process trusts."""
    authority = Authority()
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    return authority.context("127.0.0.1")


def settings(kind: str, url: str, path: Path, **changes: Any) -> SandboxSettings:
    cassette = Cassette(path=str(path), **changes)
    host = url.partition("//")[2]
    return settings_of(kind, TIGHT.but(seconds=30)).but(network=(host,), cassette=cassette)


async def python(box: Sandbox, program: str, *arguments: str) -> RunResult:
    return await box.run(["python3", "-c", FETCH + program, *arguments])


@pytest.fixture(autouse=True)
def _own_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_CASSETTE", raising=False)


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
async def test_what_was_recorded_is_replayed_without_the_server(
    proxied_here: Backend, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, provider = proxied_here
    path = tmp_path / "web.cassette"
    program = (
        "url = sys.argv[1]\nprint(fetch(url + '/a?x=1&y=2'))\nprint(fetch(url + '/a?y=2&x=1'))\n"
        "print(fetch(url + '/b', b'asked'))\nprint(fetch(url + '/binary'))"
    )
    async with web(secure(monkeypatch, tmp_path) if tls else None) as (url, seen):
        box = await provider.create(settings(kind, url, path, mode="record"))
        recorded = await python(box, program, url)
        assert recorded.ok, (recorded.stderr[-600:], recorded.network)
        assert len(seen) == 4
    assert "answer 3 to asked" in recorded.text
    box = await provider.create(settings(kind, url, path))
    replayed = await python(box, program, url)
    assert replayed.text == recorded.text.replace("hidden1", "recorded").replace("hidden2", "recorded").replace(
        "hidden3", "recorded"
    ).replace("hidden4", "recorded")
    assert [use.refused for use in replayed.network] == [None]
    text = path.read_text(encoding="utf-8")
    assert "hidden" not in text
    assert "asked" not in text.replace("answer 3 to asked", ""), "only the digest of a request's body is written"


@pytest.mark.suite("sandbox")
async def test_a_hundred_replays_are_identical(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    program = "url = sys.argv[1]\nfor n in range(3): print(fetch(url + '/same'), fetch(url + f'/{n}'))"
    async with web() as (url, seen):
        recording = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(recording, program, url)).ok
        assert len(seen) == 6
    before = path.read_bytes()

    async def replay() -> str:
        async with await provider.create(settings("bubblewrap", url, path)) as box:
            result = await python(box, program, url)
            assert result.ok, result
            return hashlib.sha256(result.stdout).hexdigest()

    texts = set()
    for _ in range(25):
        texts |= set(await asyncio.gather(*(replay() for _ in range(4))))
    assert len(texts) == 1
    assert path.read_bytes() == before
    await provider.aclose()
    assert leftovers() == []


async def test_a_replay_sends_nothing_not_even_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web() as (url, _):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(box, "fetch(sys.argv[1] + '/a')", url)).ok

    async def connect(*_: object, **__: object) -> None:
        raise AssertionError("a replay opened a connection")

    async with origin() as other:
        allowed = settings("bubblewrap", url, path, miss="refuse").but(
            network=(url.partition("//")[2], f"127.0.0.1:{other.port}", "example.org")
        )
        box = await provider.create(allowed)
        monkeypatch.setattr("ludus.sandbox.network.proxy.EgressProxy._dial", connect)
        result = await python(
            box, "for url in sys.argv[1:]: print(fetch(url)[0])",
            f"{url}/a", f"{url}/never", f"http://127.0.0.1:{other.port}/", "http://example.org/", "https://example.org/",
        )  # fmt: skip
        assert result.text.split() == ["200", "504", "504", "504", "504"], result
        assert other.connections == 0
    await provider.aclose()


async def test_a_miss_is_no_failure_of_the_policy_unless_the_settings_say_so(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web() as (url, _):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(box, "fetch(sys.argv[1] + '/a')", url)).ok
    for again in ("/b", "/a?x", "/A"):
        box = await provider.create(settings("bubblewrap", url, path))
        with pytest.raises(CassetteMiss, match="web.cassette has no answers to .*LUDUS_CASSETTE=record-missing"):
            await python(box, "fetch(sys.argv[1])", url + again)
        with pytest.raises(CassetteMiss):
            await box.spawn(["true"])
    box = await provider.create(settings("bubblewrap", url, path, miss="refuse"))
    refused = await python(box, "print(fetch(sys.argv[1] + '/b'))", url)
    assert "(504, [], b'network: the cassette web.cassette has no answers to" in refused.text
    await provider.aclose()


async def test_equal_requests_have_their_answers_in_order_and_then_the_last_one(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    program = "for n in range(int(sys.argv[2])): print(fetch(sys.argv[1])[2].decode())"
    async with web() as (url, _):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(box, program, url, "2")).text == "answer 1 to \nanswer 2 to \n"
        other = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(other, program, url, "3")).text == "answer 1 to \nanswer 2 to \nanswer 3 to \n"
    box = await provider.create(settings("bubblewrap", url, path))
    assert (await python(box, program, url, "2")).text == "answer 1 to \nanswer 2 to \n"
    fork = await box.fork()
    assert (await python(fork, program, url, "2")).text == "answer 3 to \nanswer 3 to \n", "a fork goes on where it was"
    strict = await provider.create(settings("bubblewrap", url, path, repeat=False))
    with pytest.raises(CassetteMiss, match="has 3 answers .* request 4"):
        await python(strict, program, url, "4")
    await provider.aclose()


async def test_only_what_is_missing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web() as (url, seen):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(box, "fetch(sys.argv[1] + '/a')", url)).ok
        first = path.read_text(encoding="utf-8").splitlines()[1]
        monkeypatch.setenv("LUDUS_CASSETTE", "record-missing")
        box = await provider.create(settings("bubblewrap", url, path))
        result = await python(box, "print(fetch(sys.argv[1] + '/a')[2], fetch(sys.argv[1] + '/b')[2])", url)
        assert result.text == "b'answer 1 to ' b'answer 2 to '\n"
        assert len(seen) == 2
    lines = path.read_text(encoding="utf-8").splitlines()
    assert (lines[1], len(lines)) == (first, 4)
    await provider.aclose()


async def test_what_differs_without_meaning_is_ignored_and_not_written(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    ignore = ("query:api_key", "query:time", "body:session")
    program = (
        "url, key, session = sys.argv[1:]\n"
        "print(fetch(url + '/a?time=' + key + '&q=1&api_key=' + key)[2])\n"
        "print(fetch(url + '/b', ('{\"ask\": 1, \"session\": \"' + session + '\"}').encode())[0])"
    )
    async with web() as (url, seen):
        box = await provider.create(settings("bubblewrap", url, path, mode="record", ignore=ignore))
        assert (await python(box, program, url, "KEY1", "S1")).ok
        assert "KEY1" in seen[0], "the server gets the whole request"
    box = await provider.create(settings("bubblewrap", url, path, ignore=ignore))
    assert (await python(box, program, url, "KEY2", "S2")).text == "b'answer 1 to '\n200\n"
    assert "KEY1" not in path.read_text(encoding="utf-8")
    await provider.aclose()


POISON = {
    "Range": "bytes=0-0", "If-None-Match": "*", "If-Modified-Since": "Thu, 01 Jan 2099 00:00:00 GMT", "If-Range": '"x"',
    "X-HTTP-Method-Override": "DELETE", "X-Method-Override": "DELETE", "X-Original-URL": "/admin",
    "X-Rewrite-URL": "/admin", "X-Forwarded-Host": "evil.example", "X-Forwarded-Prefix": "/evil",
    "Forwarded": "host=evil.example", "X-Host": "evil.example",
}  # fmt: skip


async def test_an_agent_records_no_answer_to_another_request_than_the_file_names(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    program = f"print(fetch(sys.argv[1] + '/a', None, **{POISON!r}, **{{'X-Own': 'kept'}})[0])"
    async with web() as (url, seen):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        result = await python(box, program, url)
        assert result.text == "200\n", result.stderr[-600:]
        sent = {line.partition(":")[0].lower() for line in seen[0].split("\r\n")[1:]}
        assert "x-own" in sent
        assert not sent & {name.lower() for name in POISON}
        compared = settings("bubblewrap", url, tmp_path / "other.cassette", mode="record", headers=("range",))
        box = await provider.create(compared)
        assert (await python(box, program, url)).text == "200\n"
        assert "range: bytes=0-0" in seen[1].lower()
    await provider.aclose()


async def test_the_answer_of_a_server_that_is_out_of_order_is_not_recorded(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web() as (url, _):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        result = await python(box, "print(fetch(sys.argv[1] + '/broken')[0], fetch(sys.argv[1] + '/a')[0])", url)
        assert result.text == "503 200\n"
    assert "/broken" not in path.read_text(encoding="utf-8")
    await provider.aclose()


async def test_a_server_whose_certificate_is_not_trusted_is_not_recorded(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web(Authority().context("127.0.0.1")) as (url, seen):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        result = await python(box, "print(fetch(sys.argv[1]))", url)
        assert "(502" in result.text
        assert "its TLS connection failed" in result.text
        assert seen == []
    await provider.aclose()


async def test_a_program_that_trusts_only_real_authorities_is_refused_with_the_variable_to_use(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web() as (url, _):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(box, "fetch(sys.argv[1])", url)).ok
    box = await provider.create(settings("bubblewrap", url, path))
    result = await box.run(
        ["python3", "-c", FETCH + "fetch(sys.argv[1])", url.replace("http:", "https:")], env={"SSL_CERT_FILE": "/none"}
    )
    assert not result.ok
    assert any("SSL_CERT_FILE" in str(use.refused) for use in result.refused), result.network
    await provider.aclose()


ODD = {
    "not TLS": "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n|hello, this is no TLS at all\r\n\r\n",
    "too early": "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\nearly",
    "another host": "GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
    "a body without end": "POST http://{host}/a HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
    "ffffffffffff\r\nx",
    "two lengths": "POST http://{host}/a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "no slash": "GET http://{host}?x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "nothing": "",
    "an upgrade": "GET http://{host}/no HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
}
SEND = """
import socket, sys
for piece in sys.argv[1].split("|"):
    s = globals().get("s") or socket.create_connection(("127.0.0.1", 3128), 25)
    s.sendall(piece.encode())
    if "|" in sys.argv[1] and piece.startswith("CONNECT"): print(s.recv(65536))
try: s.shutdown(socket.SHUT_WR)
except OSError: pass
s.settimeout(25)
try:
    while part := s.recv(65536): print(part)
except OSError as error: print(type(error).__name__)
"""


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("name", ODD)
async def test_an_odd_request_reaches_nothing_and_the_next_one_is_answered(name: str, tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web() as (url, seen):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        assert (await python(box, "fetch(sys.argv[1] + '/a')", url)).ok
        seen.clear()
        box = await provider.create(settings("bubblewrap", url, path, miss="refuse"))
        host = url.partition("//")[2]
        result = await box.run(["python3", "-c", SEND, ODD[name].format(host=host)])
        assert "HTTP/1.1 200 OK" not in result.text
        assert "answer" not in result.text.replace("no answers", "")
        assert seen == []
        assert "answer 1" in (await python(box, "print(fetch(sys.argv[1] + '/a'))", url)).text
    await provider.aclose()


async def test_the_key_of_the_authority_is_nowhere_in_the_sandbox(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    async with web() as (url, _):
        box = await provider.create(settings("bubblewrap", url, path, mode="record"))
        found = await box.run(
            ["sh", "-c", "cat $SSL_CERT_FILE; grep -c PRIVATE $SSL_CERT_FILE; echo x > $SSL_CERT_FILE"]
        )
        assert "BEGIN CERTIFICATE" in found.text
        assert found.text.splitlines()[-1] == "0"
        assert not found.ok, "the file is read-only"
    await provider.aclose()
    assert leftovers() == []


@pytest.mark.parametrize("kind", ["unsafe-local", "sandboxd"])
async def test_a_backend_without_cassettes_says_so(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "sandboxd":
        from hosting import hosts_in

        hosts_in(monkeypatch, request.getfixturevalue("sandbox_host"))
    provider = await opened(kind)
    with pytest.raises(SandboxUnsupported, match=f"{kind} sandboxes have no cassettes; use `bubblewrap`"):
        await provider.create(settings(kind, "http://example.org", tmp_path / "none"))
    await provider.aclose()


async def test_a_cassette_that_was_not_recorded_is_an_error_before_the_first_episode(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    with pytest.raises(CassetteError, match="cannot be read: No such file .*record it with LUDUS_CASSETTE=record"):
        await provider.prepare(settings("bubblewrap", "http://example.org", tmp_path / "none"))
    await provider.aclose()


async def test_concurrent_sandboxes_record_each_request_once(tmp_path: Path) -> None:
    provider = await opened("bubblewrap")
    path = tmp_path / "web.cassette"
    program = "for n in range(5): print(fetch(sys.argv[1] + f'/{n}')[2])"
    async with web() as (url, _):
        boxes = [await provider.create(settings("bubblewrap", url, path, mode="record")) for _ in range(6)]
        results = await asyncio.gather(*(python(box, program, url) for box in boxes))
    assert len({result.text for result in results}) == 1, "all agree on the answer that came first"
    requests = [json.loads(line)["http"]["url"] for line in path.read_text("utf-8").splitlines()[1:-1]]
    assert sorted(requests) == [f"{url}/{n}" for n in range(5)]
    await provider.aclose()
