"""Reports of `ludus validate` on the environments of tests/validation/faults, made once per module."""

from __future__ import annotations

import asyncio
import importlib
from functools import cache
from pathlib import Path
from typing import Final

from sampling import runs_everything

from ludus.server.tasks.catalog import snake_case
from ludus.validation import Report, Settings, validate

FAULTS: Final = Path(__file__).parents[1] / "validation" / "faults"
QUICK: Final = Settings(tasks=4, turns=12, step_seconds=0.5)


def planted(module: str) -> dict[str, str]:
    """The finding of each faulty class of a module: the first class of each finding, or all in `make test-all`."""
    found: dict[str, str] = importlib.import_module(module).FAULTS
    if runs_everything():
        return found
    first = {kind: name for name, kind in reversed(found.items())}
    return {name: kind for name, kind in found.items() if first[kind] == name}


@cache
def reports(module: str, names: tuple[str, ...]) -> dict[str, Report]:
    """The report on each class of a module, all served by one process."""
    targets = [f"{FAULTS / module}.py:{name}" for name in names]
    found = {report.environment: report for report in asyncio.run(validate(*targets, settings=QUICK))}
    return {name: found[snake_case(name)] for name in names}


def assert_found(module: str, name: str, kind: str) -> None:
    """Assert that a fault is found under its name, and that nothing else is."""
    report = reports(module, tuple(planted(module)))[name]
    found = {finding.kind: finding for finding in report.findings}
    assert list(found) == [kind], {one.kind: one.message for one in report.findings}
    assert [verdict.detail for verdict in report.verdicts if verdict.status == "broken"] == []
    assert found[kind].message
    assert all(len(finding.evidence) <= max(1, finding.count) for finding in report.findings)
