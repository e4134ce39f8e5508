"""The tests that docs/compatibility.md names exist, so that its verdicts are those of tests that run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_verdict_on_a_public_report_is_that_of_a_test() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = page.partition("## Public reports")[2].partition("\n## ")[0].splitlines()
    tests = [match for row in rows if row.startswith("| ") and (match := re.search(r"`(tests/\S+)::(\w+)` \|$", row))]
    assert len(tests) == sum(row.startswith("| ") for row in rows) - 1, "every row but the header names a test"
    for file, test in (match.groups() for match in tests):
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no test {test}"
