"""Run the named suites of `tests/suites.toml`: what takes too long for every `make test`.

    python scripts/suites.py                     each suite, its last green run, and whether it is stale
    python scripts/suites.py NAME…               run these suites
    python scripts/suites.py --all               run all of them
    python scripts/suites.py --stale --within S  run the stale ones while S seconds last, those not run longest first

A suite is stale if a file that it depends on has changed since its last green run. `tests/suites.lock.json` records of
each suite the hash of these files, the date of that run, its seconds, and how many tests passed and skipped; commit it
with the change.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import installer

TESTS: Final = installer.ROOT / "tests"
SUITES: Final = TESTS / "suites.toml"
LOCK: Final = TESTS / "suites.lock.json"
COMMON: Final = ("tests/support", "tests/conftest.py", "constraints.txt")
"""What every suite depends on."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests with the marker `suite(name)`, or a command.

    Attributes:
        name: the name in the marker.
        about: what the suite proves.
        depends: the files and folders of the code and the tests that the suite is about.
        tests: the files and folders that hold the marked tests; empty if there is a command.
        command: arguments for this Python, instead of tests.
        minutes: an estimate for a suite that was never run.
        spread: whether the tests of one file run in several processes. They must not depend on each other.
    """

    name: str
    about: str
    depends: tuple[str, ...]
    tests: tuple[str, ...]
    command: tuple[str, ...]
    minutes: float
    spread: bool


@dataclass(frozen=True, slots=True)
class Run:
    """The last green run of a suite."""

    hash: str
    date: str
    seconds: float
    passed: int
    skipped: int


def load_suites(path: Path = SUITES) -> dict[str, Suite]:
    """Return the suites by name."""
    rows: Mapping[str, Any] = tomllib.loads(path.read_text("utf-8"))
    return {
        name: Suite(
            name, row["about"], tuple(row["depends"]), tuple(row.get("tests", ())), tuple(row.get("command", ())),
            row["minutes"], row.get("spread", False),
        )
        for name, row in rows.items()
    }  # fmt: skip


def load_lock(path: Path = LOCK) -> dict[str, Run]:
    """Return the last green runs by suite; empty if there is no file."""
    if not path.exists():
        return {}
    return {name: Run(**row) for name, row in json.loads(path.read_text("utf-8")).items()}


def save_lock(runs: Mapping[str, Run], path: Path = LOCK) -> None:
    """Write the last green runs."""
    rows = {name: asdict(runs[name]) for name in sorted(runs)}
    path.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


def files_of(suite: Suite, root: Path = installer.ROOT) -> Iterator[Path]:
    """Yield the files that a suite depends on, in order.

    Raises:
        FileNotFoundError: a path in `tests/suites.toml` does not exist.
    """
    found: set[Path] = set()
    for name in (*COMMON, *suite.depends, *suite.tests):
        path = root / name
        if not path.exists():
            raise FileNotFoundError(f"the suite {suite.name} depends on {name}, which does not exist")
        found.update([path] if path.is_file() else (one for one in path.rglob("*") if one.is_file()))
    yield from sorted(path for path in found if "__pycache__" not in path.parts and path.suffix != ".pyc")


def hash_of(suite: Suite, root: Path = installer.ROOT) -> str:
    """Return the hash of the names and contents of the files that a suite depends on."""
    total = hashlib.sha256()
    for path in files_of(suite, root):
        total.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def is_stale(suite: Suite, runs: Mapping[str, Run], root: Path = installer.ROOT) -> bool:
    """Return whether a suite has no green run with the files as they are."""
    return suite.name not in runs or runs[suite.name].hash != hash_of(suite, root)


def seconds_of(suite: Suite, runs: Mapping[str, Run]) -> float:
    """Return how long a suite took, or the estimate."""
    return runs[suite.name].seconds if suite.name in runs else 60 * suite.minutes


def in_order(suites: Sequence[Suite], runs: Mapping[str, Run]) -> list[Suite]:
    """Return suites that were never run first, then those whose last green run is longest ago."""
    return sorted(suites, key=lambda suite: (runs[suite.name].date if suite.name in runs else "", suite.name))


def command_of(suite: Suite, workers: int) -> list[str]:
    """Return the command that runs a suite."""
    python = str(installer.interpreter(installer.ROOT / ".venv"))
    if suite.command:
        return [python, *suite.command]
    dist = "load" if suite.spread else "loadfile"
    return [python, "-m", "pytest", "-q", "-rfEs", "-n", str(workers), "--dist", dist, *suite.tests]


def counts_in(output: str) -> tuple[int, int]:
    """Return how many tests passed and skipped, by the last line of pytest."""
    last = output.strip().rpartition("\n")[2]
    found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", last)}
    return found.get("passed", 0), found.get("skipped", 0)


def run(suite: Suite, workers: int) -> Run | None:
    """Run a suite, showing its output; return None if it failed, and zero passed tests if all of them skipped."""
    installer.say(f"suite {suite.name}: {suite.about}")
    begun, before = time.monotonic(), hash_of(suite)
    lines = []
    variables = {**os.environ, "LUDUS_SUITES": suite.name}
    with subprocess.Popen(
        command_of(suite, workers), cwd=installer.ROOT, env=variables, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            lines.append(line)
        sys.stdout.flush()
    seconds = round(time.monotonic() - begun, 1)
    installer.say(f"suite {suite.name}: {'FAILED' if process.returncode else 'ok'} ({seconds:g} s)")
    if process.returncode:
        return None
    passed, skipped = (1, 0) if suite.command else counts_in("".join(lines))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Run(before, today, seconds, passed, skipped)


def main() -> None:
    """Run what the command line asks for; exit 1 when a suite failed."""
    options = _parse()
    suites, runs = load_suites(), load_lock()
    if unknown := set(options.names) - set(suites):
        sys.exit(f"no such suite: {', '.join(sorted(unknown))} (there are {', '.join(suites)})")
    if not (options.names or options.all or options.stale):
        _list(suites, runs)
        return
    chosen = [suites[name] for name in options.names] or list(suites.values())
    if options.stale:
        chosen = [suite for suite in chosen if is_stale(suite, runs)]
    failed, not_reached = [], []
    for suite in in_order(chosen, runs):
        if options.within is not None and time.monotonic() - _BEGUN + seconds_of(suite, runs) > options.within:
            not_reached.append(f"{suite.name} (about {seconds_of(suite, runs):.0f} s)")
            continue
        done = run(suite, options.workers)
        if done is None:
            failed.append(suite.name)
        elif done.passed:
            runs[suite.name] = done
            save_lock(runs)
        else:
            installer.say(f"suite {suite.name}: every test skipped, so it is not recorded as green")
    if not_reached:
        installer.say(f"stale, and not reached within {options.within:.0f} s: {', '.join(not_reached)}")
    if failed:
        sys.exit(f"failed suites: {', '.join(failed)}")


_BEGUN: Final = time.monotonic()


def _list(suites: Mapping[str, Suite], runs: Mapping[str, Run]) -> None:
    for name, suite in suites.items():
        last = f"green {runs[name].date}, {runs[name].seconds:.0f} s" if name in runs else "never run"
        print(f"{name:16} {'stale' if is_stale(suite, runs) else 'fresh':6} {last:24} {suite.about}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites to run")
    parser.add_argument("--all", action="store_true", help="run every suite")
    parser.add_argument("--stale", action="store_true", help="run only the stale ones")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="start no suite that would take longer")
    parser.add_argument("--workers", type=int, default=(os.cpu_count() or 1) + 1, metavar="N", help="test processes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
