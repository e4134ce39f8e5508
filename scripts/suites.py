"""Run the suites of `tests/suites.toml` in parts, oldest proof first: what takes too long for every `make test`.

    python scripts/suites.py                     each part, its last green run, and how far that lies behind
    python scripts/suites.py NAME…               run suites or parts: `moves` is all its parts, `moves-2` is one
    python scripts/suites.py --all               run everything
    python scripts/suites.py --rotate [MINUTES]  run the parts whose proof is oldest for so long (default 45)
    python scripts/suites.py --changed SECONDS   run the parts whose own files changed since, as far as the time allows
    python scripts/suites.py --gate              exit 1 if the proof of a part lies too far behind

How this works. A suite is a set of tests with the marker `suite(name)`, or a command; one that takes longer than 20
minutes is dealt into parts. `tests/suites.lock.json` records the last green run of each part: commit, date, seconds and
counts. A run is recorded only if the checkout is exactly that commit, before and after it.

* The **age** of a proof is the number of commits since, and not of days, so that a pause blocks no work. A part without
  a proof is as old as its name in `suites.toml`. `--gate` refuses more than `MAX_COMMITS_BEHIND`.
* A run whose tests skip is **incomplete** and no proof, unless `allowed_skips` in `suites.toml` has the reason:
  scripts/system_tools.sh and scripts/peers.py install the tools that are missing.
* A part is **stale** if a file changed since that its tests depend on (import_graph.py). An edit of the core makes
  nearly everything stale, so this only orders the rotation: stale parts before others, and the oldest first.
* A part's **own files** are its tests and what few other suites depend on. `--changed` is what CI runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, Literal

import installer
from proofs import MAX_COMMITS_BEHIND, Part, Proofs, Run, counts_in

ROTATION_MINUTES: Final = 45


def main() -> None:
    """Do what the command line asks for; exit 1 when a part failed, is too old, or could not be run."""
    options = _parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    proofs = Proofs(installer.ROOT)
    if options.gate:
        gate(proofs)
    elif options.rotate is not None:
        rotate(proofs, 60 * options.rotate, options.workers)
    elif options.changed is not None:
        run_changed(proofs, options.changed, options.workers)
    elif options.all or options.names:
        chosen = proofs.oldest_first(proofs.parts_named(options.names) if options.names else proofs.parts)
        run_all(proofs, chosen, options.workers)
    else:
        show(proofs)


def gate(proofs: Proofs) -> None:
    """Exit 1 if the proof of a part lies too far behind, or its commit is not in this history."""
    ages = {part: proofs.age(part) for part in proofs.parts}
    unknown = [part.name for part, age in ages.items() if age is None]
    old = {part.name: age for part, age in ages.items() if age is not None and age > MAX_COMMITS_BEHIND}
    if unknown:
        installer.say(
            f"the commits of these green runs are not in this history: {', '.join(unknown)}; fetch all of it, or run "
            "the parts again"
        )
    for name, age in sorted(old.items(), key=lambda row: -row[1]):
        installer.say(f"{name}: the last green run is {age} commits behind, and {MAX_COMMITS_BEHIND} are allowed")
    if old or unknown:
        sys.exit("run `make rotate` until nothing is too old, and commit tests/suites.lock.json")
    oldest = max((age for age in ages.values() if age is not None), default=0)
    installer.say(f"{len(ages)} parts; the oldest green run is {oldest} of {MAX_COMMITS_BEHIND} commits behind")


def rotate(proofs: Proofs, seconds: float, workers: int) -> None:
    """Run the oldest parts that fit into a time; exit 1 if one failed, or if the time is too short for any."""
    if changes := proofs.uncommitted():
        sys.exit(f"commit first, because a green run is recorded for a commit; changed: {', '.join(changes[:5])}")
    begun, failed, ran = time.monotonic(), [], 0
    for part in proofs.oldest_first(proofs.parts):
        remaining = seconds - (time.monotonic() - begun)
        if proofs.seconds(part) > remaining:
            continue
        ran += 1
        if run(proofs, part, workers) != "green":
            failed.append(part.name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not ran:
        shortest = min(proofs.seconds(part) for part in proofs.parts)
        sys.exit(f"nothing was run: the shortest part needs {shortest:.0f} s, and {seconds:.0f} s were given")
    installer.say(f"{ran} parts are green; commit tests/suites.lock.json")


def run_changed(proofs: Proofs, seconds: float, workers: int) -> None:
    """Run the parts whose own files changed since their green run, as far as a time allows; exit 1 if one failed."""
    begun, failed, missed = time.monotonic(), [], []
    for part in proofs.oldest_first(proofs.changed()):
        if proofs.seconds(part) > seconds - (time.monotonic() - begun):
            missed.append(f"{part.name} ({proofs.seconds(part):.0f} s)")
        elif run(proofs, part, workers) == "failed":
            failed.append(part.name)
    if missed:
        installer.say(f"changed, and left to the rotation because they take too long here: {', '.join(missed)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run_all(proofs: Proofs, parts: Sequence[Part], workers: int) -> None:
    """Run parts in order; exit 1 if one failed."""
    if failed := [part.name for part in parts if run(proofs, part, workers) != "green"]:
        sys.exit(f"failed: {', '.join(failed)}")


def run(proofs: Proofs, part: Part, workers: int) -> Literal["green", "incomplete", "failed"]:
    """Run a part, show its output, and record it if it is green and the checkout is a commit.

    Returns:
        Whether it is green. A part is incomplete if tests skipped that could run, for example with another tool.
    """
    installer.say(f"{part.name}: {part.suite.about}")
    commit, begun, lines = proofs.commit_if_clean(), time.monotonic(), []
    green = proofs.runs[part.name].commit if part.name in proofs.runs else "HEAD~1"
    with subprocess.Popen(
        part.command(workers, green), cwd=proofs.root, env={**os.environ, **part.variables()}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(line)
                lines.append(line)
        except BaseException:  # a signal, which must not leave the part running
            process.send_signal(signal.SIGINT)
            raise
        sys.stdout.flush()
    seconds = round(time.monotonic() - begun, 1)
    passed, skipped = counts_in("".join(lines))
    if part.suite.command and not passed:
        passed = 1  # a command that is no run of pytest proves one thing
    if process.returncode:
        installer.say(f"{part.name}: FAILED ({seconds:g} s)")
        return "failed"
    curable = proofs.curable_skips("".join(lines))
    for reason, number in curable.items():
        installer.say(f"{part.name}: {number} tests skipped that could run: {reason}")
    if curable or not passed:
        skipping = "tests skipped" if passed else "every test skipped"
        installer.say(f"{part.name}: {skipping}, so this is no proof ({seconds:g} s)")
        return "incomplete"
    if commit is None or commit != proofs.commit_if_clean():
        installer.say(f"{part.name}: green, and not recorded, because the checkout is not a commit ({seconds:g} s)")
        return "green"
    proofs.record(part, Run(commit, time.strftime("%Y-%m-%d", time.gmtime()), seconds, passed, skipped))
    installer.say(f"{part.name}: green ({passed} passed, {skipped} skipped, {seconds:g} s)")
    return "green"


def show(proofs: Proofs) -> None:
    """Print each part with its last green run."""
    for part in proofs.parts:
        last, age = proofs.runs.get(part.name), proofs.age(part)
        green = f"green {last.date}, {last.seconds:.0f} s" if last else "never run"
        behind = "unknown" if age is None else f"{age} behind"
        state = "stale" if proofs.is_stale(part) else "fresh"
        print(f"{part.name:18} {state:6} {behind:12} {green:24} {part.suite.about}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites or parts to run")
    parser.add_argument("--all", action="store_true", help="run every part")
    parser.add_argument("--rotate", type=float, nargs="?", const=ROTATION_MINUTES, metavar="MINUTES", help="the oldest")
    parser.add_argument("--changed", type=float, metavar="SECONDS", help="run those whose own files changed")
    parser.add_argument("--gate", action="store_true", help="exit 1 if the proof of a part is too old")
    parser.add_argument("--workers", type=int, default=(os.cpu_count() or 1) + 1, metavar="N", help="test processes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
