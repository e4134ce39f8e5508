from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

INSTALLER = Path(__file__).parents[2] / "scripts" / "installer.py"


@pytest.fixture(scope="session")
def installer() -> ModuleType:
    """The scripts' own installer."""
    spec = importlib.util.spec_from_file_location("installer", INSTALLER)
    assert spec is not None
    assert spec.loader is not None
    installer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(installer)
    return installer


@pytest.fixture(scope="session")
def installer_settings(installer: ModuleType) -> dict[str, str]:
    """The variables with which uv finds packages where pip finds them."""
    return dict(installer.uv_settings())
