"""Endpoints of a hub: what the proxy costs a step, and how long a first observation takes.

    python benchmarks/hub_endpoints.py [--quick] [--json FILE]

*Cost*: an echo tool on a server of its own (`ludus serve`) and at an endpoint of a hub, in turn; 64 in flight over the
channel of our client. The figure is the CPU of the hub, the sandbox and the endpoint's process for a step, as the
kernel accounts it, over that of the server. *Cold*: the endpoint is stopped and its virtual environment exists; from
the request to the first observation, and the CPU of all that was started for it until then. *Warm*: the same while the
endpoint runs. Medians over rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from processes import cpu_seconds
from worker_gateway import ask_client, serving

SOURCE: Final = '''
"""Echoes."""

from ludus.server import Environment, Task, tool


class Echo(Environment[Task]):
    """Echoes."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        """Say nothing of interest."""
        return "hi"

    @tool
    async def echo(self, text: str) -> str:
        """Say it back."""
        return text
'''
BARS: Final = {"ratio": 1.2, "cold_seconds": 2.0, "cold_cpu_seconds": 1.2, "warm_seconds": 0.020}
IDLE_SECONDS: Final = 1.0


def wheel() -> tuple[str, bytes]:
    """The file name and the bytes of the package's wheel."""
    from ludus.hub.seed import pack_wheel

    stem = "ada_echo-1.0.0"
    files = {
        "ada_echo.py": SOURCE,
        f"{stem}.dist-info/METADATA": "Metadata-Version: 2.1\nName: ada-echo\nVersion: 1.0.0\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": "[ludus.environments]\necho = ada_echo:Echo\n",
    }
    return f"{stem}-py3-none-any.whl", pack_wheel(stem, files)


def serve_hub(folder: Path) -> None:
    """Serve a hub with the package until the process is ended."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from ludus.hub.access.viewers import Viewer
    from ludus.hub.app import create_hub, parts_of
    from ludus.hub.registry.publishing import Upload
    from ludus.hub.serve import HubServer
    from ludus.hub.settings.endpoints import EndpointSettings
    from ludus.hub.settings.hub import HubSettings
    from ludus.registry.types.packages import EnvironmentEntry, Manifest, Statement
    from ludus.registry.types.signing import digest_of, sign, text_digest

    endpoints = EndpointSettings(idle_seconds=IDLE_SECONDS, spares=False)
    app = create_hub(HubSettings(data=folder, port=0, seed=False, endpoints=endpoints))
    hub = parts_of(app).hub
    filename, data = wheel()
    entry = EnvironmentEntry(name="echo", source="ada_echo:Echo")
    manifest = Manifest(id="ada/echo", version="1.0.0", environments=(entry,))
    with hub.blobs.receiving(len(data)) as incoming:
        incoming.write(data)
        statement = Statement(
            id=manifest.id, version="1.0.0", filename=filename, sha256=incoming.sha256, size=len(data),
            manifest_sha256=digest_of(manifest), card_sha256=text_digest(""),
        )  # fmt: skip
        signed = sign(statement, Ed25519PrivateKey.generate())
        hub.publisher.publish(Viewer.of_administrator("ada"), Upload(incoming, filename, manifest, "", signed))
    HubServer(app, hub.settings, lambda url: print(url, flush=True)).run()


@contextlib.contextmanager
def hub_serving() -> Iterator[tuple[str, int]]:
    """The address of the endpoint at a hub, and the hub's process id."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, __file__, "--hub", folder], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            yield f"{process.stdout.readline().decode().strip()}/e/ada/echo", process.pid
        finally:
            process.terminate()
            process.wait(timeout=60)
            process.stdout.close()


def below(pid: int) -> list[int]:
    """The processes that descend from one."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [one for child in map(int, children) for one in (child, *_below(child))]


def _below(pid: int) -> list[int]:
    try:
        return below(pid)
    except OSError:
        return []


async def first_observation(address: str) -> float:
    """Seconds from the request for an episode to its first observation."""
    from ludus.client import connect

    async with connect(address, wire="channel") as client:
        began = time.perf_counter()
        episode = await client.environment("echo").start(index=0)
        took = time.perf_counter() - began
        assert "hi" in str(episode.prompt)
        await episode.close()
    return took


def starts(address: str, pid: int, rounds: int) -> dict[str, float]:
    """What cold and warm starts take."""
    cold, cpu, warm = [], [], []
    for _ in range(rounds):
        while below(pid):
            time.sleep(0.05)
        cold.append(asyncio.run(first_observation(address)))
        cpu.append(sum(map(cpu_seconds, below(pid))))
        warm += [asyncio.run(first_observation(address)) for _ in range(5)]
    return {
        "cold_seconds": statistics.median(cold), "cold_cpu_seconds": statistics.median(cpu),
        "warm_seconds": statistics.median(warm),
    }  # fmt: skip


def cost(address: str, pid: int, rounds: int, seconds: float) -> dict[str, float]:
    """What the proxy costs a step."""
    cells: dict[str, list[list[float]]] = {"direct": [], "endpoint": []}
    with serving() as (url, pids):
        for _ in range(rounds):
            cells["direct"].append(ask_client("echo", url, 64, seconds, pids)["us"])
            asyncio.run(first_observation(address))
            found = ask_client("echo", address, 64, seconds, [pid, *below(pid)])["us"]
            cells["endpoint"].append([found[0], sum(found[1:])])
    direct = statistics.median(sum(cell) for cell in cells["direct"])
    hub, endpoint = (statistics.median(column) for column in zip(*cells["endpoint"], strict=True))
    return {"direct_us": direct, "hub_us": hub, "endpoint_us": endpoint, "ratio": (hub + endpoint) / direct}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--hub", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hub is not None:
        serve_hub(options.hub)
        return
    rounds, seconds = (2, 1.0) if options.quick else (5, 3.0)
    with hub_serving() as (address, pid):
        asyncio.run(first_observation(address))  # makes the virtual environment
        found: dict[str, Any] = starts(address, pid, rounds) | cost(address, pid, rounds, seconds)
    print(
        f"a step at 64 in flight: direct {found['direct_us']:.1f} µs; hub {found['hub_us']:.1f} + endpoint "
        f"{found['endpoint_us']:.1f} µs: {found['ratio']:.2f}× (bar {BARS['ratio']}×)"
    )
    print(
        f"first observation: cold {found['cold_seconds']:.2f} s (bar {BARS['cold_seconds']:g}), "
        f"{found['cold_cpu_seconds']:.2f} s CPU (bar {BARS['cold_cpu_seconds']}); warm "
        f"{1e3 * found['warm_seconds']:.1f} ms (bar {1e3 * BARS['warm_seconds']:.0f})"
    )
    if options.json is not None:
        options.json.write_text(json.dumps({**found, "bars": BARS}))


if __name__ == "__main__":
    main()
