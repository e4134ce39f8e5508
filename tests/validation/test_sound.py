"""Nothing is found where nothing is wrong: environments made for this, and all that are registered."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from faults_of import FAULTS, QUICK, reports
from sound import SOUND
from suite_selection import selected_suites

from ludus.validation import validate

LUDUS = Path(sys.executable).with_name("ludus")
ELSEWHERE = {"browser", "code", "swe"}
"""What takes longer than ten minutes: the suites of these names validate them."""
REGISTERED = sorted({entry.name for entry in entry_points(group="ludus.environments")} - ELSEWHERE)
WITHOUT_TOOLS = {"algebra", "arithmetic", "word_problems"}
IN_SUITE = pytest.mark.suite("validation")
WHOLE = pytest.mark.suite("validation-library")
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    set(re.findall(r"ludus run (examples/\w+\.py:\w+)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8")))
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [SOUND[0], *(pytest.param(name, marks=IN_SUITE) for name in SOUND[1:])])
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    report = reports("sound", SOUND if "validation" in selected_suites() else (name,))[name]
    assert report.findings == ()
    assert report.passed
    assert [verdict.detail for verdict in report.verdicts if verdict.status == "broken"] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [pytest.param(name, marks=WHOLE) for name in REGISTERED])
def test_every_registered_environment_and_variant_passes_the_strict_command(name: str, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    command = [str(LUDUS), "validate", name, "--strict", "--tasks", "4", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads(out.read_text())
    assert {one["environment"].split("-")[0] for one in told} == {name}
    assert all(one["passed"] and one["counts"]["passed"] > 20 for one in told)
    if name not in WITHOUT_TOOLS:
        assert all(0 < one["measured"]["step_seconds_p50"] <= one["measured"]["step_seconds_p95"] for one in told)
    assert all(one["measured"]["episode_kilobytes"] >= 0 < one["measured"]["server_kilobytes"] for one in told)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", [pytest.param(example, marks=WHOLE) for example in EXAMPLES])
def test_every_example_passes_the_strict_command(example: str) -> None:
    command = [str(LUDUS), "validate", example, "--strict", "--tasks", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.suite("validation")
@pytest.mark.timeout(600)
def test_what_is_seen_from_outside_alone_finds_nothing_false(tmp_path: Path) -> None:
    from ludus.validation.core.server_process import serving

    async def check() -> None:
        targets = [f"{FAULTS}/sound.py:{name}" for name in ("Sums", "Doors", "Choices")]
        async with serving(targets) as process:
            for report in await validate(process.url, settings=QUICK, sources=()):
                skipped = {verdict.kind for verdict in report.verdicts if verdict.status == "skipped"}
                assert report.findings == (), report.as_json()
                assert {"oracle-max", "leakage", "memory", "teardown", "determinism"} <= skipped
                told = {verdict.detail for verdict in report.verdicts if verdict.kind == "oracle-max"}
                assert told == {"this needs the environment's code; name it with --source"}

    asyncio.run(check())
