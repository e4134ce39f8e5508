"""MCP `tools/call` on the play plane next to a minimal server of the official SDK: server CPU per call.

    python benchmarks/mcp_play.py [--rounds 7] [--calls 3000] [--in-flight 16] [--json FILE]

Both servers are processes of their own under the same uvicorn (uvloop, httptools) with one echo tool, and answer the
same raw keep-alive client, one server at a time. The minimal server is `mcp` 2.3's low-level `Server` as its
documentation writes it, in JSON mode, its fastest. CPU time is what the kernel counted for all threads of the server
(`/proc/PID/task/*/schedstat`). The rounds alternate between the servers, and a figure is the median of its rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER_PYTHON = ROOT / ".peers" / "mcp2" / "bin" / "python"
BAR = 1.0
MODERN = "2026-07-28"
LEGACY = "2025-11-25"


# ── the servers ────────────────────────────────────────────────────────────────────────────────────────────────────


def serve_ludus(port: int) -> None:
    """One echo environment, served as `ludus serve` does."""
    from ludus.server import Environment, Task, tool
    from ludus.server.serving.serve import run
    from ludus.server.serving.settings import ServerSettings

    class Echo(Environment[Task]):
        """Return the message."""

        blocking = False
        splits = {"train": [Task(id="only")]}

        def prompt(self) -> str:
            return "Say something."

        @tool
        def echo(self, text: str) -> str:
            """Say it back."""
            return text

    run([Echo], ServerSettings(port=port, log_level="WARNING"))


def serve_minimal(port: int) -> None:
    """The SDK's low-level server with one echo tool."""
    import mcp_types as types
    import uvicorn
    from mcp.server.lowlevel import Server

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return types.ListToolsResult(tools=[types.Tool(name="echo", description="Say it back.", input_schema=schema)])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        assert params.arguments is not None
        return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["text"])])

    server = Server("minimal", on_list_tools=list_tools, on_call_tool=call_tool)
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    uvicorn.run(app, port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False)


@contextlib.contextmanager
def server(python: str | Path, name: str) -> Iterator[tuple[int, int]]:
    """A server process: its pid and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([str(python), __file__, "--child", name, str(port)])
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit(f"the {name} server did not start") from None
                time.sleep(0.05)
        yield process.pid, port
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


# ── the client ─────────────────────────────────────────────────────────────────────────────────────────────────────


def request(port: int, path: str, method: str, params: dict[str, Any], era: str) -> bytes:
    """One POST as bytes."""
    headers = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    headers += ["Accept: application/json, text/event-stream", f"MCP-Protocol-Version: {era}"]
    if era == MODERN:
        prefix = "io.modelcontextprotocol/"
        capabilities = {"extensions": {"dev.ludus/episodes": {"version": "0.2"}}} if "ludus" in method else {}
        meta = {prefix + "protocolVersion": era, prefix + "clientCapabilities": capabilities}
        params = {**params, "_meta": {**meta, prefix + "clientInfo": {"name": "bench", "version": "1"}}}
        headers.append(f"Mcp-Method: {method}")
        if "name" in params:
            headers.append(f"Mcp-Name: {params['name']}")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return "\r\n".join([*headers, f"Content-Length: {len(body)}", "", ""]).encode() + body


class Connection(asyncio.Protocol):
    """Sends one request again and again, each after the answer to the one before."""

    def __init__(self, payload: bytes, take: Any) -> None:
        self.payload = payload
        self.take = take
        self.received = b""
        self.last = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, gap, body = self.received.partition(b"\r\n\r\n")
        if not gap:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) >= length:
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"the server said {self.received!r}")
            self.last, self.received = body[:length], b""
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server hung up"))

    def _next(self) -> None:
        if self.take():
            self.transport.write(self.payload)  # type: ignore[attr-defined]
        elif not self.done.done():
            self.done.set_result(None)
            self.transport.close()


async def call(port: int, payload: bytes, calls: int, in_flight: int) -> bytes:
    """Send `payload` `calls` times over `in_flight` connections; the last answer's body."""
    left = calls

    def take() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: Connection(payload, take), "127.0.0.1", port))[1]
        for _ in range(in_flight)
    ]
    await asyncio.gather(*(connection.done for connection in connections))
    return next(connection.last for connection in connections if connection.last)


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def play_path(port: int, key: str) -> str:
    """The play plane's path of a new episode."""
    params = {"environment": "echo", "split": "train", "key": key}
    answer = asyncio.run(call(port, request(port, "/mcp", "dev.ludus/episodes/start", params, MODERN), 1, 1))
    path: str = json.loads(answer)["result"]["episodes"][0]["play"]["path"]
    return path


# ── the comparison ─────────────────────────────────────────────────────────────────────────────────────────────────


def measure(rounds: int, calls: int, in_flight: int) -> dict[str, Any]:
    """Microseconds of server CPU per call, and calls per second, by era and server."""
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with server(sys.executable, "ludus") as ludus, server(PEER_PYTHON, "minimal") as minimal:
        for turn in range(rounds + 1):
            for era in (MODERN, LEGACY):
                for name, (pid, port) in (("ludus", ludus), ("minimal", minimal)):
                    # A new episode each round: an episode that was stepped for long holds many outcomes.
                    path = play_path(port, f"{turn}/{era}") if name == "ludus" else "/mcp"
                    echo = {"name": "echo", "arguments": {"text": "hello"}}
                    payload = request(port, path, "tools/call", echo, era)
                    began, used = time.perf_counter(), cpu_seconds(pid)
                    answer = json.loads(asyncio.run(call(port, payload, calls, in_flight)))
                    used, took = cpu_seconds(pid) - used, time.perf_counter() - began
                    assert answer["result"]["content"] == [{"type": "text", "text": "hello"}], answer
                    if turn:
                        seen.setdefault((era, name), []).append((used / calls * 1e6, calls / took))
    table = {
        f"{era} {name}": {
            "server_us_per_call": statistics.median(us for us, _ in cells),
            "calls_per_second": statistics.median(rate for _, rate in cells),
        }
        for (era, name), cells in seen.items()
    }
    ratios = {
        era: table[f"{era} ludus"]["server_us_per_call"] / table[f"{era} minimal"]["server_us_per_call"]
        for era in (MODERN, LEGACY)
    }
    return {"in_flight": in_flight, "calls": calls, "rounds": rounds, "table": table, "ratio": ratios, "bar": BAR}


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        {"ludus": serve_ludus, "minimal": serve_minimal}[sys.argv[2]](int(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not PEER_PYTHON.exists():
        print("left out: mcp 2.3 is not installed (make peers)")
        return 0
    found = measure(options.rounds, options.calls, options.in_flight)
    for name, row in found["table"].items():
        cpu, rate = row["server_us_per_call"], row["calls_per_second"]
        print(f"{name:22} {cpu:7.0f} µs server CPU per call {rate:8.0f} calls/s")
    for era, ratio in found["ratio"].items():
        print(f"{era:22} {ratio:7.2f} × the minimal server's (bar {BAR})")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if max(found["ratio"].values()) <= BAR else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
