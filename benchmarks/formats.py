"""What hosting costs: steps and starts of a hosted Gymnasium environment, against the package's own loop.

    python benchmarks/formats.py [--episodes 5] [--starts 20] [--rounds 3] [--json FILE]

Contestants: Gymnasium's own loop in its interpreter; hosted in the server's process (`in_process=true`), in threads and
without them (`blocking=false`); hosted in an interpreter of its own, with a forked process or a thread for each
episode. All play Pendulum-v1 with the same actions and seeds. Steps and starts go through `EpisodeHost`, without a
wire, whose cost benchmarks/channel.py measures. The figures are CPU time of all processes involved (wall time of the
starts), medians over rounds in turn; the overhead is the difference to the package's own loop. Also: the start of an
episode of a stock MCP server of PyPI on stdio, from a pool of warm ones, and `ludus envs --local` as a whole process,
compiled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ludus.common.heap import settle_heap
from ludus.formats.gymnasium import GymnasiumSettings
from ludus.formats.hosting import host_environments
from ludus.formats.mcp.environment import McpHost
from ludus.protocol import episodes as e
from ludus.server import Environment, EpisodeHost
from ludus.server.auth.principal import Principal
from ludus.server.tasks.formats import FormatSource, resolve

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".peers" / "gymnasium"
MOST = {"in process": 150.0, "in process, not blocking": 150.0, "process": 400.0, "thread": 400.0}
"""Microseconds of CPU time that a step may cost more than in the package's own loop."""
START_MS = 1.0
LOCAL_SECONDS = 0.5
POOL_START_MS = 20.0
SERVERS = ROOT / ".peers" / "mcp-servers" / "bin"

EPISODE_STEPS = 199
"""Pendulum-v1 ends after 200 steps, so an episode's processes are still there when its CPU time is read."""

OWN_LOOP = """
import json, sys, time
import gymnasium, numpy, random
episodes, starts = int(sys.argv[1]), int(sys.argv[2])
actions = random.Random(0)
spent = 0.0
for seed in range(episodes):
    env = gymnasium.make("Pendulum-v1")
    env.reset(seed=seed)
    began = time.process_time()
    for _ in range(199):
        env.step(numpy.asarray([actions.uniform(-2, 2)], dtype=numpy.float32))
    spent += time.process_time() - began
times = []
for seed in range(starts):
    began = time.perf_counter()
    env = gymnasium.make("Pendulum-v1"); env.reset(seed=seed)
    times.append(time.perf_counter() - began)
    env.close()
print(json.dumps({"step": spent / episodes / 199, "start": sorted(times)[len(times) // 2]}))
"""


def cpu_of(pids: list[int]) -> float:
    """Return the CPU seconds of this process and of others."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def children_of(pid: int) -> list[int]:
    """Return the processes below a process."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    found = [int(one) for one in text.split()]
    return found + [below for one in found for below in children_of(one)]


async def measure_hosted(cls: type[Environment[Any]], episodes: int, starts: int) -> dict[str, float]:
    """Return CPU seconds per step and wall seconds per start."""
    actions = random.Random(0)
    process = getattr(cls, "process", None)
    principal = Principal.open()
    async with EpisodeHost([cls]) as host:
        name = next(iter(host.catalog))
        settle_heap()  # as `ludus serve` does

        async def start(index: int) -> str:
            key = f"{index}/{time.perf_counter_ns()}"
            params = e.StartParams(environment=name, split="train", index=index, seed=0, key=key)
            return (await host.start(params, principal)).episodes[0].episode

        async def step(episode: str, number: int) -> None:
            arguments = {"action": [actions.uniform(-2, 2)]}
            params = e.StepParams(episode=episode, step=number, key=str(number), tool="act", arguments=arguments)
            result = await host.step(params, principal)
            assert result.reward is not None, result

        spent = 0.0
        for index in range(episodes):
            episode = await start(index)
            pids = [process.pid, *children_of(process.pid)] if process is not None else []
            began = cpu_of(pids)
            for number in range(1, EPISODE_STEPS + 1):
                await step(episode, number)
            spent += cpu_of(pids) - began
            await host.close(e.CloseParams(episode=episode), principal)
        times = []
        for index in range(starts):
            began = time.perf_counter()
            episode = await start(index)
            times.append(time.perf_counter() - began)
            await host.close(e.CloseParams(episode=episode), principal)
    return {"step": spent / episodes / EPISODE_STEPS, "start": statistics.median(times)}


