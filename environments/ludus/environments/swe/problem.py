"""A repository: what a task's folder holds, what the issue says, how it is repaired, and the hidden tests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import indent
from typing import Final, NamedTuple

from ludus.environments.swe.blueprint import EXTRAS, Blueprint, Fault, blueprint, fill, words_of
from ludus.environments.swe.catalog import fault_named, own_checks
from ludus.environments.swe.reference import Check, outcomes_of
from ludus.environments.swe.reports import find_session, written_report
from ludus.environments.swe.tasks import Recipe, SweTask
from ludus.server import Difficulty
from ludus.server.authoring.partition import digest
from ludus.server.authoring.workspace import EPOCH, FIRST, Person, RepositoryWriter, Tree

EXTRA_MODULES: Final[Mapping[Difficulty, int]] = {"easy": 0, "medium": 2, "hard": 6}
"""How many modules a repository has that have nothing to do with its purpose."""
_MOST_DRAWS: Final = 20
"""How often inputs of hidden tests are drawn until they show a derived fault."""
ROUNDS: Final = 2
"""How often each hidden test is run, each time with other inputs."""


class Repair(NamedTuple):
    """An edit that repairs a module: its path in the workspace, the faulty piece, and the right one."""

    path: str
    faulty: str
    right: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What follows from a task.

    Attributes:
        root: the folder of the package in the workspace, such as `src/otter`.
        package: its name.
        files: all files of the workspace, by their paths.
        history: the commits: the paths that each adds, and its message.
        issue: the reports.
        repairs: what repairs the repository.
        sound: the modules of the repaired package by their paths in it, such as `otter/store.py`.
        checks: the hidden tests.
        seed: what the repository's history is drawn from.
    """

    root: str
    package: str
    files: Mapping[str, str]
    history: Sequence[tuple[Sequence[str], str]]
    issue: str
    repairs: Sequence[Repair]
    sound: Mapping[str, str]
    checks: Sequence[Check]
    seed: str

    @property
    def faulty(self) -> Mapping[str, str]:
        """The modules of the package as they are given."""
        return {path: self.files[f"{self.top}{path}"] for path in self.sound}

    @property
    def top(self) -> str:
        """The folder in which the package is: nothing, or `src/`."""
        return self.root.removesuffix(self.package)

    @property
    def test_command(self) -> str:
        """The command that runs the visible tests."""
        prefix = "PYTHONPATH=src " if self.top else ""
        return f"{prefix}python3 -m unittest discover -s tests"

    def tree(self) -> Tree:
        """Return the files of the workspace with their git repository."""
        rng = random.Random(digest(f"history:{self.seed}"))
        writer = RepositoryWriter()
        people = [Person(name, f"{name.lower()}@example.com") for name in rng.sample(FIRST, 3)]
        when = EPOCH + 60 * rng.randint(0, 400_000)
        present: dict[str, str] = {}
        head: list[str] = []
        for paths, message in self.history:
            present |= {path: self.files[path] for path in paths}
            when += rng.randint(3600, 400_000)
            head = [writer.commit(present, head, message, rng.choice(people), when)]
        writer.refs["refs/heads/main"] = head[0]
        return writer.entries("main", present, when)


def make_problem(task: SweTask) -> Problem:
    """Return what follows from a task."""
    return _made(task.template, task.difficulty, task.package, task.recipe)


@lru_cache(maxsize=256)
def _made(template: str, difficulty: Difficulty, package: str, recipe: str) -> Problem:
    domain, faults, seed = Recipe.parse(recipe)
    return assemble(blueprint(template), difficulty, package, domain, faults, seed)


