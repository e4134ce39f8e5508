"""Does a real pretrained model learn? SmolLM2-135M-Instruct or Gemma 3 270M on word problems, after a short warm-up.

    python benchmarks/pretrained.py [--models smollm2,gemma3] [--through torch,vllm,gateway,trl] [--seeds 0,1,2]
                                    [--quick] [--json FILE]

The warm-up is `ludus train trainer/configs/MODEL.toml --steps=0`, once per folder. Each run begins with its model.
`torch`, which runs with each seed, and `vllm` (a real vLLM server, on a CPU the `vllm` peer) are `ludus train`;
`gateway` is `ludus train` with openai-agents as the harness (the `agents` peer); `trl` is TRL's `GRPOTrainer` with our
adapter (the `trl` peer). It prints the share of test problems that are solved before and after, with 95 % intervals
over the test problems. The numbers of a test problem are together in no training problem.

A run that was interrupted goes on where it stopped, except with TRL; one that has ended is only read again. Delete its
folder to repeat it. The model comes from the peer of its name (`python scripts/peers.py smollm2 gemma3`); Gemma learns
through `torch` alone, with one seed, unless other ways are named. Other options are passed to `ludus train`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from trainer_learning import VLLM

from ludus.trainer.quickstart import serving

ROOT: Final = Path(__file__).resolve().parents[1]
LUDUS: Final = Path(sys.executable).with_name("ludus")
MODELS: Final = {
    "smollm2": ("SmolLM2-135M", "torch,vllm,gateway,trl", "0,1,2"),
    "gemma3": ("Gemma-3-270M", "torch", "0"),
}
"""The name, the ways and the seeds of each model."""
EXAMPLE: Final = f"{ROOT / 'examples' / 'word_problems.py'}:WordProblems"
MEAN: Final = "evaluation/word_problems/mean"
HARNESS: Final = ROOT / "benchmarks" / "peers" / "agents_words.py"
TRL: Final = ROOT / "benchmarks" / "peers" / "trl_words.py"
AGENTS: Final = ROOT / ".peers" / "agents" / "bin" / "python"
MORE: Final = {
    "torch": [],
    "vllm": VLLM,
    "gateway": [f"--rollouts.harness=worker {shlex.join([str(AGENTS), str(HARNESS)])}"],
}
"""What each way adds to the options of `ludus train`."""


def train(url: str, model: Path, run: Path, seed: int, overrides: list[str]) -> None:
    """Run `ludus train`, or let a run that was interrupted go on. The first of `overrides` is the configuration."""
    command = [
        str(LUDUS), "train", overrides[0], f"--output={run}", f"--seed={seed}", f"--environments.0.url={url}",
        f"--model.path={model}", "--logging.console=false", *overrides[1:],
    ]  # fmt: skip
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True)


def warm_up(folder: Path, url: str, overrides: list[str]) -> Path:
    """Return the folder of the model after the warm-up, which takes place once."""
    run, solved = folder / "warm-up", folder / "solved.jsonl"
    script = ROOT / "scripts" / f"{Path(overrides[0]).stem}.py"
    subprocess.run([sys.executable, str(script), str(folder / "model")], check=True)
    if not solved.exists():
        part = solved.with_suffix(".part")
        subprocess.run([LUDUS, "demos", EXAMPLE, "-n", "500", "--out", str(part)], check=True)
        part.replace(solved)
    if not (run / "model" / "config.json").exists():
        demonstrations = f"--sft.demonstrations={json.dumps([str(solved)])}"
        train(url, folder / "model", run, 0, [*overrides, demonstrations, "--steps=0"])
    return run / "model"


def learn(folder: Path, through: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    """Train once, or go on with a run that was interrupted, and return its figures."""
    run = folder / f"{through}-{seed}"
    with serving(EXAMPLE) as url:
        model = warm_up(folder, url, overrides)
        if through != "trl":
            train(url, model, run, seed, [*overrides, "--sft=none", *MORE[through]])
            lines = metrics_of(run)
            evaluated = evaluations_of(lines)
            minutes = (evaluated[-1]["time"] - lines[0]["time"]) / 60
            return row_of(seed, evaluated[0], evaluated[-1], evaluated[-1]["step"], minutes)
        trained, report = run / "model", run / "report.json"
        if not report.exists():
            learn_with_trl(url, model, trained, seed)
        if not (run / "evaluation" / "model").exists():
            train(url, trained, run / "evaluation", seed, [*overrides, "--sft=none", "--steps=0"])
        said = json.loads(report.read_text(encoding="utf-8"))
        before, after = (evaluations_of(metrics_of(one))[-1] for one in (folder / "warm-up", run / "evaluation"))
        return row_of(seed, before, after, said["steps"], said["seconds"] / 60)


def learn_with_trl(url: str, model: Path, trained: Path, seed: int) -> None:
    """Train with TRL, in its own environment."""
    python = ROOT / ".peers" / "trl" / "bin" / "python"
    if not python.exists():
        raise SystemExit("TRL is not installed; run: python scripts/peers.py trl")
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("client_sdk", "protocol"))
    began = time.time()
    subprocess.run(
        [str(python), str(TRL), url, str(model), str(trained), str(seed)],
        check=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
    )
    report = json.loads((trained / "trl.json").read_text(encoding="utf-8"))
    (trained.parent / "report.json").write_text(json.dumps({**report, "seconds": time.time() - began}))


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def evaluations_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those lines that have an evaluation."""
    return [line for line in lines if MEAN in line]


def row_of(seed: int, before: dict[str, Any], after: dict[str, Any], steps: int, minutes: float) -> dict[str, Any]:
    """Return the figures of a run from its first and its last evaluation."""
    shares = {
        name: [line[MEAN], line[f"{MEAN}_low"], line[f"{MEAN}_high"]]
        for name, line in (("before", before), ("after", after))
    }
    return {"seed": seed, **shares, "gain": after[MEAN] - before[MEAN], "steps": steps, "minutes": minutes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--through", help=f"of {', '.join((*MORE, 'trl'))}")
    parser.add_argument("--seeds", help="the first is that of all ways but torch")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs", help="with a folder for each model")
    parser.add_argument("--quick", action="store_true", help="two steps of SmolLM2 with torch, to see whether it runs")
    parser.add_argument("--json", type=Path)
    options, overrides = parser.parse_known_args()
    if options.quick:
        options.models, options.through, options.seeds = "smollm2", "torch", "0"
        options.folder /= "quick"
        overrides += ["--steps=2", "--sft.steps=2", "--evaluation.tasks=8"]
    found: dict[str, list[dict[str, Any]]] = {}
    for model in options.models.split(","):
        name, ways, seed_names = MODELS[model]
        folder: Path = (options.folder / model).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        seeds = [int(seed) for seed in (options.seeds or seed_names).split(",")]
        config = str(ROOT / "trainer" / "configs" / f"{model}.toml")
        for through in (options.through or ways).split(","):
            for seed in seeds if through == "torch" else seeds[:1]:
                row = learn(folder, through, seed, [config, *overrides])
                found.setdefault(f"{name} {through}", []).append(row)
                (before, b_low, b_high), (after, a_low, a_high) = row["before"], row["after"]
                print(
                    f"{name}, {through}, seed {seed}: test problems solved: {before:.1%} ({b_low:.0%} to {b_high:.0%}) "
                    f"before, {after:.1%} ({a_low:.0%} to {a_high:.0%}) after {row['steps']} steps and "
                    f"{row['minutes']:.0f} minutes: {row['gain']:+.1%}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped too
    main()