async def measure_pool(folder: Path, starts: int) -> float:
    """Return the median wall seconds of a start with a stock MCP server from the pool, which is full before each."""
    tasks = folder / "tasks.jsonl"
    row = {"id": "a", "prompt": "Insert 1.", "expect": {"tool": "list_tables", "contains": "t"}}
    tasks.write_text(json.dumps(row) + "\n", encoding="utf-8")
    target = f"{SERVERS / 'mcp-server-sqlite'} --db-path {{dir}}/data.db"
    (cls,) = resolve(FormatSource("mcp", target, {"tasks": str(tasks), "warm": "2"}))
    pooled: McpHost = vars(cls)["hosted"]
    principal = Principal.open()
    times = []
    async with EpisodeHost([cls]) as host:
        name = next(iter(host.catalog))
        for number in range(starts):
            await pooled.pool.settle()
            params = e.StartParams(environment=name, split="train", index=0, key=f"{number}")
            began = time.perf_counter()
            episode = (await host.start(params, principal)).episodes[0].episode
            times.append(time.perf_counter() - began)
            await host.close(e.CloseParams(episode=episode), principal)
    return statistics.median(times)


def measure_own(episodes: int, starts: int) -> dict[str, float]:
    """Return the same figures of the package's own loop."""
    command = [str(PEER / "bin" / "python"), "-c", OWN_LOOP, str(episodes), str(starts)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def measure_listing() -> float:
    """Return the seconds of `ludus envs --local` as a whole process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ludus.cli", "envs", "--local"], check=True, capture_output=True)
    return time.perf_counter() - began


def contestants() -> dict[str, type[Environment[Any]]]:
    """Return the hosted environments by how they are hosted."""
    python = str(PEER / "bin" / "python")
    sys.path.append(str(next((PEER / "lib").glob("python3*/site-packages"))))
    ways = {
        "in process": GymnasiumSettings(in_process=True),
        "in process, not blocking": GymnasiumSettings(in_process=True, blocking=False),
        "process": GymnasiumSettings(python=python),
        "thread": GymnasiumSettings(python=python, isolation="thread"),
    }
    return {name: host_environments("gymnasium", "Pendulum-v1", settings)[0] for name, settings in ways.items()}


def main() -> int:
    """Measure and print; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--episodes", type=int, default=5, help="episodes of 199 steps, each round")
    parser.add_argument("--starts", type=int, default=20, help="starts, each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not PEER.exists():
        print("the peer gymnasium is not installed: python scripts/peers.py gymnasium")
        return 1
    hosted = contestants()
    samples: dict[str, dict[str, list[float]]] = {}
    listing, pooled = [], []
    for _ in range(options.rounds):
        found = {"own loop": measure_own(options.episodes, options.starts)}
        for name, cls in hosted.items():
            found[name] = asyncio.run(measure_hosted(cls, options.episodes, options.starts))
        for name, figures in found.items():
            for what, value in figures.items():
                samples.setdefault(name, {}).setdefault(what, []).append(value)
        listing.append(measure_listing())
        if SERVERS.exists():
            with tempfile.TemporaryDirectory() as folder:
                pooled.append(asyncio.run(measure_pool(Path(folder), options.starts)))
    medians = {name: {what: statistics.median(many) for what, many in rows.items()} for name, rows in samples.items()}
    pool = statistics.median(pooled) if pooled else None
    return report(medians, statistics.median(listing), pool, options.json)


def report(medians: dict[str, dict[str, float]], listing: float, pool: float | None, file: Path | None) -> int:
    """Print the figures next to their bars; the exit code."""
    own = medians["own loop"]
    met = True
    overheads: dict[str, float] = {}
    for name, row in medians.items():
        over = 1e6 * (row["step"] - own["step"])
        print(f"{name:24} step {1e6 * row['step']:7.0f} µs CPU (+{over:.0f})   start {1e3 * row['start']:7.2f} ms")
        if name in MOST:
            overheads[name] = over
            met &= over <= MOST[name]
            print(f"  overhead of a step at most {MOST[name]:.0f} µs: {'met' if over <= MOST[name] else 'MISSED'}")
    start = 1e3 * (medians["in process"]["start"] - own["start"])
    met &= start <= START_MS and listing <= LOCAL_SECONDS
    print(f"start in process, over make and reset: {start:.2f} ms (at most {START_MS:g})")
    print(f"ludus envs --local: {listing:.2f} s (at most {LOCAL_SECONDS:g})")
    if pool is not None:
        met &= 1e3 * pool <= POOL_START_MS
        print(f"start with an MCP server from the warm pool: {1e3 * pool:.1f} ms (at most {POOL_START_MS:g})")
    else:
        print("the peer mcp-servers is not installed: python scripts/peers.py mcp-servers")
    if file is not None:
        figures = {
            "medians": medians, "overheads_us": overheads, "most_us": MOST, "start_over_ms": start,
            "listing_seconds": listing, "pool_start_seconds": pool,
        }  # fmt: skip
        file.write_text(json.dumps(figures), encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
