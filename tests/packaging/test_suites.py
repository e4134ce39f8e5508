"""Suites: which tests they hold, how they are dealt into parts, what the rotation runs, and what the gate refuses."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from suite_selection import in_part, selected

ROOT = Path(__file__).parents[2]
LOCK = "tests/suites.lock.json"
SUITES = r"""
allowed_skips = ["needs a GPU", 'no Python 3\.\d here']

[core]
about = "the core works"
tests = ["tests/core"]
minutes = 1

[hub]
about = "the hub works"
tests = ["tests/hub"]
minutes = 2
parts = 2
"""
Git = Callable[..., str]


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("suites")


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in a checkout that holds two suites; the hub imports the core."""
    files = {
        "pyproject.toml": '[project]\nname = "x"\n[tool.mypy]\nmypy_path = ["code"]\n',
        "constraints.txt": "a==1\n",
        "code/core.py": "",
        "code/hub.py": "def create() -> None:\n    import core\n",
        "tests/core/test_core.py": "import core\n",
        "tests/hub/test_hub.py": 'MODULE = "hub"\nimport hub\n',
        "tests/suites.toml": SUITES,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    run("init", "-q")
    commit(run, "first")
    return run


def commit(git: Git, subject: str) -> str:
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", subject)
    return git("rev-parse", "HEAD")


def record(root: Path, commits: dict[str, str]) -> None:
    """Write a lock with a green run at a commit for each part."""
    rows = {
        name: {"commit": commit, "date": "2026-01-01", "seconds": 1.0, "passed": 1, "skipped": 0}
        for name, commit in commits.items()
    }
    (root / LOCK).write_text(json.dumps(rows))


def names(parts: list[Any]) -> list[str]:
    return [part.name for part in parts]


# ── which tests a suite holds ────────────────────────────────────────────────────────────────────────────────────────


def marked_suites(path: Path) -> set[str]:
    """The names in `pytest.mark.suite("name")` in a file."""
    return {
        ast.literal_eval(node.args[0])
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "suite" and isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "mark"
    }


def test_each_marked_suite_exists_and_runs_the_files_that_have_its_marker(suites: ModuleType) -> None:
    by_name = {suite.name: suite for suite in suites.Proofs(ROOT).suites}
    marked: set[str] = set()
    support = ROOT / "tests" / "support"
    everywhere = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    for path in sorted(path for path in everywhere if support not in path.parents):
        for name in marked_suites(path) - {"one", "two"}:
            marked.add(name)
            assert any(path.is_relative_to(ROOT / tests) for tests in by_name[name].tests), (path, name)
    for path in support.glob("*.py"):
        marked |= marked_suites(path)
    named = {"attacks"}  # the tests that SECURITY.md names
    assert marked == {name for name, suite in by_name.items() if not suite.command and not suite.unmarked} - named


def test_every_file_that_a_suite_names_exists(suites: ModuleType) -> None:
    proofs = suites.Proofs(ROOT)
    for suite in proofs.suites:
        assert suite.command or proofs.test_files(suite), suite.name
        assert [name for name in suite.files if not (ROOT / name).exists()] == [], suite.name


def test_the_estimate_of_no_part_exceeds_twenty_minutes(suites: ModuleType) -> None:
    proofs = suites.Proofs(ROOT)
    assert {part.name: proofs.seconds(part) for part in proofs.parts if proofs.seconds(part) > 20 * 60} == {}


def test_the_parts_of_a_suite_hold_each_test_once() -> None:
    tests = [f"tests/test_{file}.py::test_{number}" for file in range(20) for number in range(9)]
    for by in ("test", "file"):
        parts = [[test for test in tests if in_part(test, f"{number}/3 by {by}")] for number in (1, 2, 3)]
        assert sorted(sum(parts, [])) == sorted(tests)
        assert all(parts), "no part is empty"
    files = [{test.partition("::")[0] for test in part} for part in parts]
    assert not files[0] & files[1], "by file, the tests of a file stay together"


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

    def collected(suites: str, part: str = "1/1 by file") -> set[str]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
            cwd=tmp_path, capture_output=True, text=True,
            env={"LUDUS_SUITES": suites, "LUDUS_SUITE_PART": part, "PATH": ""},
        )  # fmt: skip
        return {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}

    three = {f"test_three[{x}]" for x in "abc"}
    assert collected("") == {"test_plain", "test_two", "test_three[a]", "test_three[b]"}
    assert collected("one") == {"test_one", *three}
    assert collected("one,two") == {"test_one", "test_two", *three}
    assert collected("one", "1/2 by test") | collected("one", "2/2 by test") == {"test_one", *three}


