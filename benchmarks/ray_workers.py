"""Workers that Ray has placed, against workers that the supervisor starts itself.

    python benchmarks/ray_workers.py [--quick] [--json FILE]

*Cost*: an echo tool on a server of one worker, started by Ray and locally, in turn; 64 in flight and one at a time,
over the channel. The figure is the CPU of all processes for a step, as the kernel accounts it: gateway and worker, and
with Ray also the actor and the supervisor's connection to the cluster. *Return*: both servers have journals and 64
episodes; the worker's process is killed, and the time until each episode has answered its next call is measured.
Medians over rounds. Ray runs on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import worker_gateway
from worker_gateway import ask_client, middle

from ludus.client import connect

SIDES = {"local": (), "ray": ("--ray", "local")}
EPISODES = 64


class Server:
    """A server of one worker, whose processes are known from its log."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "server.log"
        command = [sys.executable, "-m", "ludus.cli", "serve", f"{worker_gateway.__file__}:Echo", "--port", "0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--workers", "1", *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().split(" at ")[1].split()[0]

    @property
    def worker(self) -> int:
        """The process of the worker."""
        return int(re.findall(r"worker w0 serves \(process (\d+)", self.log.read_text("utf-8"))[-1])

    @property
    def processes(self) -> list[int]:
        """All processes: gateway and worker, and with Ray also the actor and the connection to the cluster."""
        actor = int(Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()[1])
        own = self.process.pid
        if actor == own:
            return [own, self.worker]
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        return [own, self.worker, actor, *map(int, children)]

    def close(self) -> None:
        """End the server."""
        self.process.terminate()
        self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def both(*, journal: bool) -> Iterator[dict[str, Server]]:
    """Both servers at the same time."""
    with contextlib.ExitStack() as stack:
        servers = {}
        for side, options in SIDES.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            kept = ("--journal", str(folder / "journal.db")) if journal else ()
            servers[side] = Server(folder, *options, *kept)
            stack.callback(servers[side].close)
        yield servers


def cost(rounds: int, seconds: float) -> dict[str, Any]:
    """The CPU of a step, in microseconds."""
    cells: dict[str, list[dict[str, Any]]] = {}
    with both(journal=False) as servers:
        for _ in range(rounds):
            for at_once in (64, 1):
                for side, server in servers.items():
                    cell = ask_client("echo", server.url, at_once, seconds, server.processes)
                    cells.setdefault(f"{at_once} {side}", []).append(cell)
    found: dict[str, Any] = {}
    for at_once in (64, 1):
        local, ray = (middle(cells[f"{at_once} {side}"]) for side in SIDES)
        pairs = zip(cells[f"{at_once} local"], cells[f"{at_once} ray"], strict=True)
        ratio = statistics.median(sum(two["us"]) / sum(one["us"]) for one, two in pairs)
        found[f"at_{at_once}"] = {"local_us": local["us"], "ray_us": ray["us"], "ratio": ratio}
        print(f"{at_once:2} in flight: local {local['us']} µs; Ray {ray['us']} µs; paired ratio {ratio:.3f}")
    return found


async def back_after(server: Server) -> float:
    """Kill the worker of a server, and return the seconds until all its episodes have answered."""
    async with connect(server.url) as client:
        episodes = list(await client.environment("echo").start_group(EPISODES))
        await asyncio.gather(*(one.call("echo", text="hello") for one in episodes))
        os.kill(server.worker, signal.SIGKILL)
        began = time.perf_counter()
        await asyncio.gather(*(one.call("echo", text="hello") for one in episodes))
        took = time.perf_counter() - began
        await asyncio.gather(*(one.close() for one in episodes))
    return took


def returns(rounds: int) -> dict[str, float]:
    """The seconds until the episodes of a killed worker are back."""
    took: dict[str, list[float]] = {side: [] for side in SIDES}
    with both(journal=True) as servers:
        for _ in range(rounds):
            for side, server in servers.items():
                took[side].append(asyncio.run(back_after(server)))
    found = {side: statistics.median(times) for side, times in took.items()}
    print("back after a kill: " + ", ".join(f"{side} {seconds:.2f} s" for side, seconds in found.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds, seconds = (1, 1.0) if options.quick else (5, 4.0)
    found = {**cost(rounds, seconds), "back": returns(rounds), "cores": os.cpu_count()}
    if options.json:
        options.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
