"""The spec's generators as modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def scripts() -> Iterator[Path]:
    """`scripts/` on the import path."""
    folder = ROOT / "scripts"
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def manifest(scripts: Path) -> ModuleType:
    return importlib.import_module("spec_manifest")


@pytest.fixture(scope="session")
def generator(scripts: Path) -> ModuleType:
    return importlib.import_module("generate_spec")


@pytest.fixture(scope="session")
def schema_generator(scripts: Path) -> ModuleType:
    return importlib.import_module("generate_schema")
