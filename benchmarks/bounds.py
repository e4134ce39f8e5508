"""What one agent, and strangers without a credential, can make a server use: memory, threads and time of others.

    python benchmarks/bounds.py [--quick] [--json FILE]

One server process for each case, this process as its clients over real sockets. Memory is the server's resident set,
the greatest value seen while the case runs; a wait is the longest time that another client's `/health` or start took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

MEBIBYTE = 1024 * 1024


def serve(port: int, tokens: str) -> None:
    """Serve the environments of these cases."""
    from ludus.server import Environment, Task, tool
    from ludus.server.serving.serve import run
    from ludus.server.serving.settings import ServerSettings

    class Busy(Environment[Task]):
        """Takes anything, and takes its time."""

        splits = {"train": [Task(id="only")]}

        def prompt(self) -> str:
            return "go"

        @tool
        async def note(self, text: str) -> str:
            """Take a text."""
            return "noted"

        @tool(ends=True)
        async def finish(self) -> str:
            """End the episode."""
            return "finished"

        @tool
        async def slow(self) -> str:
            """Take a while."""
            await asyncio.sleep(20)
            return "done"

        @tool
        def block(self) -> str:
            """Block a thread."""
            time.sleep(20)
            return "done"

    class Other(Environment[Task]):
        """Another environment, which blocks a little."""

        splits = {"train": [Task(id="only")]}

        def setup(self) -> None:
            time.sleep(0.01)

        def prompt(self) -> str:
            return "go"

        @tool
        def touch(self) -> str:
            """Nothing."""
            return "touched"

    settings = ServerSettings(port=port, log_level="CRITICAL", token_file=Path(tokens) if tokens else None)
    run([Busy, Other], settings)


def resident(pid: int) -> float:
    """MiB that a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEBIBYTE


class Server:
    """A server under attack, and the greatest memory it took."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self.before = resident(pid)
        self.most = self.before

    async def watch(self) -> None:
        """Look at its memory until canceled."""
        while True:
            with contextlib.suppress(OSError, IndexError):
                self.most = max(self.most, resident(self.pid))
            await asyncio.sleep(0.02)

    async def ask(self, path: str, body: bytes | None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """One request on a connection of its own: status and body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        method = "GET" if body is None else "POST"
        fields = {"Host": "localhost", "Connection": "close", "Content-Type": "application/json"}
        fields |= {"Accept": "application/json, text/event-stream", **(headers or {})}
        if body is not None:
            fields["Content-Length"] = str(len(body))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        try:
            writer.write(head.encode() + b"\r\n" + (body or b""))
            await writer.drain()
            answer = await reader.read()
        except ConnectionError:
            return 0, b""
        finally:
            writer.close()
        first, _, rest = answer.partition(b"\r\n\r\n")
        return (int(first.split()[1]) if first else 0), rest

    async def start(self, environment: str) -> str:
        """Start an episode; the path of its play plane."""
        params = {"environment": environment, "split": "train", "key": secrets.token_hex(8)}
        call = {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/episodes/start", "params": params}
        _, answer = await self.ask("/mcp", json.dumps(call).encode(), {"MCP-Protocol-Version": "2025-06-18"})
        answer = answer[answer.index(b"{") : answer.rindex(b"}") + 1]  # an event stream, where it took long
        return str(json.loads(answer)["result"]["episodes"][0]["play"]["path"])

    async def call(self, path: str, tool: str, arguments: str) -> tuple[int, bytes]:
        """Call a tool on a play plane, with arguments that are JSON already."""
        body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s}}'
        return await self.ask(path, (body % (tool, arguments)).encode(), {"MCP-Protocol-Version": "2025-06-18"})


