"""`make test`: which files it runs, how it deals them, and that no failure or broken process is lost."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from waiting import block_until

ROOT = Path(__file__).parents[2]

LIGHT = ("-p", "no:hypothesispytest")
"""Options for pytest in these tests: without them each process takes a second to import what it does not use."""


@pytest.fixture
def run_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("run_tests")
    monkeypatch.setattr(module, "FAILED", tmp_path / "cache" / "failed.json")
    return module


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("import_graph")


@pytest.mark.parametrize(
    ("source", "usual"),
    [
        ("def test_a(): ...", True),
        ('import pytest\npytestmark = pytest.mark.suite("x")', False),
        ('import pytest\npytestmark = [pytest.mark.timeout(9), pytest.mark.suite("x")]', False),
        ('import pytest\npytestmark = pytest.mark.suite("x", first=1)', True),
        ('import pytest\npytestmark = pytest.mark.timeout(9)\n@pytest.mark.suite("x")\ndef test_a(): ...', True),
    ],
)
def test_a_file_that_belongs_to_a_suite_as_a_whole_is_not_collected(
    run_tests: ModuleType, tmp_path: Path, source: str, usual: bool
) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(source)
    assert run_tests.has_usual_tests(path) is usual


def test_shards_hold_each_file_once_and_the_longest_comes_first(run_tests: ModuleType) -> None:
    files = [f"tests/test_{number}.py" for number in range(100)]
    shards = run_tests.deal(files, {"tests/test_50.py": 200.0, "tests/test_51.py": 30.0})
    assert sorted(file for shard in shards for file in shard) == sorted(files)
    assert shards[0] == ("tests/test_50.py",)


def test_every_test_file_of_the_repository_is_run_or_named_as_unaffected(run_tests: ModuleType) -> None:
    proofs = run_tests.Proofs(ROOT)
    everything, nothing = run_tests.choose_files(proofs, everything=True)
    chosen, unaffected = run_tests.choose_files(proofs, everything=False)
    assert nothing == []
    assert sorted([*chosen, *unaffected]) == sorted(everything)
    tracked = proofs.git("ls-files", "tests/*test_*.py", "examples/test_*.py").splitlines()
    files = [name for name in tracked if Path(name).name.startswith("test_") and (ROOT / name).exists()]
    assert [name for name in files if run_tests.has_usual_tests(ROOT / name) and name not in everything] == []
    assert "tests/packaging/test_run_tests.py" in chosen


def test_failures_errors_and_broken_processes_fail_the_run_and_are_written_down(
    run_tests: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sources = {
        "test_green.py": "def test_a(): ...\nimport pytest\ndef test_b(): pytest.skip('no reason')\n",
        "test_red.py": "import pytest\ndef test_a(): assert 0\n@pytest.fixture\ndef f(): 1 / 0\ndef test_b(f): ...\n",
        "test_unreadable.py": "import nothing_of_this_name\n",
        "test_dies.py": "import os\ndef test_a(): os._exit(3)\n",
    }
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    shards = [(str(tmp_path / name),) for name in sources]
    results = run_tests.run_shards(shards, 2, *LIGHT, "--confcutdir", str(tmp_path), "--rootdir", str(tmp_path))
    assert run_tests.summarize(results, 1.0, 0) == 1
    written = json.loads(run_tests.FAILED.read_text())
    assert [name.rpartition("/")[2] for name in written["failed"]] == [
        "test_red.py::test_a", "test_red.py::test_b", "test_unreadable.py",
    ]  # fmt: skip
    assert written["broken"] is True
    output = capfd.readouterr().out
    assert output.splitlines()[-1] == "1 passed, 3 failed, 1 skipped"
    assert "SKIPPED [1] Skipped: no reason" in output
    assert "BROKEN a process of pytest ended with 3" in output


def test_a_green_run_passes(run_tests: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_green.py").write_text("def test_a(): ...\n")
    results = run_tests.run_shards([(str(tmp_path / "test_green.py"),)], 1, *LIGHT, "--confcutdir", str(tmp_path))
    assert run_tests.summarize(results, 1.0, 0) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_leaves_no_process_and_starts_none(tmp_path: Path, number: int) -> None:
    (tmp_path / "test_hangs.py").write_text(
        "import pathlib, time\n"
        "def test_a():\n    pathlib.Path(__file__).with_name('begun').touch()\n    time.sleep(600)\n"
    )
    program = (
        f"import signal, sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import run_tests\n"
        "signal.signal(signal.SIGTERM, run_tests.end_shards); signal.signal(signal.SIGINT, run_tests.end_shards)\n"
        f"options = {[*LIGHT, '--confcutdir', str(tmp_path)]!r}\n"
        f"run_tests.run_shards([({str(tmp_path / 'test_hangs.py')!r},)] * 9, 2, *options)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL) as process:
        block_until((tmp_path / "begun").exists, 40, "the test has begun")
        process.send_signal(number)
        assert process.wait(50) == 128 + number
    assert processes_about(tmp_path) == []


def processes_about(folder: Path) -> list[str]:
    """The command lines of running processes that name a file in a folder."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            commands.append(path.read_text("utf-8", "replace"))
    return [command for command in commands if str(folder) in command]


