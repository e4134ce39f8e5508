"""Compute which files of the repository a Python file depends on: what it imports, directly and through others.

How this works. Every Python file is parsed once; nothing is imported. An edge leads from a file to

* each module that it imports, also inside functions and under `TYPE_CHECKING`, and to the packages around that module;
* each module that one of its strings names (`"ludus.server.serving.serve"`, `"ludus.formats.harbor:resolve"`), because
  packages import lazily by name, and tests start `python -m`;
* in `tests`, each `conftest.py` between the file and the root; the module behind each entry point that a string names
  (`"sql"`, `"sql-easy"`, `"harbor:tasks"`), or a key of a JSON file whose name a string is, and all of them where a
  string is their group (`"ludus.environments"`); and each program in the same folder whose file a string names, or
  which another program imports.

A file also depends on the data next to what it depends on: templates, SQL, cards. Data belongs to the nearest folder
around it that has Python files. Where tests reach `ludus.cli`, which finds its commands through entry points, they also
depend on the commands that their strings name (`"publish"`). What is missed nevertheless, the rotation of the suites
covers: see suites.py.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules"})
ENTRY_POINT_GROUPS: Final = ("ludus.environments", "ludus.formats", "ludus.sandboxes")
COMMANDS: Final = "ludus.commands"
COMMAND: Final = "ludus.cli"
PROGRAM: Final = 'with_name("ludus")'
"""How tests find the command's program."""
DATA_FOLDERS: Final = (
    "protocol", "server", "client_sdk", "environments", "trainer", "examples", "docs/snippets", "tests/*",
)  # fmt: skip
"""Whose data counts. The files directly in `tests` are about the run itself, such as the lock of the suites."""


