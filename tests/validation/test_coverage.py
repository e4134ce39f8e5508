"""A check that played or scored nothing says so, and does not pass."""

from __future__ import annotations

import asyncio

import pytest
from faults_of import FAULTS, QUICK

from ludus.validation import CHECKS, validate

STATIC = {"documented", "splits", "task-list", "task-stability", "seed-variation",
          "oracle-missing", "split-overlap", "near-duplicates", "rewordings",
          "duplicates", "tools", "network", "teardown", "memory"}  # fmt: skip
"""Checks that pass without looking at an episode's outcome."""


@pytest.mark.timeout(300)
def test_checks_of_an_environment_whose_episodes_do_not_start_do_not_pass() -> None:
    (report,) = asyncio.run(validate(f"{FAULTS}/vacuous.py:NeverStarts", settings=QUICK))
    assert report.coverage.episodes > 0
    assert report.coverage.started == 0
    assert not report.passed
    passed = {verdict.kind for verdict in report.verdicts if verdict.status == "passed"}
    assert passed <= STATIC
    details = {verdict.detail for verdict in report.verdicts if verdict.status == "skipped"}
    assert "no episode started" in details


@pytest.mark.timeout(300)
def test_checks_of_rewards_do_not_pass_if_no_episode_is_scored() -> None:
    (report,) = asyncio.run(validate(f"{FAULTS}/vacuous.py:NeverScored", settings=QUICK))
    assert report.coverage.started > 0
    assert report.coverage.scored == 0
    judging = {check.kind for check in CHECKS if check.scored}
    passed = {verdict.kind for verdict in report.verdicts if verdict.status == "passed"}
    assert judging & passed <= STATIC
    assert "documented" in passed
    assert report.as_json()["coverage"]["scored"] == 0
