"""Named suites: which are stale, what a change makes stale, and that each marked test is in a suite that exists."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("suites")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("tests/support/help.py", "tests/conftest.py", "constraints.txt", "tests/a/test_a.py", "code/b.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    return tmp_path


def marked_suites(path: Path) -> set[str]:
    """The names in `pytest.mark.suite("name")` in a file."""
    return {
        ast.literal_eval(node.args[0])
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "suite" and isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "mark"
    }


def test_each_marked_suite_exists_and_runs_the_files_that_have_its_marker(suites: ModuleType) -> None:
    known = suites.load_suites()
    marked: set[str] = set()
    support = ROOT / "tests" / "support"
    everywhere = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    for path in sorted(path for path in everywhere if support not in path.parents):
        for name in marked_suites(path):
            marked.add(name)
            assert any(path.is_relative_to(ROOT / one) for one in known[name].tests), (path, name)
    for path in support.glob("*.py"):
        marked |= marked_suites(path)
    assert marked == {name for name, suite in known.items() if not suite.command}


def test_every_file_that_a_suite_depends_on_exists(suites: ModuleType) -> None:
    for suite in suites.load_suites().values():
        assert len(list(suites.files_of(suite))) > 1, suite.name


@pytest.mark.parametrize("changed", ["code/b.py", "code/new.py", "tests/a/test_a.py", "tests/support/help.py"])
def test_a_suite_is_fresh_until_a_file_changes_that_it_depends_on(
    suites: ModuleType, checkout: Path, changed: str
) -> None:
    suite = suites.Suite("a", "it works", ("code",), ("tests/a",), (), 1.0, False)
    assert suites.is_stale(suite, {}, checkout)
    runs = {"a": suites.Run(suites.hash_of(suite, checkout), "2026-01-01", 1.0, 1, 0)}
    assert not suites.is_stale(suite, runs, checkout)
    (checkout / "elsewhere.py").write_text("2\n")
    assert not suites.is_stale(suite, runs, checkout)
    (checkout / changed).write_text("2\n")
    assert suites.is_stale(suite, runs, checkout)


def test_suites_that_were_never_run_come_first_and_then_the_oldest(suites: ModuleType) -> None:
    chosen = [suites.Suite(name, "", (), (), (), 1.0, False) for name in "abc"]
    runs = {"a": suites.Run("", "2026-02-01", 1.0, 1, 0), "b": suites.Run("", "2026-01-01", 1.0, 1, 0)}
    assert [suite.name for suite in suites.in_order(chosen, runs)] == ["c", "b", "a"]


@pytest.mark.parametrize(("spread", "dist"), [(False, "loadfile"), (True, "load")])
def test_the_tests_of_a_file_run_in_several_processes_only_where_the_suite_says_so(
    suites: ModuleType, spread: bool, dist: str
) -> None:
    command = suites.command_of(suites.Suite("a", "", (), ("tests/a",), (), 1.0, spread), 2)
    assert command[command.index("--dist") + 1] == dist


def test_the_lock_reads_back_as_it_was_written(suites: ModuleType, tmp_path: Path) -> None:
    runs = {"a": suites.Run("0123", "2026-02-01", 1.5, 3, 1)}
    suites.save_lock(runs, tmp_path / "lock.json")
    assert suites.load_lock(tmp_path / "lock.json") == runs
    assert suites.load_lock(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("...\n12 passed, 3 skipped in 4.00s\n", (12, 3)),
        ("s\n3 skipped, 7 deselected in 4.00s\n", (0, 3)),
        ("", (0, 0)),
    ],
)
def test_passed_and_skipped_tests_are_counted(suites: ModuleType, output: str, counts: tuple[int, int]) -> None:
    assert suites.counts_in(output) == counts


@pytest.mark.suite("breadth")
def test_marked_tests_run_in_their_suite_alone_and_samples_and_first_parameters_in_both(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import pytest\n"
        "def test_plain(): ...\n"
        '@pytest.mark.suite("one")\ndef test_one(): ...\n'
        '@pytest.mark.suite("two", sample=True)\ndef test_two(): ...\n'
        '@pytest.mark.suite("one", first=2)\n@pytest.mark.parametrize("x", "abc")\ndef test_three(x): ...\n'
    )
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    config = f"[pytest]\npythonpath = {ROOT / 'tests' / 'support'}\nmarkers = suite\nasyncio_mode = auto\n"
    (tmp_path / "pytest.ini").write_text(config)

    def collected(names: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
            cwd=tmp_path, capture_output=True, text=True, env={"LUDUS_SUITES": names, "PATH": ""},
        )  # fmt: skip
        return {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}

    three = {f"test_three[{x}]" for x in "abc"}
    assert collected("") == {"test_plain", "test_two", "test_three[a]", "test_three[b]"}
    assert collected("one") == {"test_one", *three}
    assert collected("one,two") == {"test_one", "test_two", *three}


def test_the_files_that_start_first_exist() -> None:
    source = ast.parse((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "LONGEST_FILES" and node.value
    )
    assert [name for name in names if not (ROOT / name).is_file()] == []
