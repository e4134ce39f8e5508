"""Servers of several processes: what the gateway costs a step, and what a second worker brings.

    python benchmarks/worker_gateway.py [--quick] [--json FILE]

*Cost*: an echo tool on a server of one process, and on one of one worker behind its gateway, in turn; 64 in flight and
one at a time, over the channel of our client (which the gateway passes on byte by byte) and over a plain WebSocket
client (whose requests it reads). The figure is the CPU of all processes of the server for a step, as the kernel
accounts it, over that of the one process. *Gain*: a tool that computes for 1 ms, 64 in flight, one worker and two, in
turn; the client's process needs CPU of the same machine. Medians over rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processes import cpu_seconds

from ludus.server import Environment, Task, tool

STEPS_OF_A_FRAME = 64


class Echo(Environment[Task]):
    """Echoes, or computes."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        """Say nothing of interest."""
        return "hi"

    @tool
    async def echo(self, text: str) -> str:
        """Say it back."""
        return text

    @tool
    async def compute(self, text: str) -> str:
        """Compute for 1 ms of CPU time."""
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass
        return text


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[str, list[int]]]:
    """A server, with its address and its processes, the gateway first."""
    command = [sys.executable, "-m", "ludus.cli", "serve", f"{__file__}:Echo", "--port", "0", "--log-level", "WARNING"]
    process = subprocess.Popen([*command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield line.split(" at ")[1].split()[0], [process.pid, *map(int, children)]
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()


# ── clients, in processes of their own ──────────────────────────────────────────────────────────────────────────────


async def drive(url: str, name: str, at_once: int, seconds: float, pids: list[int]) -> dict[str, Any]:
    """Steps of our client for some seconds."""
    from ludus.client import connect

    done, until = 0, float("inf")
    ready = asyncio.Barrier(at_once + 1)

    async with connect(url, wire="channel") as client:
        echo = client.environment("echo")
        await client.environments()

        async def steps() -> None:
            nonlocal done
            async with echo.episode() as episode:
                await episode.call(name, text="hello")
                await ready.wait()
                while time.perf_counter() < until:
                    await episode.call(name, text="hello")
                    done += 1

        tasks = [asyncio.ensure_future(steps()) for _ in range(at_once)]
        await ready.wait()
        began, own, before = time.perf_counter(), time.process_time(), [cpu_seconds(pid) for pid in pids]
        until = began + seconds
        await asyncio.sleep(seconds)
        count, took = done, time.perf_counter() - began
        spent = [cpu_seconds(pid) - old for pid, old in zip(pids, before, strict=True)]
        own = time.process_time() - own
        await asyncio.gather(*tasks)
    return {"per_second": count / took, "client_us": own / count * 1e6, "us": [one / count * 1e6 for one in spent]}


async def drive_plain(url: str, seconds: float, pids: list[int]) -> dict[str, Any]:
    """Steps in arrays of 64, of a WebSocket client that knows nothing of workers."""
    import aiohttp

    from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL

    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(f"{url}/channel", protocols=(CHANNEL_SUBPROTOCOL,), max_msg_size=0) as socket:

            async def ask(method: str, many: list[dict[str, Any]]) -> list[Any]:
                frame = [
                    {"jsonrpc": "2.0", "id": at, "method": f"dev.ludus/episodes/{method}", "params": params}
                    for at, params in enumerate(many)
                ]
                await socket.send_str(json.dumps(frame))
                found: list[Any] = []
                while len(found) < len(many):
                    reply = json.loads((await socket.receive()).data)
                    found += reply if isinstance(reply, list) else [reply]
                return found

            start = {"environment": "echo", "split": "train"}
            begun = await ask("start", [{**start, "key": str(at)} for at in range(STEPS_OF_A_FRAME)])
            ids = [one["result"]["episodes"][0]["episode"] for one in begun]
            count, number = 0, 0
            began, own, before = time.perf_counter(), time.process_time(), [cpu_seconds(pid) for pid in pids]
            while time.perf_counter() - began < seconds:
                number += 1
                step = {"step": number, "tool": "echo", "arguments": {"text": "hello"}, "key": str(number)}
                await ask("step", [{"episode": one, **step} for one in ids])
                count += len(ids)
            took, own = time.perf_counter() - began, time.process_time() - own
            spent = [cpu_seconds(pid) - old for pid, old in zip(pids, before, strict=True)]
    return {"per_second": count / took, "client_us": own / count * 1e6, "us": [one / count * 1e6 for one in spent]}


def ask_client(what: str, url: str, at_once: int, seconds: float, pids: list[int]) -> dict[str, Any]:
    """Run a client process and read what it measured."""
    command = [sys.executable, __file__, "--client", what, url, str(at_once), str(seconds), *map(str, pids)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# ── the comparisons ─────────────────────────────────────────────────────────────────────────────────────────────────


def middle(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of a cell's rounds."""
    us = [statistics.median(column) for column in zip(*(cell["us"] for cell in cells), strict=True)]
    return {"us": us, **{key: statistics.median(cell[key] for cell in cells) for key in ("per_second", "client_us")}}


