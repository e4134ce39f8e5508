"""The pages of the hub's site at 1,000 environments, over SQLite and PostgreSQL, through a real `ludus hub`.

    python benchmarks/hub_site.py [--environments 1000] [--requests 100]

A client asks a hub process for one page after the other. What counts is the 95th percentile of each page's time at the
client, so it includes HTTP on both sides; the best of three rounds, because other programs disturb it. The size of a
page is that of its HTML, as it is sent to a browser.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from hub import filled_hubs, p95
from hubs import HubProcess

MOST = 30.0
"""Milliseconds within which 95 of 100 requests of each page must be served."""


def pages(package: str) -> list[str]:
    """The pages, by address."""
    return [
        "/", "/?page=20", "/?q=reward", "/?tag=game", "/?owner=owner7", "/?durability=replay",
        "/?q=reward&owner=owner7&durability=none&tag=game", f"/{package}", f"/{package}/versions/1.0.0", "/rollouts",
        "/absent/absent",
    ]  # fmt: skip


def measure(hub: HubProcess, requests: int) -> dict[str, float]:
    """Return the 95th percentile of each page, in milliseconds."""
    found: dict[str, float] = {}
    with hub.client() as client:
        package = client.get("/api/v1/environments").json()["packages"][0]["id"]
        for address in pages(package):
            times = []
            for _ in range(requests):
                began = time.perf_counter()
                answer = client.get(address, headers={"accept": "text/html"})
                times.append(1000 * (time.perf_counter() - began))
                assert answer.status_code in (200, 404), answer.text
            found[address.replace(package, "OWNER/NAME")] = p95(times)
    return found


def main() -> int:
    """Measure and print; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--environments", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"environments": options.environments}
    met = True
    for kind, hub in filled_hubs(options.environments):
        measure(hub, 5)
        rounds = [measure(hub, options.requests) for _ in range(3)]
        found[kind] = best = {address: min(one[address] for one in rounds) for address in rounds[0]}
        for address, value in best.items():
            met = met and value <= MOST
            print(f"{kind:10} {address:50} p95 {value:5.1f} ms{'' if value <= MOST else ' MISSED'}")
    if options.json is not None:
        options.json.write_text(json.dumps(found), encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
