"""Which suites of `tests/suites.toml` this run of pytest is for: none in `make test`, named ones in `make suite`.

`scripts/suites.py` names them in the variable `LUDUS_SUITES`, separated by commas, and in `LUDUS_SUITE_PART` which part
of their tests it wants: `2/6 by test`, or `2/6 by file` where the tests of a file belong together. The hash of an id
decides the part, so a test that is added or removed moves no other one to a part that has just been run. The suite
`attacks` has no marker: it is the tests that SECURITY.md names.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Sequence

import pytest
from promises import holds_a_promise


def selected_suites() -> frozenset[str]:
    """Return the names of the suites that were asked for; empty in `make test`."""
    return frozenset(name for name in os.environ.get("LUDUS_SUITES", "").split(",") if name)


def whole_or_few(whole: int, few: int) -> int:
    """Return how much a test with `sample=True` tries: all in a run of its suite, a few in `make test`."""
    return whole if selected_suites() else few


def selected(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that this run includes, in their order.

    `make test` leaves out the tests with the marker `suite`, except those that run a sample there (`sample=True`), and
    the first few parameters of those that name a number (`first=2`). A run of suites includes the marked tests of these
    suites alone.
    """
    if suites := selected_suites():
        marked = [item for item in items if _is_of(item, suites)]
        part = os.environ.pop("LUDUS_SUITE_PART", "1/1 by file")  # runs of pytest inside of tests are whole
        return [item for item in marked if in_part(item.nodeid, part)]
    seen: Counter[str] = Counter()
    return [item for item in items if _in_every_run(item, seen)]


def _is_of(item: pytest.Item, suites: frozenset[str]) -> bool:
    named = "attacks" in suites and holds_a_promise(item.nodeid)
    return named or any(marker.args[0] in suites for marker in item.iter_markers("suite"))


def in_part(test: str, part: str) -> bool:
    """Return whether a test, by its id, belongs to a part such as `2/6 by test`."""
    numbers, _, by = part.partition(" by ")
    number, count = map(int, numbers.split("/"))
    key = test if by == "test" else test.partition("::")[0]
    return zlib.crc32(key.encode()) % count == number - 1


def _in_every_run(item: pytest.Item, seen: Counter[str]) -> bool:
    markers = list(item.iter_markers("suite"))
    limits: list[int] = [marker.kwargs["first"] for marker in markers if "first" in marker.kwargs]
    if not all(marker.kwargs.get("sample") or "first" in marker.kwargs for marker in markers):
        return False
    if not limits:
        return True
    function = item.nodeid.partition("[")[0]
    seen[function] += 1
    return seen[function] <= min(limits)
