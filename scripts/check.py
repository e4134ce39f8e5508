"""Everything that can be checked without running the code: `make check`.

python scripts/check.py                 all of it, each failure with the command that fixes it
python scripts/check.py --fast          all but mypy and pyright, which find little that pyrefly does not
python scripts/check.py ruff mypy       only these
python scripts/check.py --write         rewrite everything that is generated
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import installer

PYTHON = str(installer.interpreter(installer.ROOT / ".venv"))


class Check(NamedTuple):
    """One command that must exit 0."""

    command: tuple[str, ...]
    fix: str
    """What to do when it does not."""


CHECKS = {
    "ruff": Check((PYTHON, "-m", "ruff", "check", "."), "make format"),
    "format": Check((PYTHON, "-m", "ruff", "format", "--check", "."), "make format"),
    "words": Check((PYTHON, str(installer.ROOT / "scripts" / "lint_words.py")), "the message names the line"),
    "surface": Check((PYTHON, str(installer.ROOT / "scripts" / "lint_surface.py")), "the message names the line"),
    "imports": Check((f"{installer.ROOT}/.venv/bin/lint-imports", "--no-cache"), "see the layers in pyproject.toml"),
    "pyrefly": Check((PYTHON, "-m", "pyrefly", "check", "--output-format", "min-text"), "the message names the line"),
    "mypy": Check((PYTHON, "-m", "mypy"), "the message names the line"),
    "pyright": Check((PYTHON, "-m", "pyright", "--threads", "2"), "the message names the line"),
}

SLOW = ("pyright", "mypy")
"""The checks that take minutes: they start first, and `--fast` leaves them out."""

_printing = threading.Lock()

GENERATED = {path.stem: path for path in sorted((installer.ROOT / "scripts").glob("generate_*.py"))}
"""Scripts that write files when called with no arguments, and with `--check` fail when those files are stale."""


def main() -> None:
    """Run the checks, all of them even when one fails; exit 1 when any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CHECK", help=f"of {', '.join([*CHECKS, *GENERATED])}")
    parser.add_argument("--fast", action="store_true", help=f"all but {' and '.join(SLOW)}")
    parser.add_argument("--generated", action="store_true", help="only whether generated files are stale")
    parser.add_argument("--write", action="store_true", help="write what is generated instead of checking it")
    options = parser.parse_args()
    if options.write:
        sys.exit(sum(not _run(name, Check(_generator(name), "read the message")) for name in GENERATED))
    checks = CHECKS | {name: Check((*_generator(name), "--check"), "make generate") for name in GENERATED}
    if unknown := set(options.names) - set(checks):
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    names = GENERATED if options.generated else options.names or checks
    if options.fast:
        names = [name for name in names if name not in SLOW]
    longest_first = sorted(names, key=lambda name: SLOW.index(name) if name in SLOW else len(SLOW))
    with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        passed = dict(zip(longest_first, pool.map(lambda name: _run(name, checks[name]), longest_first), strict=True))
    if failed := [name for name in names if not passed[name]]:
        sys.exit(f"failed: {', '.join(failed)}")


def _generator(name: str) -> tuple[str, ...]:
    return (PYTHON, str(GENERATED[name]))


def _run(name: str, check: Check) -> bool:
    begun = time.monotonic()
    done = subprocess.run(
        check.command, cwd=installer.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with _printing:
        installer.say(f"{name}: {'ok' if not done.returncode else 'FAILED'} ({time.monotonic() - begun:.1f} s)")
        if done.returncode:
            sys.stdout.write(done.stdout.decode(errors="replace"))
            installer.say(f"to fix {name}: {check.fix}")
        sys.stdout.flush()
    return not done.returncode


if __name__ == "__main__":
    main()
