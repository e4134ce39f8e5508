"""Credit at equal environment steps: Monte-Carlo values of states next to comparing the episodes of a group.

    python benchmarks/credit.py [--seeds 0,1,2] [--budget 12000] [--json FILE] [--section.key=value …]

The task is the demo's: guess_number-tiny, seven numbers and three guesses, a model of half a million random weights.
For each seed one warm-up imitates the demo's beginner; then each kind of credit goes on from that model, with the same
settings, until it has taken the budget of environment steps:

* `episode` gives every token the advantage of its episode (GRPO);
* `step` compares a turn with the same turn of the group's other games (what the demo uses);
* `monte_carlo` values each state by four continuations (VinePPO). An episode with its continuations takes about six
  times the steps, so an update has a sixth of the groups, and all kinds make about as many updates.

Steps are those that the policy took, in episodes and in continuations. Forks also repeat steps to reach their states,
without the policy; these are shown apart. Games won on the test split are measured at points of the budget, between two
evaluations by linear interpolation.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import demo  # noqa: E402 - a script, not a package

from ludus.trainer.quickstart import serving  # noqa: E402

SIDES: dict[str, tuple[str, ...]] = {
    "episode": ("--rollouts.groups=24", "--advantages.credit=episode"),
    "step": ("--rollouts.groups=24", "--advantages.credit=step"),
    "monte_carlo": ("--rollouts.groups=4", "--advantages.credit=monte_carlo"),
}
COMMON = (
    "--optimizer.schedule=constant", "--evaluation.every=5", "--evaluation.samples=8",
    "--evaluation.persistent=false", "--logging.console=false", "--logging.report=false", "--checkpoints.export=false",
)  # fmt: skip
POINTS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the budget at which the policies are compared."""
MOST_UPDATES = 400


class Point(NamedTuple):
    """An evaluation."""

    steps: float
    """Environment steps before it."""
    repeated: float
    won: float
    """The share of test games won."""


def warm_up(folder: Path, url: str, seed: int) -> Path:
    """Return the folder of the model that imitates the beginner."""
    model, demonstrations = folder / "start", folder / "beginner.jsonl"
    demo.run(demo.record(url, demonstrations, seed))
    demo.make_model(model, demonstrations, seed)
    quiet = ["--steps=0", "--evaluation.persistent=false", "--logging.console=false", "--logging.report=false"]
    demo.train(folder / "warm-up", url, model, demonstrations, seed, quiet)
    return folder / "warm-up" / "model"


def learn(folder: Path, url: str, model: Path, seed: int, budget: int, options: list[str]) -> tuple[list[Point], float]:
    """Train until the budget is used up; return the evaluations and the seconds."""
    config = folder / "credit.toml"
    text = demo.CONFIG.read_text(encoding="utf-8")
    config.write_text(text[: text.index("[sft]")] + text[text.index("[rollouts]") :], encoding="utf-8")
    command = [
        str(demo.LUDUS), "train", str(config), f"--output={folder}", f"--seed={seed}", f"--environments.0.url={url}",
        f"--model.path={model}", f"--steps={MOST_UPDATES}", *COMMON, *options,
    ]  # fmt: skip
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None and (not (points := curve(folder)) or points[-1].steps < budget):
                time.sleep(0.5)
            if process.poll() not in (None, 0):
                raise SystemExit(f"the run failed with exit code {process.returncode}")
            seconds = time.perf_counter() - began
        finally:
            process.terminate()
            process.wait()
    return curve(folder), seconds


def curve(folder: Path) -> list[Point]:
    """Return the evaluations of a run so far."""
    file, points, steps, repeated = folder / "metrics.jsonl", [], 0.0, 0.0
    if not file.exists():
        return []
    for text in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if not text.endswith("\n"):
            break
        line = json.loads(text)
        steps += line.get("environment/steps", 0.0)
        repeated += line.get("environment/repeated", 0.0)
        if (won := line.get(f"evaluation/{demo.ENVIRONMENT}/mean")) is not None:
            points.append(Point(steps, repeated, won))
    return points


def at(points: list[Point], steps: float) -> float:
    """Return the share of games won after that many steps."""
    for before, after in zip(points, points[1:], strict=False):
        if after.steps >= steps > before.steps:
            share = (steps - before.steps) / (after.steps - before.steps)
            return before.won + share * (after.won - before.won)
    return points[-1].won


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--budget", type=int, default=12_000, help="environment steps of each run")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--json", type=Path)
    options, overrides = parser.parse_known_args()
    sides = options.sides.split(",")
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for seed in map(int, options.seeds.split(",")):
        with tempfile.TemporaryDirectory() as name, serving("guess_number") as url:
            folder = Path(name)
            model = warm_up(folder, url, seed)
            for side in sides:
                (own := folder / side).mkdir()
                points, seconds = learn(own, url, model, seed, options.budget, [*SIDES[side], *overrides])
                won = [at(points, share * options.budget) for share in POINTS]
                row = {"seed": seed, "start": points[0].won, "won": won, "seconds": seconds, "curve": points}
                found[side].append(row)
                shares = ", ".join(f"{one:.1%}" for one in won)
                print(
                    f"seed {seed} {side:11} test games won: {points[0].won:.1%} before, {shares} after "
                    f"{' '.join(f'{share:.0%}' for share in POINTS)} of {options.budget:,} environment steps; "
                    f"{points[-1].repeated / max(1.0, points[-1].steps):.2f} repeated steps for each; {seconds:.0f} s",
                    flush=True,
                )
    for side, rows in found.items():
        means = [statistics.fmean(row["won"][place] for row in rows) for place in range(len(POINTS))]
        print(f"mean of {len(rows)} seeds, {side:11} {' '.join(f'{one:.1%}' for one in means)}")
    if options.json:
        options.json.write_text(json.dumps({**found, "budget": options.budget}), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped too
    main()
