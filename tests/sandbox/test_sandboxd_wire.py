"""What reaches `ludus sandboxd` from the network: wrong tokens and versions, garbage, too much, and nothing at all."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from hosting import TOKEN
from sandboxing import leftovers, opened, settings_of
from waiting import wait_until

from ludus.cli import main
from ludus.sandbox import Sandbox, SandboxFailed, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.remote import daemon as daemons
from ludus.sandbox.remote.daemon import PATH, Daemon, serving_sandboxes
from ludus.sandbox.remote.messages import LAST, PIECE, VERSION, Frame, Kind, decode, pack, unpack
from ludus.sandbox.remote.provider import Sandboxd
from ludus.sandbox.remote.session import HostLimits

BEARER = {"Authorization": f"Bearer {TOKEN}"}
LIMITS = HostLimits(clients=3, boxes=4, boxes_per_client=2, bytes_per_client=8 * 1024 * 1024)


@asynccontextmanager
async def hosting(limits: HostLimits = LIMITS, grace: float = 5.0) -> AsyncIterator[tuple[Daemon, str]]:
    """A host in this process; nothing is left in its sandboxes afterwards."""
    daemon = Daemon(await opened("bubblewrap"), token=TOKEN, limits=limits, grace=grace)
    async with serving_sandboxes(daemon) as url:
        yield daemon, url
    assert daemon.load().boxes == 0
    assert leftovers() == []


@asynccontextmanager
async def box_on(url: str) -> AsyncIterator[Sandbox]:
    """A sandbox of another client."""
    provider = Sandboxd([url], token=TOKEN)
    await provider.open()
    try:
        async with await provider.create(settings_of("sandboxd")) as box:
            yield box
    finally:
        await provider.aclose()


class RawClient:
    """A client that writes what it likes."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.sequence = 0

    async def greet(self, **changes: object) -> dict[str, object]:
        hello = {"version": VERSION, "session": "0" * 32, "resume": False, "received": 0, **changes}
        await self.socket.send_str(json.dumps(hello))
        reply: dict[str, object] = json.loads(await self.socket.receive_str(timeout=20))
        return reply

    async def send(self, kind: int, stream: int, payload: bytes, flags: int = LAST) -> None:
        self.sequence += 1
        await self.socket.send_bytes(Frame(kind, flags, self.sequence, stream, payload).encode(0))

    async def reply(self) -> dict[str, object]:
        """Return the head of the next reply."""
        while True:
            frame, _ = decode(await self.socket.receive_bytes(timeout=20))
            if frame.kind == Kind.REPLY:
                return unpack(frame.payload)[0]

    async def refusal(self) -> str:
        """Return why the host ends the connection; it must end it."""
        why = ""
        while (message := await self.socket.receive(timeout=20)).type not in (
            aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.ERROR,
        ):  # fmt: skip
            if message.type is aiohttp.WSMsgType.TEXT:
                why = json.loads(message.data)["refused"]
        return why or f"closed with {self.socket.close_code}"


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[RawClient]:
    async with aiohttp.ClientSession(headers=BEARER) as session, session.ws_connect(f"{url}{PATH}") as socket:
        yield RawClient(socket)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"},
                                     {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer"}])  # fmt: skip
async def test_without_the_token_there_is_neither_a_sandbox_nor_a_figure(headers: dict[str, str]) -> None:
    async with hosting() as (_, url), aiohttp.ClientSession(headers=headers) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await session.ws_connect(f"{url}{PATH}")
        http = url.replace("ws", "http", 1)
        async with session.get(f"{http}/metrics") as response:
            assert response.status == 401
        async with session.get(f"{http}/healthz") as response:
            assert response.status == 200


async def test_a_server_with_the_wrong_token_is_refused_at_startup_with_the_reason() -> None:
    async with hosting() as (_, url):
        with pytest.raises(SandboxUnavailable, match=r"127\.0\.0\.1.*refuses the token"):
            await Sandboxd([url], token="another-token-of-some-length").open()


GREETINGS: dict[str, tuple[dict[str, object], str]] = {
    "another version": ({"version": VERSION + 1}, "same release"),
    "no version": ({"version": None}, "version"),
    "a session id that is none": ({"session": "../etc"}, "session"),
    "an unknown field": ({"more": 1}, "more"),
    "a session that does not exist": ({"resume": True}, "does not exist any more"),
}


@pytest.mark.parametrize("name", GREETINGS)
async def test_a_wrong_greeting_is_refused_with_the_reason(name: str) -> None:
    changes, why = GREETINGS[name]
    async with hosting() as (_, url), raw(url) as client:
        assert why in str((await client.greet(**changes))["refused"])


async def huge(client: RawClient) -> None:
    await client.socket.send_bytes(bytes(2 * PIECE))


async def beyond_the_limit(client: RawClient) -> None:
    for _ in range(LIMITS.bytes_per_client // PIECE + 1):
        await client.send(Kind.REQUEST, 1, bytes(PIECE), flags=0)


async def a_gap(client: RawClient) -> None:
    client.sequence += 5
    await client.send(Kind.REQUEST, 1, b"")


async def too_much_input(client: RawClient) -> None:
    settings = settings_of("sandboxd").model_dump(mode="json")
    await client.send(Kind.REQUEST, 1, pack({"op": "create", "settings": settings}))
    assert "error" not in await client.reply()
    spawn = {"op": "spawn", "box": 1, "argv": ["sleep", "50"], "env": {}, "cwd": ".", "terminal": None}
    await client.send(Kind.REQUEST, 2, pack({**spawn, "limits": settings["limits"]}))
    assert "error" not in await client.reply()
    for _ in range(100):
        await client.send(Kind.EVENT, 2, pack({"op": "input", "eof": False}, bytes(PIECE)))


BREACHES: dict[str, tuple[Callable[[RawClient], object], str]] = {
    "garbage": (lambda client: client.socket.send_bytes(b"\xff" * 100), "no frame"),
    "a frame that is too short": (lambda client: client.socket.send_bytes(b"\x01"), "at least"),
    "a frame that is too large": (huge, "closed with 1009"),
    "text": (lambda client: client.socket.send_str("hello"), "hello"),
    "a missing frame": (a_gap, "came after"),
    "an acknowledgment of what was not sent": (
        lambda client: client.socket.send_bytes(Frame(0, 0, 0, 0, b"").encode(99)), "acknowledged"),
    "a reply": (lambda client: client.send(Kind.REPLY, 1, pack({})), "does not send"),
    "a request beyond the limit on bytes": (beyond_the_limit, "more than this host allows"),
    "input beyond its window": (too_much_input, "window"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREACHES)
async def test_a_client_that_breaks_the_protocol_is_refused_with_the_reason_and_hurts_no_other(name: str) -> None:
    breach, why = BREACHES[name]
    async with hosting() as (daemon, url), box_on(url) as box, raw(url) as client:
        running = asyncio.create_task(box.run(["sh", "-c", "until [ -e go ]; do sleep 0.01; done; echo done"]))
        writer = await box.spawn(["touch", "go"])
        assert "refused" not in await client.greet()
        await breach(client)  # type: ignore[misc]
        assert why in await client.refusal()
        assert (await writer.wait()).ok
        assert (await running).text == "done\n"
        await wait_until(lambda: daemon.load().boxes == 1)


ODD_REQUESTS: dict[str, tuple[bytes, str]] = {
    "an unknown operation": (pack({"op": "explode"}), "explode"),
    "an unknown field": (pack({"op": "goodbye", "now": True}), "now"),
    "settings that are none": (pack({"op": "create", "settings": {"limits": {"memory": 1}}}), "memory"),
    "a head that is not JSON": (struct.pack("!I", 3) + b"{x}", "not JSON"),
    "a head that is a list": (struct.pack("!I", 2) + b"[]", "not a JSON object"),
    "a deep head": (struct.pack("!I", 60_000) + b"[" * 60_000, "not JSON"),
    "a head of another size": (struct.pack("!I", 1 << 31) + b"{}", "cannot have"),
    "nothing": (b"", "begins with"),
    "a sandbox that does not exist": (pack({"op": "snapshot", "box": 7}), "gone"),
    "no program": (pack({"op": "run", "box": 7, "argv": [], "env": {}, "cwd": ".", "limits": {}}), "argv"),
    "a port that is none": (pack({"op": "connect", "box": 7, "port": 70_000}), "port"),
}


async def test_odd_requests_have_typed_errors_and_the_session_goes_on() -> None:
    async with hosting() as (_, url), raw(url) as client:
        await client.greet()
        for number, (name, (payload, why)) in enumerate(ODD_REQUESTS.items(), 1):
            await client.send(Kind.REQUEST, number, payload)
            reply = await client.reply()
            assert reply["error"] in ("unsupported", "failed"), name
            assert why in str(reply["message"]), (name, reply)


async def test_a_connection_on_which_nothing_arrives_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "_GREETING_SECONDS", 0.2)
    async with hosting() as (_, url):
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        async with raw(url) as client:
            assert "within 0.2 s" in await client.refusal()


async def test_clients_and_sandboxes_have_limits_and_there_is_room_again_afterwards() -> None:
    async with hosting() as (daemon, url):
        providers = [Sandboxd([url], token=TOKEN) for _ in range(3)]
        for provider in providers:
            await provider.open()
        with pytest.raises(SandboxUnavailable, match="3 clients are connected"):
            await Sandboxd([url], token=TOKEN).open()
        settings = settings_of("sandboxd")
        boxes = [await providers[0].create(settings) for _ in range(2)]
        with pytest.raises(SandboxFailed, match="at most 2 sandboxes"):
            await providers[0].create(settings)
        boxes += [await providers[1].create(settings) for _ in range(2)]
        with pytest.raises(SandboxFailed, match=r"127\.0\.0\.1:\d+: .*(room for 4|4 sandboxes)"):
            await providers[2].create(settings)
        forked = asyncio.create_task(boxes[0].fork())
        with pytest.raises(SandboxFailed):
            await forked
        assert (await boxes[0].run(["true"])).ok, "a host that is full does not end the sandbox"
        await boxes[0].aclose()
        await boxes[1].aclose()
        other = await providers[2].create(settings)
        assert (await other.run(["true"])).ok
        for provider in providers:
            await provider.aclose()
        assert daemon.load().boxes == 0
        again = Sandboxd([url], token=TOKEN)
        await again.open()
        await again.aclose()


async def test_folders_of_the_host_are_shown_only_if_it_allows_them(tmp_path: Path) -> None:
    shown, secret = tmp_path / "shown", tmp_path / "secret"
    for folder in (shown, secret):
        folder.mkdir()
        (folder / "file").write_text("content", encoding="utf-8")
        folder.chmod(0o755)
    (shown / "way").symlink_to(secret)
    async with hosting(HostLimits(readonly=(str(shown),))) as (_, url):
        provider = Sandboxd([url], token=TOKEN)
        await provider.open()
        plain = settings_of("sandboxd")
        async with await provider.create(plain.model_copy(update={"readonly": ((str(shown), "/data/set"),)})) as box:
            assert (await box.run(["cat", "/data/set/file"])).text == "content"
        for place in (secret, shown / "way", tmp_path, Path("/etc"), shown / ".." / "secret"):
            with pytest.raises(SandboxUnsupported, match="does not show"):
                await provider.create(plain.model_copy(update={"readonly": ((str(place), "/data/set"),)}))
        with pytest.raises(SandboxUnsupported, match="cannot build images from folders"):
            await provider.create(plain.but(build=str(secret)))
        with pytest.raises(SandboxUnsupported, match="image"):
            await provider.create(plain.but(image="debian:12"))
        await provider.aclose()


async def test_figures_have_the_clients_and_the_sandboxes() -> None:
    async with hosting() as (_, url), box_on(url), aiohttp.ClientSession(headers=BEARER) as session:
        async with session.get(f"{url.replace('ws', 'http', 1)}/metrics") as response:
            rows = dict(line.split() for line in (await response.text()).splitlines() if not line.startswith("#"))
    assert (rows["ludus_sandboxd_boxes"], rows["ludus_sandboxd_clients"]) == ("1", "1")
    assert rows["ludus_sandboxd_boxes_capacity"] == "4"


def test_options_with_which_the_host_cannot_start_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*options: str) -> str:
        monkeypatch.setattr("sys.argv", ["ludus", "sandboxd", *options])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code
        return capsys.readouterr().err

    for name in ("LUDUS_SANDBOXD_TOKEN", "LUDUS_SANDBOXD_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    empty, key = tmp_path / "empty", tmp_path / "key"
    empty.write_text("\n", encoding="utf-8")
    key.write_text("no key", encoding="utf-8")
    for address in ("0.0.0.0", "::", "example.org"):
        assert "needs a token" in refused("--host", address)
    assert "one token" in refused("--token-file", str(empty))
    assert "cannot be read" in refused("--token-file", str(tmp_path / "missing"))
    assert "both" in refused("--tls-certificate", str(key))
    assert "cannot be used" in refused("--tls-certificate", str(key), "--tls-key", str(key))
    assert "there is no sandbox" in refused("--provider", "none-of-this-name")
    assert "cannot use itself" in refused("--provider", "sandboxd")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen" in refused("--port", str(taken.getsockname()[1]), "--provider", "unsafe-local")
    monkeypatch.setenv("LUDUS_SANDBOXD_TOKEN", "short")
    assert "16 at least" in refused()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ws://", "ws://host:99999", "127.0.0.1:8765", "ws://a:b@host"])
async def test_an_address_that_is_none_is_refused_at_startup(url: str) -> None:
    with pytest.raises(SandboxUnavailable, match="not the address of a host"):
        await Sandboxd([url]).open()


async def test_without_an_address_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_SANDBOXD", raising=False)
    with pytest.raises(SandboxUnavailable, match="set LUDUS_SANDBOXD"):
        await Sandboxd().open()
