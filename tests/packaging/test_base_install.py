"""`pip install ludus-rl` alone: protocol and client, small, and friendly about what is not there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from ludus.cli import ExitCode

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory, installer_settings: dict[str, str]) -> Path:
    """The Python of a virtual environment that holds the wheel, with no extras, and nothing else."""
    python = new_environment(tmp_path_factory.mktemp("base") / "venv")
    install(python, [str(wheel)], installer_settings)
    return python


def new_environment(home: Path) -> Path:
    """Make an empty virtual environment and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] if UV.exists() else []), str(home)], check=True)
    return home / "bin" / "python"


def install(python: Path, arguments: Sequence[str], settings: dict[str, str]) -> None:
    """Run `pip install` with `arguments`, by uv where there is one."""
    by_uv = [str(UV), "pip", "install", "--python", str(python)]
    by_pip = [str(python), "-m", "pip", "install", "--quiet"]
    command = [*(by_uv if UV.exists() else by_pip), *arguments, "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    assert done.returncode == 0, done.stdout + done.stderr


def run(command: Sequence[str | Path], cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run outside of the repository, and without what the test run itself added to the environment."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LUDUS_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**variables, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def test_wheel_holds_every_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"ludus"}
    roots = ("protocol", "server", "client_sdk", "environments", "trainer")
    packages = {
        path.name for root in roots for path in (ROOT / root / "ludus").iterdir() if (path / "py.typed").exists()
    }
    assert {name.split("/")[1] for name in names if name.startswith("ludus/")} == packages
    assert {f"ludus/{package}/py.typed" for package in packages} <= set(names)
    assert "ludus/__init__.py" not in names


def test_wheel_holds_the_same_modules_as_the_tree(wheel: Path) -> None:
    roots = ("protocol", "server", "client_sdk", "environments", "trainer")
    tree = {str(p.relative_to(ROOT / root)) for root in roots for p in (ROOT / root / "ludus").rglob("*.py")}
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")} == tree


def test_base_install_has_no_server_and_no_torch(python: Path, tmp_path: Path) -> None:
    heavy = ("fastapi", "starlette", "uvicorn", "mcp", "torch", "docker", "numpy", "openai", "anthropic")
    program = f"import importlib.util, json; print(json.dumps([m for m in {heavy!r} if importlib.util.find_spec(m)]))"
    assert json.loads(run([python, "-c", program], tmp_path).stdout) == []


def test_base_install_imports_protocol_and_client(python: Path, tmp_path: Path) -> None:
    program = "import ludus.protocol, ludus.client; print(ludus.client.connect.__name__)"
    assert run([python, "-W", "error", "-c", program], tmp_path).stdout.strip() == "connect"


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    "command", ["calibrate", "catalog", "conform", "demos", "init", "play", "run", "validate", "view"]
)
def test_commands_that_use_a_server_by_its_address_need_no_extra(python: Path, tmp_path: Path, command: str) -> None:
    run([python, "-W", "error", "-c", f"import ludus.cli.{command}"], tmp_path)


def test_help_works_in_a_base_install(python: Path, tmp_path: Path) -> None:
    assert "serve" in run([python.with_name("ludus"), "--help"], tmp_path).stdout


def test_the_help_of_every_command_works_in_a_base_install(python: Path, tmp_path: Path) -> None:
    program = """
import sys
from ludus.cli import main
from ludus.cli._lazy import discover

for name in (name for one in discover() for name in one.commands):
    print("\\f" + name)
    sys.argv = ["ludus", name, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, name
"""
    parts = run([python, "-c", program], tmp_path).stdout.split("\f")[1:]
    shown = {name: text for name, _, text in (part.partition("\n") for part in parts)}
    assert {"serve", "train", "hub", "install", "publish"} <= shown.keys()
    assert all(f"Usage: ludus {name}" in text for name, text in shown.items())
    for name, option in (("train", "--tiny-from"), ("install", "--locked"), ("publish", "--no-validate")):
        assert option in shown[name], name
    assert "pip install 'ludus-rl[server]'" in shown["serve"]


def test_training_in_a_base_install_answers_with_the_command_that_installs_it(python: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("")
    done = run([python.with_name("ludus"), "train", "run.toml"], tmp_path, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (ExitCode.MISSING, False)
    assert "ludus-rl[trainer]" in done.stderr


@pytest.mark.parametrize("arguments", [["serve", "guess_number"], ["token", "create"]])
def test_a_missing_extra_answers_with_the_command_that_installs_it(
    python: Path, tmp_path: Path, arguments: list[str]
) -> None:
    done = run([python.with_name("ludus"), *arguments], tmp_path, check=False)
    told = done.stdout + done.stderr
    assert done.returncode != 0
    assert "pip install" in told, told
    assert "ludus-rl[" in told, told
    assert "Traceback" not in told, told


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("command", ["run", "play", "demos", "calibrate", "envs"])
def test_serving_a_file_without_the_server_extra_exits_with_6_and_the_command_that_installs_it(
    python: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "my_env.py").write_text("from ludus.server import Environment\n\n\nclass MyEnv(Environment): ...\n")
    done = run([python.with_name("ludus"), command, "my_env.py:MyEnv"], tmp_path, check=False)
    assert done.returncode == ExitCode.MISSING, done.stdout + done.stderr
    assert re.fullmatch(r"ludus: .* install it with: pip install \S*ludus-rl\[server\]\S*\n", done.stderr), done.stderr


def test_the_distribution_is_ludus_rl_and_its_version_is_found(python: Path, wheel: Path, tmp_path: Path) -> None:
    assert wheel.name.startswith("ludus_rl-")
    version = run([python, "-c", "import importlib.metadata as m; print(m.version('ludus-rl'))"], tmp_path).stdout
    assert run([python.with_name("ludus"), "--version"], tmp_path).stdout == f"ludus {version}"


@pytest.mark.suite("breadth")
def test_the_hint_of_a_missing_extra_installs_it_next_to_a_wheel_that_no_index_has(
    wheel: Path, tmp_path: Path, installer_settings: dict[str, str]
) -> None:
    python = new_environment(tmp_path / "venv")
    install(python, [str(wheel)], installer_settings)
    refused = run([python.with_name("ludus"), "serve", "guess_number"], tmp_path, check=False)
    hint = re.search(r"install it with: pip install (.+)$", refused.stderr, re.MULTILINE)
    assert hint is not None, refused.stderr
    install(python, shlex.split(hint[1]), installer_settings)
    done = run([python.with_name("ludus"), "serve", "no_such_environment"], tmp_path, check=False)
    assert "no environment is published as 'no_such_environment'" in " ".join(done.stderr.split())


@pytest.mark.suite("breadth")
def test_set_up_removes_what_a_checkout_installed_under_a_former_name(installer: ModuleType, tmp_path: Path) -> None:
    """Two distributions with the same entry points would give every command and environment twice."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    for name, source in (("ludus", ROOT), ("ludus_rl", ROOT), ("other", tmp_path)):
        folder = site / f"{name}-0.1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        (folder / "INSTALLER").write_text("pip\n")
        (folder / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": source.as_uri()}))
        recorded = ("METADATA", "INSTALLER", "direct_url.json", "RECORD")
        (folder / "RECORD").write_text("".join(f"{folder.name}/{file},,\n" for file in recorded))
    installer.remove_former_names(tmp_path / "venv", "ludus-rl")
    left = {path.name for path in site.glob("*-0.1.0.dist-info")}
    assert left == {"ludus_rl-0.1.0.dist-info", "other-0.1.0.dist-info"}
