"""The import rules hold, and every name in the plugin doors opens."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_packages_import_only_what_their_layer_allows() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def ours() -> list[importlib.metadata.EntryPoint]:
    return [e for e in importlib.metadata.distribution("ludus-rl").entry_points if e.group.startswith("ludus.")]


@pytest.mark.parametrize("entry", ours(), ids=lambda e: f"{e.group}:{e.name}")
def test_entry_points_resolve(entry: importlib.metadata.EntryPoint) -> None:
    assert entry.load() is not None


def test_built_in_environments_enter_through_the_door() -> None:
    assert {"guess_number", "countdown", "wordle"} <= {e.name for e in ours() if e.group == "ludus.environments"}


@pytest.mark.parametrize("module", ["ludus.protocol", "ludus.server", "ludus.client", "ludus.environments"])
def test_what_is_public_exists(module: str) -> None:
    imported = importlib.import_module(module)
    assert [name for name in getattr(imported, "__all__", ()) if not hasattr(imported, name)] == []
