"""The import rules hold, and every name in the plugin doors opens."""

from __future__ import annotations

import ast
import graphlib
import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("protocol", "server", "client_sdk", "environments", "trainer")


def test_packages_import_only_what_their_layer_allows() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def imported(path: Path, known: Container[str]) -> set[str]:
    """The known modules that a file imports, also under TYPE_CHECKING and within functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if name in known else node.module for name in full]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name for name in names if name in known}


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = {
        ".".join(path.relative_to(ROOT / root).with_suffix("").parts).removesuffix(".__init__"): path
        for root in ROOTS
        for path in (ROOT / root / "ludus").rglob("*.py")
    }
    for folder in (ROOT / "environments" / "library").iterdir():
        for path in folder.glob("ludus_*/**/*.py"):
            files[".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")] = path
    graph = {name: imported(path, files) - {name} for name, path in files.items()}
    for name, path in files.items():
        if path.name == "__init__.py":  # it hands on the names of its own modules, and they may import it
            graph[name] = {other for other in graph[name] if not other.startswith(f"{name}.")}
    graphlib.TopologicalSorter(graph).prepare()


def ours() -> list[importlib.metadata.EntryPoint]:
    return [e for e in importlib.metadata.distribution("ludus-rl").entry_points if e.group.startswith("ludus.")]


@pytest.mark.parametrize("entry", ours(), ids=lambda e: f"{e.group}:{e.name}")
def test_entry_points_resolve(entry: importlib.metadata.EntryPoint) -> None:
    try:
        assert entry.load() is not None
    except ModuleNotFoundError as error:
        if error.name != "e2b":  # `tests/sandbox/test_services.py` loads it in an environment of its own
            raise
        spec = importlib.util.find_spec(entry.module)
        assert spec is not None
        assert spec.origin is not None
        body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
        assert entry.attr in [node.name for node in body if isinstance(node, ast.ClassDef)]


def test_built_in_environments_enter_through_the_door() -> None:
    assert {"guess_number", "countdown", "wordle"} <= {e.name for e in ours() if e.group == "ludus.environments"}


@pytest.mark.parametrize(
    "module", ["ludus.protocol", "ludus.server", "ludus.client", "ludus.evaluation", "ludus.environments"]
)
def test_what_is_public_exists(module: str) -> None:
    imported = importlib.import_module(module)
    assert [name for name in getattr(imported, "__all__", ()) if not hasattr(imported, name)] == []
