"""Does the trainer learn over the wire? guess_number, from a beginner's play to held-out success, one run per seed.

    python benchmarks/trainer_learning.py [--seeds 0,1,2] [--engine torch] [--json FILE]

Each run is what `make demo` does: a server process, a random model that imitated a beginner, `ludus train`. Told for
each: the share of held-out games won before and after, and the seconds from the start of `ludus train` to its end, and
to the first evaluation of at least 85 %. With `--engine vllm` a real vLLM server (on a CPU: the `vllm` peer) samples.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import demo  # noqa: E402 - a script, not a package

BAR = 0.85
VLLM = [
    "--engine.kind=vllm",
    "--engine.vllm.launch=true",
    "--engine.vllm.sync=file",
    f"--engine.vllm.command={ROOT / '.peers' / 'vllm' / 'bin' / 'vllm'}",
    '--engine.vllm.arguments=["--enforce-eager"]',
    '--engine.vllm.variables={VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind"}',
]


def learn(folder: Path, seed: int, overrides: list[str]) -> dict[str, float]:
    """One run; its figures."""
    demonstrations, model = folder / "beginner.jsonl", folder / "start"
    with demo.serving("guess_number") as url:
        asyncio.run(demo.record(url, demonstrations, demo.GAMES, seed))
        demo.make_model(model, demonstrations, seed)
        began = time.time()
        demo.train(folder / "run", url, model, demonstrations, seed, overrides)
        seconds = time.time() - began
    name = f"evaluation/{demo.ENVIRONMENT}/mean"
    evaluations = demo.held_out(folder / "run")
    reached = [line["time"] - began for _, line in evaluations if line[name] >= BAR]
    return {
        "seed": seed,
        "before": evaluations[0][1][name],
        "after": evaluations[-1][1][name],
        "low": evaluations[-1][1][f"{name}_low"],
        "steps": evaluations[-1][0],
        "seconds": seconds,
        "seconds_to_bar": reached[0] if reached else float("nan"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--engine", choices=("torch", "vllm"), default="torch")
    parser.add_argument("--json", type=Path)
    options, overrides = parser.parse_known_args()
    found: list[dict[str, Any]] = []
    for seed in map(int, options.seeds.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            chosen = [*overrides, "--logging.console=false", *(VLLM if options.engine == "vllm" else [])]
            row = learn(Path(folder), seed, chosen)
        found.append(row)
        print(
            f"{options.engine}, seed {seed}: held-out success {row['before']:.1%} → {row['after']:.1%} "
            f"in {row['steps']:.0f} steps, {row['seconds']:.0f} s; {BAR:.0%} after {row['seconds_to_bar']:.0f} s",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({options.engine: found}), encoding="utf-8")


if __name__ == "__main__":
    main()
