"""ORS: our server next to `ors-sdk`'s and `openreward`'s, the same echo tool, one process each.

A raw keep-alive client in this process drives one server after the other, round by round; CPU time is what the kernel
accounts to the server's threads. `python benchmarks/ors.py --json out.json` needs the peers of `scripts/peers.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = {"ors-sdk": "ors", "openreward": "openreward"}
CALL = b'{"name":"echo","input":{"text":"hello"}}'
CREATE = b'{"env_name":"echo","split":"train","index":0}'


def serve_ours(port: int) -> None:
    """Our echo server, in this process."""
    from ludus.server import Environment, Task, tool
    from ludus.server.serving.serve import run
    from ludus.server.serving.settings import ServerSettings

    class Echo(Environment[Task]):
        """Echoes."""

        splits = {"train": [Task(id="only")]}

        async def prompt(self) -> str:
            return "Call echo."

        @tool
        async def echo(self, text: str) -> str:
            """Say it back."""
            return text

    run([Echo], ServerSettings(port=port, log_level="WARNING"))


@dataclass
class Server:
    """One server under test."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    cells: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        """CPU time of all its threads."""
        total = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9


class Connection:
    """A keep-alive connection that speaks just enough HTTP/1.1."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def request(self, method: bytes, path: bytes, sid: bytes, body: bytes = b"") -> bytes:
        """Send one request; return the body of its answer."""
        self.writer.write(
            b"%b %b HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: %b\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (method, path, sid, len(body), body)
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:16]:
            raise RuntimeError(head.decode())
        lower = head.lower()
        at = lower.find(b"content-length: ")
        if at >= 0:
            return await self.reader.readexactly(int(lower[at + 16 : lower.index(b"\r\n", at)]))
        parts = []
        while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
            parts.append((await self.reader.readexactly(size + 2))[:-2])
        await self.reader.readexactly(2)
        return b"".join(parts)


async def one_call(connection: Connection, sid: bytes) -> None:
    """One `/call`."""
    reply = await connection.request(b"POST", b"/echo/call", sid, CALL)
    if b'"text":"hello"' not in reply:
        raise RuntimeError(reply.decode())


async def one_session(connection: Connection, _: bytes) -> None:
    """One session: create_session, create, prompt, call, delete."""
    opened = await connection.request(b"POST", b"/create_session", b"-")
    sid = opened.split(b"data: ", 1)[1].split(b"\r\n", 1)[0]
    await connection.request(b"POST", b"/create", sid, CREATE)
    await connection.request(b"GET", b"/echo/prompt", sid)
    await one_call(connection, sid)
    await connection.request(b"POST", b"/delete", sid)


async def cell(
    server: Server, work: Callable[[Connection, bytes], Awaitable[None]], clients: int, seconds: float
) -> dict[str, float]:
    """One measurement."""
    done = 0
    latencies: list[float] = []

    async def client(until: float) -> None:
        nonlocal done
        async with Connection(server.port) as connection:
            sid = uuid.uuid4().hex.encode()
            await connection.request(b"POST", b"/create", sid, CREATE)
            await work(connection, sid)
            ready.release()
            await go.wait()
            while (began := time.perf_counter()) < until + offset:
                await work(connection, sid)
                latencies.append(time.perf_counter() - began)
                done += 1

    ready, go, offset = asyncio.Semaphore(0), asyncio.Event(), 0.0
    base = time.perf_counter() + seconds
    tasks = [asyncio.create_task(client(base)) for _ in range(clients)]
    for _ in tasks:
        await ready.acquire()
    offset = time.perf_counter() + seconds - base
    cpu, began = server.cpu_seconds(), time.perf_counter()
    go.set()
    await asyncio.gather(*tasks)
    wall = time.perf_counter() - began
    used = server.cpu_seconds() - cpu
    latencies.sort()
    return {
        "rate": done / wall,
        "cpu_us": used / done * 1e6,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
    }


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(names: list[str]) -> list[Server]:
    """Start the servers and wait until they answer."""
    servers = []
    for name in names:
        port = free_port()
        if name == "ludus":
            command = [sys.executable, __file__, "--serve", str(port)]
        else:
            python = ROOT / ".peers" / name / "bin/python"
            command = [str(python), str(ROOT / "tests/ors/peers/server.py"), PEERS[name], str(port)]
        environment = {**os.environ, "LOG_LEVEL": "WARNING", "OPENREWARD_DISABLE_UPDATE_CHECK": "1"}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        servers.append(Server(name, port, process))
    for server in servers:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=1).read()
                break
            except OSError:
                if time.monotonic() > deadline or server.process.poll() is not None:
                    raise RuntimeError(f"{server.name} did not start") from None
                time.sleep(0.1)
    return servers


async def measure(servers: list[Server], rounds: int, seconds: float, clients: list[int]) -> None:
    """All cells, interleaved."""
    for _ in range(rounds):
        for work in (one_call, one_session):
            for count in clients:
                for server in servers:
                    result = await cell(server, work, count, seconds)
                    server.cells.setdefault(f"{work.__name__[4:]} c={count}", []).append(result)


def report(servers: list[Server]) -> dict[str, Any]:
    """Medians, as a table on stdout and as JSON-ready values."""
    out: dict[str, Any] = {}
    print(f"{'':14}{'server':12}{'CPU µs':>9}{'of ors-sdk':>12}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}")
    for name in servers[0].cells:
        base = next((server for server in servers if server.name == "ors-sdk"), None)
        reference = statistics.median(c["cpu_us"] for c in base.cells[name]) if base else None
        for server in servers:
            cells = server.cells[name]
            row = {key: statistics.median(c[key] for c in cells) for key in cells[0]}
            out.setdefault(name, {})[server.name] = row
            ratio = f"{row['cpu_us'] / reference:.3f}" if reference else "-"
            print(
                f"{name:14}{server.name:12}{row['cpu_us']:9.0f}{ratio:>12}{row['rate']:9.0f}"
                f"{row['p50_ms']:9.2f}{row['p99_ms']:9.2f}"
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--servers", nargs="+", default=["ludus", *PEERS])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.serve is not None:
        serve_ours(options.serve)
        return
    names = [n for n in options.servers if n == "ludus" or (ROOT / ".peers" / n).exists()]
    servers = start(names)
    try:
        asyncio.run(measure(servers, options.rounds, options.seconds, options.clients))
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait()
    result = report(servers)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
