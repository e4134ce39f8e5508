"""What limits of tokens cost: CPU per counted step, by itself and per channel step.

    python benchmarks/quotas.py [--rounds 9] [--steps 20000] [--takes 2000000]

* Counting alone: permits taken from a file of usage as a step takes them, in a loop; the loop without them is deducted.
* CPU per channel step: two server processes, without limits and with limits on requests and steps in a file of usage.
  A client in this process plays 64 episodes on each in turn; medians over rounds, and of the difference in a round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from durability import AT_ONCE
from processes import cpu_per_step

from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import Quotas
from ludus.server.auth.usage import UsageTable

MOST = 0.3
"""Microseconds of CPU time that counting a step may take."""

RATE = 10_000_000.0
"""A limit that is never reached."""

SPEC = f"{Path(__file__).with_name('durability.py')}:Counting"


def counting(folder: Path, takes: int) -> float:
    """Return the CPU microseconds of one counted step."""
    limits = TokenLimits(steps_per_second=RATE)
    quotas = Quotas(limits, table=UsageTable.open(folder / "alone"))
    account = quotas.account(Principal("lab", frozenset()))
    began = time.process_time()
    for _ in range(takes):
        if account.counts_steps:
            account.take_step()
    counted = time.process_time() - began
    began = time.process_time()
    for _ in range(takes):
        pass
    empty = time.process_time() - began
    quotas.close()
    return 1e6 * (counted - empty) / takes


def main() -> int:
    """Measure and print; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each measurement of CPU time")
    parser.add_argument("--takes", type=int, default=2_000_000, help="steps that are counted by themselves")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found["counting"] = alone = statistics.median(counting(folder, options.takes // 5) for _ in range(5))
        print(f"counting one step: {alone:.2f} µs (at most {MOST:g}): {'met' if alone <= MOST else 'MISSED'}")
        limits = [f"--limit={name}_per_second={RATE:.0f}" for name in ("requests", "steps")]
        kinds = {"off": (), "on": (*limits, "--usage-file", str(folder / "usage"))}
        comparing = cpu_per_step(SPEC, kinds, at_once=AT_ONCE, rounds=options.rounds, steps=options.steps)
        samples = asyncio.run(comparing)
        for kind, many in samples.items():
            found[kind] = statistics.median(many)
        pairs = [on - off for on, off in zip(samples["on"], samples["off"], strict=True)]
        found["added"] = added = statistics.median(pairs)
        print(f"CPU per channel step: off {found['off']:.1f} µs, on {found['on']:.1f} µs")
        print(f"  limits on requests and steps add {added:.2f} µs (rounds from {min(pairs):.2f} to {max(pairs):.2f})")
    if options.json is not None:
        options.json.write_text(json.dumps(found), encoding="utf-8")
    return int(alone > MOST)


if __name__ == "__main__":
    sys.exit(main())
