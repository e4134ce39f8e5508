"""Sessions of `ludus sandboxd`: connections that break, hang or come back, processes that are killed, and TLS."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cutting import CuttingProxy
from hosting import TOKEN, hosts_in, network_namespace, sandboxd
from sandboxing import MIB, TIGHT, command_runs, leftovers, opened, remains, settings_of
from waiting import wait_until

from ludus.sandbox import SandboxFailed, SandboxUnavailable
from ludus.sandbox.core.processes import WINDOW
from ludus.sandbox.remote.channel import MAX_HELD
from ludus.sandbox.remote.daemon import Daemon, serving_sandboxes
from ludus.sandbox.remote.host import Timing
from ludus.sandbox.remote.provider import Sandboxd

SETTINGS = settings_of("sandboxd", TIGHT.but(spawned_seconds=100, spawned_output=64 * MIB))
UNIQUE = f"20.{os.getpid()}"
"""How long a command sleeps that a test looks for among the processes of the machine."""
QUICK = Timing(connect=5.0, silence=3.0, first_pause=0.1, longest_pause=0.2)


@asynccontextmanager
async def hosting(grace: float = 30.0) -> AsyncIterator[tuple[Daemon, CuttingProxy, Sandboxd]]:
    """A host in this process, a client, and what can cut the connection between them."""
    daemon = Daemon(await opened("bubblewrap"), token=TOKEN, grace=grace)
    async with serving_sandboxes(daemon) as url, CuttingProxy(url).running() as proxy:
        provider = Sandboxd([proxy.url.replace("http", "ws", 1)], token=TOKEN, timing=QUICK)
        await provider.open()
        yield daemon, proxy, provider
        proxy.refusing = False
        await provider.aclose()
    assert leftovers() == []


async def until_empty(daemon: Daemon) -> None:
    """Wait until a host has no sandbox."""
    await wait_until(lambda: daemon.load().boxes == 0)


# ── connections that break ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_command_is_carried_out_once_however_often_the_connection_is_cut() -> None:
    async with hosting() as (_, proxy, provider):
        box = await provider.create(SETTINGS)
        for number in range(10):
            program = f"echo {number} >> log; until [ -e go{number} ]; do sleep 0.01; done; wc -l < log"
            running = asyncio.create_task(box.run(["sh", "-c", program]))
            for _ in range(3):
                await proxy.connected.wait()
                proxy.connected.clear()
                proxy.cut()
            assert (await (await box.spawn(["touch", f"go{number}"])).wait()).ok
            assert (await running).text == f"{number + 1}\n"
        assert proxy.cuts == 30
        assert await box.read("log") == b"".join(b"%d\n" % number for number in range(10))


async def test_streams_and_files_arrive_whole_over_connections_that_are_cut_in_their_middle() -> None:
    async with hosting() as (_, proxy, provider):
        box = await provider.create(SETTINGS)
        proxy._mean = 150_000
        proxy.cut()
        data = os.urandom(3 * MIB)
        lines = await box.spawn(["seq", "1", "200000"])
        digest = await box.spawn(["sha256sum"])

        async def write_all() -> None:
            await digest.write(data)
            await digest.close_stdin()

        writing = asyncio.create_task(write_all())
        await box.write("file", data)
        number = 0
        async for line in lines.stdout:
            number += 1
            assert int(line) == number
        assert number == 200_000
        await writing
        assert (await digest.stdout.read_line()).split()[0].decode() == hashlib.sha256(data).hexdigest()
        assert await box.read("file") == data
        assert proxy.cuts > 10
        proxy._mean = None


@pytest.mark.suite("sandbox")
async def test_a_network_that_falls_silent_loses_no_command_and_runs_none_twice(tmp_path: Path) -> None:
    """Unlike a proxy that cuts, it sends no end of the connection to either side."""

    async def set_link(state: str) -> None:
        changing = await asyncio.create_subprocess_exec("ip", "link", "set", f"ltest{os.getpid() % 65536}a", state)
        assert await changing.wait() == 0

    with (
        network_namespace() as (prefix, address),
        sandboxd(tmp_path, "--host", address, "--grace-seconds", "60", prefix=prefix) as host,
    ):
        provider = Sandboxd([host.url], token=TOKEN, timing=QUICK)
        await provider.open()
        box = await provider.create(settings_of("sandboxd", TIGHT.but(seconds=300, spawned_seconds=300)))
        for number in range(3):
            program = f"echo {number} >> log; until [ -e go{number} ]; do sleep 0.2; done; wc -l < log"
            running = asyncio.create_task(box.run(["sh", "-c", program]))
            begun = await box.spawn(["sh", "-c", f"until grep -qx {number} log; do sleep 0.1; done"])
            assert (await begun.wait()).ok
            await set_link("down")
            release = asyncio.create_task(box.spawn(["touch", f"go{number}"]))
            await wait_until(lambda: provider._hosts[0].usable is None)
            assert not release.done()
            await set_link("up")
            assert (await (await release).wait()).ok
            assert (await running).text == f"{number + 1}\n"
        assert await box.read("log") == b"0\n1\n2\n"
        await provider.aclose()


async def test_what_a_port_sends_arrives_whole_over_connections_that_are_cut() -> None:
    program = (
        "import socket\nl = socket.create_server(('127.0.0.1', 8000))\nprint('up', flush=True)\nc, _ = l.accept()\n"
    )
    program += "d = b''\nwhile p := c.recv(65536): d += p\nc.sendall(d[::-1])\nc.close()\n"
    async with hosting() as (_, proxy, provider):
        box = await provider.create(SETTINGS.model_copy(update={"loopback": True}))
        process = await box.spawn(["python3", "-c", program])
        assert await process.stdout.read_line() == b"up\n"
        proxy._mean = 150_000
        proxy.cut()
        data = os.urandom(2 * MIB)
        reader, writer = await asyncio.open_connection(sock=await box.connect(8000))
        writer.write(data)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 50) == data[::-1]
        assert proxy.cuts > 5
        writer.close()
        await writer.wait_closed()
        proxy._mean = None


async def test_a_client_that_stays_away_loses_its_sandboxes_and_can_have_new_ones() -> None:
    async with hosting(grace=0.3) as (daemon, proxy, provider):
        box = await provider.create(SETTINGS)
        process = await box.spawn(["sleep", "50"])
        running = asyncio.create_task(box.run(["sleep", UNIQUE]))
        await wait_until(lambda: command_runs("sleep", UNIQUE))
        proxy.refusing = True
        proxy.cut()
        await until_empty(daemon)
        waiting: list[asyncio.Task[Any]] = [running, asyncio.create_task(process.wait())]
        for one in waiting:
            with pytest.raises(SandboxFailed, match=r"its host ws://.* was lost"):
                await asyncio.wait_for(one, 20)
        with pytest.raises(SandboxFailed, match="was lost"):
            await box.read("file")
        with pytest.raises(SandboxFailed, match=r"no host can create a sandbox: ws://"):
            await provider.create(SETTINGS)
        await box.aclose()
        proxy.refusing = False
        await wait_until(lambda: provider._hosts[0].usable is not None)
        async with await provider.create(SETTINGS) as again:
            assert (await again.run(["true"])).ok


async def test_a_sandbox_that_is_closed_while_there_is_no_connection_ends() -> None:
    async with hosting() as (daemon, proxy, provider):
        box = await provider.create(SETTINGS)
        proxy.refusing = True
        proxy.cut()
        proxy.connected.clear()
        closing = asyncio.create_task(box.aclose())
        await proxy.connected.wait()
        assert daemon.load().boxes == 1
        proxy.refusing = False
        await asyncio.wait_for(closing, 20)
        assert daemon.load().boxes == 0


# ── many at once ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_flood_of_one_sandbox_does_not_hold_up_the_others_and_memory_stays_within_windows() -> None:
    async with hosting() as (daemon, _, provider):
        flooding, other = [await provider.create(SETTINGS) for _ in range(2)]
        floods = [await flooding.spawn(["yes"]) for _ in range(8)]
        await flooding.write("large", bytes(8 * MIB))
        async with await other.spawn(["cat"]) as process:
            copying = asyncio.create_task(flooding.snapshot())
            for number in range(50):
                await process.write(b"%d\n" % number)
                assert await process.stdout.read_line() == b"%d\n" % number
            assert len((await copying).data) > 8 * MIB
        for one in floods:
            assert len(one.stdout._data) <= WINDOW
        session = next(iter(daemon._clients.values())).session
        assert session.channel.held <= MAX_HELD + len(floods) * WINDOW


async def test_canceled_starts_leave_no_sandbox_on_the_host() -> None:
    async with hosting() as (daemon, _, provider):
        starts = [asyncio.create_task(provider.create(SETTINGS)) for _ in range(6)]
        for number, start in enumerate(starts):
            for _ in range(20 * number):  # each is canceled somewhere else
                await asyncio.sleep(0)
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)
        done = [one.result() for one in starts if not one.cancelled()]
        for box in done:
            await box.aclose()
        await until_empty(daemon)
        assert (await (await provider.create(SETTINGS)).run(["true"])).ok


# ── processes that are killed ──────────────────────────────────────────────────────────────────────────────────────

CLIENT = """
import asyncio, sys
from ludus.sandbox import SandboxSettings, find_provider

