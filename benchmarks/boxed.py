"""Many episodes with a sandbox each, at the same time: how long starts and steps take, and whether any is lost.

    python benchmarks/boxed.py [--episodes 512] [--steps 10] [--pause 2] [--json FILE]

One server process with an environment whose tool runs `sleep 0.1` in the episode's own bubblewrap sandbox, and this
process as the client, over the channel. All episodes are started at once and stay open. Then each takes its steps, with
a pause before each as a model needs to write its next call. The pauses are random, `--pause` on average, so that steps
do not come in waves. A step is measured from the call to its outcome. A step that the machine can carry out takes the
0.1 s of the tool; what is above that is waiting for one of the cores, and the cost of the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

from processes import running

from ludus.client import Episode, connect


def serve(port: int) -> None:
    """Serve the environment."""
    from ludus.sandbox import Limits, SandboxSettings
    from ludus.server import Environment, Task, tool
    from ludus.server.serving.serve import run
    from ludus.server.serving.settings import ServerSettings

    class Boxed(Environment[Task]):
        """A sandbox, and a tool that takes 0.1 s in it."""

        splits = {"train": [Task(id="only")]}
        sandbox_settings = SandboxSettings(limits=Limits(memory=64 * 2**20, disk=16 * 2**20), warm=8)

        def prompt(self) -> str:
            return "Call the tool."

        @tool
        async def work(self) -> str:
            """Work for 0.1 s."""
            result = await self.sandbox.run(["sleep", "0.1"])
            return result.ending

        def grade(self, answer: str) -> float:
            return float(answer == "done")

    run([Boxed], ServerSettings(port=port))


async def measure(url: str, count: int, steps: int, pause: float) -> dict[str, float]:
    """Start the episodes, take the steps, and grade: seconds, and how many episodes were not scored 1."""
    starts: list[float] = []
    took: list[float] = []
    scored = 0

    async with connect(url, timeout=600) as client:
        environment = client.environment("boxed")

        async def start() -> Episode:
            began = time.perf_counter()
            episode = await environment.start()
            starts.append(time.perf_counter() - began)
            return episode

        async def play(episode: Episode) -> None:
            nonlocal scored
            chance = random.Random(episode.id)
            for _ in range(steps):
                await asyncio.sleep(chance.uniform(0, 2 * pause))
                began = time.perf_counter()
                result = await episode.call("work")
                took.append(time.perf_counter() - began)
                assert "exit code 0" in str(result), result
            reward = (await episode.grade("done")).reward
            scored += reward is not None and reward.value == 1.0
            await episode.close()

        began = time.perf_counter()
        episodes = await asyncio.gather(*(start() for _ in range(count)))
        started = time.perf_counter()
        await asyncio.gather(*map(play, episodes))
        ended = time.perf_counter()
    return {
        "episodes": count, "pause": pause, "lost": count - scored,
        "starts_seconds": started - began, "steps_seconds": ended - started,
        "steps_per_second": count * steps / (ended - started),
        **{f"start_{name}": value for name, value in quantiles(starts).items()},
        **{f"step_{name}": value for name, value in quantiles(took).items()},
    }  # fmt: skip


def quantiles(samples: list[float]) -> dict[str, float]:
    """The median, the 99th percentile and the maximum, in seconds."""
    ordered = sorted(samples)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)], "max": ordered[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="64 episodes of three steps")
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds before each step, on average")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    count, steps = (64, 3) if options.quick else (options.episodes, options.steps)
    with running(sys.executable, __file__, "--serve") as url:
        found = asyncio.run(measure(url, count, steps, options.pause))
    print(f"{count} episodes at the same time, {steps} steps of 0.1 s each, lost: {found['lost']:.0f}")
    for kind in ("start", "step"):
        shown = ", ".join(f"{name} {found[f'{kind}_{name}']:.2f} s" for name in ("p50", "p99", "max"))
        print(f"{kind}: {shown}")
    print(f"{found['steps_per_second']:.0f} steps per second")
    met = found["lost"] == 0 and found["step_p99"] <= 1.0
    print(f"no episode lost, and steps at most 1 s at p99: {'met' if met else 'MISSED'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
