"""Reports of `ludus validate` on the environments of tests/validation/faults, made once per module of environments."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from suite_selection import selected_suites

from ludus.server.tasks.catalog import snake_case
from ludus.validation import Report, Settings, validate

FAULTS: Final = Path(__file__).parents[1] / "validation" / "faults"
QUICK: Final = Settings(tasks=4, turns=12, step_seconds=0.5)

_NEEDED: Final = {"reward-range": {"gameability:stuffing"}, "crash": {"oracle-max", "gameability:numbers"}}
"""Checks that look at episodes which another check plays."""


def planted(module: str) -> dict[str, str]:
    """Return the finding of each faulty class of a module."""
    found: dict[str, str] = importlib.import_module(module).FAULTS
    return found


def sampled(module: str, most: int) -> list[Any]:
    """Return the faulty classes of a module as parameters; all after the first `most` are in the suite `validation`."""
    others = (pytest.param(name, marks=pytest.mark.suite("validation")) for name in list(planted(module))[most:])
    return [*list(planted(module))[:most], *others]


def with_all_checks(module: str) -> list[Any]:
    """Return the faulty classes of a module as parameters; all but the first are in the suite `validation`."""
    return sampled(module, 1)


@cache
def reports_of_own_check(module: str, sample: int | tuple[str, ...] | None = None) -> dict[str, Report]:
    """Return the report on each class of a module, faulty or sound, by the one check that it was written for.

    Args:
        module: the module.
        sample: how many classes, or which ones, are looked at outside of the suite `validation`; None for all.
    """
    loaded = importlib.import_module(module)
    kinds: dict[str, str] = {**loaded.FAULTS, **getattr(loaded, "SOUND", {})}
    if sample is not None and "validation" not in selected_suites():
        names = list(kinds)[:sample] if isinstance(sample, int) else sample
        kinds = {name: kinds[name] for name in names}
    only = {snake_case(name): {kind, *_NEEDED.get(kind, ())} for name, kind in kinds.items()}
    return _validate(module, tuple(kinds), replace(QUICK, secrets={"KEY": "abcdefghijkl"}), only)


@cache
def reports(module: str, names: tuple[str, ...]) -> dict[str, Report]:
    """Return the report on each class of a module by all checks; one process serves all classes."""
    return _validate(module, names, QUICK, None)


def _validate(module: str, names: tuple[str, ...], settings: Settings, only: Any) -> dict[str, Report]:
    targets = [f"{FAULTS / module}.py:{name}" for name in names]
    found = {one.environment: one for one in asyncio.run(validate(*targets, settings=settings, only=only))}
    return {name: found[snake_case(name)] for name in names}


def assert_found(module: str, name: str, most: int | None = None) -> None:
    """Assert that its own check finds a fault, with a message and evidence; see `reports_of_own_check`."""
    kind = planted(module)[name]
    report = reports_of_own_check(module, most)[name]
    found = {finding.kind: finding for finding in report.findings}
    assert list(found) == [kind], [verdict.detail for verdict in report.verdicts]
    assert found[kind].message
    assert all(len(finding.evidence) <= max(1, finding.count) for finding in report.findings)


def assert_nothing_else_found(module: str, name: str) -> None:
    """Assert that of all checks only its own finds something, and that each could be carried out."""
    names = tuple(planted(module)) if "validation" in selected_suites() else (name,)
    report = reports(module, names)[name]
    found = {finding.kind: finding.message for finding in report.findings}
    assert list(found) == [planted(module)[name]], found
    assert [verdict.detail for verdict in report.verdicts if verdict.status == "broken"] == []