async def main():
    provider = find_provider("sandboxd")
    await provider.open()
    settings = SandboxSettings(provider="sandboxd", warm=2)
    await provider.prepare(settings)
    box = await provider.create(settings)
    await box.spawn(["sleep", "1000"])
    print("up", flush=True)
    await box.run(["sleep", "1000"])

asyncio.run(main())
"""


@contextmanager
def started(script: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


async def until_processes(owner: str, wanted: bool) -> None:
    """Wait until there are processes of a host's sandboxes, or none."""
    await wait_until(lambda: any(one.startswith("process") for one in leftovers(owner)) is wanted)


@pytest.mark.suite("sandbox")
async def test_nothing_outlives_a_killed_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sandboxd(tmp_path, "--grace-seconds", "0.5") as host:
        hosts_in(monkeypatch, host)
        with started(CLIENT) as client:
            await until_processes(host.owner, True)
            client.kill()
            await wait_until(lambda: not leftovers(host.owner))
        assert host.process.poll() is None


async def test_nothing_outlives_a_killed_host_and_its_client_learns_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sandboxd(tmp_path, "--grace-seconds", "0.5") as host:
        hosts_in(monkeypatch, host)
        provider = Sandboxd(timing=QUICK)
        await provider.open()
        box = await provider.create(SETTINGS)
        running = asyncio.create_task(box.run(["sleep", "1000"], limits=TIGHT.but(seconds=1000)))
        await box.spawn(["sleep", "1000"])
        host.kill()
        with pytest.raises(SandboxFailed, match=f"its host {host.url} was lost"):
            await asyncio.wait_for(running, 20)
        await until_processes(host.owner, False)
        with sandboxd(tmp_path, port=host.port) as again:
            assert remains(host.owner) == []
            await wait_until(lambda: provider._hosts[0].usable is not None)
            async with await provider.create(SETTINGS) as other:
                assert (await other.run(["true"])).ok
            await provider.aclose()
            assert leftovers(again.owner) == []


