"""The processes of a benchmark: start one that listens on a port, measure its CPU time, and end it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from ludus.client import Episode, connect


@contextmanager
def running(*command: str) -> Iterator[str]:
    """Run a process that listens on the port that is its last argument, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([*command, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{' '.join(command)} ended with {process.returncode}") from None
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, over its threads, in the scheduler's own nanoseconds."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


async def serve(spec: str, *options: str, stderr: int | None = None) -> tuple[asyncio.subprocess.Process, str]:
    """Start `ludus serve` with an environment, and return the process and its address when it answers."""
    command = [sys.executable, "-m", "ludus.cli", "serve", spec, "--max-episodes", "200000"]
    if "--log-level" not in options:
        command += ["--log-level", "ERROR"]
    if "--port" not in options:
        command += ["--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, *options, stdout=asyncio.subprocess.PIPE, stderr=stderr)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith("Serving"), line
    return process, line.split(" at ")[1].split()[0]


async def cpu_per_step(
    spec: str, kinds: Mapping[str, Sequence[str]], *, at_once: int, rounds: int, steps: int
) -> dict[str, list[float]]:
    """Compare servers with different options: the CPU microseconds of a channel step in each round, by kind.

    All servers live at the same time, and are played in turn, so that the noise of the machine meets all of them.

    Args:
        spec: the environment, which has a tool `step`.
        kinds: the options of each server.
        at_once: how many episodes are played at the same time.
        rounds: how many rounds are measured, after one that warms up.
        steps: how many steps of one server make a round.
    """
    each = steps // at_once
    samples: dict[str, list[float]] = {kind: [] for kind in kinds}

    async def play(episode: Episode) -> None:
        for _ in range(each):
            await episode.call("step")

    async with AsyncExitStack() as stack:
        played: dict[str, tuple[int, list[Episode]]] = {}
        for kind, options in kinds.items():
            process, url = await serve(spec, *options)
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
            client = await stack.enter_async_context(connect(url))
            (environment,) = await client.environments()
            group = await client.environment(environment.name).start_group(at_once, seed=1)
            played[kind] = (process.pid, list(group))
        for number in range(rounds + 1):
            for kind, (pid, episodes) in played.items():
                before = cpu_seconds(pid)
                await asyncio.gather(*map(play, episodes))
                if number:
                    samples[kind].append(1e6 * (cpu_seconds(pid) - before) / (each * at_once))
    return samples
