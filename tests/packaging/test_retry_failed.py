"""What `.ci/run` does with failed tests: each again, alone; flaky ones by name, and only a few of them."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def retry(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = spec_from_file_location("retry_failed", SCRIPTS / "retry_failed.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(retry: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tests: dict[str, bool]) -> tuple[int, str]:
    """Retry tests, each of which passes or fails alone; the exit code and the closing lines."""
    closing = tmp_path / "closing"
    monkeypatch.setattr(retry, "failed_tests", lambda: list(tests))
    monkeypatch.setattr(retry, "passes_alone", tests.__getitem__)
    monkeypatch.setattr(sys, "argv", ["retry_failed.py", str(closing)])
    with pytest.raises(SystemExit) as ended:
        retry.main()
    code = ended.value.code
    return (code if isinstance(code, int) else 1), closing.read_text(encoding="utf-8") if closing.exists() else ""


def test_two_tests_that_pass_alone_are_named_flaky_and_the_run_passes(
    retry: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(retry, monkeypatch, tmp_path, {"a.py::x": True, "a.py::y": True}) == (
        0,
        "FLAKY a.py::x\nFLAKY a.py::y\n",
    )


def test_three_flaky_tests_fail_the_run(retry: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, closing = run(retry, monkeypatch, tmp_path, {f"a.py::{n}": True for n in range(3)})

    assert code == 1
    assert "3 flaky tests, at most 2 are allowed" in closing


def test_a_test_that_fails_again_fails_the_run(
    retry: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, closing = run(retry, monkeypatch, tmp_path, {"a.py::x": True, "a.py::y": False})

    assert code == 1
    assert closing.splitlines() == ["FLAKY a.py::x", "FAILED a.py::y"]


@pytest.mark.parametrize("count", [0, 21])
def test_nothing_is_retried_without_a_list_or_when_too_much_failed(
    retry: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int
) -> None:
    code, closing = run(retry, monkeypatch, tmp_path, {f"a.py::{n}": True for n in range(count)})

    assert (code, closing) == (1, "")


def test_the_failed_tests_are_those_that_the_run_wrote_down(retry: ModuleType, tmp_path: Path) -> None:
    record = tmp_path / "failed.json"
    assert retry.failed_tests(record) == []

    record.write_text(json.dumps({"failed": ["a.py::x", "a.py::y"], "broken": False}), encoding="utf-8")

    assert retry.failed_tests(record) == ["a.py::x", "a.py::y"]


def test_nothing_is_retried_when_a_process_broke(retry: ModuleType, tmp_path: Path) -> None:
    record = tmp_path / "failed.json"
    record.write_text(json.dumps({"failed": ["a.py::x"], "broken": True}), encoding="utf-8")

    with pytest.raises(SystemExit, match="ended before its tests"):
        retry.failed_tests(record)
