"""The rollout harness: rollouts per second, and the client's CPU time for one turn of the agent loop.

    python benchmarks/harness.py [--quick] [--rounds 5] [--json FILE]

One server process with an echo environment and this process as the client, over the channel, 64 episodes in flight. The
policy is a function in this process, so a turn costs what the harness and the transport cost.

* A rollout is an episode of two turns: start, a turn with one step, a turn with the final message, close, and the
  trajectory. CPU is of this process; per turn is half of it.
* A further turn is what one more turn with a step costs in longer episodes (`LONG` steps).
* The same episode without the harness is start, one step and close through `Episode`: the part of a rollout that the
  transport and the types cost.

Figures are medians over rounds, which take the measurements in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from processes import running

from ludus.client import Answer, Call, Conversation, RemoteEnvironment, connect, rollout

HERE = Path(__file__).resolve().parent
AT_ONCE = 64
LONG = 25
"""Steps of a long episode."""


async def rollouts(environment: RemoteEnvironment, count: int, steps: int) -> tuple[float, float]:
    """Return the wall-clock seconds and the client's CPU seconds of `count` rollouts with `steps` steps each."""

    async def policy(conversation: Conversation) -> Call | Answer:
        return Call("echo", {"text": "hello"}) if conversation.turn <= steps else Answer("done")

    began, cpu = time.perf_counter(), time.process_time()
    done = 0
    async for trajectory in rollout(environment, policy, tasks=[0], samples=count, concurrency=AT_ONCE):
        if trajectory.failure is not None or len(trajectory.steps) != steps:
            raise SystemExit(f"a rollout failed: {trajectory}")
        done += 1
    assert done == count
    return time.perf_counter() - began, time.process_time() - cpu


async def episodes(environment: RemoteEnvironment, count: int) -> float:
    """Return the client's CPU seconds of `count` episodes with one step each, without the harness."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            async with environment.episode() as episode:
                await episode.call("echo", text="hello")

    cpu = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.process_time() - cpu


async def measure(url: str, rounds: int, count: int) -> dict[str, float]:
    """Return the medians over the rounds."""
    cells: dict[str, list[float]] = {}
    async with connect(url) as client:
        environment = client.environment("echo")
        await rollouts(environment, count // 10, 1)
        for _ in range(rounds):
            seconds, short = await rollouts(environment, count, 1)
            many = max(AT_ONCE, count // LONG)
            _, long = await rollouts(environment, many, LONG)
            alone = await episodes(environment, count)
            row = {
                "rollouts_per_second": count / seconds,
                "turn_us": short / count / 2 * 1e6,
                "further_turn_us": (long / many - short / count) / (LONG - 1) * 1e6,
                "episode_us": alone / count * 1e6,
            }
            for name, value in row.items():
                cells.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in cells.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=10_000, help="rollouts of one step in each round")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    rounds, count = (1, 2_000) if options.quick else (options.rounds, options.count)
    with running(sys.executable, str(HERE / "channel.py"), "--serve") as url:
        found = asyncio.run(measure(url, rounds, count))
    turn = found["turn_us"]
    print(f"rollouts of one step, {AT_ONCE} in flight: {found['rollouts_per_second']:,.0f}/s")
    print(f"client CPU per rollout: {2 * turn:.0f} µs, per turn {turn:.0f} µs, per further turn", end=" ")
    print(f"{found['further_turn_us']:.0f} µs; of the same episode without the harness: {found['episode_us']:.0f} µs")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
