"""Validate published environments of other systems, and count what the checks find in them, by kind.

    python scripts/validate_published.py                  all of them; writes docs/assets/published_environments.json
    python scripts/validate_published.py textarena        only these packages; writes nothing, prints each finding
    python scripts/validate_published.py --list           what would be validated
    python scripts/validate_published.py --keep FILE      keep what was found there, and go on from it when run again

Each environment is hosted by its format, with the package in its own virtual environment (`make peers`), and checked as
`ludus validate` does. The file holds counts and versions; which environment has which finding is printed only, because
a package is not blamed before its authors know.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import installer

from ludus.validation import validate
from ludus.validation.core.settings import Settings

RESULTS = installer.ROOT / "docs" / "assets" / "published_environments.json"
TASKS = 4
"""Tasks of each split that are played."""


INCOMPLETE = "incomplete"
"""The key for a check that could not be completed, next to the kinds of findings."""

Kinds = dict[str, str]
"""The severity of each kind of finding of an environment."""


class Published(NamedTuple):
    """A package with environments."""

    format: str
    peer: str
    """The virtual environment under .peers/."""
    distribution: str
    targets: tuple[str, ...]


PUBLISHED = {
    "reasoning-gym": Published(
        "reasoning-gym", "gymnasium", "reasoning-gym",
        ("leg_counting", "chain_sum", "basic_arithmetic", "gcd", "number_sorting", "letter_counting", "spell_backward",
         "word_sorting", "palindrome_generation", "count_bits", "countdown", "mini_sudoku", "tower_of_hanoi",
         "syllogism", "propositional_logic", "graph_color", "family_relationships", "time_intervals"),
    ),
    "textarena": Published(
        "textarena", "textarena", "textarena",
        ("TicTacToe-v0", "GuessTheNumber-v0", "Mastermind-v0", "Minesweeper-v0", "Countdown-v0", "FrozenLake-v0",
         "TowerOfHanoi-v0", "Sudoku-v0", "LightsOut-v0", "2048-v0", "Nim-v0", "KuhnPoker-v0"),
    ),
    "gymnasium": Published(
        "gymnasium", "gymnasium", "gymnasium",
        ("FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1", "CartPole-v1", "MountainCar-v0"),
    ),
    "minigrid": Published(
        "gymnasium", "gymnasium", "minigrid",
        ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid:MiniGrid-DoorKey-5x5-v0", "minigrid:MiniGrid-FourRooms-v0",
         "minigrid:MiniGrid-Fetch-5x5-N2-v0"),
    ),
    "bfcl-eval": Published(
        "bfcl", "bfcl", "bfcl-eval",
        ("multi_turn_base",),
    ),
}  # fmt: skip


def main() -> int:
    """Validate what the arguments name; the exit code is 1 if something could not be served."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(PUBLISHED)}")
    parser.add_argument("--list", action="store_true", help="list the environments, and do nothing else")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep results there, and go on from them")
    options = parser.parse_args()
    if unknown := set(options.packages) - set(PUBLISHED):
        parser.error(f"there is no package {sorted(unknown)[0]!r}; choose from {', '.join(PUBLISHED)}")
    chosen = {name: one for name, one in PUBLISHED.items() if not options.packages or name in options.packages}
    specs = {name: [spec_of(one, target) for target in one.targets] for name, one in chosen.items()}
    if options.list:
        print("\n".join(spec for found in specs.values() for spec in found))
        return 0
    kept = read_kept(options.keep)
    for spec in (one for found in specs.values() for one in found):
        if target_of(spec) not in kept:
            kept[target_of(spec)] = check(spec)
            if options.keep is not None:
                options.keep.write_text(json.dumps(kept), encoding="utf-8")
    summary = summarize({name: [kept[target_of(spec)] for spec in found] for name, found in specs.items()})
    if not options.packages:
        RESULTS.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary["findings"], indent=1))
    return int("startup" in summary["findings"])


def read_kept(file: Path | None) -> dict[str, Kinds]:
    """Return what an earlier run found: the severity of each kind of finding, by environment."""
    if file is None or not file.exists():
        return {}
    kept: dict[str, Kinds] = json.loads(file.read_text(encoding="utf-8"))
    return kept


def target_of(spec: str) -> str:
    """Return an environment's spec without the interpreter."""
    return spec.partition("#")[0]


def spec_of(package: Published, target: str) -> str:
    """Return what `ludus validate` takes for an environment of a package."""
    python = installer.interpreter(installer.ROOT / ".peers" / package.peer)
    return f"{package.format}:{target}#python={python}"


def check(spec: str) -> Kinds:
    """Validate one environment, print what was found, and return the severity of each kind of finding."""
    (report,) = asyncio.run(validate(spec, settings=Settings(tasks=TASKS)))
    kinds: Kinds = {finding.kind: finding.severity for finding in report.findings}
    print(f"{report.environment} ({report.seconds:.0f} s): {', '.join(sorted(kinds)) or 'nothing'}", flush=True)
    for finding in report.findings:
        print(f"    {finding.severity} {finding.kind}: {finding.message[:300]}", flush=True)
    for broken in (verdict for verdict in report.verdicts if verdict.status == "broken"):
        print(f"    incomplete: {broken.kind}", flush=True)
        kinds[INCOMPLETE] = broken.kind
    return kinds


def summarize(found: dict[str, list[Kinds]]) -> dict[str, Any]:
    """Return the counts: environments of each package and version, and environments with each kind of finding."""
    every = [one for kinds in found.values() for one in kinds]
    counts = Counter(kind for one in every for kind in one if kind != INCOMPLETE)
    severity = {kind: severity for one in every for kind, severity in one.items()}
    return {
        "date": datetime.date.today().isoformat(),
        "tasks": TASKS,
        "packages": {f"{name} {version_of(PUBLISHED[name])}": len(kinds) for name, kinds in found.items()},
        "environments": len(every),
        "without_findings": sum(not one for one in every),
        "incomplete": sum(INCOMPLETE in one for one in every),
        "findings": {kind: {"environments": counts[kind], "severity": severity[kind]} for kind in sorted(counts)},
    }


def version_of(package: Published) -> str:
    """Return the version of a package that is installed."""
    folder = installer.ROOT / ".peers" / package.peer / "lib"
    name = package.distribution.replace("-", "_")
    (found,) = folder.glob(f"python3*/site-packages/{name}-*.dist-info")
    return Path(found).name.removesuffix(".dist-info").rpartition("-")[2]


if __name__ == "__main__":
    sys.exit(main())
