"""Does the trainer learn over the wire? guess_number-tiny, from a beginner's play to guesses near the middle.

    python benchmarks/trainer_learning.py [--seeds 0,1,2] [--engine torch] [--json FILE]

Each run, one per seed, is what `make demo` does: a server process, a random model that imitated a beginner,
`ludus train`. It prints the share of test games won (ranges that no training saw) by the trained policy and by three
baselines (random legal guesses, the warm-up policy as it is, the warm-up policy kept from giving up), and the seconds
from the start of `ludus train` to its end and to the first evaluation 15 points above the best baseline. With
`--engine vllm` a real vLLM server (on a CPU: the `vllm` peer) samples.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import demo  # noqa: E402 - a script, not a package

GAIN = 0.15
"""What GRPO must add to the best baseline."""
VLLM = [
    "--engine.kind=vllm",
    "--engine.vllm.launch=true",
    "--engine.vllm.sync=file",
    f"--engine.vllm.command={ROOT / '.peers' / 'vllm' / 'bin' / 'vllm'}",
    '--engine.vllm.arguments=["--enforce-eager"]',
    '--engine.vllm.variables={VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind"}',
]


def learn(folder: Path, seed: int, overrides: list[str]) -> dict[str, float]:
    """Run the demo's training once, and return its figures."""
    began = 0.0

    def start_clock(message: str) -> None:
        nonlocal began
        began = time.time()  # the last message comes right before `ludus train`

    found = demo.learn(folder, seed, overrides, start_clock)
    seconds = time.time() - began
    evaluations = demo.held_out(folder / "run")
    name = f"evaluation/{demo.ENVIRONMENT}/mean"
    bar = found.trained - found.gain + GAIN
    reached = [line["time"] - began for _, line in evaluations if line[name] >= bar]
    return {
        "seed": seed,
        **found._asdict(),
        "gain": found.gain,
        "steps": evaluations[-1][0],
        "seconds": seconds,
        "seconds_to_gain": reached[0] if reached else float("nan"),
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
            f"{options.engine}, seed {seed}: test games won: random legal guesses {row['random_legal']:.1%}, warm-up "
            f"{row['warm_up']:.1%}, warm-up kept from giving up {row['persistent']:.1%}, trained {row['trained']:.1%} "
            f"({row['low']:.0%} to {row['high']:.0%}), {row['gain']:+.1%}; first guess {row['distance_before']:.1f} → "
            f"{row['distance_after']:.1f} from the middle; {row['steps']:.0f} steps, {row['seconds']:.0f} s; "
            f"{GAIN:+.0%} after {row['seconds_to_gain']:.0f} s",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({options.engine: found}), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped too
    main()
