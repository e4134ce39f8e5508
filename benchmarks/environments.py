"""What each built-in environment costs, and what an oracle, a random policy and one that gives up earn on it.

    python benchmarks/environments.py [--tasks 20] [--only NAME…] [--quick] [--json FILE] [--write]

Each environment is served by a process of its own and played over the channel. `--write` puts the table into
docs/environments.md; with `--only`, the rows of the other environments stay as they are. Times are medians: the CPU
time of the server's process for a start with one step and for listing tasks, and the time until the client has an
answer. An environment with sandboxes computes mostly in other processes, so only that time says what its episodes cost.
The memory of an episode is the growth of the process over 100 open ones, divided by 100 (over 4 if each has a browser).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from collections.abc import Collection
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from processes import cpu_seconds, serve

from ludus.client import Conversation, Episode, RandomPolicy, RemoteEnvironment, connect, rollout_all
from ludus.protocol import Answer
from ludus.validation.core.local_environments import LocalEnvironments
from ludus.validation.core.oracle import OraclePolicy

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "environments.md"
BEGIN: Final = "<!-- measured environments -->"
END: Final = "<!-- measured until here -->"
OPEN: Final = 100
"""How many open episodes the memory is measured with."""
FEW: Final = 4
"""The same for environments whose sandboxes have started a program, such as a browser."""
BARS: Final = {"cpu_ms": 5.0, "listing_seconds": 1.0, "start_ms": 60.0}


async def give_up(conversation: Conversation) -> Answer:
    """Say that it does not know."""
    return Answer("I do not know.")


def built_in() -> list[str]:
    """Return the names of our own environments, also of those in the library, in the order of the alphabet."""
    ours = ("ludus.", "ludus_")
    return sorted(entry.name for entry in entry_points(group="ludus.environments") if entry.value.startswith(ours))


async def mean_reward(environment: RemoteEnvironment, policy: Any, tasks: int) -> float | None:
    """Return the mean reward of a policy over some training tasks; None if no episode was scored."""
    played = await rollout_all(environment, policy, n=tasks, seed=1, concurrency=4)
    scored = [one.reward.value for one in played if one.reward is not None and one.reward.value is not None]
    return statistics.fmean(scored) if scored else None


async def first_step(environment: RemoteEnvironment, index: int, rng: random.Random) -> tuple[Episode, float, float]:
    """Start an episode and make one random call; return the episode and the seconds of both."""
    began = time.perf_counter()
    episode = await environment.start(index=index, seed=index)
    started = time.perf_counter()
    if episode.tools:
        tool = rng.choice(episode.tools)
        await episode.call(tool.name, **_arguments(tool.input_schema, rng))
    return episode, started - began, time.perf_counter() - started


def _arguments(schema: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    from ludus.client.policies.values import random_value

    found = random_value(schema, rng)
    return found if isinstance(found, dict) else {}


async def costs(environment: RemoteEnvironment, pid: int, episodes: int, count: int) -> dict[str, float]:
    """Return what starts, steps, open episodes and listing tasks cost."""
    rng = random.Random(1)
    for index in range(3):
        await (await first_step(environment, index, rng))[0].close()
    starts, steps, cpu = [], [], []
    for index in range(episodes):
        before = cpu_seconds(pid)
        episode, start, step = await first_step(environment, index, rng)
        cpu.append(cpu_seconds(pid) - before)
        starts.append(start)
        steps.append(step)
        await episode.close()
    before = cpu_seconds(pid)
    listed = 0
    async for _ in environment.tasks("train"):
        listed += 1
        if listed == 10_000:
            break
    listing = (cpu_seconds(pid) - before) * 10_000 / max(1, listed)
    return {
        "cpu_ms": 1e3 * statistics.median(cpu), "start_ms": 1e3 * statistics.median(starts),
        "step_ms": 1e3 * statistics.median(steps), "listing_seconds": listing,
        "open_kib": await memory(environment, pid, rng, count),
    }  # fmt: skip


async def memory(environment: RemoteEnvironment, pid: int, rng: random.Random, count: int) -> float:
    """Return by how many KiB the process grows for each open episode."""
    before = _resident_kib(pid)
    episodes = [(await first_step(environment, index, rng))[0] for index in range(count)]
    grown = _resident_kib(pid) - before
    for episode in episodes:
        await episode.close()
    return grown / count


def _resident_kib(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


async def measure(name: str, tasks: int) -> dict[str, Any]:
    """Measure one environment."""
    process, address = await serve(name)
    try:
        async with connect(address, wire="channel") as client:
            environment = client.environment(name)
            found: dict[str, Any] = {
                "oracle": await mean_reward(environment, OraclePolicy(), tasks),
                "random": await mean_reward(environment, RandomPolicy(), tasks),
                "nothing": await mean_reward(environment, give_up, tasks),
            }
            settings = LocalEnvironments().published(name).cls.sandbox_settings
            count = FEW if settings is not None and settings.background else OPEN
            return found | {"sandboxed": settings is not None} | await costs(environment, process.pid, tasks, count)
    finally:
        process.terminate()
        await process.wait()


HEAD: Final = (
    "| environment | oracle | random | gives up | CPU, start and step | start | step | 10,000 rows | an open one |",
    "|---|---|---|---|---|---|---|---|---|",
)


def row(name: str, one: dict[str, Any]) -> str:
    """Return an environment's row of the Markdown table."""
    rewards = ["–" if one[key] is None else f"{one[key]:.2f}" for key in ("oracle", "random", "nothing")]
    return (
        f"| `{name}` | {' | '.join(rewards)} | {one['cpu_ms']:.1f} ms | {one['start_ms']:.1f} ms | "
        f"{one['step_ms']:.1f} ms | {one['listing_seconds']:.2f} s | {max(0.0, one['open_kib']):.0f} KiB |"
    )


def written(text: str, found: dict[str, dict[str, Any]], names: Collection[str]) -> str:
    """Return the text of the page with rows of the environments that were measured, sorted by name.

    Args:
        text: the text.
        found: what was measured.
        names: the environments that there are; those that were not measured keep the rows that they have.
    """
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    rows = {one[1]: one[0] for one in re.finditer(r"^\| `(\w+)` \|.*$", text[begin:end], re.MULTILINE)}
    rows = {name: one for name, one in rows.items() if name in names}
    rows |= {name: row(name, one) for name, one in found.items()}
    lines = "\n".join([*HEAD, *(rows[name] for name in sorted(rows))])
    return f"{text[:begin]}\n{lines}\n{text[end:]}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for name in options.only or built_in():
        found[name] = asyncio.run(measure(name, 3 if options.quick else options.tasks))
        print(row(name, found[name]), flush=True)
    if options.write:
        PAGE.write_text(written(PAGE.read_text("utf-8"), found, built_in()), "utf-8")
    if options.json is not None:
        options.json.write_text(json.dumps({"environments": found, "bars": BARS}))


if __name__ == "__main__":
    main()
