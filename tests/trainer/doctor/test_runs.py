"""`ludus doctor gpu` with real processes: what hangs or crashes ends nothing else, and the report says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ludus.trainer.doctor import runner
from ludus.trainer.doctor.checks import CHECKS
from ludus.trainer.doctor.guard import descendants
from ludus.trainer.doctor.report import Report, Result

PLANTED = Path(__file__).with_name("planted")
SLOW_MACHINE = 10.0
"""A factor for limits that no healthy check reaches."""
Doctor = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """`doctor("--checks", "update")` runs the command to its end."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("ludus"), "doctor", "gpu", *map(str, arguments)],
            env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1", **variables},
            cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip

    return run


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.suite("doctor")
@pytest.mark.timeout(300)
def test_checks_that_hang_or_crash_end_no_other_check_and_leave_no_process(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    monkeypatch.setenv("PYTHONPATH", str(PLANTED))
    monkeypatch.setenv("PLANTED_PIDS", str(pids))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setitem(CHECKS, "canary", replace(CHECKS["canary"], seconds=5 / SLOW_MACHINE))
    before, shown, announced = set(descendants(os.getpid())), list[Result](), list[str]()
    names = runner.chosen("attention-flex,canary,attention-sdpa,attention-flash,resume")
    out = tmp_path / "report.json"
    options = runner.Options(names, out, model, "cpu", True, "float32", "no-such-vllm", SLOW_MACHINE)
    report = runner.run(options, shown.append, announced.append)
    found = {result.name: result for result in report.checks}
    assert {name: result.status for name, result in found.items()} == {
        "attention-sdpa": "passed",
        "attention-flex": "failed",
        "attention-flash": "skipped",
        "canary": "failed",
        "resume": "failed",
    }
    assert "did not end within 5 s and was killed" in str(found["canary"].reason)
    assert "ended with status 134" in str(found["attention-flex"].reason)
    assert "the process 'resumed' of this check ended with status 1" in str(found["resume"].reason)
    assert "planted in the resumed process" in str(found["resume"].reason)
    assert "about to crash" in str(found["attention-flex"].reason)
    parts = [part.partition(",")[0] for part in announced]
    assert parts == ["model and machine", "attention-sdpa", "attention-flex", "canary", "resume"]
    assert (report.passed, report.complete, tuple(shown)) == (False, True, report.checks)
    assert not any(map(running, map(int, pids.read_text().split())))
    assert set(descendants(os.getpid())) <= before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ludus-doctor")] == []
    assert Report.model_validate_json(out.read_text()) == report
    assert str(tmp_path) not in out.read_text()


@pytest.mark.suite("doctor")
@pytest.mark.timeout(300)
def test_a_killed_command_leaves_no_process_and_a_report_of_what_it_had(model: Path, tmp_path: Path) -> None:
    pids, out = tmp_path / "pids", tmp_path / "report.json"
    arguments = ["--device=cpu", "--small", "--checks=canary", f"--model={model}", f"--out={out}", "--limit-scale=10"]
    with subprocess.Popen(
        [Path(sys.executable).with_name("ludus"), "doctor", "gpu", *arguments],
        env={**os.environ, "PYTHONPATH": str(PLANTED), "PLANTED_PIDS": str(pids), "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    ) as process:
        while not pids.exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
        process.kill()
    for pid in map(int, pids.read_text().split()):
        ended(pid)
    report = Report.model_validate_json(out.read_text())
    assert (report.complete, report.checks) == (False, ())


def ended(pid: int) -> None:
    """Wait until a process that is not ours has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    try:
        assert select.select([descriptor], [], [], 60)[0]
    finally:
        os.close(descriptor)


@pytest.mark.suite("doctor")
@pytest.mark.timeout(300)
def test_the_command_checks_with_a_model_of_its_own_and_says_where_the_report_is(
    doctor: Doctor, tmp_path: Path
) -> None:
    done = doctor(
        "--device", "cpu", "--small", "--checks", "canary,vllm-nccl", "--out", "new/r.json", "--limit-scale", "10"
    )
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["── model and machine, at most 1200 s", "── canary, at most 600 s"]
    assert "1 passed, 0 failed, 1 skipped" in done.stdout
    assert "report: new/r.json" in done.stdout
    found: dict[str, Any] = json.loads((tmp_path / "new" / "r.json").read_text())
    assert found["model"]["source"] == "built-in"
    assert found["model"]["parameters"] > 100_000
    assert found["machine"]["packages"]["torch"]
    assert found["checks"][1]["reason"] == "it needs a GPU"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--checks", "updates"), "--checks: there is no check 'updates'; there are: attention-sdpa"),
        (("--model", "none", "--device", "cpu"), "--model: none has no config.json"),
        (("--out", ".", "--device", "cpu"), "--out: . is a folder; give the name of a file for the report"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(doctor: Doctor, arguments: tuple[str, ...], said: str) -> None:
    done = doctor(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ludus: {said}")


@pytest.mark.suite("doctor")
def test_without_a_gpu_the_command_says_how_to_try_the_logic(doctor: Doctor, model: Path) -> None:
    done = doctor("--model", model, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "torch finds no GPU here; try the checks' logic with --device cpu --small" in done.stderr


def test_a_base_install_says_which_extra_to_install(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'torch' else find(name, package)\n"
    )
    done = doctor("--device", "cpu", PYTHONPATH=str(tmp_path))
    assert done.returncode == 6
    assert done.stderr.strip() == (
        "ludus: the package 'torch' is missing; install it with: pip install \"ludus-rl[trainer]\""
    )
