"""scripts/system_tools.sh: what it asks the system's package manager for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "system_tools.sh"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A machine without tools, whose `apt-get` knows no package `caddy` and logs what it is asked for."""
    programs = {
        "apt-get": 'echo "$@" >> "$LOG"; case "$*" in *caddy*) exit 100;; esac',
        "id": "echo 0",
        "python3": "exit 1",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def installed(folder: Path, *arguments: str) -> tuple[list[list[str]], str]:
    """The packages of each installation that was asked for, and what was printed."""
    environment = {"PATH": str(folder), "LOG": str(folder / "log")}
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT), *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=50, check=True,
    )  # fmt: skip
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    asked = [[word for word in line.split()[1:] if word[0] != "-"] for line in lines if line.startswith("install")]
    return asked, done.stdout


def test_make_and_venv_are_installed_even_if_another_package_is_unknown(bare: Path) -> None:
    (first, others), output = installed(bare)
    assert first == ["make", "python3-venv"]
    assert "caddy" in others
    assert "chromium" not in others
    assert "could not be installed: " in output


def test_what_only_suites_need_is_installed_if_all_is_asked_for(bare: Path) -> None:
    _, others = installed(bare, "--all")[0]
    assert "chromium" in others


def test_without_a_package_manager_the_missing_tools_are_named(bare: Path) -> None:
    os.remove(bare / "apt-get")
    asked, output = installed(bare)
    assert asked == []
    assert "there is no apt-get" in output
    assert "caddy" in output
