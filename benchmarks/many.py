"""Very many episodes at one server: how long a step takes while they are active, and the memory of those that are open.

    python benchmarks/many.py [--active 16384] [--every 4] [--seconds 40] [--clients 4] [--open 100000] [--journal]

* Active: a server process and some client processes, each with its share of the episodes over one channel. Each episode
  takes a step every few seconds, at a moment of its own. The latency is that of `episode.call`, so it includes the
  client. OpenEnv reports a p99 of 29.8 s for 16,384 sessions on two nodes behind Envoy, connecting included.
* Open: the memory that a server process gains by episodes that are started and not played (its resident set size).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from processes import serve

from ludus.client import Episode, connect
from ludus.common.heap import settle_heap
from ludus.server import Environment, Result, Task, tool

P99_SECONDS = 0.250
OPEN_MEGABYTES = 250.0
GROUP = 1024
SPEC = f"{__file__}:Plain"


class Plain(Environment[Task]):
    """Counts its own steps."""

    splits = {"train": [Task(id="only")]}
    blocking = False

    def setup(self) -> None:
        """Begin at 0."""
        self.count = 0

    def prompt(self) -> str:
        """Ask."""
        return "Count."

    @tool
    def step(self) -> Result:
        """Count one step."""
        self.count += 1
        return Result(str(self.count), reward=1.0)


def resident_megabytes(pid: int) -> float:
    """Return the memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no resident memory")


async def start(client: Any, count: int) -> list[Episode]:
    """Start episodes in groups."""
    found: list[Episode] = []
    while len(found) < count:
        found += await client.environment("plain").start_group(min(GROUP, count - len(found)), seed=1)
    return found


async def play(url: str, count: int, every: float, seconds: float) -> list[float]:
    """Play a share of the episodes, and return the latency of each step after the first round."""
    chance = random.Random(count)
    latencies: list[float] = []
    async with connect(url, wire="channel") as client:
        episodes = await start(client, count)
        settle_heap()  # as the documentation says
        began = time.perf_counter()

        async def one(episode: Episode) -> None:
            due = began + chance.uniform(0.0, every)
            while due < began + seconds:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                sent = time.perf_counter()
                await episode.call("step")
                if sent > began + every:
                    latencies.append(time.perf_counter() - sent)
                due += every

        await asyncio.gather(*map(one, episodes))
    return latencies


async def active(options: argparse.Namespace, *more: str) -> dict[str, float]:
    """Return the latencies of all clients together, in seconds."""
    process, url = await serve(SPEC, "--idle-seconds", "3600", *more)
    share = options.active // options.clients
    command = [sys.executable, __file__, "--client", url, "--active", str(share)]
    command += ["--every", str(options.every), "--seconds", str(options.seconds)]
    try:
        clients = [
            await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            for _ in range(options.clients)
        ]
        printed = await asyncio.gather(*(one.communicate() for one in clients))
    finally:
        process.kill()
        await process.wait()
    every = sorted(latency for text, _ in printed for latency in json.loads(text))
    return {
        "steps": len(every),
        "p50": every[len(every) // 2],
        "p99": every[len(every) * 99 // 100],
        "most": every[-1],
    }


async def opened(count: int) -> float:
    """Return the MiB that a server holds for episodes that are open."""
    process, url = await serve(SPEC, "--idle-seconds", "3600")
    try:
        async with connect(url, wire="channel") as client:
            await start(client, 100)
            before = resident_megabytes(process.pid)
            await start(client, count)
            gained = resident_megabytes(process.pid) - before
            process.kill()  # closing them one by one would only take time
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return gained


def main() -> int:
    """Measure and print; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--active", type=int, default=16_384)
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two steps of an episode")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--open", type=int, default=100_000)
    parser.add_argument("--journal", action="store_true", help="serve the active episodes with a journal")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client is not None:
        print(json.dumps(asyncio.run(play(options.client, options.active, options.every, options.seconds))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        more = ("--journal", f"{folder}/j.db") if options.journal else ()
        found: dict[str, Any] = {"episodes": options.active, "every": options.every, "opened": options.open}
        found["active"] = asyncio.run(active(options, *more))
    one = found["active"]
    met = one["p99"] <= P99_SECONDS
    print(
        f"{options.active:,} active episodes, a step each {options.every:g} s: {one['steps']:,} steps, "
        f"p50 {1000 * one['p50']:.1f} ms, p99 {1000 * one['p99']:.1f} ms, at most {1000 * one['most']:.0f} ms: "
        f"{'met' if met else 'MISSED'}"
    )
    found["open"] = gained = asyncio.run(opened(options.open))
    roomy = gained <= OPEN_MEGABYTES
    print(f"{options.open:,} open episodes hold {gained:.0f} MiB: {'met' if roomy else 'MISSED'}")
    if options.json is not None:
        options.json.write_text(json.dumps(found), encoding="utf-8")
    return int(not (met and roomy))


if __name__ == "__main__":
    sys.exit(main())
