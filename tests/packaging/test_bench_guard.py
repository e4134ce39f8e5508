"""`make bench-guard` finds what became slower, says what it compared, and leaves nothing behind."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ludus

ROOT = Path(__file__).parents[2]
GUARD = ROOT / "benchmarks" / "guard.py"
FIGURES = ["channel step", "ORS call", "MCP call", "harness turn", "trainer update"]


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(GUARD.parent))
    return importlib.import_module("guard")


def rounds(seed: int, *factors: float, noise: float = 0.03) -> list[list[float]]:
    """Ten costs for each factor. The machine's speed, which all share, varies by half; `noise` is each round's own."""
    random_ = random.Random(seed)
    machine = [40 * random_.uniform(1, 1.5) for _ in range(10)]
    return [[factor * speed * random_.lognormvariate(0, noise) for speed in machine] for factor in factors]


@pytest.mark.parametrize("seed", range(20))
def test_a_slowdown_of_a_fifth_is_caught_and_the_same_speed_is_not(guard: ModuleType, seed: int) -> None:
    base, same, slow, fast = rounds(seed, 1.0, 1.0, 1.2, 0.7)
    assert guard.verdict(guard.compare(base, same)) == "ok"
    assert guard.verdict(guard.compare(base, slow)) == "slower"
    assert guard.verdict(guard.compare(base, fast)) == "ok"


def test_a_ratio_above_the_bound_within_the_noise_is_unclear(guard: ModuleType) -> None:
    base, slow = [40.0] * 6, [40.0, 56.0, 38.0, 60.0, 39.0, 58.0]
    comparison = guard.compare(base, slow)
    assert comparison.ratio > guard.BOUND > comparison.low
    assert guard.verdict(comparison) == "unclear"


def test_the_interval_is_student_t_on_the_logarithms_of_the_paired_ratios(guard: ModuleType) -> None:
    comparison = guard.compare([1.0, 10.0, 100.0], [1.1, 12.1, 133.1])
    assert comparison == pytest.approx((1.21, 1.21 * 1.1**-2.4841, 1.21 * 1.1**2.4841), rel=4e-3)  # 4.3027 / √3


def test_the_interval_is_never_narrower_than_what_two_processes_with_the_same_code_differ_by(guard: ModuleType) -> None:
    assert guard.compare([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == pytest.approx((1.0, 0.9616, 1.04), rel=1e-3)
    assert guard.verdict(guard.compare([1.0, 2.0, 3.0], [1.13, 2.26, 3.39])) == "unclear"


def test_a_slow_figure_and_one_that_this_tree_cannot_perform_fail_the_run(guard: ModuleType) -> None:
    assert guard.exit_code([]) == guard.exit_code(["ok", "unclear", "not comparable"]) == 0
    assert guard.exit_code(["ok", "slower", "failed"]) == 1
    assert guard.exit_code(["ok", "failed"]) == 2
    assert guard.exit_code(["not comparable", "not comparable"]) == 2


def test_a_figure_that_the_base_cannot_perform_is_not_comparable_for_a_reason(
    guard: ModuleType, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    for root in ("protocol", "client_sdk"):  # a tree without a server
        shutil.copytree(ROOT / root, base / root)
    end = time.monotonic() + 50
    trees = {"new": ROOT, "base": base}
    row = guard.measure("ORS call", trees, guard.options_of(["--rounds", "2", "--seconds", "0.02"]), end, end)
    assert (row.verdict, row.comparison) == ("not comparable", None)
    assert row.reason.endswith("ModuleNotFoundError: No module named 'ludus.server'")
    assert "not comparable: " in guard.line_of(row)
    assert [file.name for file in tmp_path.iterdir()] == ["base"]


def command(*options: str) -> list[str]:
    return [sys.executable, str(GUARD), "--rounds", "2", "--seconds", "0.02", *options]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def measured(folder: Path, out: Path, *options: str) -> tuple[str, list[dict[str, Any]]]:
    """Run the command with its temporary files in `folder`; return what it printed, and the rows."""
    done = subprocess.run(
        command("--out", str(out), *options), capture_output=True, text=True, timeout=270, env=environment(folder)
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # two short rounds may find anything
    return done.stdout, json.loads(out.read_text())["rows"]


def users_of(folder: Path) -> list[str]:
    """The command lines of processes that name a folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if "guard_side.py" in line and str(folder) in line]


