"""Floods of one client, and what the steps of another client wait meanwhile.

    python benchmarks/floods.py [--workers 2] [--only body-chunks,pings] [--connections 100] [--seconds 10]
        [--json FILE]

A server (one process, or workers behind their gateway) has two clients. One process floods it over up to 100
connections and opens each again as soon as it is closed. It has the play URL of one episode for HTTP, and a trainer's
token for WebSockets. The other client makes one step after the other over the channel. Printed are, for each flood,
how long those steps took, what the flood has sent, which workers were replaced, and the memory of the server's
processes before and after. The bar is `MOST` for the 99th percentile of a step.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ludus.client import connect
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL
from ludus.server import Environment, Task, tool
from ludus.server.auth.tokens import TokenFile, new_token

MOST: Final = 0.2
"""The most seconds that 99 of 100 steps of the other client may take."""

PAUSE_SECONDS: Final = 0.002
"""The pause between two steps of the other client."""

_MIB: Final = 1024 * 1024
_RESET: Final = struct.pack("ii", 1, 0)


class Echo(Environment[Task]):
    """Echoes."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        """Say nothing of interest."""
        return "hi"

    @tool
    async def echo(self, text: str) -> str:
        """Say it back."""
        return text


# ── floods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Flood:
    """What a connection of the flooding client sends.

    Attributes:
        opening: what it sends first.
        payload: what it sends again and again after that; for a WebSocket, once it is open.
        upgrade: whether the opening asks for a WebSocket.
        reads: whether the client reads what comes back.
        leaves: whether it breaks the connection once the opening is sent.
        trickles: whether it sends the payload byte by byte.
    """

    opening: bytes = b""
    payload: bytes = b""
    upgrade: bool = False
    reads: bool = True
    leaves: bool = False
    trickles: bool = False


def ws_frame(payload: bytes, opcode: int = 1, *, final: bool = True) -> bytes:
    """Return a frame of a client."""
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 127,)) + size.to_bytes(8, "big")
    return bytes((opcode | (0x80 if final else 0),)) + length + bytes(4) + payload


def call(tool_name: str, text: str) -> bytes:
    """Return a message of MCP that calls a tool."""
    params = {"name": tool_name, "arguments": {"text": text}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def steps(episode: str, count: int) -> bytes:
    """Return a frame of the channel with calls of a tool that does not exist."""
    many = [
        {
            "jsonrpc": "2.0", "id": at, "method": "dev.ludus/episodes/step",
            "params": {"episode": episode, "step": at, "tool": "nothing", "arguments": {}, "key": f"{at}"},
        }
        for at in range(count)
    ]  # fmt: skip
    return json.dumps(many).encode()


def floods(play: str, token: str, episode: str) -> dict[str, Flood]:
    """Return the floods by name.

    Args:
        play: the path of the agent endpoint of an episode.
        token: a trainer's token.
        episode: an episode of that trainer.
    """
    fields = b"Host: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    post = b"POST %b HTTP/1.1\r\n%b" % (play.encode(), fields)

    def request(body: bytes) -> bytes:
        return post + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    protocol = CHANNEL_SUBPROTOCOL.encode()
    channel = (
        b"GET /channel HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Protocol: %b\r\nAuthorization: Bearer %b\r\n\r\n" % (protocol, token.encode())
    )
    small = call("echo", "hello")
    brackets = b"[" + b",".join([b"[]"] * (4 * _MIB // 3 - 10)) + b"]"
    fragments = ws_frame(b"[", final=False) + ws_frame(b" ", 0, final=False) * 20_000
    nothing = ws_frame(b"", final=False) + ws_frame(b"", 0, final=False) * 20_000
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    return {
        "body-chunks": Flood(chunked, b"1\r\nx\r\n" * 40_000),
        "head-bytes": Flood(payload=request(small), trickles=True),
        "tiny-headers": Flood(payload=post + b"a:\r\n" * 5_000),
        "unread-pipeline": Flood(payload=request(small) * 500, reads=False),
        "canceled": Flood(request(small), leaves=True),
        "fragments": Flood(channel, fragments, upgrade=True),
        "empty-fragments": Flood(channel, nothing, upgrade=True),
        "pings": Flood(channel, ws_frame(b"", 9) * 20_000, upgrade=True),
        "empty-frames": Flood(channel, ws_frame(b"") * 20_000, upgrade=True),
        "brackets": Flood(channel, ws_frame(brackets), upgrade=True),
        "unknown-tools": Flood(channel, ws_frame(steps(episode, 64)) * 20, upgrade=True),
        "unknown-tools-alone": Flood(channel, ws_frame(steps(episode, 1)) * 500, upgrade=True),
        "unread-streams": Flood(payload=request(call("echo", "x" * 60_000)), reads=False),
        "reconnects": Flood(leaves=True),
    }  # fmt: skip


class Flooder(asyncio.Protocol):
    """One connection of the flooding client."""

    sent = 0
    """Bytes that all connections have sent."""
    opened = 0

    def __init__(self, flood: Flood, ended: asyncio.Event) -> None:
        self._flood = flood
        self._ended = ended
        self._writable = True
        self._begun = not flood.upgrade
        self._at = 0
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        Flooder.opened += 1
        flood = self._flood
        if not flood.reads:
            transport.pause_reading()
        if flood.opening:
            self._send(flood.opening)
        if flood.leaves:
            sock: Any = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._loop.call_soon(transport.abort)
        elif self._begun:
            self._pump()

    def _send(self, data: bytes) -> None:
        self._transport.write(data)
        Flooder.sent += len(data)

    def _pump(self) -> None:
        if self._transport.is_closing() or not self._writable:
            return
        payload = self._flood.payload
        if self._flood.trickles:
            self._send(payload[self._at : self._at + 1])
            self._at = (self._at + 1) % len(payload)
        else:
            self._send(payload)
        self._loop.call_soon(self._pump)

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._pump()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def attack(host: str, port: int, flood: Flood, connections: int) -> None:
    """Flood a server until this process is killed, and print what was sent each second."""
    loop = asyncio.get_running_loop()

    async def keep() -> None:
        while True:
            ended = asyncio.Event()
            try:
                await loop.create_connection(partial(Flooder, flood, ended), host, port)
                await ended.wait()
            except OSError:
                await asyncio.sleep(0.01)

    tasks = [loop.create_task(keep()) for _ in range(connections)]
    while True:
        await asyncio.sleep(0.5)
        print(json.dumps({"sent": Flooder.sent, "opened": Flooder.opened}), flush=True)
        assert not any(task.done() for task in tasks)


# ── the server and its other client ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Server:
    """A server, with the processes that it began with; the first one is its gateway if it has workers."""

    url: str
    process: subprocess.Popen[bytes]
    tokens: tuple[str, str]

    def pids(self) -> list[int]:
        """Return its processes."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def memory(self) -> float:
        """Return the resident memory of its processes in MiB."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


@contextlib.contextmanager
def serving(workers: int | None) -> Iterator[Server]:
    """Run a server with two tokens."""
    scopes = ("tasks:read", "episodes:run", "rewards:read")
    (first, one), (second, two) = new_token("victim", scopes), new_token("flooder", scopes)
    command = [sys.executable, "-m", "ludus.cli", "serve", f"{__file__}:Echo", "--port", "0", "--log-level", "ERROR"]
    command += ["--workers", str(workers)] if workers is not None else []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(TokenFile(tokens=(one, two)).model_dump_json())
        file.flush()
        os.chmod(file.name, 0o600)
        process = subprocess.Popen(
            [*command, "--token-file", file.name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline().decode()
            yield Server(line.split(" at ")[1].split()[0], process, (first, second))
        finally:
            process.terminate()
            process.wait(timeout=60)
            process.stdout.close()


async def step_times(server: Server, seconds: float) -> list[float]:
    """Make one step after the other for some seconds, and return how long each took."""
    times: list[float] = []
    async with connect(server.url, token=server.tokens[0], wire="channel") as client:
        async with client.environment("echo").episode() as episode:
            await episode.call("echo", text="hello")
            until = time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                await episode.call("echo", text="hello")
                times.append(time.perf_counter() - began)
                await asyncio.sleep(PAUSE_SECONDS)
    return times


async def measure(workers: int | None, name: str, connections: int, seconds: float) -> dict[str, Any]:
    """Measure one flood; an empty name is none."""
    with serving(workers) as server:
        url = urlsplit(server.url)
        async with connect(server.url, token=server.tokens[1]) as client:
            episode = await client.environment("echo").start(index=0)
            assert episode.play_url is not None
            before, memory = server.pids(), server.memory()
            flooder = None
            if name:
                arguments = [url.hostname or "", str(url.port), name, str(connections)]
                arguments += [urlsplit(episode.play_url).path, server.tokens[1], episode.id]
                command = [sys.executable, __file__, "--flood", *arguments]
                flooder = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
                assert flooder.stdout is not None
                await flooder.stdout.readline()
            try:
                times = await step_times(server, seconds)
            finally:
                lines = []
                if flooder is not None:
                    flooder.kill()
                    lines = (await flooder.communicate())[0].splitlines()
            traffic = json.loads(lines[-1]) if lines else {"sent": 0, "opened": 0}
            after = server.pids()
            return {
                "steps": len(times), "p50": statistics.median(times), "max": max(times),
                "p99": sorted(times)[int(0.99 * (len(times) - 1))],
                "replaced": len(set(before) - set(after)), "memory": [memory, server.memory()], **traffic,
            }  # fmt: skip


def line_of(name: str, row: dict[str, Any]) -> str:
    """Return the line of a flood."""
    p50, p99, most = (1e3 * row[key] for key in ("p50", "p99", "max"))
    before, after = row["memory"]
    verdict = "met" if row["p99"] <= MOST and not row["replaced"] else "MISSED"
    return (
        f"{name or 'no flood':20} {row['steps']:6} steps: p50 {p50:6.1f}, p99 {p99:7.1f}, max {most:7.1f} ms; "
        f"{row['sent'] / _MIB:8.1f} MiB over {row['opened']:6} connections; {row['replaced']} replaced; "
        f"memory {before:.0f} → {after:.0f} MiB; {verdict}"
    )


def main() -> int:
    """Measure and print; the exit code is 1 when the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, help="worker processes behind a gateway; without it, one process")
    parser.add_argument("--only", help="names of floods, with commas")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--flood", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        import uvloop

        host, port, name, connections, *rest = options.flood
        uvloop.run(attack(host, int(port), floods(*rest)[name], int(connections)))
        return 0
    names = options.only.split(",") if options.only else list(floods("/", "", ""))
    rows = {}
    for name in ["", *names]:
        rows[name or "none"] = row = asyncio.run(measure(options.workers, name, options.connections, options.seconds))
        print(line_of(name, row), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows), encoding="utf-8")
    return int(any(row["p99"] > MOST or row["replaced"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
