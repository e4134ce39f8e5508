"""The commands of docs/hub.md, one after the other, as a reader would type them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hubs import HubProcess

from ludus.hub.settings.hub import HubLimits

PAGE = (Path(__file__).parents[2] / "docs" / "hub.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
STARTING = ('pip install "ludus-rl[hub]"', "ludus hub", "ludus token")
"""Commands that other tests run (`test_access.py`), or that every test here needs."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HubProcess]:
    """A folder, and a hub with the built-in library at the address of the page."""
    folder = tmp_path_factory.mktemp("reader")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "v")], check=True, timeout=60)
    return folder, HubProcess(folder / "data")


def typed(folder: Path, hub: HubProcess, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page; programs install into the folder's environment, without dependencies."""
    words = shlex.split(command.replace("http://127.0.0.1:8400", hub.url).replace("$TOKEN", "none"), comments=True)
    python = str(folder / "v" / "bin" / "python")
    match words[0]:
        case "ludus":
            words = [sys.executable, "-m", "ludus.cli", *words[1:]]
            if words[3] in ("install", "lock"):
                words += ["--no-deps", "--python", python]
            if words[3] == "publish":
                words += ["--no-isolation", "--validate-option=-n2"]
        case "pip":
            words = [python, "-m", *words]
        case "uv":
            words = [str(Path(sys.executable).with_name("uv")), *words[1:3], "--python", python, *words[3:]]
        case "twine":
            built = [str(path) for path in folder.glob("dist/*.whl")]
            words = [sys.executable, "-m", *words[:-1], *built, "--non-interactive"]
        case other:
            raise AssertionError(f"the page has a program that this test does not know: {other}")
    settings = {"LUDUS_HUB": hub.url, "LUDUS_CONFIG_DIR": str(folder / "config"), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
        env={**os.environ, **settings},
    )  # fmt: skip


@pytest.mark.suite("hub")
@pytest.mark.timeout(300)
def test_the_commands_of_the_page_work_in_their_order(reader: tuple[Path, HubProcess]) -> None:
    folder, hub = reader
    try:
        assert typed(folder, hub, "ludus init my-env --owner alice").returncode == 0
        commands = [line for block in BLOCKS for line in block.splitlines() if not line.startswith(STARTING)]
        assert len(commands) >= 9
        for command in commands:
            if command.startswith("twine"):
                build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "my-env"]
                subprocess.run(build, cwd=folder, check=True, capture_output=True, timeout=100)
            done = typed(folder, hub, command)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    finally:
        hub.kill()


def test_make_hub_starts_one() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(["make", "-n", "hub", "ARGS=--port 0"], cwd=root, capture_output=True, text=True, timeout=60)
    assert "scripts/run_hub.py --port 0" in done.stdout


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    limits = HubLimits()
    megabyte = 1024 * 1024
    assert f"a wheel of {limits.wheel_bytes // megabyte} MiB with {limits.wheel_files:,} files" in PAGE
    assert f"{limits.unpacked_bytes // megabyte} MiB unpacked" in PAGE
    assert f"a manifest of {limits.manifest_bytes // megabyte} MiB, a card of {limits.card_bytes // 1024} KiB" in PAGE
