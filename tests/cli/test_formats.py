"""Formats on the command line: listed without an import, given options, and served."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ludus.protocol.errors import AuthoringError, EnvironmentNotFound
from ludus.server.tasks.formats import FormatSource, formats, parse_source, with_options
from ludus.server.tasks.loading import load_environments

SNIPPETS = Path(__file__).parents[2] / "docs" / "snippets"


def ludus(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus.cli", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)


def test_what_is_installed_is_listed_without_importing_any_of_it() -> None:
    code = """
import sys
from ludus.cli import main
sys.argv = ["ludus", "envs", "--local", "--json"]
try:
    main()
finally:
    heavy = {"ludus.server", "ludus.formats", "ludus.environments", "ludus.sandbox", "gymnasium", "mcp", "numpy"}
    heavy |= {"ludus.client.client", "ludus.protocol.episodes", "asyncio"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    found = json.loads(done.stdout)
    assert {row["name"] for row in found["formats"]} == set(formats())
    assert "countdown" in {row["name"] for row in found["environments"]}
    assert done.stderr.strip().splitlines()[-1] == "[]"


def test_the_list_for_people_names_each_format() -> None:
    done = ludus("envs", "--local")
    assert "formats: ludus serve FORMAT:TARGET" in done.stdout
    for name in formats():
        assert f"\n  {name}  (ludus-rl " in done.stdout


@pytest.mark.parametrize("arguments", [[], ["http://127.0.0.1:1", "--local"]])
def test_a_target_and_local_exclude_each_other(arguments: list[str]) -> None:
    done = ludus("envs", *arguments)
    assert done.returncode == 2
    assert "give either a TARGET or --local" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("spec", "target", "options"),
    [
        ("gymnasium:FrozenLake-v1", "FrozenLake-v1", {}),
        ("gymnasium:minigrid:A-v0#python=/x/bin/python", "minigrid:A-v0", {"python": "/x/bin/python"}),
        ("gymnasium:a#b", "a#b", {}),
        ('gymnasium:a#b#render=ansi,make={"x":[1%2C2]}', "a#b", {"render": "ansi", "make": '{"x":[1,2]}'}),
        ("gymnasium:#name=50%25", "", {"name": "50%"}),
    ],
)
def test_a_spec_has_a_format_a_target_and_options(spec: str, target: str, options: dict[str, str]) -> None:
    source = parse_source(spec)
    assert source == FormatSource("gymnasium", target, options)
    assert parse_source(str(source)) == source


@pytest.mark.parametrize("spec", ["countdown", "module:Class", "file.py:Class", "./gymnasium:x", "Gymnasium:x"])
def test_other_specs_are_of_no_format(spec: str) -> None:
    assert parse_source(spec) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gymnasium:a#render=ansi,oops", "'oops' is no option; write OPTION=VALUE"),
        ("gymnasium:a#render=ansi,render=none", "the option 'render' is given twice"),
        ("gymnasium:a#rendr=ansi", "has no option 'rendr'; did you mean 'render'?"),
        ("gymnasium:a#render=loud", "option render: 'loud' is not"),
        ("gymnasium:a#start_seconds=0", "option start_seconds"),
        ("gymnasium:a#make=[", "option make"),
    ],
)
def test_options_that_cannot_be_used_are_refused_by_name(spec: str, message: str) -> None:
    with pytest.raises(AuthoringError) as refusal:
        load_environments([spec])
    assert message in refusal.value.message


def test_options_of_the_command_line_go_to_the_only_spec_of_a_format() -> None:
    found = with_options(["countdown", "gymnasium:A-v1#render=ansi"], {"python": "/x,y/python"})
    assert found == ["countdown", "gymnasium:A-v1#render=ansi,python=/x%2Cy/python"]
    assert with_options(["countdown"], {}) == ["countdown"]


@pytest.mark.parametrize("specs", [["countdown"], ["gymnasium:A-v1", "gymnasium:B-v1"]])
def test_options_of_the_command_line_need_one_spec_of_a_format(specs: list[str]) -> None:
    with pytest.raises(AuthoringError, match="the options python are for one environment of a format"):
        with_options(specs, {"python": "/x"})


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("text", ["render", "=x", "python=/y"])
def test_an_option_without_a_name_or_given_twice_is_refused(text: str) -> None:
    done = ludus("serve", "gymnasium:A-v1", "--python", "/x", "--set", text)
    assert done.returncode == 2
    assert f"--set '{text}'" in " ".join(done.stderr.split())


def test_an_interpreter_without_the_package_is_answered_with_the_command_that_installs_it() -> None:
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    done = ludus("serve", "gymnasium:A-v1", "--python", str(python), "--port", "0")
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "needs the package 'gymnasium'" in said
    assert f"{python} -m pip install gymnasium" in said
    assert "Traceback" not in said


def test_an_unknown_name_lists_the_formats() -> None:
    with pytest.raises(EnvironmentNotFound, match=r"FORMAT:TARGET \(formats: .*gymnasium"):
        load_environments(["no_such_thing"])


def test_reload_of_a_format_without_files_is_refused() -> None:
    done = ludus("serve", "gymnasium:A-v1", "--reload", "--port", "0")
    assert done.returncode != 0
    assert "leave out --reload" in " ".join(done.stderr.split())


def test_the_format_of_the_page_is_found_by_its_prefix_and_its_oracle_earns_1(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "dice-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dice\nVersion: 1.0\n")
    points = tomllib.loads((SNIPPETS / "dice.toml").read_text())["project"]["entry-points"]["ludus.formats"]
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[ludus.formats]", *lines]))
    for name in ("dice_format.py", "dice_adapter.py"):
        shutil.copy(SNIPPETS / name, site)
    command = [sys.executable, "-m", "ludus.cli", "run", "dice:6#rolls=2", "--policy", "oracle", "-n", "3", "--json"]
    variables = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["scored"], summary["mean"]) == (3, 1.0)
