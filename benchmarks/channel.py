"""The channel next to OpenEnv's WebSocket: steps and episodes with 64 in flight, and what an idle episode costs.

    python benchmarks/channel.py [--quick] [--json FILE]

One server process and one client process for each side, the same echo tool, cells of both sides in turn, medians over
rounds. Each side is driven by its own asynchronous client through its public calls, on asyncio's own event loop; each
server runs as its installation makes it run (ours with uvloop, which it depends on; OpenEnv does not). CPU is what the
kernel accounts to the process. The peer needs `scripts/peers.py`; without it our side is measured alone.

Episodes of OpenEnv are sessions: connect, reset, one step, close. `resets` keeps the session and its environment object
and only resets it, which saves the connection and gives up isolation; it is shown for completeness.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

HERE = Path(__file__).resolve().parent
PEER = HERE.parent / ".peers" / "openenv" / "bin" / "python"
AT_ONCE = 64


class Server(NamedTuple):
    """A server under test."""

    url: str
    pid: int


# ── our side, in processes of their own ────────────────────────────────────────────────────────────────────────────


def serve(port: int) -> None:
    """Our echo environment."""
    from ludus.server import Environment, Task, tool
    from ludus.server.serving.serve import run
    from ludus.server.serving.settings import ServerSettings

    class Echo(Environment[Task]):
        """Echoes."""

        splits = {"train": [Task(id="only")]}

        async def prompt(self) -> str:
            return "hi"

        @tool
        async def echo(self, text: str) -> str:
            """Say it back."""
            return text

    run([Echo], ServerSettings(port=port, log_level="WARNING"))


def server_cpu(pid: int) -> float:
    """CPU seconds of a process, threads that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def drive(work: str, server: Server, seconds: float) -> dict[str, float]:
    """`AT_ONCE` workers for some seconds."""
    from ludus.client import connect

    done = 0
    until = float("inf")
    ready = asyncio.Barrier(AT_ONCE + 1)

    async with connect(server.url) as client:
        echo = client.environment("echo")

        async def steps() -> None:
            nonlocal done
            async with echo.episode() as episode:
                await ready.wait()
                while time.perf_counter() < until:
                    result = await episode.call("echo", text="hello")
                    if result.content[0].text != "hello":  # type: ignore[union-attr]
                        raise RuntimeError(result)
                    done += 1

        async def episodes() -> None:
            nonlocal done
            await ready.wait()
            while time.perf_counter() < until:
                async with echo.episode() as episode:
                    await episode.call("echo", text="hello")
                done += 1

        await client.environments()
        worker: Callable[[], Awaitable[None]] = {"steps": steps, "episodes": episodes}[work]
        workers = [asyncio.ensure_future(worker()) for _ in range(AT_ONCE)]
        await ready.wait()
        began, cpu, spent = time.perf_counter(), time.process_time(), server_cpu(server.pid)
        until = began + seconds
        await asyncio.sleep(seconds)
        took, cpu, spent = time.perf_counter() - began, time.process_time() - cpu, server_cpu(server.pid) - spent
        count = done
        await asyncio.gather(*workers)
    return {"per_second": count / took, "client_us": cpu / count * 1e6, "server_us": spent / count * 1e6}