def cost(rounds: int, seconds: float) -> dict[str, Any]:
    """What the gateway costs."""
    cells: dict[str, list[dict[str, Any]]] = {}
    with serving() as direct, serving("--workers", "1") as behind:
        for _ in range(rounds):
            for what, at_once in (("echo", 64), ("echo", 1), ("plain", 64)):
                for side, (url, pids) in (("direct", direct), ("gateway", behind)):
                    cells.setdefault(f"{what} {at_once} {side}", []).append(
                        ask_client(what, url, at_once, seconds, pids)
                    )
    found: dict[str, Any] = {}
    for key, name in (("echo 64", "at_64"), ("echo 1", "at_1"), ("plain 64", "plain")):
        direct_cell, behind_cell = middle(cells[f"{key} direct"]), middle(cells[f"{key} gateway"])
        one, (gateway, worker) = sum(direct_cell["us"]), behind_cell["us"]
        found[name] = {"direct_us": one, "gateway_us": gateway, "worker_us": worker, "ratio": (gateway + worker) / one}
        rates = f"{direct_cell['per_second']:,.0f} → {behind_cell['per_second']:,.0f} steps/s"
        print(
            f"{key:9} direct {one:.1f} µs; gateway {gateway:.1f} + worker {worker:.1f} µs: "
            f"{found[name]['ratio']:.2f}×; {rates}"
        )
    return found


def gain(rounds: int, seconds: float) -> dict[str, float]:
    """What a second worker brings."""
    cells: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    with serving("--workers", "1") as one, serving("--workers", "2") as two:
        for _ in range(rounds):
            for count, (url, pids) in ((1, one), (2, two)):
                cells[count].append(ask_client("compute", url, 64, seconds, pids))
    rates = {count: middle(found)["per_second"] for count, found in cells.items()}
    for count, found in cells.items():
        spent = middle(found)
        shares = ", ".join(f"{us:.0f}" for us in spent["us"])
        print(
            f"{count} workers: {rates[count]:,.0f} steps/s; µs by process {shares}; client {spent['client_us']:.0f} µs"
        )
    return {"one": rates[1], "two": rates[2], "times": rates[2] / rates[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--client", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        what, url, at_once, seconds, *pids = options.client
        numbers = list(map(int, pids))
        work = (
            drive_plain(url, float(seconds), numbers)
            if what == "plain"
            else drive(url, what, int(at_once), float(seconds), numbers)
        )
        print(json.dumps(asyncio.run(work)))
        return
    rounds, seconds = (1, 1.0) if options.quick else (5, 4.0)
    found = {**cost(rounds, seconds), "gain": gain(rounds, seconds), "cores": os.cpu_count()}
    if options.json:
        options.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
