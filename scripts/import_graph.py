"""Compute which files of the repository a Python file depends on: what it imports, directly and through others.

How this works. Every Python file is parsed once; nothing is imported. An edge leads from a file to

* each module that it imports, also inside functions and under `TYPE_CHECKING`, and to the packages around that module;
* each module that one of its strings names (`"ludus.server.web.serve"`, `"ludus.formats.harbor:resolve"`), because
  packages import lazily by name, and tests start `python -m`;
* in `tests`, each `conftest.py` between the file and the root; the module behind each entry point that a string names
  (`"sql"`, `"sql-easy"`, `"harbor:tasks"`); and each program in the same folder whose file a string names.

`ludus.cli` finds its commands through entry points, so a test of the command depends on `ludus.cli` and on the modules
that the test names, but not on every command. The rotation of the suites covers what is missed here: see suites.py.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site", "build", "dist"})
ENTRY_POINT_GROUPS: Final = ("ludus.environments", "ludus.formats", "ludus.sandboxes")


class ImportGraph:
    """The Python files of a checkout and what each depends on.

    Args:
        root: the checkout. Its `pyproject.toml` says where modules lie (`tool.mypy.mypy_path`) and which entry points
            there are.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
        self._folders = [root / name for name in settings["tool"]["mypy"]["mypy_path"]]
        groups = settings["project"].get("entry-points", {})
        self._entry_points: dict[str, str] = {}
        for group in ENTRY_POINT_GROUPS:
            for name, target in groups.get(group, {}).items():
                self._entry_points[name] = target.partition(":")[0]
        self._edges: dict[Path, frozenset[Path]] = {}
        self._closures: dict[Path, frozenset[Path]] = {}

    def closure(self, path: Path) -> frozenset[Path]:
        """Return a file and all that it depends on, as paths relative to the root.

        Raises:
            SyntaxError: a file on the way is not valid Python.
        """
        path = path.resolve()
        if path not in self._closures:
            reached, waiting = {path}, [path]
            while waiting:
                for target in self._targets(waiting.pop()) - reached:
                    reached.add(target)
                    waiting.append(target)
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
            strings = set(_strings_in(tree))
            names = {
                *_imports_in(tree, self._package_of(path)),
                *(text for text in strings if text.startswith("ludus.")),
            }
            targets = {file for name in names for file in self._files_of(name)}
            if self.root / "tests" in path.parents:
                targets.update(self._named_by_test(path, strings))
            self._edges[path] = frozenset(targets - {path})
        return self._edges[path]

    def _files_of(self, name: str) -> Iterator[Path]:
        """Yield the files of a module and of the packages around it; nothing for a foreign module or another string."""
        parts = name.partition(":")[0].split(".")
        for length in range(1, len(parts) + 1):
            if path := self.modules.get(".".join(parts[:length])):
                yield path

    def _named_by_test(self, path: Path, strings: set[str]) -> Iterator[Path]:
        """Yield the fixtures that a test may use, and the entry points and programs that its strings name."""
        for folder in path.parents:
            if (conftest := folder / "conftest.py").exists():
                yield conftest
            if folder == self.root / "tests":
                break
        for text in strings:
            entry_point = self._entry_points.get(text) or self._entry_points.get(re.split("[-:]", text, maxsplit=1)[0])
            if entry_point:
                yield from self._files_of(entry_point)
        for neighbor in python_files(path.parent):
            if not neighbor.name.startswith("test_") and {neighbor.name, neighbor.stem} & strings:
                yield neighbor

    def _package_of(self, path: Path) -> str:
        """Return the package that relative imports of a file start from; empty if there is none."""
        for folder in self._folders:
            if folder in path.parents:
                return ".".join(path.relative_to(folder).parts[:-1])
        return ""


def python_files(folder: Path) -> list[Path]:
    """Return the Python files below a folder, in order."""
    files = (path for path in folder.rglob("*.py") if not SKIPPED_FOLDERS & set(path.relative_to(folder).parts))
    return sorted(files)


def _imports_in(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the full names of imported modules, and of what is imported from them, which may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _strings_in(tree: ast.Module) -> Iterator[str]:
    """Yield every string that is short enough for the name of a module, a program or an entry point."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            yield node.value
