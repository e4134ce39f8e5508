from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
INSTALLER = ROOT / "scripts" / "installer.py"


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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by way of the sdist as a release is."""
    out = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "ludus"
    shutil.copytree(
        ROOT,
        source,
        symlinks=True,
        ignore=shutil.ignore_patterns(
            ".git", ".venv*", ".peers", ".*_cache", "__pycache__", "node_modules", "out", "runs", "site"
        ),
    )
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))