def assemble(
    made: Blueprint, difficulty: Difficulty, package: str, domain: int, faults: Sequence[str], seed: str
) -> Problem:
    """Return a problem with these faults.

    Args:
        made: the blueprint.
        difficulty: the level; it decides about hints, a failing visible test, and further modules.
        package: the name of the package.
        domain: which of its words.
        faults: the names of the faults.
        seed: what constants, layout, history and hidden inputs are drawn from.
    """
    rng = random.Random(digest(f"problem:{seed}"))
    words = words_for(made, domain, package, rng)
    top = rng.choice(("", "src/"))
    sources = {fill(path, words): text for path, text in made.files.items()}
    tests = dict(made.tests)
    extras = rng.sample(sorted(blueprint(EXTRAS).files), EXTRA_MODULES[difficulty])
    for path in extras:
        sources[path] = blueprint(EXTRAS).files[path]
        tests[f"test_{path}"] = blueprint(EXTRAS).tests[f"test_{path}"]
    sound = {f"{package}/{path}": fill(text, words) for path, text in sources.items()}
    chosen = [fault_named(made, name) for name in faults]
    given = with_faults(sound, chosen, words)
    repairs = [
        Repair(f"{top}{package}/{fill(path, words)}", fill(wrong, words), fill(right, words))
        for fault in chosen
        for path, right, wrong in fault.edits
    ]
    checks = _checks(made, words, faults, seed, sound, given)
    texts = [_report(fault, chosen, sound, checks, words, seed) for fault in chosen]
    if difficulty == "easy":
        for text in texts:
            for path, method in text.examples.items():
                tests[path or next(iter(made.tests))] += f"\n{indent(method, '    ')}"
    files = {f"{top}{path}": text for path, text in given.items()}
    files |= {f"tests/{path}": fill(text, words) for path, text in tests.items()}
    files |= _other_files(fill(made.readme, words), made.about, package, top)
    issue = _issue(texts, difficulty, rng)
    history = _history(list(files), package, rng)
    return Problem(f"{top}{package}", package, files, history, issue, repairs, sound, checks, seed)


def words_for(made: Blueprint, domain: int, package: str, rng: random.Random) -> dict[str, str]:
    """Return what the open names of a blueprint stand for; its constants are drawn."""
    words = words_of(made.domains[domain]) | {"pkg": package}
    return words | {name: str(rng.randint(low, high)) for name, (low, high) in made.numbers.items()}


def with_faults(sound: Mapping[str, str], faults: Sequence[Fault], words: Mapping[str, str]) -> dict[str, str]:
    """Return the modules of a package with faults.

    Args:
        sound: the right modules.
        faults: the faults.
        words: what open names stand for.

    Raises:
        ValueError: the piece that a fault replaces is not in its module once.
    """
    given = dict(sound)
    for fault in faults:
        for path, right, wrong in fault.edits:
            module = f"{words['pkg']}/{fill(path, words)}"
            given[module] = _replaced(given[module], fill(right, words), fill(wrong, words), fault.name)
    return given


class _ReportText(NamedTuple):
    """A report with its names filled in; an example without a path is for the first visible tests."""

    kind: str
    title: str
    report: str
    hint: str
    examples: Mapping[str, str]


def _report(
    fault: Fault, every: Sequence[Fault], sound: Mapping[str, str], checks: Sequence[Check], words: Mapping[str, str],
    seed: str,
) -> _ReportText:  # fmt: skip
    """Return the report of a fault, as it is written or from a session that shows it.

    Raises:
        ValueError: no session shows a derived fault.
    """
    hint = fill(fault.hint, words)
    if not fault.derived:
        title, report = fill(fault.title, words), fill(fault.report, words)
        return _ReportText(fault.kind, title, report, hint, fault.examples)
    package, others = words["pkg"], [other for other in every if other is not fault]
    right, wrong = [sound], [with_faults(sound, every, words)]
    if others:
        right, wrong = [sound, with_faults(sound, others, words)], [with_faults(sound, [fault], words), *wrong]
    own = list(dict.fromkeys(check.text for check in checks if check.fault == fault.name))
    session = find_session(package, right, wrong, own, f"{seed}:{fault.name}") if own else None
    if session is None:
        raise ValueError(f"fault {fault.name}: no session shows it, so it suits no task")
    text = written_report(session, package, f"{seed}:{fault.name}")
    example = text.example.replace("$", "$$")
    return _ReportText(fault.kind, text.title, text.text, hint, {"": example})


