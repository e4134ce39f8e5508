from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

INSTALLER = Path(__file__).parents[2] / "scripts" / "installer.py"


@pytest.fixture(scope="session")
def installer_settings() -> dict[str, str]:
    """What uv must be told so that it finds packages where pip finds them."""
    spec = importlib.util.spec_from_file_location("installer", INSTALLER)
    assert spec is not None
    assert spec.loader is not None
    installer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(installer)
    return dict(installer.uv_settings())
