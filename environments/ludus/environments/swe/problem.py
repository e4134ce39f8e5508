"""A repository: what a task's folder holds, what the issue says, how it is repaired, and the hidden tests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import indent
from typing import Final, NamedTuple

from ludus.environments._partition import digest
from ludus.environments._workspace.files import EPOCH, Tree
from ludus.environments._workspace.repository import Person, RepositoryWriter
from ludus.environments._workspace.words import FIRST
from ludus.environments.swe.blueprint import EXTRAS, Blueprint, blueprint, fill, words_of
from ludus.environments.swe.tasks import Difficulty, Recipe, SweTask

EXTRA_MODULES: Final[Mapping[Difficulty, int]] = {"easy": 0, "medium": 2, "hard": 6}
"""How many modules a repository has that have nothing to do with its purpose."""
ROUNDS: Final = 2
"""How often each hidden test is run, each time with other inputs."""


@dataclass(frozen=True, slots=True)
class Check:
    """A hidden test with its inputs.

    Attributes:
        name: its name, for the trainer.
        text: the script.
        seed: what it draws its inputs from.
        fault: the fault that it is about, if it is about one of this task.
    """

    name: str
    text: str
    seed: int
    fault: str | None


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
    words = words_of(made.domains[domain]) | {"pkg": package}
    words |= {name: str(rng.randint(low, high)) for name, (low, high) in made.numbers.items()}
    top = rng.choice(("", "src/"))
    sources = {fill(path, words): text for path, text in made.files.items()}
    tests = dict(made.tests)
    extras = rng.sample(sorted(blueprint(EXTRAS).files), EXTRA_MODULES[difficulty])
    for path in extras:
        sources[path] = blueprint(EXTRAS).files[path]
        tests[f"test_{path}"] = blueprint(EXTRAS).tests[f"test_{path}"]
    sound = {f"{package}/{path}": fill(text, words) for path, text in sources.items()}
    given = dict(sound)
    repairs: list[Repair] = []
    for name in faults:
        for path, right, wrong in made.faults[name].edits:
            module, faulty, sound_piece = f"{package}/{fill(path, words)}", fill(wrong, words), fill(right, words)
            given[module] = _replaced(given[module], sound_piece, faulty, name)
            repairs.append(Repair(f"{top}{module}", faulty, sound_piece))
        if difficulty == "easy":
            for path, method in made.faults[name].examples.items():
                tests[path] += f"\n{indent(method, '    ')}"
    files = {f"{top}{path}": text for path, text in given.items()}
    files |= {f"tests/{path}": fill(text, words) for path, text in tests.items()}
    files |= _other_files(fill(made.readme, words), made.about, package, top)
    checks = _checks(made, words, faults, seed)
    issue = _issue(made, difficulty, words, faults, rng)
    history = _history(list(files), package, rng)
    return Problem(f"{top}{package}", package, files, history, issue, repairs, sound, checks, seed)


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


def _checks(made: Blueprint, words: Mapping[str, str], faults: Sequence[str], seed: str) -> list[Check]:
    every: list[tuple[str, str, str | None]] = [(name, text, None) for name, text in made.checks.items()]
    every += [(one.title, one.check, one.name if one.name in faults else None) for one in made.faults.values()]
    return [
        Check(f"{fill(name, words)} ({round + 1})", fill(text, words), digest(f"{seed}:{name}:{round}") % 2**48, fault)
        for name, text, fault in every
        for round in range(ROUNDS)
    ]


def _issue(
    made: Blueprint, difficulty: Difficulty, words: Mapping[str, str], faults: Sequence[str], rng: random.Random
) -> str:
    chosen = [made.faults[name] for name in faults]
    rng.shuffle(chosen)
    parts = []
    for number, fault in enumerate(chosen, 1):
        title = f"## {'Feature request' if fault.kind == 'feature' else 'Bug'}{f' {number}' if chosen[1:] else ''}: "
        text = f"{title}{fault.title}\n\n{fault.report}"
        if difficulty == "easy":
            text += f"\n\n{fault.hint} A test for it is in the repository, and fails."
        parts.append(fill(text, words))
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
