"""How long it takes until something happens: `import ludus.client`, `ludus --help`, and the same of the peers.

    python benchmarks/startup.py [--rounds 11] [--json FILE]

Each figure is the median wall-clock time of a whole process, interpreter included. The rounds go through all commands
in turn, so that a busy moment of the machine falls on all of them. A first round, uncounted, fills the caches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARS = {"import ludus.client": 0.2, "ludus --help": 0.4}


def commands() -> dict[str, list[str]]:
    """What is measured, by name; peers that are not installed are left out."""
    found = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import ludus.client": [sys.executable, "-c", "import ludus.client"],
        "from ludus.client import connect": [sys.executable, "-c", "from ludus.client import connect"],
        "ludus --help": [str(Path(sys.executable).with_name("ludus")), "--help"],
    }
    for peer, module in (("ors-sdk", "ors"), ("openreward", "openreward"), ("openenv", "openenv.core.generic_client")):
        python = ROOT / ".peers" / peer / "bin" / "python"
        if python.exists():
            found[f"import {module}"] = [str(python), "-c", f"import {module}"]
        else:
            print(f"left out: {peer} is not installed (make peers)")
    return found


def once(command: Sequence[str]) -> float:
    """Seconds from the start of a process to its end."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - begun


def measure(rounds: int) -> dict[str, float]:
    """Median seconds by name."""
    found = commands()
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds + 1):
        for name, command in found.items():
            took = once(command)
            if number:
                times[name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path, help="also write the medians there, in seconds")
    options = parser.parse_args()
    medians = measure(options.rounds)
    for name, seconds in medians.items():
        bar = BARS.get(name)
        verdict = "" if bar is None else f"   at most {bar:.1f} s: {'met' if seconds <= bar else 'MISSED'}"
        print(f"{name:34} {seconds:6.3f} s{verdict}")
    if options.json:
        options.json.write_text(json.dumps(medians, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
