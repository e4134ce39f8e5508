"""How much do small models learn after a warm-up, on tasks that they have not seen?

    python benchmarks/learning.py [--only arithmetic,connect_four,sql] [--seed 0] [--folder FOLDER] [--read] [--write]

Each run is `ludus train` with a configuration of examples/, on held-out validation tasks with three baselines: random
calls, the model before any training (its weights are random for the tiny model), and the model after the warm-up.
The tiny model learns `arithmetic-easy`, after a warm-up that imitates students who are often wrong, and
`connect_four-easy` by self-play alone, after a warm-up that imitates students who describe the board and move anywhere:
it meets the three scripted opponents only in evaluations.
SmolLM2-135M-Instruct (the peer `smollm2`) learns `sql-easy`.

A run that was interrupted goes on where it was saved; one that has ended is only read again, so delete its folder to
repeat it. What counts is the last evaluation within ten minutes of the first one. `--read` plays nothing and reads the
runs that are in the folder, also unfinished ones. `--write` puts the rows into benchmarks/LEARNING.md, and
keeps the rows of the other runs there. Other options are passed to `ludus train`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ludus.client import RandomPolicy, connect, rollout_all
from ludus.trainer.quickstart import serving

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAMS: Final = {"ludus": str(Path(sys.executable).with_name("ludus")), "python": sys.executable}
PAGE: Final = ROOT / "benchmarks" / "LEARNING.md"
GAIN: Final = 0.30
MINUTES: Final = 10.0
BEGIN, END = "<!-- measured -->", "<!-- measured until here -->"


@dataclass(frozen=True, slots=True)
class Subject:
    """A run to measure."""

    config: str
    serve: str
    """What `ludus serve` gets."""
    environment: str
    demonstrations: tuple[str, ...]
    """The command that records the warm-up's demonstrations, without `--out`: `ludus …` or `python FILE …`."""
    tiny: bool = True
    strangers: tuple[str, ...] = ()
    """The scripted opponents that it does not train against."""


SUBJECTS: Final = {
    "arithmetic": Subject(
        "train_arithmetic.toml",
        "arithmetic",
        "arithmetic-easy",
        ("ludus", "demos", "arithmetic-easy", "-n", "64000", "--policy", "examples/arithmetic_students.py:student"),
    ),
    "connect_four": Subject(
        "train_connect_four.toml",
        "examples/connect_four_practice.py:Practice",
        "connect_four-easy",
        ("python", "examples/connect_four_practice.py", "-n", "120000"),
        strangers=("random", "greedy", "minimax-4"),
    ),
    "sql": Subject(
        "train_sql_smollm2.toml", "sql", "sql-easy", ("ludus", "demos", "sql-easy", "-n", "300"), tiny=False
    ),
}


