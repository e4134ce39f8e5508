"""What a sandbox costs: starting `python -c pass` in one against starting it bare, and commands per second.

    python benchmarks/sandbox.py [--rounds 60] [--seconds 5] [--no-docker] [--json FILE]

One command in a box that is up ("warm") is the median over the rounds, which go through the contestants in turn, so
that a busy moment falls on all of them. "Bare" is `subprocess.run` of the very Python that is in the box, both with
`-I -S`. Commands per second are of plain `python3 -c pass`: as many boxes as there are cores, each with one command
after another. "Fresh" gives each command a box of its own, as an episode of a single command has it.
"Spawn and answer" starts `cat` in the background and waits until it has returned a line.
The first command of containers that are ready is measured on an engine of the tests' own, where one can be started.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from engine import IMAGE, engine

from ludus.sandbox import Sandbox, SandboxProvider, SandboxSettings, find_provider
from ludus.sandbox.bubblewrap import Bubblewrap

PASS = ["-I", "-S", "-c", "pass"]
"""Without site-packages: those of this machine's Python would be compared with those that a box does not have."""


def bare() -> float:
    """Seconds of one bare start."""
    python = os.path.realpath(sys.executable)
    begun = time.perf_counter()
    subprocess.run([python, *PASS], check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - begun


async def timed(box: Sandbox, argv: list[str]) -> float:
    """Seconds of one command."""
    begun = time.perf_counter()
    result = await box.run(argv)
    assert result.ok, result
    return time.perf_counter() - begun


async def latencies(rounds: int) -> dict[str, float]:
    """Median seconds by contestant, of a command in a box that is up."""
    providers: dict[str, SandboxProvider] = {
        "bubblewrap": Bubblewrap(),
        "bubblewrap, no cgroups": Bubblewrap(cgroups=False),
    }
    boxes = {}
    for name, provider in providers.items():
        await provider.open()
        boxes[name] = await provider.create(SandboxSettings(provider=provider.name, warm=0))
    times: dict[str, list[float]] = {"bare": [], **{name: [] for name in boxes}}
    for number in range(rounds + 1):
        for name, samples in times.items():
            took = bare() if name == "bare" else await timed(boxes[name], ["python3", *PASS])
            if number:
                samples.append(took)
    for provider in providers.values():
        await provider.aclose()
    return {name: statistics.median(samples) for name, samples in times.items()}


async def exchanges(rounds: int) -> dict[str, float]:
    """Median seconds until a new background process has answered a line, in a box that is up."""
    found = {}
    for name, provider in (("bubblewrap", Bubblewrap()), ("bubblewrap, no cgroups", Bubblewrap(cgroups=False))):
        await provider.open()
        box = await provider.create(SandboxSettings(provider=provider.name, warm=0))
        samples = []
        for _ in range(rounds + 1):
            begun = time.perf_counter()
            process = await box.spawn(["cat"])
            await process.write(b"hello\n")
            assert await process.stdout.read_line() == b"hello\n"
            samples.append(time.perf_counter() - begun)
            await process.aclose()
        found[f"spawn and answer, {name}"] = statistics.median(samples[1:])
        await provider.aclose()
    return found


async def bare_rate(seconds: float) -> float:
    """Bare starts per second, on every core at once: what this machine has to give at the moment."""
    end = time.perf_counter() + seconds

    def starts() -> int:
        done = 0
        while time.perf_counter() < end:
            bare()
            done += 1
        return done

    return sum(await asyncio.gather(*(asyncio.to_thread(starts) for _ in range(os.cpu_count() or 1)))) / seconds


async def rates(seconds: float, provider: SandboxProvider, *, fresh: bool) -> float:
    """Commands per second, on every core at once."""
    cores = os.cpu_count() or 1
    settings = SandboxSettings(provider=provider.name, warm=cores)
    await provider.prepare(settings)
    end = time.perf_counter() + seconds
    done = 0

    async def one() -> None:
        nonlocal done
        box = await provider.create(settings)
        while time.perf_counter() < end:
            await timed(box, ["python3", "-c", "pass"])
            done += 1
            if fresh:
                await box.aclose()
                box = await provider.create(settings)
        await box.aclose()

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(cores)))
    return done / (time.perf_counter() - begun)


async def docker(image: str, rounds: int) -> dict[str, float]:
    """Median seconds of the first command of a ready container, and of starting one."""
    provider = find_provider("docker")
    await provider.open()
    settings = SandboxSettings(provider="docker", image=image, warm=0)
    starts, firsts = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        async with await provider.create(settings) as box:
            starts.append(time.perf_counter() - begun)
            firsts.append(await timed(box, ["true"]))
    await provider.aclose()
    return {"docker start": statistics.median(starts), "docker first command": statistics.median(firsts)}


def with_engine(rounds: int) -> dict[str, float]:
    """`docker` on an engine that is started for it; nothing, and why, where there is none."""
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(engine())
        except pytest.skip.Exception as reason:
            print(f"docker is not measured: {reason}")
            return {}
        before = os.environ.get("DOCKER_HOST")
        os.environ["DOCKER_HOST"] = address
        try:
            return asyncio.run(docker(IMAGE, rounds))
        finally:
            os.environ.pop("DOCKER_HOST")
            if before is not None:
                os.environ["DOCKER_HOST"] = before


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Everything, by name; times in seconds, rates per second."""
    found = await latencies(options.rounds)
    found |= await exchanges(options.rounds)
    provider = find_provider("bubblewrap")
    await provider.open()
    found["bare runs/s"] = await bare_rate(options.seconds)
    found["runs/s"] = await rates(options.seconds, provider, fresh=False)
    found["runs/s, fresh boxes"] = await rates(options.seconds, provider, fresh=True)
    await provider.aclose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--no-docker", action="store_true", help="leave containers out")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    if not options.no_docker:
        found |= with_engine(15)
    for name, value in found.items():
        if "runs/s" in name:
            print(f"{name:40} {value:8.1f} per second")
        else:
            ratio = "" if "docker" in name else f"{value / found['bare']:6.2f}× bare"
            print(f"{name:40} {value * 1e3:8.1f} ms {ratio}")
    within = found["bubblewrap"] <= 1.5 * found["bare"]
    print(f"bubblewrap at most 1.5× bare: {'met' if within else 'MISSED'}")
    print(f"bubblewrap at least 60 runs/s: {'met' if found['runs/s'] >= 60 else 'MISSED'}")
    exchange = max(value for name, value in found.items() if name.startswith("spawn"))
    print(f"spawn and answer at most 20 ms: {'met' if exchange <= 0.02 else 'MISSED'}")
    if "docker first command" in found:
        print(f"docker first command at most 50 ms: {'met' if found['docker first command'] <= 0.05 else 'MISSED'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