# ── what a run records, and what the gate refuses ────────────────────────────────────────────────────────────────────


def test_a_part_is_stale_when_a_file_changes_that_its_tests_import_directly_or_not(
    suites: ModuleType, git: Git, tmp_path: Path
) -> None:
    first = git("rev-parse", "HEAD")
    record(tmp_path, {"core": first, "hub-1": first, "hub-2": first})

    def stale() -> list[str]:
        proofs = suites.Proofs(tmp_path)
        return names([part for part in proofs.parts if proofs.is_stale(part)])

    assert stale() == []
    (tmp_path / "README.md").write_text("new")
    assert stale() == []
    (tmp_path / "code/hub.py").write_text("import core\n")
    assert stale() == ["hub-1", "hub-2"]
    (tmp_path / "code/core.py").write_text("x = 1\n")
    assert stale() == ["core", "hub-1", "hub-2"]
    commit(git, "second")
    assert stale() == ["core", "hub-1", "hub-2"], "a commit does not make a proof of another commit fresh"


def test_the_rotation_begins_with_parts_that_were_never_run_then_stale_ones_then_the_oldest(
    suites: ModuleType, git: Git, tmp_path: Path
) -> None:
    first = git("rev-parse", "HEAD")
    second = commit(git, "second")
    (tmp_path / "code/hub.py").write_text("import core\n")
    commit(git, "third")
    record(tmp_path, {"core": first, "hub-2": second})
    proofs = suites.Proofs(tmp_path)
    assert names(proofs.oldest_first(proofs.parts)) == ["hub-1", "hub-2", "core"]


