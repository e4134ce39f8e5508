"""The promises of SECURITY.md, each with the tests that hold it. The suite `attacks` runs these tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| (?P<promise>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


class Promise(NamedTuple):
    """A row of a table: what is promised, and the files and names of its tests; no name for a whole file."""

    text: str
    tests: tuple[tuple[str, str], ...]


@cache
def promises() -> tuple[Promise, ...]:
    """Return the rows of SECURITY.md whose second column names tests."""
    rows = _ROW.finditer((ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    found = (Promise(row["promise"], tuple(_TEST.findall(row["tests"]))) for row in rows)
    return tuple(promise for promise in found if "tests/" in promise.text or promise.tests)


def holds_a_promise(nodeid: str) -> bool:
    """Return whether SECURITY.md names a test, by the id that pytest gives it."""
    file, _, name = nodeid.partition("::")
    name = name.partition("[")[0]
    return any((file, wanted) in promise.tests for promise in promises() for wanted in ("", name))
