"""What a journal costs, and what it saves: CPU per step, recovery after a death, and a server that is killed.

    python benchmarks/durability.py [--rounds 5] [--steps 20000] [--episodes 10000] [--kills 40] [--live 1000]
                                    [--store postgres]

* CPU per channel step: three server processes, without a journal, with one that survives the death of the process
  (`normal`) and with one that survives the loss of power (`full`). A client in this process plays 64 episodes on each
  in turn; medians over rounds. The CPU time is the server process's, so that of the journal's thread is included.
* Recovery: a journal with many episodes of 5 steps each is opened by a new host; wall time until all are back.
* Forks: over a channel, of an episode with 100 steps: one whose calls are repeated, and one whose state is 8 MB in a
  sandbox and comes from a snapshot. Medians of the wall time of `episode.fork`.
* Kills: a server process with many live episodes is killed (`kill -9`) again and again while an unchanged client plays.
  Every second kill comes while episodes are being rebuilt, at a random time within the time that this took before; the
  others come within a second after a tenth of the episodes has taken a step. Counted are steps whose answer is not the
  next number, that is, steps that were lost or ran twice, and episodes that have another reward than their steps.

With `--store postgres`, the journals are in a PostgreSQL server of the benchmark's own, on this machine, which flushes
each commit. Its CPU time is not that of the server process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import cpu_per_step, serve

from ludus.client import RemoteEnvironment, connect, text_of
from ludus.protocol import episodes as e
from ludus.sandbox import SandboxSettings
from ludus.server import Environment, EpisodeHost, Result, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.durability.database_urls import is_database
from ludus.server.durability.journals import open_journal
from ludus.server.runtime.limits import ServerLimits

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
AT_ONCE = 64
MOST = {"sqlite": {"normal": 6.0, "full": 10.0}, "postgres": {"normal": 6.0, "full": 10.0}}
"""Microseconds of CPU time that a journal may add to a step, by store."""
RECOVERY_SECONDS = 10.0
FORKED_AT = 100
FORK_SECONDS = {"Counting": 0.015, "Boxed": 0.300}
"""The most seconds of a fork at step 100, by environment."""
EPISODE_STEPS = 20
"""How long the episodes are that are played while the server is killed; each is followed by another one."""
OWNER = Principal.open()
LIMITS = ServerLimits(max_episodes=200_000)


class Counting(Environment[Task]):
    """Counts its own steps."""

    splits = {"train": [Task(id="only")]}
    forkable = True

    def setup(self) -> None:
        """Begin at 0."""
        self.count = 0

    async def prompt(self) -> str:
        """Ask."""
        return "Count."

    @tool
    async def step(self) -> Result:
        """Count one step."""
        self.count += 1
        return Result(str(self.count), reward=1.0)


class Boxed(Environment[Task]):
    """Has 8 MB in the work directory of a sandbox, and saves its state every 10 steps."""

    splits = {"train": [Task(id="only")]}
    durable = "snapshot"
    forkable = True
    snapshot_every = 10
    blocking = False
    sandbox_settings = SandboxSettings(provider="bubblewrap", warm=2)

    async def setup(self) -> None:
        """Write the files."""
        for number in range(8):
            await self.sandbox.write(f"file{number}", os.urandom(1_000_000))

    def prompt(self) -> str:
        """Ask."""
        return "Count."

    @tool
    async def step(self) -> Result:
        """Change one of the files."""
        await self.sandbox.write("count", b"x")
        return Result("x")


async def start(host: EpisodeHost, count: int) -> list[str]:
    """Start episodes, in groups."""
    found: list[str] = []
    while len(found) < count:
        size = min(1024, count - len(found))
        params = e.StartParams(environment="counting", split="train", seed=1, count=size, key=str(len(found)))
        found += [one.episode for one in (await host.start(params, OWNER)).episodes]
    return found


async def play(host: EpisodeHost, episodes: list[str], steps: int) -> None:
    """Take so many steps in each episode, one at a time."""

    async def one(episode: str) -> None:
        for number in range(1, steps + 1):
            key = f"{episode}/{number}"
            await host.step(e.StepParams(episode=episode, step=number, key=key, tool="step", arguments={}), OWNER)

    await asyncio.gather(*map(one, episodes))


Place = Callable[[str], str]
"""Returns what `--journal` takes, for a name."""


@contextmanager
def places(store: str, folder: Path) -> Iterator[Place]:
    """Yield where journals are."""
    if store == "sqlite":
        yield lambda name: str(folder / f"{name}.db")
        return
    from postgres_server import PostgresServer, programs

    if (found := programs()) is None:
        raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
    server = PostgresServer(found)
    try:
        server.start()
        server.flush(on=True)
        yield lambda name: server.new_url()
    finally:
        server.close()


async def fork_seconds(place: Place, environment: str, forks: int) -> float:
    """Return the median wall time of a fork at step 100."""
    process, url = await serve(f"{__file__}:{environment}", "--journal", place(environment))
    try:
        async with connect(url) as client:
            episode = await client.environment(environment.lower()).start(seed=1)
            for _ in range(FORKED_AT):
                await episode.call("step")
            times = []
            for _ in range(forks):
                began = time.perf_counter()
                branch = await episode.fork()
                times.append(time.perf_counter() - began)
                await branch.close()
    finally:
        process.kill()
        await process.wait()
    return statistics.median(times)


async def recover(place: Place, episodes: int, steps: int) -> float:
    """Return the wall seconds until a host has all episodes of a journal again."""
    name = place("recovery")

    def journal() -> Any:
        url = name if is_database(name) else None
        return open_journal(None if url else Path(name), url, "normal", None)

    async with EpisodeHost([Counting], limits=LIMITS, journal=journal()) as host:
        await play(host, await start(host, episodes), steps)
    began = time.perf_counter()
    async with EpisodeHost([Counting], limits=LIMITS, journal=journal()) as host:
        await asyncio.gather(*(episode.recovered() for episode in host.store))
        seconds = time.perf_counter() - began
        assert all(len(episode.records or ()) == steps for episode in host.store)
        assert host.stats().running == episodes, host.stats()
    return seconds


async def kill(place: Place, kills: int, live: int) -> dict[str, int]:
    """Kill a server at random points while a client plays; return the counts of steps, and of wrong answers."""
    options = ["--journal", place("kills")]
    chance = random.Random(0)
    process, url = await serve(f"{__file__}:Counting", *options)
    options += ["--port", url.rpartition(":")[2]]
    counts = {"kills": kills, "live": live, "steps": 0, "wrong": 0, "episodes": 0}
    over = asyncio.Event()

    async def play(counting: RemoteEnvironment) -> None:
        while not over.is_set():
            episode = await counting.start(seed=1)
            steps = 0
            while steps < EPISODE_STEPS and not over.is_set():
                await asyncio.sleep(chance.uniform(0, live / 200))
                steps += 1
                counts["wrong"] += text_of((await episode.call("step")).content) != str(steps)
                counts["steps"] += 1
            info = await episode.close()
            counts["wrong"] += info.steps != steps or info.reward is None or info.reward.value != steps
            counts["episodes"] += 1

    async def steps_taken(count: int) -> None:
        until = counts["steps"] + count
        while counts["steps"] < until and not playing.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    try:
        async with connect(url, reconnect_seconds=120) as client:
            counting = client.environment("counting")
            playing = asyncio.gather(*(play(counting) for _ in range(live)))
            await steps_taken(2 * live)
            rebuilding = 1.0
            for number in range(kills):
                if number % 2:
                    await asyncio.wait([playing], timeout=chance.uniform(0, rebuilding))
                else:
                    began = time.perf_counter()
                    await steps_taken(live // 10)
                    rebuilding = time.perf_counter() - began
                    await asyncio.wait([playing], timeout=chance.uniform(0, 1))
                process.send_signal(signal.SIGKILL)
                await process.wait()
                process, _ = await serve(f"{__file__}:Counting", *options)
            over.set()
            await playing
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return counts


def main() -> int:
    """Measure and print; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each measurement of CPU time")
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes that are recovered")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--live", type=int, default=1_000, help="episodes that live while the server is killed")
    parser.add_argument("--store", choices=sorted(MOST), default="sqlite")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, places(options.store, Path(name)) as place:
        met, found = measure(options, place)
    if options.json is not None:
        options.json.write_text(json.dumps(found), encoding="utf-8")
    return int(not met)


