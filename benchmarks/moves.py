"""How long episodes wait while they move from one process to another.

    python benchmarks/moves.py [--live N] [--rounds N] [--json FILE]

A server of two workers with journals has `--live` episodes, which have five steps each at first, and more in each
round. They take 1,000 steps a second together, over the channel, so that the machine is not full. In each round the
server gets SIGHUP, and every episode moves to a new process. The wait of an episode is the longest time that one of its
steps took meanwhile; the figures are percentiles over all episodes and rounds. The longest steps while nothing moves
are measured, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import tempfile
import time
from pathlib import Path

from processes import serve

from ludus.client import Episode, connect
from ludus.server import Environment, Task, tool

STEPS = 1000
"""Steps per second, of all episodes together."""

QUIET = 5.0
"""Seconds during which nothing moves."""


class Counting(Environment[Task]):
    """Counts."""

    splits = {"train": [Task(id="only")]}
    blocking = False

    async def setup(self) -> None:
        """Begin at zero."""
        self.count = 0

    async def prompt(self) -> str:
        """Say what to do."""
        return "Count."

    @tool
    async def step(self) -> str:
        """Count one."""
        self.count += 1
        return str(self.count)


async def play(episode: Episode, waits: list[float], over: asyncio.Event, chance: random.Random, pause: float) -> None:
    """Take steps until the round ends, and note the longest one."""
    longest = 0.0
    while not over.is_set():
        began = time.perf_counter()
        await episode.call("step")
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(chance.uniform(0, 2 * pause))
    waits.append(longest)


async def during(episodes: list[Episode], happen: asyncio.Future[None]) -> list[float]:
    """The longest step of each episode while something happens."""
    waits: list[float] = []
    over, chance = asyncio.Event(), random.Random(1)
    playing = asyncio.gather(*(play(one, waits, over, chance, len(episodes) / STEPS) for one in episodes))
    await happen
    over.set()
    await playing
    return waits


async def moved(process: asyncio.subprocess.Process) -> None:
    """Let all episodes move, and wait until they have."""
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    while b"all workers were restarted" not in (line := await process.stderr.readline()):
        assert line, "the server has ended"


def percentiles(waits: list[float]) -> dict[str, float]:
    """Milliseconds."""
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {"p50": 1e3 * cuts[49], "p95": 1e3 * cuts[94], "p99": 1e3 * cuts[98], "max": 1e3 * max(waits)}


async def measure(live: int, rounds: int) -> dict[str, dict[str, float]]:
    """The waits while nothing moves, and while all episodes move."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--workers", "2", "--journal", str(Path(folder) / "journal.db"), "--log-level", "INFO"]
        process, url = await serve(f"{__file__}:Counting", *options, stderr=asyncio.subprocess.PIPE)
        try:
            async with connect(url) as client:
                environment = client.environment("counting")
                episodes = [await environment.start(seed=1) for _ in range(live)]
                for _ in range(5):
                    await asyncio.gather(*(one.call("step") for one in episodes))
                quiet = await during(episodes, asyncio.ensure_future(asyncio.sleep(QUIET)))
                waits: list[float] = []
                for _ in range(rounds):
                    waits += await during(episodes, asyncio.ensure_future(moved(process)))
                await asyncio.gather(*(one.close() for one in episodes))
        finally:
            process.terminate()
            await process.wait()
    return {"quiet": percentiles(quiet), "moved": percentiles(waits)}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for live in options.live:
        found[live] = asyncio.run(measure(live, options.rounds))
        for kind, figures in found[live].items():
            shown = ", ".join(f"{name} {value:.0f} ms" for name, value in figures.items())
            print(f"{live} episodes, {kind}: {shown}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
