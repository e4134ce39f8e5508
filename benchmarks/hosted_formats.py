"""What one environment of each format promises and costs: docs/formats.md shows it as a table.

    python benchmarks/hosted_formats.py [--episodes 20] [FORMAT ...]

Each format serves an environment of examples/formats or of its package, in a server process of its own, with the
package in its own virtual environment (`python scripts/peers.py --all`). A random policy plays it over the channel. The
figures are wall times that the client sees, medians: of a start, and of a call. They contain the work of the package
itself; benchmarks/formats.py measures what hosting adds to it. A format whose package is not installed keeps its row.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import random
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ludus.client import connect
from ludus.client.environment import RemoteEnvironment
from ludus.client.policies.values import random_value
from ludus.validation.core.server_process import serving

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "assets" / "hosted_formats.json"
EXAMPLES = "examples/formats"
MOST_CALLS = 30
NOT_PROMISED = re.compile(r"^Not promised: (.+?) \(", re.MULTILINE)


class Hosted(NamedTuple):
    """An environment of a format."""

    target: str
    peer: str | None = None
    """The virtual environment under .peers/ that has the package."""
    options: str = ""


SQLITE = ROOT / ".peers" / "mcp-servers" / "bin" / "mcp-server-sqlite"
HOSTED = {
    "agentenv": Hosted(EXAMPLES + "/agentenv", "agentenv"),
    "aviary": Hosted(EXAMPLES + "/aviary/ledger.py:LedgerTasks", "aviary"),
    "bfcl": Hosted("multi_turn_base", "bfcl"),
    "cube": Hosted(EXAMPLES + "/cube/crates.py:CratesConfig", "cube"),
    "dataset": Hosted(EXAMPLES + "/dataset/word-problems"),
    "gymnasium": Hosted("FrozenLake-v1", "gymnasium"),
    "harbor": Hosted(EXAMPLES + "/harbor"),
    "inspect": Hosted(EXAMPLES + "/inspect/shop.py", "agents"),
    "mcp": Hosted(f"{SQLITE} --db-path {{dir}}/data.db", options="tasks=benchmarks/sqlite_tasks.jsonl,warm=8"),
    "nemo-gym": Hosted(
        EXAMPLES + "/nemo_gym/coins.py:Coins", "nemo-gym", f"tasks={EXAMPLES}/nemo_gym/rows.jsonl"
    ),
    "openenv": Hosted(EXAMPLES + "/openenv/orchard.py:Orchard", "openenv"),
    "ors": Hosted(EXAMPLES + "/ors/museum.py:Museum", "openreward"),
    "reasoning-gym": Hosted("leg_counting", "gymnasium"),
    "textarena": Hosted("TicTacToe-v0", "textarena"),
    "verifiers": Hosted(EXAMPLES + "/verifiers/number_hunt.py", "verifiers-v0"),
}  # fmt: skip


def main() -> int:
    """Measure, print and write the rows; the exit code is 1 if one could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="all by default")
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    if unknown := set(options.formats) - set(HOSTED):
        parser.error(f"there is no format {sorted(unknown)[0]!r}; choose from {', '.join(HOSTED)}")
    rows: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    failed = False
    for name in options.formats or HOSTED:
        hosted = HOSTED[name]
        if hosted.peer is not None and not (ROOT / ".peers" / hosted.peer).exists():
            print(f"{name}: not installed; python scripts/peers.py {hosted.peer} installs it")
            continue
        try:
            rows[name] = asyncio.run(measure(spec_of(name, hosted), options.episodes))
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            failed = True
            continue
        print(f"{name}: {rows[name]}", flush=True)
    RESULTS.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n", encoding="utf-8")
    return int(failed)


def spec_of(name: str, hosted: Hosted) -> str:
    """Return what `ludus serve` takes."""
    python = [] if hosted.peer is None else [f"python={ROOT / '.peers' / hosted.peer / 'bin' / 'python'}"]
    options = ",".join([*filter(None, [hosted.options]), *python])
    return f"{name}:{hosted.target}" + (f"#{options}" if options else "")


async def measure(spec: str, episodes: int) -> dict[str, Any]:
    """Return what the environment's info says, and the medians of its times."""
    async with serving([spec]) as server, connect(server.url) as client:
        info = (await client.environments())[0]
        remote = client.environment(info.name)
        starts: list[float] = []
        calls: list[float] = []
        for number in range(episodes):
            started, called = await play(remote, info.splits[0].name, number)
            starts.append(started)
            calls += called
    return {
        "date": datetime.date.today().isoformat(),
        "seeds": info.seedable,
        "forks": info.forkable,
        "not_promised": NOT_PROMISED.findall(info.description),
        "start_ms": round(1000 * statistics.median(starts), 1),
        "call_ms": round(1000 * statistics.median(calls), 2) if calls else None,
    }


async def play(remote: RemoteEnvironment, split: str, number: int) -> tuple[float, Sequence[float]]:
    """Play an episode at random, and return the seconds of its start and of each call."""
    rng = random.Random(number)
    began = time.perf_counter()
    async with remote.episode(split=split, index=number % 3) as episode:
        started = time.perf_counter() - began
        called = []
        for _ in range(MOST_CALLS if episode.tools else 0):
            tool = rng.choice(episode.tools)
            arguments = random_value(tool.input_schema, rng)
            began = time.perf_counter()
            step = await episode.call(tool.name, **(arguments if isinstance(arguments, dict) else {}))
            called.append(time.perf_counter() - began)
            if step.ended:
                break
    return started, called


if __name__ == "__main__":
    sys.exit(main())
