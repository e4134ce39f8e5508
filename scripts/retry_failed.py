"""Run the tests that failed once more, each alone: `python scripts/retry_failed.py`, after `make test` failed.

A test that fails again is a failure. One that passes is FLAKY: a defect of the test or of the code, named in the last
lines of `.ci/run`. More than two flaky tests fail the run, and so do failures too many to be an accident.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import installer
from run_tests import FAILED

MAX_RETRIED = 20
"""With more failures than this, nothing is run again: something is broken."""
MAX_FLAKY = 2
EXIT_FLAKY, EXIT_FAILED = 0, 1


def failed_tests(path: Path = FAILED) -> list[str]:
    """Return the ids of the tests that failed in the last run, in their order; empty if there are none.

    Raises:
        SystemExit: a process of pytest broke, so its tests did not all run.
    """
    if not path.exists():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))
    if rows["broken"]:
        sys.exit("a process of pytest ended before its tests: read its output above")
    failed: list[str] = rows["failed"]
    return failed


def passes_alone(test: str) -> bool:
    """Run one test in a pytest process of its own."""
    command = [str(installer.interpreter(installer.ROOT / ".venv")), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run([*command, test], cwd=installer.ROOT, stdin=subprocess.DEVNULL).returncode == 0


def verdict(flaky: Sequence[str], failed: Sequence[str]) -> tuple[list[str], int]:
    """Return the closing lines and the exit code."""
    lines = [f"FLAKY {test}" for test in flaky] + [f"FAILED {test}" for test in failed]
    if len(flaky) > MAX_FLAKY:
        lines.append(f"{len(flaky)} flaky tests, at most {MAX_FLAKY} are allowed")
    return lines, EXIT_FAILED if failed or len(flaky) > MAX_FLAKY else EXIT_FLAKY


def main() -> None:
    """Retry what failed; write the closing lines to standard output, and to the file named on the command line."""
    tests = failed_tests()
    if not tests:
        sys.exit("pytest failed, and recorded no failed test: read its output above")
    if len(tests) > MAX_RETRIED:
        sys.exit(f"{len(tests)} tests failed, more than the {MAX_RETRIED} that are retried")
    passed = {test: passes_alone(test) for test in tests}
    lines, code = verdict([t for t in tests if passed[t]], [t for t in tests if not passed[t]])
    print("\n".join(lines))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