def assert_compared(rows: list[dict[str, Any]], folder: Path) -> None:
    """Each side loaded its own tree, and costs of two pairs were measured."""
    for row in rows:
        assert row["verdict"] in ("ok", "slower", "unclear"), row
        for side, tree in (("base", "old"), ("new", "new")):
            assert Path(row["loaded"][side]).is_relative_to(folder)
            assert row["loaded"][side].endswith(f"/{tree}/protocol/ludus/protocol/__init__.py")
        assert [len(row["costs"][side]) for side in ("base", "new")] == [2, 2]
        assert min(row["costs"]["base"] + row["costs"]["new"]) > 0


def test_each_side_of_a_figure_loads_its_own_tree_and_nothing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    printed, rows = measured(folder, tmp_path / "out.json", "--null", "--only", "ORS call")
    assert [row["figure"] for row in rows] == ["ORS call"]
    assert "ORS call" in printed.splitlines()[-1]
    assert_compared(rows, folder)
    assert list(folder.iterdir()) == []
    assert users_of(folder) == []


@pytest.mark.suite("breadth")
@pytest.mark.timeout(300)
def test_all_five_figures_are_measured_in_both_trees(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    printed, rows = measured(folder, tmp_path / "out.json", "--null", "--limit", "240")
    assert [row["figure"] for row in rows] == FIGURES
    assert [line.split("  ")[0].strip() for line in printed.splitlines()[-5:]] == FIGURES
    assert_compared(rows, folder)
    assert list(folder.iterdir()) == []
    assert users_of(folder) == []


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both_sides_and_removes_their_files(tmp_path: Path, sent: signal.Signals) -> None:
    options = command("--null", "--only", "ORS call", "--rounds", "10000")
    with subprocess.Popen(options, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("ORS call: /"), "both sides have started"
        assert len(users_of(tmp_path)) > 1
        process.send_signal(sent)
        assert process.wait(50) == 128 + sent
    assert list(tmp_path.iterdir()) == []
    assert users_of(tmp_path) == []


def test_a_module_of_another_tree_is_neither_found_nor_loaded(guard: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "protocol/ludus").mkdir(parents=True)  # a tree without `ludus.protocol`, which the installation has
    done = subprocess.run(
        [sys.executable, str(GUARD.parent / "guard_side.py"), str(tmp_path), "play", "ORS call", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "protocol")},
    )
    assert json.loads(done.stdout) == {"error": "ModuleNotFoundError: No module named 'ludus.protocol'"}
    finder = importlib.import_module("guard_side").OnlyFrom(tmp_path)
    with pytest.raises(AssertionError, match=r"^ludus\.protocol would be loaded from .*, which is not in "):
        finder.find_spec("ludus.protocol", ludus.__path__)


def test_a_commit_with_the_same_product_is_unchanged(
    guard: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = tmp_path / "repository"
    for root in guard.ROOTS:
        (repository / root / "ludus").mkdir(parents=True)
        (repository / root / "ludus" / "module.py").write_text("1\n")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "One"]):
        subprocess.run([*git, *arguments], check=True)
    (repository / "README.md").write_text("changed\n")
    monkeypatch.setattr(guard, "TREE", repository)
    out = tmp_path / "out.json"
    assert guard.main(["--base", "HEAD", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("unchanged: protocol, server, client_sdk, environments, trainer")
    assert json.loads(out.read_text())["rows"] == []
    assert not guard.changed("HEAD")
    (repository / "server" / "ludus" / "another.py").write_text("1\n")
    assert guard.changed("HEAD"), "a file that git does not know yet is a change"
