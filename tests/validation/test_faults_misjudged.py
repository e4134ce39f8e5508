"""What is taken for a fault and is none, faults that look like none, and what the findings say."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from faults_of import FAULTS, QUICK, reports_of_own_check
from misjudged import FAULTS as PLANTED
from misjudged import SOUND

from ludus.validation import Settings, Verdict, validate

pytestmark = pytest.mark.timeout(600)
SAMPLE = (next(iter(PLANTED)), *SOUND)
"""The classes that are looked at outside of the suite."""


def verdict_of(name: str, kind: str, settings: Settings = QUICK) -> Verdict:
    """Return what one check says about a class."""
    (report,) = asyncio.run(validate(f"{FAULTS}/misjudged.py:{name}", settings=settings, only={kind}))
    (verdict,) = report.verdicts
    return verdict


@pytest.mark.suite("validation", first=1)
@pytest.mark.parametrize(("name", "kind"), PLANTED.items(), ids=list(PLANTED))
def test_a_check_finds_what_looks_sound(name: str, kind: str) -> None:
    assert {finding.kind for finding in reports_of_own_check("misjudged", SAMPLE)[name].findings} == {kind}


@pytest.mark.parametrize("name", SOUND)
def test_a_check_finds_nothing_in_what_looks_faulty(name: str) -> None:
    report = reports_of_own_check("misjudged", SAMPLE)[name]
    assert report.findings == ()
    assert {verdict.status for verdict in report.verdicts} == {"passed"}


def test_what_only_observations_show_is_a_warning_with_the_episode_that_shows_it() -> None:
    (finding,) = verdict_of("Vaults", "leakage").findings
    assert finding.severity == "warning"
    assert '`discoverable_fields = ("codes",)`' in finding.message
    first = finding.evidence[0]
    assert (first.policy, first.seed is not None) == ("random", True)
    assert {"tool": "search", "arguments": {}} in (first.actions or ())


def test_the_hint_of_leakage_names_the_private_fields_that_are_shown_and_those_that_are_declared() -> None:
    (finding,) = verdict_of("Treasures", "leakage").findings
    assert '`discoverable_fields = ("key", "route")`' in finding.message


def test_a_secret_that_was_not_given_is_reported_with_the_option_that_gives_it() -> None:
    (finding,) = verdict_of("WantsSecret", "crash").findings
    assert any("--secret API_KEY=VALUE" in one.detail for one in finding.evidence)


def test_noise_of_each_episode_is_no_fault_of_seeds() -> None:
    verdict = verdict_of("OwnNoise", "seed-control")
    assert verdict.status == "skipped"
    assert "per_episode" in verdict.detail


@pytest.mark.suite("validation")
def test_the_limit_of_turns_is_not_laid_at_the_oracles_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.validation.core.target.ORACLE_TURNS", 30)
    verdict = verdict_of("LongWalk", "oracle-max")
    assert verdict.status == "skipped"
    assert re.match(r"(\d+) of \1 episodes of the oracle were stopped after", verdict.detail)


@pytest.mark.suite("validation")
def test_one_task_of_a_split_can_be_compared() -> None:
    assert verdict_of("Differences", "near-duplicates", replace(QUICK, scan=1)).status == "passed"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
def test_processes_that_have_left_the_server_end_with_the_command() -> None:
    verdict_of("LeavesHome", "floor-gap")
    left = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and _sleeps(entry)]
    assert left == []


def _sleeps(entry: Path) -> bool:
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"599"]
    except OSError:
        return False
