"""What keeps an episode from being repeated in another process is found, with its cause; the same without it is not."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faults_of import FAULTS, QUICK
from replayed import FIRST, SOUND, TRAPS
from suite_selection import selected_suites

from ludus.server.tasks.catalog import snake_case
from ludus.validation import CHECKS, Report, validate
from ludus.validation.core import causes
from ludus.validation.core.surroundings import CAUSES, HOOKS

LUDUS = [sys.executable, "-m", "ludus.cli"]
IN_SUITE = pytest.mark.suite("planted-faults")
SAMPLE = ("Days", "SeededGenerators")
"""The classes that are looked at outside of the suite."""
KINDS = frozenset({"seed-control", "determinism", "verifier-determinism", "network", "overlap"})
CAUSE_OF_CHECK = {"overlap", "version"}
"""Causes that one check finds by itself."""

pytestmark = pytest.mark.timeout(1800)


def marked(names: Any) -> list[Any]:
    """All names as parameters, of which all but the first of the sample are in the suite."""
    first = next(name for name in SAMPLE if name in names)
    return [first, *(pytest.param(name, marks=IN_SUITE) for name in names if name != first)]


@cache
def reports(names: tuple[str, ...]) -> dict[str, Report]:
    """Return the reports on some classes, which one process serves."""
    targets = [f"{FAULTS}/replayed.py:{name}" for name in names]
    found = {one.environment: one for one in asyncio.run(validate(*targets, settings=QUICK, only=KINDS))}
    return {name: found[snake_case(name)] for name in names}


def report_on(name: str) -> Report:
    """Return the report on a class."""
    every = (*TRAPS, *SOUND)
    return reports(every if "planted-faults" in selected_suites() else SAMPLE)[name]


@pytest.mark.parametrize("name", marked(TRAPS))
def test_a_trap_is_found_with_its_cause_and_a_remedy(name: str) -> None:
    report = report_on(name)
    found = {finding.cause for finding in report.findings}
    told = [(finding.message, finding.evidence[0].detail) for finding in report.findings]
    assert FIRST[name] in found, told
    assert found <= TRAPS[name], told
    for finding in report.findings:
        cause = CAUSES.get(finding.cause or "")
        assert cause is None or (cause.what in finding.message and cause.advice in finding.message)
        assert cause is not None or finding.cause in CAUSE_OF_CHECK
    assert [verdict.detail for verdict in report.verdicts if verdict.status == "broken"] == []


@pytest.mark.parametrize("name", marked(SOUND))
def test_the_same_without_the_fault_is_not_reported(name: str) -> None:
    report = report_on(name)
    assert report.findings == ()
    assert [verdict.detail for verdict in report.verdicts if verdict.status == "broken"] == []


def test_the_message_names_the_step_both_values_and_the_line() -> None:
    (finding,) = [one for one in report_on("Days").findings if one.cause == "wall-clock"]
    assert finding.message.startswith("step 1's observation follows the wall clock: take the date from the task")
    lines = (FAULTS / "replayed.py").read_text("utf-8").splitlines()
    number = next(place for place, line in enumerate(lines, 1) if "return datetime.date.today()" in line)
    detail = finding.evidence[0].detail
    assert detail.count("Noted: 20") == 2, "both dates are shown"
    assert f"replayed.py:{number} calls time.time" in detail


@pytest.mark.suite("planted-faults")
def test_a_reward_that_differs_alone_is_named() -> None:
    (finding,) = report_on("RewardOfTheDay").findings
    assert finding.message.startswith("step 1's reward follows the wall clock")


def test_the_json_report_has_the_cause() -> None:
    report = report_on("Days").as_json()
    assert [one["cause"] for check in report["checks"] for one in check["findings"]] == ["wall-clock"]


def test_no_further_process_is_started_if_nothing_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **named: Any) -> Any:
        raise AssertionError("a process was started to search for a cause")

    monkeypatch.setattr(causes, "serving_measured", refuse)
    (report,) = asyncio.run(validate(f"{FAULTS}/sound.py:Doors", settings=QUICK, only=KINDS))
    assert report.passed


def test_every_check_of_causes_exists() -> None:
    assert KINDS < {check.kind for check in CHECKS}


# ── the version ───────────────────────────────────────────────────────────────────────────────────────────────────────

PAYING = """
from sound import Sums

class Paying(Sums):
    \"\"\"Add two numbers, for a little.\"\"\"

    version = "{version}"
    reward_range = (0.0, 1.0)

    def grade(self, answer):
        {comment}
        return {reward} * float(answer.strip() == self.task.answer)
