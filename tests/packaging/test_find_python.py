"""The scripts find a Python of another version, for peers that ask for one."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that makes virtual environments."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("installer")


def test_this_python_is_found_before_any_other(installer: Any) -> None:
    assert installer.find_python(f"{sys.version_info.major}.{sys.version_info.minor}") == sys.executable


def test_a_python_that_only_pyenv_keeps_is_found_although_the_path_leads_to_a_shim_without_it(
    installer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, line in (("shims/python9.9", "exit 127"), ("versions/9.9.1/bin/python", "printf 9.9")):
        program = tmp_path / path
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert installer.find_python("9.9") == str(tmp_path / "versions" / "9.9.1" / "bin" / "python")


def test_a_python_that_is_not_here_is_named(installer: Any) -> None:
    with pytest.raises(installer.InstallError, match=r"it needs Python 9\.8, which is not on this machine"):
        installer.find_python("9.8")