def test_a_run_in_which_no_test_passes_fails(run_tests: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text("import pytest\ndef test_a(): pytest.skip('not here')\n")
    results = run_tests.run_shards([(str(tmp_path / "test_skipped.py"),)], 1, *LIGHT, "--confcutdir", str(tmp_path))
    assert run_tests.summarize(results, 1.0, 0) == 1


# ── what a file depends on ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def closure(graph: ModuleType, tmp_path: Path) -> Callable[[str], set[str]]:
    """Returns what the only test of a checkout depends on, by the text of the test: of `FILES`, and without itself."""

    def compute(test: str) -> set[str]:
        for name, text in {**FILES, TEST: test}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        everywhere = {TEST, "tests/conftest.py", "tests/support/helper.py"}
        files = {str(path) for path in graph.ImportGraph(tmp_path).closure(tmp_path / TEST)}
        assert everywhere <= files
        return files - everywhere

    return compute


TEST = "tests/a/test_a.py"
DEEP = {"server/ludus/deep/__init__.py", "server/ludus/deep/pages/page.html", "server/ludus/by_name.py"}
SQL = {"server/ludus/sql.py", *DEEP}
FILES = {
    "pyproject.toml": (
        '[project]\nname = "x"\n'
        '[project.entry-points."ludus.environments"]\nsql = "ludus.sql:Sql"\nwordle = "ludus.wordle:Wordle"\n'
        '[project.entry-points."ludus.commands"]\npublish = "ludus.publish:register"\n'
        '[tool.mypy]\nmypy_path = ["server", "tests/support"]\n'
    ),
    "server/ludus/eager.py": "",
    "server/ludus/lazy.py": "",
    "server/ludus/sql.py": "import ludus.deep\n",
    "server/ludus/wordle.py": "",
    "server/ludus/deep/__init__.py": 'NAMES = "ludus.by_name"\n',
    "server/ludus/deep/pages/page.html": "",
    "server/ludus/by_name.py": "",
    "server/ludus/unrelated.py": "",
    "server/ludus/cli/__init__.py": "",
    "server/ludus/publish.py": "",
    "tests/conftest.py": 'import helper\nGROUP = "ludus.environments"\n',
    "tests/suites.lock.json": "{}",
    "tests/support/helper.py": "",
    "tests/a/world.py": "",
    "tests/a/table.json": '{"sql-easy": 1}',
    "tests/a/test_other.py": "",
}


@pytest.mark.parametrize(
    ("test", "files"),
    [
        ("from ludus import eager\n", {"server/ludus/eager.py"}),
        ("def test_a():\n    import ludus.lazy\n", {"server/ludus/lazy.py"}),
        ('MODULE = "ludus.deep"\n', DEEP),
        ('NAME = "sql-easy"\n', SQL),
        ('FILE = "table.json"\n', SQL),
        ('GROUP = "ludus.environments"\n', {*SQL, "server/ludus/wordle.py"}),
        ('WORLD = "world.py"\n', {"tests/a/world.py"}),
        ('NAME = "publish"\n', set()),
        (
            'LUDUS = PYTHON.with_name("ludus")\nNAME = "publish"\n',
            {"server/ludus/cli/__init__.py", "server/ludus/publish.py"},
        ),
    ],
)
def test_a_file_depends_on_what_it_imports_and_names_and_on_the_data_next_to_that(
    closure: Callable[[str], set[str]], test: str, files: set[str]
) -> None:
    assert closure(test) == files | {"tests/a/table.json"}


def test_the_tests_of_an_environment_do_not_depend_on_the_hub_or_on_another_environment(graph: ModuleType) -> None:
    closure = graph.ImportGraph(ROOT).closure(ROOT / "tests/environments/test_countdown.py")
    assert Path("environments/ludus/environments/countdown/environment.py") in closure
    assert Path("server/ludus/server/hosting/host.py") in closure
    assert [
        path for path in closure if path.parts[2:4] == ("hub",) or "/sql/" in str(path) or "/hub/" in str(path)
    ] == []