@pytest.mark.suite("sandbox")
async def test_a_host_that_is_stopped_in_order_ends_its_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sandboxd(tmp_path) as host:
        hosts_in(monkeypatch, host)
        provider = Sandboxd(timing=QUICK)
        await provider.open()
        box = await provider.create(SETTINGS)
        running = asyncio.create_task(box.run(["sleep", UNIQUE]))
        await wait_until(lambda: command_runs("sleep", UNIQUE))
        host.process.send_signal(signal.SIGTERM)
        with pytest.raises(SandboxFailed):
            await asyncio.wait_for(running, 20)
        assert await asyncio.to_thread(host.process.wait, 20) == 0
        await provider.aclose()
        assert leftovers(host.owner) == []
        log = (tmp_path / "sandboxd.log").read_text(encoding="utf-8")
        assert "sandbox 2 was created" in log
        assert "sandbox 2 was closed" in log
        assert TOKEN not in log
        assert "Traceback" not in log


# ── TLS ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself."""
    places = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(places[0]), "-keyout", str(places[1])]  # fmt: skip
    try:
        subprocess.run(argv, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return places


async def test_a_host_with_a_certificate_is_reached_over_tls_and_an_unknown_certificate_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path)
    with sandboxd(tmp_path, "--tls-certificate", str(cert), "--tls-key", str(key)) as host:
        assert host.url.startswith("wss://127.0.0.1:")
        hosts_in(monkeypatch, host)
        with pytest.raises(SandboxUnavailable, match="certificate"):
            await Sandboxd(timing=QUICK).open()
        monkeypatch.setenv("LUDUS_SANDBOXD_CA", str(cert))
        provider = Sandboxd(timing=QUICK)
        await provider.open()
        async with await provider.create(SETTINGS) as box:
            assert (await box.run(["echo", "safe"])).text == "safe\n"
        await provider.aclose()