def test_ci_runs_the_parts_whose_own_files_changed_since_their_green_run(
    suites: ModuleType, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proofs.MAX_SHARERS", 1)
    first = git("rev-parse", "HEAD")
    record(tmp_path, {"core": first, "hub-1": first, "hub-2": first})
    (tmp_path / "code/core.py").write_text("x = 1\n")
    assert names(suites.Proofs(tmp_path).changed()) == [], "both suites depend on the core"
    (tmp_path / "code/hub.py").write_text("import core\n")
    assert names(suites.Proofs(tmp_path).changed()) == ["hub-1", "hub-2"]


def test_the_gate_passes_until_a_green_run_lies_too_many_commits_behind(
    suites: ModuleType, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suites, "MAX_COMMITS_BEHIND", 2)
    first = git("rev-parse", "HEAD")
    record(tmp_path, {"core": first, "hub-1": first, "hub-2": first})
    commit(git, "second")
    commit(git, "third")
    suites.gate(suites.Proofs(tmp_path))
    commit(git, "fourth")
    record(tmp_path, {"core": git("rev-parse", "HEAD"), "hub-1": first, "hub-2": git("rev-parse", "HEAD")})
    with pytest.raises(SystemExit, match="make rotate"):
        suites.gate(suites.Proofs(tmp_path))
    assert "hub-1: the last green run is 3 commits behind, and 2 are allowed" in capsys.readouterr().out


def test_a_part_that_was_never_run_is_as_old_as_its_name(suites: ModuleType, git: Git, tmp_path: Path) -> None:
    commit(git, "second")
    more = SUITES[SUITES.index("[core]") :].replace("[hub]", "[new]").replace("[core]", "[more]")
    (tmp_path / "tests/suites.toml").write_text(SUITES + more)
    commit(git, "third")
    commit(git, "fourth")
    proofs = suites.Proofs(tmp_path)
    assert {part.name: proofs.age(part) for part in proofs.parts} == {
        "core": 3, "hub-1": 3, "hub-2": 3, "more": 1, "new-1": 1, "new-2": 1,
    }  # fmt: skip


def test_the_gate_refuses_a_green_run_whose_commit_is_not_in_this_history(
    suites: ModuleType, git: Git, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, {"core": "0" * 40, "hub-1": git("rev-parse", "HEAD"), "hub-2": git("rev-parse", "HEAD")})
    with pytest.raises(SystemExit, match="make rotate"):
        suites.gate(suites.Proofs(tmp_path))
    assert "not in this history: core" in capsys.readouterr().out


def test_a_rotation_that_has_no_time_for_any_part_fails(suites: ModuleType, git: Git, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="the shortest part needs 60 s, and -360 s were given"):
        suites.rotate(suites.Proofs(tmp_path), -360, workers=1)


def test_a_rotation_refuses_a_checkout_that_is_not_a_commit(suites: ModuleType, git: Git, tmp_path: Path) -> None:
    (tmp_path / "code/core.py").write_text("x = 1\n")
    with pytest.raises(SystemExit, match=r"commit first.*code/core\.py"):
        suites.rotate(suites.Proofs(tmp_path), 600, workers=1)


@pytest.mark.parametrize(
    ("program", "recorded"),
    [
        ("print('3 passed, 1 skipped in 0.1s')", True),
        ("print('3 skipped in 0.1s')", False),
        ("print('SKIPPED [1] tests/a.py:3: needs a GPU\\n3 passed, 1 skipped in 0.1s')", True),
        ("print('SKIPPED [1] tests/a.py:3: no Python 3.8 here\\n3 passed, 1 skipped in 0.1s')", True),
        ("print('SKIPPED [1] tests/a.py:3: no Python 338 here\\n3 passed, 1 skipped in 0.1s')", False),
        ("print('SKIPPED [1] tests/a.py:3: it needs a GPU\\n3 passed, 1 skipped in 0.1s')", False),
        ("raise SystemExit('2 failed, 1 passed in 0.1s')", False),
        ("open('code/core.py', 'w').write('x'); print('3 passed in 0.1s')", False),
    ],
)
def test_only_a_green_run_of_exactly_one_commit_is_recorded(
    suites: ModuleType, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, recorded: bool
) -> None:
    monkeypatch.setattr(suites.Part, "command", lambda self, workers, green: [sys.executable, "-c", program])
    proofs = suites.Proofs(tmp_path)
    outcome = suites.run(proofs, proofs.parts[0], workers=1)
    assert (outcome == "green") == (recorded or "write" in program)
    rows = json.loads((tmp_path / LOCK).read_text()) if (tmp_path / LOCK).exists() else {}
    assert {name: (row["commit"], row["passed"], row["skipped"]) for name, row in rows.items()} == (
        {"core": (git("rev-parse", "HEAD"), 3, 1)} if recorded else {}
    )


def test_two_processes_that_run_parts_at_the_same_time_keep_each_others_records(
    suites: ModuleType, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        suites.Part, "command", lambda self, workers, green: [sys.executable, "-c", "print('1 passed')"]
    )
    first, second = suites.Proofs(tmp_path), suites.Proofs(tmp_path)
    suites.run(first, first.parts[0], workers=1)
    suites.run(second, second.parts[1], workers=1)
    assert set(json.loads((tmp_path / LOCK).read_text())) == {first.parts[0].name, second.parts[1].name}


def test_a_part_whose_tests_skip_for_a_missing_tool_fails_a_rotation_and_not_ci(
    suites: ModuleType, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "print('SKIPPED [2] tests/a.py:3: Chromium is not installed\\n3 passed, 2 skipped in 0.1s')"
    monkeypatch.setattr(suites.Part, "command", lambda self, workers, green: [sys.executable, "-c", program])
    with pytest.raises(SystemExit, match="failed: core, hub-1, hub-2"):
        suites.rotate(suites.Proofs(tmp_path), 600, workers=1)
    suites.run_changed(suites.Proofs(tmp_path), 600, workers=1)
    assert "core: 2 tests skipped that could run: Chromium is not installed" in capsys.readouterr().out
    assert not (tmp_path / LOCK).exists()


def test_a_rotation_finds_a_proof_that_a_commit_broke_where_no_test_of_the_change_ran_it(
    suites: ModuleType, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, 'code'); import core; core.works; print('1 passed')",
    ]
    monkeypatch.setattr(suites.Part, "command", lambda self, workers, green: command)
    (tmp_path / "code/core.py").write_text("works = True\n")
    commit(git, "works")
    suites.rotate(suites.Proofs(tmp_path), 600, workers=1)
    (tmp_path / "code/core.py").write_text("broken = True\n")
    commit(git, "breaks it")
    with pytest.raises(SystemExit, match="failed: core, hub-1, hub-2"):
        suites.rotate(suites.Proofs(tmp_path), 600, workers=1)


def test_ci_runs_the_gate_and_the_pages_state_its_limit(suites: ModuleType) -> None:
    assert "scripts/suites.py --gate || failed" in (ROOT / ".ci" / "run").read_text("utf-8")
    for page in ("CONTRIBUTING.md", "tests/README.md", "docs/decisions.md"):
        text = (ROOT / page).read_text("utf-8").replace("**", "")
        assert f"more than {suites.MAX_COMMITS_BEHIND:,} commits behind" in text, page


def test_a_run_inside_of_a_test_is_not_dealt_into_the_part_of_the_run_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LUDUS_SUITES", "sandbox")
    monkeypatch.setenv("LUDUS_SUITE_PART", "1/2 by file")
    assert selected([]) == []
    assert "LUDUS_SUITE_PART" not in os.environ
    assert os.environ["LUDUS_SUITES"] == "sandbox", "it has the marker of the suite"


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
