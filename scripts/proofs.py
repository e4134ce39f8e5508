"""The parts of the suites, their last green runs, and what changed since: what suites.py and run_tests.py decide by."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import installer
from import_graph import ImportGraph, python_files

SUITES: Final = "tests/suites.toml"
LOCK: Final = "tests/suites.lock.json"
EVERYTHING: Final = ("constraints.txt", "pyproject.toml")
"""What every part depends on, besides what its tests import."""
MAX_COMMITS_BEHIND: Final = 1200
"""All parts together take about six hours, which is eight rotations; about 200 commits land on a busy day."""
MAX_SHARERS: Final = 3
"""A file that more suites than this depend on is not a suite's own."""
_SKIPPED: Final = re.compile(r"^SKIPPED \[(\d+)\] \S+: (.*)$", re.MULTILINE)
"""A line of pytest's summary: how many tests skipped at a line of a file, and why."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests with the marker `suite(name)`, or a command.

    Attributes:
        name: the name in the marker.
        about: what the suite proves.
        tests: the files and folders that hold the marked tests; empty if there is a command.
        minutes: an estimate for a part that was never run.
        command: arguments for this Python, instead of tests. `GREEN` is the commit of the last green run, or the commit
            before this one if there is none.
        parts: into how many parts the tests are dealt, by the hash of their ids.
        spread: whether the tests of one file may run in several processes and parts; they must be independent.
        unmarked: the suite is the tests without a marker: those that `make test` runs when what they depend on changed.
        files: what the tests depend on and do not import: folders and files such as pages, charts and schemas.
    """

    name: str
    about: str
    tests: tuple[str, ...]
    minutes: float
    command: tuple[str, ...] = ()
    parts: int = 1
    spread: bool = False
    unmarked: bool = False
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A suite, or the tests that the hash of their ids deals to one of its parts."""

    suite: Suite
    number: int = 1

    @property
    def name(self) -> str:
        """`moves-2` for the second of several parts; the suite's name if there is one."""
        return f"{self.suite.name}-{self.number}" if self.suite.parts > 1 else self.suite.name

    def command(self, workers: int, green: str = "HEAD~1") -> list[str]:
        """Return the command that runs the part, after a last green run at a commit."""
        python = str(installer.interpreter(installer.ROOT / ".venv"))
        if self.suite.command:
            return [python, *(green if argument == "GREEN" else argument for argument in self.suite.command)]
        dist = "load" if self.suite.spread else "loadfile"
        return [python, "-m", "pytest", "-q", "-rfEs", "-n", str(workers), "--dist", dist, *self.suite.tests]

    def variables(self) -> dict[str, str]:
        """Return the variables that select the tests of the part (tests/support/suite_selection.py)."""
        if self.suite.unmarked or self.suite.command:
            return {"LUDUS_SUITES": ""}
        by = "test" if self.suite.spread else "file"
        return {"LUDUS_SUITES": self.suite.name, "LUDUS_SUITE_PART": f"{self.number}/{self.suite.parts} by {by}"}


@dataclass(frozen=True, slots=True)
class Run:
    """The last green run of a part."""

    commit: str
    date: str
    seconds: float
    passed: int
    skipped: int


def load_suites(path: Path) -> tuple[list[Suite], list[re.Pattern[str]]]:
    """Return the suites in the order of the file, and the reasons for which a test may skip in a run that counts."""
    rows = tomllib.loads(path.read_text("utf-8"))
    allowed_skips = [re.compile(reason) for reason in rows.pop("allowed_skips", [])]
    lists = ("tests", "command", "files")
    suites = [
        Suite(name=name, **({"tests": ()} | row | {key: tuple(row[key]) for key in lists if key in row}))
        for name, row in rows.items()
    ]
    return suites, allowed_skips


def counts_in(output: str) -> tuple[int, int]:
    """Return how many tests passed and skipped, by the last line of pytest."""
    last = output.strip().rpartition("\n")[2]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", last)}
    return counts.get("passed", 0), counts.get("skipped", 0)