async def stand_idle(server: Server, count: int) -> dict[str, float]:
    """Open `count` episodes and look at the server's memory."""
    from ludus.client import connect

    def resident() -> int:
        pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    took: list[float] = []
    async with connect(server.url) as client:
        echo = client.environment("echo")
        turns = asyncio.Semaphore(AT_ONCE)

        async def open_one() -> None:
            async with turns:
                began = time.perf_counter()
                await echo.start()
                took.append(time.perf_counter() - began)

        async with echo.group(1000):
            pass
        before = resident()
        await asyncio.gather(*(open_one() for _ in range(count)))
        after = resident()
    took.sort()
    return {
        "episodes": count,
        "bytes_per_episode": (after - before) / count,
        "open_p50_ms": took[len(took) // 2] * 1e3,
        "open_p99_ms": took[int(len(took) * 0.99)] * 1e3,
    }


# ── the comparison ─────────────────────────────────────────────────────────────────────────────────────────────────


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(*command: str) -> Iterator[Server]:
    """A server process, from its first answer to its end. The port is its last argument."""
    port = free_port()
    process = subprocess.Popen([*command, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (URLError, ConnectionError):
                if process.poll() is not None:
                    raise SystemExit(f"{' '.join(command)} ended with {process.returncode}") from None
                time.sleep(0.1)
        yield Server(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(timeout=30)


def ask(command: list[str]) -> dict[str, float]:
    """Run a client process and read what it measured."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def our_client(work: str, server: Server, amount: float) -> dict[str, float]:
    """A cell of Ludus."""
    return ask([sys.executable, __file__, "--client", work, server.url, str(server.pid), str(amount)])


def their_client(work: str, server: Server, seconds: float) -> dict[str, float]:
    """A cell of OpenEnv's."""
    script = str(HERE / "peers" / "openenv_client.py")
    return ask([str(PEER), script, work, server.url, str(server.pid), str(AT_ONCE), str(seconds)])


def compare(rounds: int, seconds: float) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Cells by side and work."""
    cells: dict[str, dict[str, list[dict[str, float]]]] = {}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(running(sys.executable, __file__, "--serve"))
        theirs = None
        if PEER.exists():
            script = str(HERE / "peers" / "openenv_server.py")
            theirs = stack.enter_context(running(str(PEER), script))
        for _ in range(rounds):
            for work in ("steps", "episodes", "resets"):
                if work != "resets":
                    cells.setdefault("ludus", {}).setdefault(work, []).append(our_client(work, ours, seconds))
                if theirs is not None:
                    cells.setdefault("openenv", {}).setdefault(work, []).append(their_client(work, theirs, seconds))
    return cells


def summed_up(cells: dict[str, dict[str, list[dict[str, float]]]]) -> dict[str, Any]:
    """Medians, by side."""
    found: dict[str, Any] = {}
    for side, works in cells.items():
        for work, rows in works.items():
            middle = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
            found.setdefault(side, {})[f"{work}_per_second"] = middle["per_second"]
            found[side][work] = middle
    return found


def show(found: dict[str, Any]) -> None:
    """The tables."""
    print(f"{'':10}{'':10}{'per second':>12}{'server µs':>12}{'client µs':>12}{'ratio':>8}")
    for work in ("steps", "episodes", "resets"):
        for side in ("ludus", "openenv"):
            row = found.get(side, {}).get(work)
            if row is None:
                continue
            base = found["ludus"]["episodes" if work == "resets" else work]["per_second"]
            ratio = f"{base / row['per_second']:.1f}×" if side != "ludus" else ""
            print(
                f"{work:10}{side:10}{row['per_second']:12,.0f}{row['server_us']:12.1f}{row['client_us']:12.1f}{ratio:>8}"
            )
    idle = found["idle"]
    print(
        f"\n{idle['episodes']:,.0f} open idle episodes: {idle['bytes_per_episode']:,.0f} bytes each; "
        f"opening p50 {idle['open_p50_ms']:.1f} ms, p99 {idle['open_p99_ms']:.1f} ms with {AT_ONCE} at once"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one cell")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.client:
        work, url, pid, amount = options.client
        server = Server(url, int(pid))
        told = stand_idle(server, int(float(amount))) if work == "idle" else drive(work, server, float(amount))
        print(json.dumps(asyncio.run(told)))
        return
    rounds, seconds = (1, 0.7) if options.quick else (options.rounds, options.seconds)
    found = summed_up(compare(rounds, seconds))
    with running(sys.executable, __file__, "--serve") as server:
        found["idle"] = our_client("idle", server, 2_000 if options.quick else 10_000)
    found["idle"]["episodes"] = int(found["idle"]["episodes"])
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
