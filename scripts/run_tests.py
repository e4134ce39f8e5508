"""`make test`: run the tests that every change must pass, in a few processes that each collect only their own files.

    python scripts/run_tests.py                the fast part: core tests, and tests of tenants that a change can affect
    python scripts/run_tests.py --everything   also the tests of hub, formats and library that no change can affect
    python scripts/run_tests.py --list         print which files would run, and why the others do not

How this works. Tests with the marker `suite` are left to the suites (suites.py), so a file that holds nothing else is
not even collected. Of the suites with `unmarked = true` (the usual tests of hub, formats and library), a file runs only
if something that it depends on (import_graph.py) changed since the suite's green run, which the lock records.

The files are dealt into shards by the seconds in `tests/seconds.json`, and a few processes of pytest run at a time: the
longest shards first, the short ones last. `--record` writes that file again. What failed is written to
`.pytest_cache/failed.json`, from which scripts/retry_failed.py runs each test again, alone.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import installer
from import_graph import python_files
from proofs import Proofs

SECONDS: Final = installer.ROOT / "tests" / "seconds.json"
FAILED: Final = installer.ROOT / ".pytest_cache" / "failed.json"
USUAL_SECONDS: Final = 0.5
"""Of a file that was never measured."""
SHARES: Final = 8
"""A shard gets this part of what is not dealt yet: each process imports and starts much that its files share, so the
first shards are long, and the last ones short, for an even end."""
SHARD_SECONDS: Final = 60.0
"""No shard is closed before its files took so long together, which is worth a process."""
END_SECONDS: Final = 20.0
"""How long a shard may take to close its fixtures before it is killed."""
_running: Final[set[subprocess.Popen[bytes]]] = set()
_starting: Final = threading.Lock()
"""Held while a shard starts, and for good once the run is being ended."""


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What one process of pytest did.

    Attributes:
        files: its files.
        code: its exit code.
        report: what shard_report.py wrote; None if the process ended before.
        output: what it printed.
        seconds: how long it took.
    """

    files: tuple[str, ...]
    code: int
    report: dict[str, Any] | None
    output: str
    seconds: float


def main() -> None:
    """Run the chosen files; exit 1 if a test failed or a process broke."""
    options = _parse()
    chosen, unaffected = choose_files(Proofs(installer.ROOT), everything=options.everything)
    chosen = [file for file in chosen if not any(Path(file).is_relative_to(path) for path in options.leave_out)]
    if options.list:
        print("\n".join(chosen))
        print(f"{len(chosen)} files run; {len(unaffected)} cannot be affected by what changed: {' '.join(unaffected)}")
        return
    recorded = json.loads(SECONDS.read_text("utf-8")) if SECONDS.exists() else {}
    shards = deal(chosen, recorded)
    installer.say(f"{len(chosen)} test files in {len(shards)} shards, {options.workers} at a time")
    if unaffected:
        installer.say(f"{len(unaffected)} files of hub, formats and library are green and unaffected by what changed")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_shards)
    begun = time.monotonic()
    results = run_shards(shards, options.workers)
    if options.record:
        record_seconds(results)
    sys.exit(summarize(results, time.monotonic() - begun, options.durations))


def choose_files(proofs: Proofs, *, everything: bool) -> tuple[list[str], list[str]]:
    """Return the files to run, and those of tenants that nothing that changed can affect."""
    root = proofs.root
    files = [path for folder in ("tests", "examples", "environments/library") for path in python_files(root / folder)]
    names = [str(path.relative_to(root)) for path in files if path.name.startswith("test_") and has_usual_tests(path)]
    unaffected = set() if everything else set(proofs.unaffected_files())
    return [name for name in names if name not in unaffected], [name for name in names if name in unaffected]


