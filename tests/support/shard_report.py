"""A plugin for scripts/run_tests.py: write down what each test of a process did, and how long each file took."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest


class ShardReport:
    """Counts outcomes and seconds, and writes them when the session ends.

    Args:
        path: the file to write: `outcomes` (how many tests passed, failed, skipped, …), `failed` (their ids),
            `skipped` (each reason with its number of tests) and `seconds` by test file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = {}
        self._reasons: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure a test with its fixtures."""
        begun = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid.partition("::")[0]] += time.monotonic() - begun

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an outcome; an error in a fixture counts as a failure of the test."""
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
        elif report.when == "call" or report.skipped:
            self._outcomes.setdefault(report.nodeid, report.outcome)
            if report.skipped and isinstance(report.longrepr, tuple):
                self._reasons[report.longrepr[2]] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self._outcomes[report.nodeid] = "failed"

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        failed = [test for test, outcome in self._outcomes.items() if outcome == "failed"]
        seconds = {file: round(spent, 2) for file, spent in self._seconds.items()}
        rows = {"outcomes": Counter(self._outcomes.values()), "failed": failed, "skipped": self._reasons}
        self._path.write_text(json.dumps(rows | {"seconds": seconds}), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Report to the file that the environment names."""
    config.pluginmanager.register(ShardReport(Path(os.environ["LUDUS_SHARD_REPORT"])))