def run_program(program: str, *arguments: str) -> None:
    """Run `ludus` or `python` of this environment in the repository's root."""
    subprocess.run([PROGRAMS[program], *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, check=True)


def train(subject: Subject, url: str, run: Path, demos: Path, seed: int, more: list[str]) -> None:
    """Run `ludus train` with the configuration of the subject."""
    arguments = ["ludus", "train", f"examples/{subject.config}", f"--output={run}", f"--seed={seed}"]
    arguments += [f"--environments.0.url={url}", "--logging.console=false"]
    if subject.tiny:
        arguments += ["--tiny-from", str(demos)]
    else:
        model = run.parent / "model"
        subprocess.run([sys.executable, str(ROOT / "scripts" / "smollm2.py"), str(model)], check=True)
        arguments += [f"--model.path={model}", f"--sft.demonstrations={json.dumps([str(demos)])}"]
    run_program(*arguments, *more)


async def random_reward(url: str, environment: str, tasks: int) -> float:
    """Return the mean reward of random calls on validation tasks."""
    async with connect(url) as client:
        played = await rollout_all(
            client.environment(environment), RandomPolicy(), split="validation", n=tasks, seed=1, concurrency=8
        )
    return statistics.fmean(one.value for one in played if one.value is not None)


def evaluations(run: Path, label: str) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics that have an evaluation."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if f"evaluation/{label}/mean" in line]


def play(name: str, own: Path, seed: int, more: list[str]) -> None:
    """Run one subject: its demonstrations, random calls, the model before any training, and the training."""
    subject = SUBJECTS[name]
    own.mkdir(parents=True, exist_ok=True)
    demos, run, untrained = own / "demos.jsonl", own / "run", own / "untrained"
    if not demos.exists():
        part = own / "demos.part.jsonl"
        part.unlink(missing_ok=True)
        run_program(*subject.demonstrations, "--out", str(part))
        part.replace(demos)
    with serving(subject.serve) as url:
        by_chance = asyncio.run(random_reward(url, subject.environment, 50))
        facts = {"random": by_chance, "machine": machine(more), "cores": os.cpu_count()}
        (own / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        if not (untrained / "model").exists():
            train(subject, url, untrained, demos, seed, [*more, "--sft=none", "--steps=0"])
        train(subject, url, run, demos, seed, more)
    facts["load"] = os.getloadavg()[1]
    (own / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def measure(name: str, own: Path, seed: int) -> dict[str, Any]:
    """Return the figures of one subject's run."""
    subject = SUBJECTS[name]
    label = subject.environment
    found = evaluations(own / "run", label)
    if not found:
        raise SystemExit(f"{own} has no evaluation yet: run {name} without --read")
    first = found[0]
    last = [line for line in found if line["time"] - first["time"] <= 60 * MINUTES][-1]
    untrained = evaluations(own / "untrained", label)[-1][f"evaluation/{label}/mean"]
    return {
        **json.loads((own / "facts.json").read_text(encoding="utf-8")), "seed": seed, "untrained": untrained,
        "before": figures(first, label, subject), "after": figures(last, label, subject), "steps": last["step"],
        "minutes": (last["time"] - first["time"]) / 60,
        "date": time.strftime("%Y-%m-%d", time.gmtime(last["time"])),
    }  # fmt: skip


def machine(more: list[str]) -> str:
    """Return what the policy computes on, with such options of `ludus train`."""
    if "--device=cuda" not in more:
        return "CPU"
    import torch

    return str(torch.cuda.get_device_name()).removeprefix("NVIDIA ")


def figures(line: dict[str, Any], label: str, subject: Subject) -> dict[str, Any]:
    """Return an evaluation's mean with its interval, and the shares won against each opponent."""
    prefix = f"evaluation/{label}/"
    won = {found[1]: value for key, value in line.items() if (found := re.fullmatch(rf"{prefix}([^/]+)/won", key))}
    mean, low, high = (line[f"{prefix}mean{side}"] for side in ("", "_low", "_high"))
    strangers = [won[one] for one in subject.strangers if one in won]
    return {"mean": mean, "low": low, "high": high, "won": won, "strangers": statistics.fmean(strangers or [mean])}


def row(name: str, found: dict[str, Any]) -> str:
    """Return the row of the table."""
    before, after = found["before"], found["after"]
    gain = after["strangers"] - before["strangers"]
    met = "met" if gain >= GAIN and found["minutes"] <= MINUTES else "**missed**"
    means = [f"{one['mean']:.1%} ({one['low']:.0%} to {one['high']:.0%})" for one in (before, after)]
    against = "; ".join(
        f"{opponent} {before['won'].get(opponent, 0):.0%} → {won:.0%}" for opponent, won in sorted(after["won"].items())
    )
    load = f"{found['load']:.0f}" if "load" in found else "not measured"
    where = f"`{name}`, {found['machine']}, seed {found['seed']}, {found['date']}"
    return (
        f"| {where} | {found['random']:.1%} | {found['untrained']:.1%} | {' | '.join(means)} | {against or '–'} | "
        f"{100 * gain:+.1f} | {found['steps']} | {found['minutes']:.1f} | "
        f"{load} on {found['cores']} cores | {met} |"
    )


def table(rows: list[str]) -> str:
    """Return the Markdown table."""
    head = (
        "| | random calls | before any training | after the warm-up | after training | won, by opponent | "
        "points gained | steps | minutes | load | ≥ 30 points in ≤ 10 min |"
    )
    return "\n".join([head, "|---" * 11 + "|", *rows])


def write(rows: list[str]) -> None:
    """Put the rows into the page, each in place of the last one of its run on such a machine with its seed."""
    text = PAGE.read_text("utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    new = [_key(line) for line in rows]
    old = [line for line in text[begin:end].splitlines() if line.startswith("| `")]
    rows = sorted([*rows, *(line for line in old if _key(line) not in new)])
    PAGE.write_text(f"{text[:begin]}\n\n{table(rows)}\n\n{text[end:]}", "utf-8")


def _key(line: str) -> str:
    return line.split("|")[1].rpartition(",")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SUBJECTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "learning")
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--write", action="store_true")
    options, more = parser.parse_known_args()
    found: dict[str, dict[str, Any]] = {}
    for name in options.only.split(","):
        own = options.folder.resolve() / f"{name}-{options.seed}"
        if not options.read:
            play(name, own, options.seed, more)
        found[name] = measure(name, own, options.seed)
        print(row(name, found[name]), flush=True)
    if options.write:
        write([row(name, one) for name, one in found.items()])


if __name__ == "__main__":
    main()
