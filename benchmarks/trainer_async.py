"""What playing ahead of learning wins, with an environment whose steps take 50 to 500 ms.

    python benchmarks/trainer_async.py [--steps 12] [--rounds 3] [--json FILE]

The same run with `rollouts.staleness` 0 (rollouts and updates take turns) and 1 and 2 (rollouts go on during the
update), interleaved, in fresh processes. The environment sleeps, as a browser or a sandbox would, so its time costs no
CPU. Reported: the learner's share of waiting time, and optimizer steps per minute, as medians over the rounds. The
first steps, in which nothing has been played ahead yet, are left out on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import demo  # noqa: E402 - a script, not a package

from ludus.environments.guess_number.environment import GuessNumber  # noqa: E402
from ludus.server import Result, tool  # noqa: E402
from ludus.trainer.quickstart import serving  # noqa: E402

STALENESS = (0, 1, 2)
SKIPPED = 3
"""Steps at the beginning that do not count."""


class SlowGuess(GuessNumber):
    """guess_number on a slow machine: each guess takes 50 to 500 ms."""

    difficulties = ("tiny",)
    variants: ClassVar[dict[str, Any]] = {}

    @tool
    async def guess(self, number: int) -> Result:  # type: ignore[override]  # a tool may be async
        """Guess the hidden number.

        Args:
            number: your guess.
        """
        await asyncio.sleep(random.uniform(0.05, 0.5))
        return super().guess(number)


def measure(folder: Path, url: str, steps: int, staleness: int) -> dict[str, float]:
    """One run; seconds per step and the share of them spent waiting."""
    run = folder / f"run-{time.time_ns()}"
    demo.train(
        run, url, folder / "start", folder / "beginner.jsonl", 0,
        [f"--rollouts.staleness={staleness}", f"--steps={steps}", "--environments.0.name=slow_guess",
         "--evaluation.every=0", "--evaluation.first=false", "--evaluation.tasks=1", "--sft.steps=60",
         "--logging.console=false", "--logging.report=false", "--checkpoints.export=false"],
    )  # fmt: skip
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = [line for line in lines if "time/step" in line and line["step"] > SKIPPED]
    total = sum(line["time/step"] for line in timed)
    return {
        "steps_per_minute": 60 * len(timed) / total,
        "waiting": sum(line["time/wait"] for line in timed) / total,
        "staleness": statistics.fmean(line["rollout/staleness_mean"] for line in timed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[int, list[dict[str, float]]] = {staleness: [] for staleness in STALENESS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving("guess_number", f"{Path(__file__)}:SlowGuess") as url:
            asyncio.run(demo.record(url, folder / "beginner.jsonl", 0))
            demo.make_model(folder / "start", folder / "beginner.jsonl", 0)
            for _ in range(options.rounds):
                for staleness in STALENESS:
                    rows[staleness].append(measure(folder, url, options.steps, staleness))
    found = {}
    for staleness, runs in rows.items():
        figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        found[str(staleness)] = figures
        print(
            f"staleness {staleness}: {figures['steps_per_minute']:6.1f} steps/min, "
            f"waiting {figures['waiting']:.0%} of the time, mean age {figures['staleness']:.2f}"
        )
    ratio = max(found[str(s)]["steps_per_minute"] for s in STALENESS[1:]) / found["0"]["steps_per_minute"]
    print(f"async / sync: {ratio:.2f}×")
    if options.json:
        options.json.write_text(json.dumps({**found, "ratio": ratio}), encoding="utf-8")


if __name__ == "__main__":
    main()