@functools.cache
def has_usual_tests(path: Path) -> bool:
    """Return whether a file may hold tests that are not left to a suite: false if its `pytestmark` gives it to one."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            for call in (child for child in ast.walk(node.value) if isinstance(child, ast.Call)):
                if getattr(call.func, "attr", "") == "suite" and not call.keywords:
                    return False
    return True


def deal(files: Sequence[str], recorded: dict[str, float]) -> list[tuple[str, ...]]:
    """Return shards of neighboring files, which share imports and fixtures; those that take longest come first."""
    shards: list[tuple[float, tuple[str, ...]]] = []
    current: list[str] = []
    length, left = 0.0, sum(recorded.get(file, USUAL_SECONDS) for file in files)
    for file in files:
        seconds = recorded.get(file, USUAL_SECONDS)
        if current and length + seconds > max(SHARD_SECONDS, left / SHARES):
            shards.append((length, tuple(current)))
            left -= length
            current, length = [], 0.0
        current.append(file)
        length += seconds
    if current:
        shards.append((length, tuple(current)))
    return [shard for _, shard in sorted(shards, reverse=True)]


def run_shards(shards: Sequence[tuple[str, ...]], workers: int, *arguments: str) -> list[ShardResult]:
    """Run shards, a few at a time, with arguments for pytest; print a line for each, with its output if it failed."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        numbered = enumerate(shards, 1)
        return list(pool.map(lambda row: _run_shard(Path(folder), row[0], row[1], arguments), numbered))


def _run_shard(folder: Path, number: int, files: tuple[str, ...], arguments: Sequence[str]) -> ShardResult:
    report, begun = folder / f"{number}.json", time.monotonic()
    support = f"{installer.ROOT / 'tests' / 'support'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "shard_report", "-p", "no:cacheprovider"]
    with _starting:
        process = subprocess.Popen(
            [*command, *arguments, *files],
            cwd=installer.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "LUDUS_SHARD_REPORT": str(report), "PYTHONPATH": support.rstrip(os.pathsep)},
        )  # fmt: skip
        _running.add(process)
    with process:
        output = process.communicate()[0].decode(errors="replace")
        _running.discard(process)
    seconds = time.monotonic() - begun
    rows = json.loads(report.read_text("utf-8")) if report.exists() else None
    result = ShardResult(files, process.returncode, rows, output, seconds)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(rows["outcomes"].items())) if rows else "broke"
    about = " … ".join(dict.fromkeys((*files[:1], *files[-1:])))
    installer.say(f"shard {number}: {counts} ({seconds:.0f} s; {about})")
    if result.code not in (0, 5):
        print(output, flush=True)
    return result


def end_shards(number: int, frame: FrameType | None) -> None:
    """Let the running shards close their fixtures, and end this process as its signal asks."""
    _starting.acquire()  # and never released: a thread whose shard ends would start the next one
    processes = list(_running)
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    os._exit(128 + number)


def record_seconds(results: Sequence[ShardResult]) -> None:
    """Write the seconds of each file that took noticeably long, over those recorded before."""
    rows = json.loads(SECONDS.read_text("utf-8")) if SECONDS.exists() else {}
    for result in results:
        rows.update(result.report["seconds"] if result.report else {})
    kept = {
        file: round(rows[file], 1) for file in sorted(rows) if (installer.ROOT / file).exists() and rows[file] >= 0.1
    }
    SECONDS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def summarize(results: Sequence[ShardResult], seconds: float, durations: int) -> int:
    """Print what happened, write down what failed, and return the exit code."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    failed: list[str] = []
    spent: dict[str, float] = {}
    broken = [result for result in results if result.report is None or result.code not in (0, 1, 5)]
    for report in (result.report for result in results if result.report is not None):
        outcomes.update(report["outcomes"])
        reasons.update(report["skipped"])
        failed.extend(report["failed"])
        spent.update(report["seconds"])
    FAILED.parent.mkdir(exist_ok=True)
    FAILED.write_text(json.dumps({"failed": failed, "broken": bool(broken)}), "utf-8")
    for reason, count in reasons.most_common():
        print(f"SKIPPED [{count}] {reason}")
    for file, file_seconds in sorted(spent.items(), key=lambda row: -row[1])[:durations]:
        print(f"{file_seconds:7.1f} s  {file}")
    for test in failed:
        print(f"FAILED {test}")
    for result in broken:
        print(f"BROKEN a process of pytest ended with {result.code}: {' '.join(result.files)}")
    installer.say(f"tests took {seconds:.0f} s")
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped", flush=True)
    return 0 if outcomes["passed"] and not failed and not broken else 1  # no test at all proves nothing


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--everything", action="store_true", help="also run what no change can affect")
    parser.add_argument(
        "--leave-out", action="append", default=[], metavar="PATH", help="run no tests of a file or folder"
    )
    parser.add_argument("--list", action="store_true", help="print which files would run")
    parser.add_argument("--record", action="store_true", help="write tests/seconds.json")
    parser.add_argument("--durations", type=int, default=0, metavar="N", help="print the N files that took longest")
    parser.add_argument("--workers", type=int, default=(os.cpu_count() or 1) + 1, metavar="N", help="test processes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
