"""What is taken for a fault and is none, faults that look like none, and what the findings say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from faults_of import FAULTS, QUICK
from misjudged import FAULTS as PLANTED
from misjudged import SOUND

from ludus.server.tasks.catalog import snake_case
from ludus.validation import Report, Settings, Verdict, validate

SOURCE = f"{FAULTS}/misjudged.py"

BESIDE = {"reward-range": {"gameability:stuffing"}}
"""Checks whose episodes another looks at."""


def reports(names: list[str], kind: str, settings: Settings = QUICK) -> dict[str, Report]:
    """What one check says of some classes."""
    targets = [f"{SOURCE}:{name}" for name in names]
    found = asyncio.run(validate(*targets, settings=settings, only={kind} | BESIDE.get(kind, set())))
    return {name: next(one for one in found if one.environment == snake_case(name)) for name in names}


def verdict_of(name: str, kind: str, settings: Settings = QUICK) -> Verdict:
    (verdict,) = reports([name], kind, settings)[name].verdicts
    return verdict


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", sorted({*PLANTED.values(), *SOUND.values()}))
def test_a_check_finds_what_looks_sound_and_nothing_that_is(kind: str) -> None:
    faulty = [name for name, of in PLANTED.items() if of == kind]
    sound = [name for name, of in SOUND.items() if of == kind]
    found = reports([*faulty, *sound], kind, replace(QUICK, secrets={"KEY": "abcdefghijkl"}))
    told = {name: {finding.kind for finding in report.findings} for name, report in found.items()}
    assert told == dict.fromkeys(faulty, {kind}) | dict.fromkeys(sound, set())
    assert {verdict.status for name in sound for verdict in found[name].verdicts} <= {"passed"}


@pytest.mark.timeout(600)
def test_what_only_observations_show_is_a_warning_with_the_episode_that_shows_it() -> None:
    (finding,) = verdict_of("Vaults", "leakage").findings
    assert finding.severity == "warning"
    assert "discoverable_fields" in finding.message
    first = finding.evidence[0]
    assert (first.policy, first.seed is not None) == ("random", True)
    assert {"tool": "search", "arguments": {}} in (first.actions or ())


@pytest.mark.timeout(600)
def test_a_secret_that_was_not_given_is_told_with_the_option_that_gives_it() -> None:
    (finding,) = verdict_of("WantsSecret", "crash").findings
    assert any("--secret API_KEY=VALUE" in one.detail for one in finding.evidence)


@pytest.mark.timeout(600)
def test_noise_of_each_episode_is_no_fault_of_seeds() -> None:
    verdict = verdict_of("OwnNoise", "seed-control")
    assert verdict.status == "skipped"
    assert "per_episode" in verdict.detail


@pytest.mark.timeout(600)
def test_the_limit_of_turns_is_not_laid_at_the_oracles_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.validation.target.ORACLE_TURNS", 30)
    verdict = verdict_of("LongWalk", "oracle-max")
    assert verdict.status == "skipped"
    assert "8 of 8 episodes of the oracle were stopped here" in verdict.detail


@pytest.mark.timeout(600)
def test_one_task_of_a_split_can_be_compared() -> None:
    assert verdict_of("Differences", "near-duplicates", replace(QUICK, scan=1)).status == "passed"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
@pytest.mark.timeout(600)
def test_processes_that_have_left_the_server_end_with_the_command() -> None:
    verdict_of("LeavesHome", "floor-gap")
    left = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and _sleeps(entry)]
    assert left == []


def _sleeps(entry: Path) -> bool:
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", b"599"]
    except OSError:
        return False
