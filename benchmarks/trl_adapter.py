"""The adapter of TRL: the server's share of a step of TRL's trainer, and the start of a group of 64 episodes.

    python benchmarks/trl_adapter.py [--steps 6] [--starts 30] [--json FILE]

TRL's `GRPOTrainer` trains a random model of 2 layers with `LudusRollout`, 64 episodes a step, on a server in a process
of its own; both share the machine's cores. The share is the time in which the trainer waits for the adapter's requests,
out of the time of the whole step: rollouts, rewards and the update. A group is started by `LudusEnvironmentFactory`
as TRL does it: 64 resets, then the request that the first call makes. The first step and the first start are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "benchmarks" / "peers" / "trl_rollout.py"
TRL = ROOT / ".peers" / "trl" / "bin" / "python"
WORLD = ROOT / "tests" / "support" / "adapter_world.py"


def measure(steps: int, starts: int) -> dict[str, Any]:
    """Return what the program in TRL's environment prints."""
    command = [str(Path(sys.executable).with_name("ludus")), "serve", f"{WORLD}:Sums", "--port", "0"]
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("client_sdk", "protocol"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            url = next(match[0] for line in server.stdout if (match := re.search(r"http://[\d.]+:\d+", line)))
            done = subprocess.run(
                [str(TRL), str(PEER), url, str(steps), str(starts)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
            )
        finally:
            server.terminate()
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not TRL.exists():
        sys.exit("TRL is not installed: run `python scripts/peers.py trl`")
    found = measure(options.steps, options.starts)
    steps, starts = found["steps"][1:], found["starts"][1:]
    seconds, waited = sum(step["seconds"] for step in steps), sum(step["waited"] for step in steps)
    figures = {"share": waited / seconds, "step": seconds / len(steps), "start": statistics.median(starts)}
    print(f"a step of 64 episodes takes {figures['step']:.2f} s; the server's share is {figures['share']:.2%}")
    print(f"64 episodes of one task start in {1000 * figures['start']:.1f} ms (worst {1000 * max(starts):.1f} ms)")
    if options.json:
        options.json.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