"""


def run_validate(folder: Path, *options: str, **made: str) -> subprocess.CompletedProcess[str]:
    """Write the class, and run the command on it."""
    given = {"version": "1.0.0", "comment": "# pay", "reward": "1.0"} | made
    (folder / "paying.py").write_text(PAYING.format(**given))
    variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{FAULTS}"}
    checks = ("--check", "seed-control", "--check", "version")
    command = [*LUDUS, "validate", "paying.py:Paying", "--tasks", "2", *checks, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=folder, env=variables)


@pytest.mark.suite("validation")
def test_a_change_of_behavior_without_one_of_the_version_is_found(tmp_path: Path) -> None:
    assert run_validate(tmp_path, "--out", "last.json").returncode == 0
    recorded = json.loads((tmp_path / "last.json").read_text())[0]["recorded"]
    assert recorded
    assert all(len(one["outcomes"]) >= 3 for one in recorded)
    changed = run_validate(tmp_path, "--since", "last.json", reward="0.5")
    assert changed.returncode == 1, changed.stdout + changed.stderr
    assert "the version is still 1.0.0: increase `version`" in changed.stdout
    assert "the grade is another one: \"{'value': 0.5" in changed.stdout
    assert run_validate(tmp_path, "--since", "last.json", comment="# pay well").returncode == 0
    again = run_validate(tmp_path, "--since", "last.json", reward="0.5", version="1.1.0")
    assert again.returncode == 0
    assert "the version has changed from 1.0.0 to 1.1.0" in again.stdout


@pytest.mark.suite("validation", first=1)
@pytest.mark.parametrize("content", ["", "{}", '[{"format": "other"}]'])
def test_a_file_that_is_no_report_is_bad_input(tmp_path: Path, content: str) -> None:
    (tmp_path / "last.json").write_text(content)
    done = run_validate(tmp_path, "--since", "last.json")
    assert done.returncode == 2
    assert "last.json is no report that `ludus validate --out` wrote" in " ".join(done.stderr.replace("│", " ").split())


# ── the process whose surroundings differ ─────────────────────────────────────────────────────────────────────────────

PROGRAM = """
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("ludus_changed_surroundings", {hooks!r})
module = module_from_spec(spec)
spec.loader.exec_module(module)
import time
real = time.time()
module.Surroundings({changed!r}, pinned={pinned}, reads={reads!r}).install()
import queue, threading, types, copy, datetime, pickle
theirs = types.ModuleType("theirs")
exec(compile({code!r}, "theirs.py", "exec"), theirs.__dict__)
assert abs(time.time() - real) < 60, "code of the server has the real clock"
assert abs((datetime.datetime.now() - datetime.datetime.fromtimestamp(real)).total_seconds()) < 60
assert not threading.Event().wait(0.01)
print(theirs.found)
"""
THEIRS = """
import datetime, pickle, copy, queue, threading, time, os
now = datetime.datetime.now(datetime.UTC)
assert type(now) is datetime.datetime and pickle.loads(pickle.dumps(now)) == copy.deepcopy(now) == now
assert abs((now - datetime.datetime.fromtimestamp(time.time(), datetime.UTC)).total_seconds()) < 10**6
assert now.date() == datetime.datetime.utcnow().date()
try:
    queue.Queue().get(timeout=0.01)
except queue.Empty:
    pass
done = threading.Event()
threading.Thread(target=done.set).start()
assert done.wait(60)
with os.scandir() as entries:
    assert sorted(entry.name for entry in entries) == sorted(os.listdir())
found = (now.year, os.urandom(4).hex(), os.listdir())
"""


def surrounded(folder: Path, changed: list[str], *, pinned: bool) -> tuple[int, str, list[str]]:
    """Run the environment's code in a process with other surroundings."""
    for name in ("a", "b", "c"):
        (folder / name).touch()
    program = PROGRAM.format(
        hooks=str(HOOKS), changed=changed, pinned=pinned, reads=str(folder.parent / "reads"), code=THEIRS
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=110, check=True,
        cwd=folder,
    )  # fmt: skip
    year, drawn, listed = eval(done.stdout)
    return year, drawn, listed


def test_only_code_of_environments_sees_other_surroundings_and_what_is_pinned_stays(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    base = surrounded(folder, [], pinned=True)
    assert surrounded(folder, [], pinned=True) == base
    assert base[2] == ["a", "b", "c"]
    year, drawn, listed = surrounded(folder, ["wall-clock"], pinned=True)
    assert (year > base[0], drawn, listed) == (True, base[1], base[2])
    year, drawn, listed = surrounded(folder, ["urandom", "listing"], pinned=True)
    assert (year, drawn != base[1], listed) == (base[0], True, ["c", "b", "a"])
    assert surrounded(folder, [], pinned=False)[1] != surrounded(folder, [], pinned=False)[1]
    reads = [json.loads(line) for line in (tmp_path / "reads").read_text().splitlines()]
    assert {"wall-clock", "urandom", "listing", "threads"} <= {read["what"] for read in reads}
    assert all(read["place"].startswith("theirs.py:") for read in reads)