@dataclass
class Proofs:
    """The parts of a checkout and their last green runs.

    Args:
        root: the checkout, with its history: ages are numbers of commits.
    """

    root: Path
    runs: dict[str, Run] = field(init=False)

    def __post_init__(self) -> None:
        self.suites, self.allowed_skips = load_suites(self.root / SUITES)
        self.parts = [Part(suite, number) for suite in self.suites for number in range(1, suite.parts + 1)]
        self.runs = self._read_lock()
        self._changes: dict[str, frozenset[Path]] = {}

    # ── the lock ──────────────────────────────────────────────────────────────────────────────────────────────────

    def record(self, part: Part, run: Run) -> None:
        """Write a green run down next to those that other processes recorded, and drop those of parts that are gone."""
        self.runs = {**self._read_lock(), part.name: run}
        names = {part.name for part in self.parts}
        rows = {name: asdict(self.runs[name]) for name in sorted(self.runs) if name in names}
        (self.root / LOCK).write_text(json.dumps(rows, indent=2) + "\n", "utf-8")

    def _read_lock(self) -> dict[str, Run]:
        lock = self.root / LOCK
        rows = json.loads(lock.read_text("utf-8")) if lock.exists() else {}
        return {name: Run(**row) for name, row in rows.items()}

    def seconds(self, part: Part) -> float:
        """Return how long a part took, or the estimate."""
        return self.runs[part.name].seconds if part.name in self.runs else 60 * part.suite.minutes

    def parts_named(self, names: Iterable[str]) -> list[Part]:
        """Return the parts with these names, and all parts of the suites with these names.

        Raises:
            SystemExit: there is no such suite or part.
        """
        chosen = []
        for name in names:
            matching = [part for part in self.parts if name in (part.name, part.suite.name)]
            if not matching:
                raise SystemExit(f"no such suite or part: {name} (there are {', '.join(s.name for s in self.suites)})")
            chosen.extend(matching)
        return chosen

    def curable_skips(self, output: str) -> Counter[str]:
        """Return the reasons for which tests skipped in a run and need not, each with the number of tests."""
        reasons: Counter[str] = Counter()
        for number, reason in _SKIPPED.findall(output):
            if not any(allowed.fullmatch(reason) for allowed in self.allowed_skips):
                reasons[reason] += int(number)
        return reasons

    # ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────

    def age(self, part: Part) -> int | None:
        """Return how many commits the proof of a part lies behind; None if its commit is not in this history."""
        if part.name in self.runs:
            return self._commits_since(self.runs[part.name].commit)
        commits = self.git("log", "--format=%H", "-S", f"[{part.suite.name}]", "--", SUITES).split()
        return self._commits_since(commits[-1]) if commits else 0

    def commit_if_clean(self) -> str | None:
        """Return the commit that is checked out; None if a file differs from it."""
        return None if self.uncommitted() else self.git("rev-parse", "HEAD").strip()

    def uncommitted(self) -> list[str]:
        """Return the files that differ from the commit, apart from the lock."""
        rows = self.git("status", "--porcelain", "--no-renames").splitlines()
        return [path for path in (row[3:].strip('"') for row in rows) if path != LOCK]

    def changes_since(self, commit: str) -> frozenset[Path]:
        """Return the files that differ between a commit and the working tree."""
        if commit not in self._changes:
            changed = self.git("diff", "--name-only", "--no-renames", commit).splitlines()
            added = self.git("ls-files", "--others", "--exclude-standard").splitlines()
            self._changes[commit] = frozenset(map(Path, [*changed, *added]))
        return self._changes[commit]

    def _commits_since(self, commit: str) -> int | None:
        done = self._run_git("rev-list", "--count", f"{commit}..HEAD")
        is_ancestor = self._run_git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
        return int(done.stdout) if is_ancestor else None

    def git(self, *arguments: str) -> str:
        """Return what a command of git prints.

        Raises:
            SystemExit: git failed.
        """
        done = self._run_git(*arguments)
        if done.returncode:
            raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _run_git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=False)

    # ── what changed ──────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def graph(self) -> ImportGraph:
        """What each Python file of the checkout depends on."""
        return ImportGraph(self.root)

    @cached_property
    def _dependencies(self) -> dict[str, frozenset[Path]]:
        """The files that each suite depends on."""
        return {suite.name: self._files_of(suite) for suite in self.suites}

    def _files_of(self, suite: Suite) -> frozenset[Path]:
        programs = [self.root / argument for argument in suite.command if argument.endswith(".py")]
        closure = self.graph.closure_of_all([*self.test_files(suite), *programs])
        return closure | frozenset(self._files_below((*EVERYTHING, *suite.files)))

    def _files_below(self, names: Sequence[str]) -> list[Path]:
        files = self.git("ls-files", "--", *names).split("\n")
        return [Path(name) for name in files if name]

    def test_files(self, suite: Suite) -> list[Path]:
        """Return the test files among those that a suite names.

        Raises:
            FileNotFoundError: a path in `tests/suites.toml` does not exist.
        """
        files: list[Path] = []
        for name in suite.tests:
            path = self.root / name
            if not path.exists():
                raise FileNotFoundError(f"the suite {suite.name} names {name}, which does not exist")
            below = [path] if path.is_file() else python_files(path)
            files.extend(file for file in below if file.name.startswith("test_"))
        return files

    def is_stale(self, part: Part) -> bool:
        """Return whether a file changed, since the green run of a part, that its tests depend on."""
        age = self.age(part)
        if part.name not in self.runs or age is None:
            return True
        return bool(self._dependencies[part.suite.name] & self.changes_since(self.runs[part.name].commit))

    def changed(self) -> list[Part]:
        """Return the parts whose own files changed since their green run, and those that have none."""
        sharers = Counter(path for files in self._dependencies.values() for path in files)

        def is_changed(part: Part) -> bool:
            if part.name not in self.runs or self.age(part) is None:
                return True
            changes = self._dependencies[part.suite.name] & self.changes_since(self.runs[part.name].commit)
            return any(sharers[path] <= MAX_SHARERS for path in changes)

        return [part for part in self.parts if is_changed(part)]

    def unaffected_files(self) -> list[str]:
        """Return the files of the usual tests of tenants that depend on nothing that changed since their green run."""
        files = []
        for suite in self.suites:
            run = self.runs.get(suite.name)
            if not suite.unmarked or run is None or self._commits_since(run.commit) is None:
                continue
            changes = self.changes_since(run.commit)
            if changes.isdisjoint(self._files_below((*EVERYTHING, *suite.files))):
                closures = {path: self.graph.closure(path) for path in self.test_files(suite)}
                files += [str(path.relative_to(self.root)) for path in closures if changes.isdisjoint(closures[path])]
        return files

    def oldest_first(self, parts: Iterable[Part]) -> list[Part]:
        """Return the parts that were never run, then stale or old ones, then the others; of each the oldest first."""

        def order(part: Part) -> tuple[bool, bool, float, str]:
            age = self.age(part)
            age = MAX_COMMITS_BEHIND + 1 if age is None else age
            due = self.is_stale(part) or age > MAX_COMMITS_BEHIND / 2
            return part.name in self.runs, not due, -age, part.name

        return sorted(parts, key=order)