class ImportGraph:
    """The Python files of a checkout and what each depends on.

    Args:
        root: the checkout. Its `pyproject.toml` says where modules lie (`tool.mypy.mypy_path`) and which entry points
            there are, besides those of the packages in `environments/library`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
        self._folders = [root / name for name in settings["tool"]["mypy"]["mypy_path"]]
        groups = settings["project"].get("entry-points", {})
        self._groups = {group: dict(groups.get(group, {})) for group in ENTRY_POINT_GROUPS}
        for file in sorted(root.glob("environments/library/*/pyproject.toml")):
            published = tomllib.loads(file.read_text("utf-8"))["project"].get("entry-points", {})
            for group in self._groups.keys() & published.keys():
                self._groups[group] |= published[group]
        self._entry_points = {name: target for group in self._groups.values() for name, target in group.items()}
        self._commands = groups.get(COMMANDS, {})
        self._strings: dict[Path, set[str]] = {}
        self._edges: dict[Path, frozenset[Path]] = {}
        self._closures: dict[Path, frozenset[Path]] = {}

    def closure(self, path: Path) -> frozenset[Path]:
        """Return a file and all that it depends on, as paths relative to the root.

        Raises:
            SyntaxError: a file on the way is not valid Python.
        """
        path = path.resolve()
        if path not in self._closures:
            reached: set[Path] = set()
            waiting = {path}
            while waiting:
                reached |= waiting
                waiting = set().union(*map(self._targets, waiting)) - reached or self._commands_of(reached) - reached
            for folder in {file.parent for file in reached}:
                reached.update(self._data.get(folder, ()))
            self._closures[path] = frozenset(file.relative_to(self.root) for file in reached)
        return self._closures[path]

    def closure_of_all(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Return the union of the closures of several files."""
        return frozenset().union(*(self.closure(path) for path in paths))

    @cached_property
    def modules(self) -> dict[str, Path]:
        """The file of each module that can be imported, by its full name."""
        modules: dict[str, Path] = {}
        for folder in self._folders:
            for path in python_files(folder):
                parts = path.relative_to(folder).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                modules.setdefault(name, path)
        return modules

    def _targets(self, path: Path) -> frozenset[Path]:
        if path not in self._edges:
            tree = ast.parse(path.read_text("utf-8"), str(path))
            imports, strings = _names_in(tree, self._package_of(path))
            names = imports | {text for text in strings if text.startswith("ludus.")}
            targets = {file for name in names for file in self._files_of(name)}
            if self.root / "tests" in path.parents:
                self._strings[path] = strings
                targets.update(self._named_by_test(path, strings, imports))
            self._edges[path] = frozenset(targets - {path})
        return self._edges[path]

    def _files_of(self, name: str) -> Iterator[Path]:
        """Yield the files of a module and of the packages around it; nothing for a foreign module or another string."""
        parts = name.partition(":")[0].split(".")
        for length in range(1, len(parts) + 1):
            if path := self.modules.get(".".join(parts[:length])):
                yield path

    def _named_by_test(self, path: Path, strings: set[str], imports: set[str]) -> Iterator[Path]:
        """Yield the fixtures that a test may use, and the entry points, programs and neighbors that it names."""
        for folder in path.parents:
            if (conftest := folder / "conftest.py").exists():
                yield conftest
            if folder == self.root / "tests":
                break
        if PROGRAM in path.read_text("utf-8"):
            yield from self._files_of(COMMAND)
        files = [path.parent / text for text in strings if re.fullmatch(r"\w+\.json", text)]
        tables = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
        names = strings.union(*(table for table in tables if isinstance(table, dict)))
        for text in names:
            for name in {text, re.split("[-:]", text, maxsplit=1)[0]} & set(self._entry_points):
                yield from self._files_of(self._entry_points[name])
            if path.name != "conftest.py":
                for target in self._groups.get(text, {}).values():
                    yield from self._files_of(target)
        for neighbor in python_files(path.parent):
            if not neighbor.name.startswith("test_") and {neighbor.name, neighbor.stem} & (strings | imports):
                yield neighbor

    def _commands_of(self, reached: set[Path]) -> set[Path]:
        """Return the modules of the commands that tests name, if they reach the command at all."""
        if self.modules.get(COMMAND) not in reached:
            return set()
        strings: set[str] = set().union(*(self._strings.get(path, ()) for path in reached))
        return {file for name in strings & set(self._commands) for file in self._files_of(self._commands[name])}

    @cached_property
    def _data(self) -> dict[Path, list[Path]]:
        """The files that are not Python, by the nearest folder around them that has Python files."""
        data: dict[Path, list[Path]] = {}
        for pattern in DATA_FOLDERS:
            for top in self.root.glob(pattern):
                python = {path.parent for path in python_files(top)}
                for path in files_below(top):
                    owner = next((folder for folder in path.parents if folder in python), None)
                    if path.suffix not in (".py", ".pyc") and owner is not None:
                        data.setdefault(owner, []).append(path)
        return data

    def _package_of(self, path: Path) -> str:
        """Return the package that relative imports of a file start from; empty if there is none."""
        for folder in self._folders:
            if folder in path.parents:
                return ".".join(path.relative_to(folder).parts[:-1])
        return ""


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, in order, without those that tools make."""
    files = (path for path in folder.rglob("*") if not SKIPPED_FOLDERS & set(path.relative_to(folder).parts))
    return sorted(path for path in files if path.is_file())


def python_files(folder: Path) -> list[Path]:
    """Return the Python files below a folder, in order."""
    return [path for path in files_below(folder) if path.suffix == ".py"]


def _names_in(tree: ast.Module, package: str) -> tuple[set[str], set[str]]:
    """Return the names that a file has, found in one walk, which takes longer than all else.

    Returns:
        The full names of imported modules, and of what is imported from them, which may be modules too; and every
        string that is short enough for the name of a module, a program or an entry point.
    """
    imports, strings = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and len(node.value) < 200:
                strings.add(node.value)
        elif isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            imports.update([base, *(f"{base}.{alias.name}" for alias in node.names)])
    return imports, strings
