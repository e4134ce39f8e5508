"""What another machine costs: a background process and one exchange through sandboxd, against bubblewrap alone.

    python benchmarks/sandboxd.py [--rounds 60] [--json FILE]

Both sandboxes are up ("warm"). A round starts `cat`, writes one line to it and reads it back; the rounds go through the
contestants in turn, so that a busy moment falls on all of them, and the figures are medians. `sandboxd` is a process of
its own and is reached over loopback, so this is what the protocol costs, without a network's own delay. The other
figures are a command (`true`) and a snapshot of 16 MiB, the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from hosting import TOKEN, sandboxd

from ludus.sandbox import Limits, Sandbox, SandboxProvider, SandboxSettings
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.sandbox.remote.provider import Sandboxd

MOST_MS = 25.0
"""For a process and one exchange through sandboxd."""


async def exchange(box: Sandbox) -> float:
    began = time.perf_counter()
    async with await box.spawn(["cat"]) as process:
        await process.write(b"line\n")
        assert await process.stdout.read_line() == b"line\n"
        return time.perf_counter() - began


async def command(box: Sandbox) -> float:
    began = time.perf_counter()
    assert (await box.run(["true"])).ok
    return time.perf_counter() - began


async def snapshot(box: Sandbox) -> float:
    began = time.perf_counter()
    assert len((await box.snapshot()).data) > 16 * 2**20
    return time.perf_counter() - began


WORK: dict[str, Callable[[Sandbox], Awaitable[float]]] = {
    "spawn + one exchange": exchange, "command": command, "snapshot of 16 MiB": snapshot,
}  # fmt: skip


async def measure(rounds: int, url: str) -> dict[str, float]:
    """Median seconds, by backend and work."""
    providers: dict[str, SandboxProvider] = {"bubblewrap": Bubblewrap(), "sandboxd": Sandboxd([url], token=TOKEN)}
    boxes = {}
    for name, provider in providers.items():
        await provider.open()
        boxes[name] = await provider.create(
            SandboxSettings(provider=name, warm=0, limits=Limits(file_size=2**26, disk=2**27))
        )
        await boxes[name].write("large", os.urandom(16 * 2**20))
    times: dict[str, list[float]] = {f"{name}: {work}": [] for work in WORK for name in boxes}
    for number in range(rounds + 1):
        for work, carry_out in WORK.items():
            for name, box in boxes.items():
                took = await carry_out(box)
                if number:
                    times[f"{name}: {work}"].append(took)
    for provider in providers.values():
        await provider.aclose()
    return {name: statistics.median(samples) for name, samples in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sandboxd(Path(folder)) as host:
        found = asyncio.run(measure(options.rounds, host.url))
    for name, value in found.items():
        print(f"{name:36} {value * 1e3:8.1f} ms")
    within = found["sandboxd: spawn + one exchange"] * 1e3 <= MOST_MS
    print(f"spawn + one exchange through sandboxd at most {MOST_MS:g} ms: {'met' if within else 'MISSED'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