def measure(options: argparse.Namespace, place: Place) -> tuple[bool, dict[str, Any]]:
    """Measure and print all; return whether every bar is met, and the figures."""
    found: dict[str, Any] = {"store": options.store}
    bars = [measure_cpu(options, place, found)]
    found["episodes"] = options.episodes
    found["recovery"] = seconds = asyncio.run(recover(place, options.episodes, 5))
    bars.append(seconds <= RECOVERY_SECONDS)
    print(f"{options.episodes:,} episodes of 5 steps are back in {seconds:.1f} s: {'met' if bars[-1] else 'MISSED'}")
    found["forks"] = {}
    for environment, most in FORK_SECONDS.items():
        if environment == "Boxed" and shutil.which("bwrap") is None:
            print("forks from snapshots are left out: bubblewrap is not installed")
            continue
        spent = found["forks"][environment] = asyncio.run(fork_seconds(place, environment, 15))
        bars.append(spent <= most)
        what = "repeats 100 steps" if environment == "Counting" else "restores 8 MB"
        print(f"a fork that {what} takes {1000 * spent:.1f} ms: {'met' if bars[-1] else 'MISSED'}")
    found["kills"] = counts = asyncio.run(kill(place, options.kills, options.live))
    bars.append(counts["wrong"] == 0)
    print(f"{options.kills} kills, {options.live:,} live episodes: {counts['steps']:,} steps, {counts['wrong']} wrong")
    return all(bars), found


def measure_cpu(options: argparse.Namespace, place: Place, found: dict[str, Any]) -> bool:
    """Measure and print the CPU time of a step with each journal; return whether the bars are met."""
    kinds: dict[str, tuple[str, ...]] = {
        "none": (),
        "normal": ("--journal", place("normal")),
        "full": ("--journal", place("full"), "--journal-sync", "full"),
    }
    spec = f"{__file__}:Counting"
    comparing = cpu_per_step(spec, kinds, at_once=AT_ONCE, rounds=options.rounds, steps=options.steps)
    samples = asyncio.run(comparing)
    cpu = {kind: statistics.median(many) for kind, many in samples.items()}
    found["cpu"] = cpu
    print("CPU per channel step: " + ", ".join(f"{kind} {cost:.1f} µs" for kind, cost in cpu.items()))
    for kind, most in MOST[options.store].items():
        pairs = zip(samples[kind], samples["none"], strict=True)
        added = statistics.median(with_it - without for with_it, without in pairs)
        found[f"added_{kind}"] = added
        print(f"  {kind} adds {added:.1f} µs (at most {most:g}): {'met' if added <= most else 'MISSED'}")
    return all(found[f"added_{kind}"] <= most for kind, most in MOST[options.store].items())


if __name__ == "__main__":
    sys.exit(main())
