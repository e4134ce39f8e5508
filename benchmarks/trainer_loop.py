"""The whole loop next to TRL's: seconds until the mean reward is 0.9, on one toy task with one model and budget.

    python benchmarks/trainer_loop.py [--rounds 3] [--steps 80] [--json FILE]

The task: answer a sum; the reward is the share of digits in the answer, and 1 more for the right one. 8 prompts of 8
episodes a step, at most 32 tokens each, a random model of 2 layers with a vocabulary of bytes, float32, AdamW at 1e-3.
TRL's `GRPOTrainer` generates in its process and calls a Python function for the reward. Ours plays episodes over the
wire: the environment is served by another process, on the same cores. Twice: `sync`, where rollouts and updates take
turns, as TRL's do, on two threads; and `async`, where the next batch is sampled during the update (staleness 1), on one
thread each. Interleaved; the clock starts with the first step, so that neither side pays for imports; a run has arrived
when the mean of three steps' rewards is 0.9.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import demo  # noqa: E402 - a script, not a package

from ludus.protocol import Private, Reward  # noqa: E402
from ludus.server import Environment, Split, Task  # noqa: E402
from ludus.trainer.quickstart import serving  # noqa: E402

TRL = ROOT / ".peers" / "trl" / "bin" / "python"
PEER = ROOT / "benchmarks" / "peers" / "trl_loop.py"
GOAL, WINDOW = 0.9, 3
OURS: dict[str, tuple[str, ...]] = {"sync": (), "async": ("--rollouts.staleness=1", "--threads=1")}


class Sum(Task):
    """A sum."""

    question: str
    answer: Private[str]


def questions() -> list[tuple[str, str]]:
    """All of them, in the same order for both sides."""
    rng = random.Random(0)
    pairs = [(rng.randrange(10), rng.randrange(10)) for _ in range(512)]
    return [(f"{a}+{b}=", str(a + b)) for a, b in pairs]


def tasks() -> list[Sum]:
    """The questions as tasks."""
    return [Sum(id=str(n), question=q, answer=a) for n, (q, a) in enumerate(questions())]


class Digits(Environment[Sum]):
    """Answer a sum; digits earn something, the right answer more."""

    splits = {"train": Split(tasks()), "test": Split(tasks()[:8])}
    blocking = False

    def prompt(self) -> str:
        """The sum."""
        return self.task.question

    def grade(self, answer: str) -> Reward:
        """The share of digits, and 1 for the right answer."""
        digits = sum(c in "0123456789" for c in answer) / len(answer) if answer else 0.0
        return Reward.of(digits + float(answer.strip() == self.task.answer))


def ours(folder: Path, model: Path, url: str, steps: int, seed: int, *overrides: str) -> list[tuple[float, float]]:
    """Seconds and reward of each step."""
    config = folder / "loop.toml"
    run = folder / f"run-{time.time_ns()}"
    config.write_text(f'''
output = "{run}"
steps = {steps}
seed = {seed}
device = "cpu"
threads = 2
[model]
path = "{model}"
[[environments]]
url = "{url}"
name = "digits"
[rollouts]
groups = 8
group_size = 8
staleness = 0
max_turns = 1
max_tokens = 32
context = 256
drop_zero_variance = false
[engine.torch]
slots = 64
[advantages]
scale = "group"
[optimizer]
learning_rate = 1e-3
betas = [0.9, 0.99]
[evaluation]
every = 0
first = false
tasks = 1
[checkpoints]
every = 0
export = false
[logging]
console = false
report = false
rollouts = 0
''')
    subprocess.run([str(demo.LUDUS), "train", str(config), *overrides], check=True, stdin=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = [line for line in lines if "time/step" in line]
    began = timed[0]["time"] - timed[0]["time/step"]
    return [(line["time"] - began, line["reward/mean"]) for line in timed]


def theirs(folder: Path, model: Path, steps: int, seed: int) -> list[tuple[float, float]]:
    """The same of TRL."""
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps(questions()))
    command = [str(TRL), str(PEER), str(model), str(prompts), str(steps), str(seed)]
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
    return [(line["seconds"], line["reward"]) for line in lines]


def arrival(curve: list[tuple[float, float]]) -> tuple[float, int]:
    """When the reward had come to the goal: seconds, steps."""
    for step in range(WINDOW, len(curve) + 1):
        if statistics.fmean(reward for _, reward in curve[step - WINDOW : step]) >= GOAL:
            return curve[step - 1][0], step
    return float("inf"), len(curve)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from ludus.trainer.core.tiny import make_tiny_model

    found: dict[str, list[tuple[float, int, float]]] = {"sync": [], "async": [], "trl": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed in range(options.rounds):
            model = make_tiny_model(folder / f"model-{seed}", seed=seed)
            curves = {}
            for side, overrides in OURS.items():
                with serving(f"{Path(__file__)}:Digits") as url:
                    curves[side] = ours(folder, model, url, options.steps, seed, *overrides)
            if TRL.exists():
                curves["trl"] = theirs(folder, model, options.steps, seed)
            for side, curve in curves.items():
                seconds, steps = arrival(curve)
                per_step = statistics.median(b - a for (a, _), (b, _) in zip(curve, curve[1:], strict=False))
                found[side].append((seconds, steps, per_step))
                print(f"seed {seed} {side:6} {GOAL} after {seconds:6.1f} s, step {steps:3}; {per_step:.3f} s/step")
    summary: dict[str, Any] = {
        side: dict(zip(("seconds", "steps", "per_step"), map(statistics.median, zip(*rows, strict=True)), strict=True))
        for side, rows in found.items()
        if rows
    }
    if "trl" in summary:
        for side in OURS:
            summary[side]["ratio"] = summary[side]["seconds"] / summary["trl"]["seconds"]
            print(f"wall time to reward {GOAL}, {side}: {summary[side]['ratio']:.2f}× TRL's")
    if options.json:
        options.json.write_text(json.dumps(summary), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped too
    main()