def _replaced(text: str, before: str, after: str, name: str) -> str:
    if text.count(before) != 1:
        raise ValueError(f"fault {name}: its piece is {text.count(before)} times in the module, not once")
    return text.replace(before, after)


def _other_files(readme: str, about: str, package: str, top: str) -> dict[str, str]:
    prefix = "PYTHONPATH=src " if top else ""
    usage = f"\n## Tests\n\n```\n{prefix}python3 -m unittest discover -s tests\n```\n"
    layout = '\n[tool.setuptools.packages.find]\nwhere = ["src"]\n' if top else ""
    return {
        "README.md": readme + usage,
        "pyproject.toml": f'[project]\nname = "{package}"\nversion = "0.4.0"\n'
        f'description = "{about.partition(":")[0].capitalize()}"\nrequires-python = ">=3.9"\n{layout}',
        ".gitignore": "__pycache__/\n*.pyc\n",
    }


def every_check(made: Blueprint) -> dict[str, tuple[str, str]]:
    """Return the names and texts of all hidden tests of a blueprint by their keys, which `faults.json` uses."""
    every = {name: (name, text) for name, text in made.checks.items()}
    return every | {f"fault {fault.name}": (fault.title, fault.check) for fault in made.faults.values()}


def _checks(
    made: Blueprint, words: Mapping[str, str], faults: Sequence[str], seed: str, sound: Mapping[str, str],
    given: Mapping[str, str],
) -> list[Check]:  # fmt: skip
    """Return the hidden tests, with inputs for which each fault fails one of its own.

    Raises:
        ValueError: a fault shows with no inputs.
    """
    owners: dict[str, str] = {}
    for name in faults:
        other = next((fault for fault in faults if fault != name), None)
        is_written = name in made.faults
        owners |= dict.fromkeys((f"fault {name}",) if is_written else own_checks(made.name, name, other), name)
    for draw in range(_MOST_DRAWS):
        checks = [
            Check(f"{fill(name, words)} ({round + 1})", fill(text, words),
                  digest(f"{seed}:{name}:{round}{f':{draw}' if draw else ''}") % 2**48, owners.get(key))
            for key, (name, text) in every_check(made).items()
            for round in range(ROUNDS)
        ]  # fmt: skip
        derived = [[check for check in checks if check.fault == name] for name in faults if name not in made.faults]
        if all(any(outcomes_of(sound, [check]) != outcomes_of(given, [check]) for check in own) for own in derived):
            return checks
    raise ValueError(f"faults {', '.join(faults)}: no hidden test shows each of them, so they suit no task")


def _issue(reports: Sequence[_ReportText], difficulty: Difficulty, rng: random.Random) -> str:
    shuffled = list(reports)
    rng.shuffle(shuffled)
    parts = []
    for number, report in enumerate(shuffled, 1):
        kind = "Feature request" if report.kind == "feature" else "Bug"
        text = f"## {kind}{f' {number}' if shuffled[1:] else ''}: {report.title}\n\n{report.report}"
        if difficulty == "easy":
            text += f"\n\n{report.hint} A test for it is in the repository, and fails."
        parts.append(text)
    return "\n\n".join(parts)


def _history(paths: Sequence[str], package: str, rng: random.Random) -> list[tuple[list[str], str]]:
    """Return commits that add the files; all versions of a file are the same."""
    first = [path for path in paths if path in ("README.md", "pyproject.toml", ".gitignore") or "__init__" in path]
    rest = [path for path in paths if path not in first]
    rng.shuffle(rest)
    commits = [(first, f"Start {package}")]
    while rest:
        count = rng.randint(2, 5)
        some, rest = rest[:count], rest[count:]
        stems = sorted({path.rpartition("/")[2].removesuffix(".py") for path in some})
        commits.append((some, f"{rng.choice(('Add', 'Write', 'Import'))} {', '.join(stems)}"))
    return commits