@contextlib.asynccontextmanager
async def running(tokens: bool = False) -> AsyncIterator[Server]:
    """A fresh server process."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        file = Path(folder) / "tokens.json"
        file.write_text('{"tokens": []}')
        command = [sys.executable, __file__, "--serve", str(port), "--tokens", str(file) if tokens else ""]
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)  # noqa: ASYNC220 - nothing else runs yet
        try:
            await asyncio.to_thread(_until_healthy, port)
            server = Server(port, process.pid)
            watching = asyncio.create_task(server.watch())
            try:
                yield server
            finally:
                watching.cancel()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _until_healthy(port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


async def refused_calls(count: int) -> dict[str, float]:
    """Calls of 4 MiB of nested lists, each refused, one after the other."""
    async with running() as server:
        path = await server.start("busy")
        arguments = '{"text":[' + "[]," * 1_390_000 + "[]]}"
        for _ in range(count):
            await server.call(path, "note", arguments)
        alive = (await server.ask("/health", None))[0] == 200
    return {"calls": count, "most_mib": server.most, "alive": alive}


async def queued_calls(count: int) -> dict[str, float]:
    """Calls of 1 MiB that wait behind a slow step."""
    async with running() as server:
        path = await server.start("busy")
        slow = asyncio.create_task(server.call(path, "slow", "{}"))
        await asyncio.sleep(0.5)
        arguments = json.dumps({"text": "x" * MEBIBYTE})
        at_once = asyncio.Semaphore(32)
        waiting = []

        async def call() -> None:
            async with at_once:
                request = asyncio.create_task(server.call(path, "note", arguments))
                waiting.append(request)
                await asyncio.wait({request}, timeout=0.2)

        await asyncio.gather(*(call() for _ in range(count)))
        await asyncio.wait(waiting, timeout=10)
        refused = sum(b"queue_bytes" in one.result()[1] for one in waiting if one.done())
        for one in (slow, *waiting):
            one.cancel()
        await asyncio.gather(slow, *waiting, return_exceptions=True)
    return {"calls": count, "most_mib": server.most, "refused": refused}


async def strangers(count: int) -> dict[str, float]:
    """Chunked bodies of 4 MB that never end, on connections without a credential."""
    async with running(tokens=True) as server:
        writers = []

        async def connect() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writers.append(writer)
            with contextlib.suppress(ConnectionError, TimeoutError):
                writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
                chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
                async with asyncio.timeout(10):
                    for _ in range(62):
                        writer.write(chunk)
                        await writer.drain()

        await asyncio.gather(*(connect() for _ in range(count)))
        await asyncio.sleep(0.5)
        for writer in writers:
            writer.close()
    return {"connections": count, "before_mib": server.before, "growth_mib": server.most - server.before}


async def threads(count: int) -> dict[str, float]:
    """The start of one environment while the calls of another block all threads."""
    async with running() as server:
        paths = [await server.start("busy") for _ in range(count)]
        calls = [asyncio.create_task(server.call(path, "block", "{}")) for path in paths]
        await asyncio.sleep(1)
        began = time.perf_counter()
        await server.start("other")
        took = time.perf_counter() - began
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    return {"calls": count, "start_s": took}


async def unknown_arguments(count: int) -> dict[str, float]:
    """What others wait while one call has very many unknown arguments."""
    async with running() as server:
        path = await server.start("busy")
        arguments = json.dumps({f"k{number}": 1 for number in range(count)}, separators=(",", ":"))
        few = json.dumps({f"k{number}": 1 for number in range(19_000)}, separators=(",", ":"))
        longest = 0.0
        for text in (arguments, few):
            call = asyncio.create_task(server.call(path, "note", text))
            while not call.done():
                began = time.perf_counter()
                await server.ask("/health", None)
                longest = max(longest, time.perf_counter() - began)
    return {"arguments": count, "longest_wait_s": longest}


async def ended_episodes(count: int) -> dict[str, float]:
    """Episodes that hold 0.9 MiB each, end, and are never closed, one after the other; then as many again."""
    async with running() as server:
        text = json.dumps({"text": "x" * (9 * MEBIBYTE // 10)})
        after = []
        for _ in range(2):
            for _ in range(count):
                path = await server.start("busy")
                await server.call(path, "note", text)
                await server.call(path, "finish", "{}")
            after.append(resident(server.pid))
    return {"episodes": count, "before_mib": server.before, "after_mib": after[0], "after_twice_mib": after[1]}


async def small_ended_episodes(count: int) -> dict[str, float]:
    """Episodes of two short calls that end and are never closed, one after the other; then as many again."""
    async with running() as server:
        after = []
        for _ in range(2):
            for _ in range(count):
                path = await server.start("busy")
                await server.call(path, "note", '{"text":"x"}')
                await server.call(path, "finish", "{}")
            after.append(resident(server.pid))
    return {"episodes": count, "before_mib": server.before, "after_mib": after[0], "after_twice_mib": after[1]}


CASES: dict[str, tuple[Callable[[int], Coroutine[Any, Any, dict[str, float]]], int]] = {
    "refused_calls": (refused_calls, 40),
    "queued_calls": (queued_calls, 300),
    "strangers": (strangers, 150),
    "threads": (threads, 128),
    "unknown_arguments": (unknown_arguments, 380_000),
    "ended_episodes": (ended_episodes, 400),
    "small_ended_episodes": (small_ended_episodes, 4_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the calls and connections")
    parser.add_argument("--only", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    found = {}
    for name in options.only.split(","):
        case, count = CASES[name]
        found[name] = asyncio.run(case(count // 4 if options.quick else count))
        print(f"{name}: {(case.__doc__ or '').strip()}")
        print("   " + ", ".join(f"{what} {value:,.2f}" for what, value in found[name].items()), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), sys.argv[4] if len(sys.argv) > 4 else "")
    else:
        main()
