"""`ludus validate` as a user meets it: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from faults_of import FAULTS
from waiting import block_until, is_running

from ludus.validation import CHECKS
from ludus.validation.core.server_process import serving

LUDUS = Path(sys.executable).with_name("ludus")
DOCS = Path(__file__).parents[2] / "docs" / "validation.md"


def validate(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    command = [str(LUDUS), "validate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=cwd, env=variables)


@pytest.mark.suite("validation")
@pytest.mark.timeout(600)
def test_a_fault_is_reported_with_its_remedy_and_its_place_and_exit_code_1() -> None:
    done = validate(f"{FAULTS}/rewarded.py:EmptyIsRight", "--check", "floor-gap", "--tasks", 3)
    assert done.returncode == 1
    assert "✗ floor-gap" in done.stdout
    assert "the verifier rewards doing nothing" in done.stdout
    assert "train/train-0, seed " in done.stdout
    assert "Found: floor-gap" in done.stdout


@pytest.mark.suite("validation")
@pytest.mark.timeout(600)
def test_warnings_pass_unless_strict() -> None:
    target = f"{FAULTS}/declared.py:NothingToTest"
    assert validate(target, "--check", "splits", "--tasks", 2).returncode == 0
    assert validate(target, "--check", "splits", "--tasks", 2, "--strict").returncode == 1


@pytest.mark.timeout(600)
def test_the_report_is_json_on_demand(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    done = validate(f"{FAULTS}/sound.py:Sums", "--check", "oracle-max", "--check", "fork", "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)
    assert json.loads(out.read_text()) == [report]
    assert report["format"] == "ludus.validation/0.1"
    assert report["tasks"] == {"train": 8, "test": 8}
    assert [(check["kind"], check["status"]) for check in report["checks"]] == [
        ("fork", "skipped"), ("oracle-max", "passed"),
    ]  # fmt: skip


@pytest.mark.suite("validation", first=1)
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "name an environment, or a server's address"),
        (["guess_number", "--check", "everything"], 2, "--check everything: choose from "),
        (["guess_number", "--secret", "nothing"], 2, "must be NAME=VALUE"),
        (["http://127.0.0.1:9", "guess_number"], 2, "one address, or one or more environments"),
        (["http://127.0.0.1:9"], 4, "127.0.0.1:9"),
        (["127.0.0.1:9"], 2, "did you mean http://127.0.0.1:9"),
        (["guess_number", "--wire", "smoke"], 2, "there is no transport 'smoke'"),
        (["guess_number", "--step-seconds", "-1"], 2, "step_seconds must be a number above 0"),
        (["guess_number", "--random-baseline", "nan"], 2, "random_baseline must be a finite reward"),
        (["guess_number", "--random-baseline", "7"], 2, "rewards of guess_number are 0 to 1"),
        (["guess_number", "--out", "/nowhere/report.json"], 2, "cannot write /nowhere/report.json"),
        (["gess_number"], 1, "did you mean 'guess_number'?"),
        (["guess_number", "--environment", "chess"], 3, "there is no environment 'chess'"),
    ],
    ids=[
        "nothing",
        "check",
        "secret",
        "mixture",
        "unreachable",
        "scheme",
        "wire",
        "seconds",
        "random_baseline",
        "far",
        "out",
        "unknown",
        "environment",
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(arguments: Sequence[str], code: int, told: str) -> None:
    done = validate(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert told in " ".join((done.stdout + done.stderr).replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_a_secret_in_the_wrong_form_is_not_shown() -> None:
    done = validate("guess_number", "--secret", "key=fine", "--secret", "sk-4711")
    said = " ".join((done.stdout + done.stderr).replace("│", " ").split())
    assert "--secret (number 2 of 2) must be NAME=VALUE" in said
    assert "4711" not in said


@pytest.mark.suite("validation", first=1)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("from ludus.server import Environment\nclass Mute(Environment):\n    splits = {}\n", "has no prompt"),
        ("import no_such_package\n", "no_such_package"),
        ("1 / 0\n", "ZeroDivisionError"),
    ],
    ids=["class", "import", "module"],
)
def test_what_cannot_be_served_is_a_finding_of_its_own(tmp_path: Path, program: str, told: str) -> None:
    (tmp_path / "mine.py").write_text(program)
    done = validate("mine.py:Mute", "--json", cwd=tmp_path)
    assert done.returncode == 1
    (report,) = json.loads(done.stdout)
    (check,) = report["checks"]
    assert (check["kind"], check["status"]) == ("startup", "failed")
    assert told in check["findings"][0]["message"]


@pytest.mark.suite("validation")
@pytest.mark.timeout(600)
def test_an_address_is_validated_with_the_class_next_to_it() -> None:
    async def check() -> None:
        source = f"{FAULTS}/rewarded.py:ClumsyOracle"
        async with serving([source]) as process:
            arguments = [process.url, "--source", source, "--check", "oracle-max", "--check", "memory"]
            done = await asyncio.to_thread(validate, *arguments)
        assert done.returncode == 1, done.stderr
        assert "the oracle does not earn the best reward" in done.stdout
        assert "this needs the server's process" in done.stdout

    asyncio.run(check())


@pytest.mark.suite("validation", first=1)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_is_left_however_the_command_ends(tmp_path: Path, number: signal.Signals) -> None:
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [str(LUDUS), "validate", "countdown", "--tasks", "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "countdown"
        children = _children(process.pid)
        assert children
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    assert "Traceback" not in errors
    if number is signal.SIGINT:
        assert (process.returncode, "ludus: interrupted" in errors) == (130, True), errors
    block_until(lambda: not any(map(is_running, children)), 300)
    if number is not signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def _children(parent: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def test_every_check_is_on_its_page_and_so_is_every_check_that_others_name() -> None:
    text = DOCS.read_text()
    assert all(f"| `{check.kind}` |" in text for check in CHECKS)
    assert len({check.kind for check in CHECKS}) == len(CHECKS)
    named = ELSEWHERE.split()
    assert len(named) == 46
    assert [name for name in named if f"`{name}`" not in text] == []


ELSEWHERE = """
static.manifest static.reproducible_build static.image_hygiene static.layout static.sbom static.oci_labels
static.resource_declaration static.timeout_ceiling static.dependency_pinning static.task_distribution_pinning
runtime.startup runtime.reward_well_formed runtime.rubric_introspectable runtime.observation_schema
runtime.state_contract runtime.trajectory_record runtime.reward_attribution runtime.tool_declaration_accuracy
runtime.task_declaration_accuracy runtime.seed_control runtime.episode_determinism runtime.network_policy
runtime.host_containment runtime.resource_bounds runtime.episode_isolation runtime.oracle_containment
semantic.oracle_max semantic.floor_gap semantic.canary_floor semantic.no_solution_leakage
semantic.verifier_determinism semantic.verifier_portability semantic.resource_envelope semantic.replayability
hub.layer_isolation hub.time_to_first_work hub.cosign_signature hub.cross_host_determinism hub.immutable_versioning
statistical.reward_reachability statistical.difficulty_separation statistical.headroom statistical.variance_bound
statistical.training_signal statistical.adversarial_floor statistical.gameability_gap
"""
"""The checks that OpenEnv 0.10's validator names (its RFC 008 and its runner)."""
