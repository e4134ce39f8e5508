"""Faults in places where a check could overlook them, and what it could mistake for one."""

from __future__ import annotations

import asyncio

import pytest
from faults_of import FAULTS, QUICK
from overlooked import FAULTS as PLANTED
from overlooked import SOUND

from ludus.server.tasks.catalog import snake_case
from ludus.validation import Evidence, Report, Verdict, validate

SOURCE = f"{FAULTS}/overlooked.py"


def reports(names: list[str], kind: str) -> dict[str, Report]:
    """What one check says of some classes."""
    targets = [f"{SOURCE}:{name}" for name in names]
    found = asyncio.run(validate(*targets, settings=QUICK, only={kind}))
    return {name: next(one for one in found if one.environment == snake_case(name)) for name in names}


def only(report: Report) -> Verdict:
    (verdict,) = report.verdicts
    return verdict


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", sorted({*PLANTED.values(), *SOUND.values()}))
def test_a_check_finds_what_is_easily_overlooked_and_nothing_false(kind: str) -> None:
    faulty = [name for name, of in PLANTED.items() if of == kind]
    sound = [name for name, of in SOUND.items() if of == kind]
    found = reports([*faulty, *sound], kind)
    assert {name for name, report in found.items() if report.findings} == set(faulty)
    assert {only(found[name]).status for name in sound} <= {"passed"}


@pytest.mark.timeout(600)
def test_episodes_that_break_are_not_taken_for_episodes_that_agree() -> None:
    verdict = only(reports(["BreaksLater"], "seed-control")["BreaksLater"])
    assert (verdict.status, verdict.detail) == ("skipped", "every episode broke (see `crash`)")


@pytest.mark.timeout(600)
def test_evidence_holds_every_action_in_full() -> None:
    report = reports(["ListOfRemarks"], "gameability:stuffing")["ListOfRemarks"]
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
