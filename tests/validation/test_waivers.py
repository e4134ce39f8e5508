"""Findings that are accepted with a reason, and what is shown while checks run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from faults_of import FAULTS, QUICK

from ludus.validation import validate

LUDUS = Path(sys.executable).with_name("ludus")
FAULTY = f"{FAULTS}/rewarded.py:EmptyIsRight"
ONLY = {"floor-gap", "prompt"}

pytestmark = pytest.mark.timeout(600)


def test_a_finding_is_waived_with_its_reason_and_the_others_count(tmp_path: Path) -> None:
    begun: list[tuple[str, int, int]] = []
    (report,) = asyncio.run(
        validate(
            FAULTY, settings=QUICK, only=ONLY, strict=True, waivers={"floor-gap": "silence is golden", "prompt": "x"},
            on_check=lambda environment, kind, number, count: begun.append((kind, number, count)),
        )
    )  # fmt: skip
    verdicts = {verdict.kind: verdict for verdict in report.verdicts}
    assert report.passed
    assert report.findings == ()
    assert (verdicts["floor-gap"].status, verdicts["floor-gap"].detail) == ("waived", "waived: silence is golden")
    assert verdicts["floor-gap"].findings, "what was found stays in the report"
    assert verdicts["prompt"].status == "passed"
    assert report.as_json()["counts"]["waived"] == 1
    assert [(number, count) for _, number, count in begun] == [(1, 2), (2, 2)]


def test_a_class_waives_its_own_findings(tmp_path: Path) -> None:
    path = tmp_path / "quiet.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(FAULTS)!r})\nfrom rewarded import EmptyIsRight\n\n\n"
        "class Quiet(EmptyIsRight):\n"
        '    """Pay for silence."""\n\n'
        "    waived_checks = {'floor-gap': 'silence is golden'}\n"
    )
    command = [str(LUDUS), "validate", f"{path}:Quiet", "--check", "floor-gap", "-n", "2", "--strict"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "waived: silence is golden" in done.stdout


@pytest.mark.suite("validation", first=1)
@pytest.mark.parametrize(
    ("waiver", "message"),
    [
        ("floor-gap", "say why"),
        ("floor-gap= ", "say why"),
        ("flor-gap=x", "did you mean 'floor-gap'?"),
        ("nothing=x", "ludus validate --list"),
    ],
)
def test_a_waiver_without_a_reason_or_a_check_is_refused(waiver: str, message: str) -> None:
    command = [str(LUDUS), "validate", FAULTY, "--skip", waiver]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, env={"COLUMNS": "300", "PATH": ""}
    )
    assert done.returncode == 2
    assert message in done.stderr
