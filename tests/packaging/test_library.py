"""The environments that are packages of their own: from `make hub` over `ludus install` to an episode.

The hub has them because `ludus publish` was run for each. A stranger has the wheel of Ludus, which has none of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ludus.client.trajectory_files import read_trajectories

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
NAMES = sorted(path.parent.name for path in (ROOT / "environments" / "library").glob("*/ludus.toml"))
MODULES = [f"ludus_{name}" for name in NAMES]
TASKS = {"sql": "3", "terminal": "1"}

pytestmark = [pytest.mark.suite("library"), pytest.mark.timeout(300)]


@contextmanager
def announced(command: list[str], pattern: str, folder: Path) -> Iterator[list[str]]:
    """The matches of a pattern in what a process prints, which ends with the block once it has printed one for each."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LUDUS_"))}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
        env={**variables, "LUDUS_CONFIG_DIR": str(folder / "config")},
    )  # fmt: skip
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if found := re.search(pattern, printed, re.DOTALL):
                yield list(found.groups())
                return
        raise AssertionError(printed)
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hub's folder of data."""
    return tmp_path_factory.mktemp("hub") / "data"


@pytest.fixture(scope="module")
def hub(data: Path) -> Iterator[str]:
    """The address of a new hub with everything that `make hub` publishes."""
    command = [sys.executable, "-u", str(ROOT / "scripts" / "run_hub.py"), "--port", "0", "--data", str(data)]
    published = ".*".join(rf"ludus/{name} [0-9.]+ was published\n" for name in NAMES)
    with announced(command, rf"Ludus hub at (\S+).*{published}", data.parent) as (url,):
        yield url


@pytest.fixture(scope="module")
def ludus(wheel: Path, tmp_path_factory: pytest.TempPathFactory, installer_settings: dict[str, str]) -> str:
    """The command in an environment that has the wheel of Ludus, and no environment of the library."""
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if any(part in name.split("/") for part in (*NAMES, *MODULES))] == []
    home = tmp_path_factory.mktemp("stranger") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    command = [str(UV), "pip", "install", "--python", str(home / "bin" / "python"), f"{wheel}[server,registry]"]
    if not UV.exists():
        command = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[server,registry]"]
    command += ["-c", str(ROOT / "constraints.txt")]
    subprocess.run(command, check=True, env={**os.environ, **installer_settings})
    return str(home / "bin" / "ludus")


def run(*command: str, folder: Path, code: int = 0) -> str:
    """What a command prints."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LUDUS_"))}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200,
        env={**variables, "LUDUS_CONFIG_DIR": str(folder / "config"), "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_packages_are_those_that_this_test_plays() -> None:
    assert sorted(TASKS) == NAMES


def test_a_version_that_the_hub_has_is_not_published_again(
    hub: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import run_hub

    run_hub.publish_library(hub, data)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_package_comes_from_the_hub_and_is_served_and_played(hub: str, ludus: str, name: str, tmp_path: Path) -> None:
    assert "no environment" in run(ludus, "serve", name, "--port", "0", folder=tmp_path, code=3)
    printed = run(ludus, "install", f"ludus/{name}", "--hub", hub, folder=tmp_path)
    assert f"Installed ludus/{name} 0.1.0" in printed
    with announced([ludus, "serve", name, "--port", "0"], r"(http://\S+)", tmp_path) as (url,):
        played = tmp_path / "played.jsonl"
        run(ludus, "run", url, name, "--policy", "oracle", "-n", TASKS[name], "--out", str(played), folder=tmp_path)
    assert [trajectory.value for trajectory in read_trajectories(played)] == [1.0] * int(TASKS[name])
