"""Faults in places where a check could overlook them, and what it could mistake for one."""

from __future__ import annotations

import asyncio

import pytest
from faults_of import FAULTS, QUICK, reports_of_own_check
from overlooked import FAULTS as PLANTED
from overlooked import SOUND

from ludus.validation import Evidence, Report, Verdict, validate

pytestmark = pytest.mark.timeout(600)
SAMPLE = (next(iter(PLANTED)), "ListOfRemarks", *SOUND)
"""The classes that are looked at outside of the suite."""


def report_on(name: str) -> Report:
    return reports_of_own_check("overlooked", SAMPLE)[name]


def verdict_on(name: str) -> Verdict:
    (verdict,) = report_on(name).verdicts
    return verdict


@pytest.mark.suite("validation", first=1)
@pytest.mark.parametrize("name", PLANTED)
def test_a_check_finds_what_is_easily_overlooked(name: str) -> None:
    assert report_on(name).findings


@pytest.mark.parametrize("name", SOUND)
def test_a_check_finds_nothing_false(name: str) -> None:
    assert report_on(name).findings == ()
    assert verdict_on(name).status == "passed"


def test_episodes_that_break_are_not_taken_for_episodes_that_agree() -> None:
    (report,) = asyncio.run(validate(f"{FAULTS}/overlooked.py:BreaksLater", settings=QUICK, only={"seed-control"}))
    (verdict,) = report.verdicts
    assert (verdict.status, verdict.detail) == ("skipped", "every episode failed (see `crash`)")


def test_evidence_holds_every_action_in_full() -> None:
    report = report_on("ListOfRemarks")
    (finding,) = report.findings
    (check,) = report.as_json()["checks"]
    for place, told in zip(finding.evidence, check["findings"][0]["evidence"], strict=True):
        assert isinstance(place, Evidence)
        assert (place.split, place.policy) in {("train", "stuffing"), ("test", "stuffing")}
        assert place.seed is not None
        (action,) = told["actions"]
        assert action["tool"] == "submit"
        assert {"42", "100"} <= {remark["text"] for remark in action["arguments"]["remarks"]}
        assert told["task"] == place.task
