"""`ludus init` makes a project that works."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ludus.cli.init import SHOWN_TEXTS, leftovers, scaffold

Ludus = Callable[..., CompletedProcess[str]]


def test_the_generated_project_passes_its_own_tests_and_serves(ludus: Ludus, tmp_path: Path) -> None:
    done = ludus("init", "word-play")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "word-play"
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert made == {
        ".gitignore", "Dockerfile", "README.md", "pyproject.toml", "tests/test_word_play.py",
        "wheels/README.md", "word_play.py",
    }  # fmt: skip
    shell = re.compile(r"\$(PWD|\{BASE\}|\(id -u\))")  # what stays for the shell and for Docker
    assert not [path for path in made if "$" in shell.sub("", (folder / path).read_text())]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=folder, capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert tests.returncode == 0, tests.stdout
    assert "5 passed" in tests.stdout


def test_the_generated_environment_is_served_and_solved_from_its_file(
    ludus: Ludus, tmp_path: Path, serve_process: Callable[..., str]
) -> None:
    assert ludus("init", "task").returncode == 0
    source = f"{tmp_path / 'task' / 'task.py'}:TaskEnvironment"
    url = serve_process(source)
    done = ludus("run", url, "task", "--policy", "oracle", "--source", source, "-n", "5", "--json")
    assert json.loads(done.stdout)["mean"] == 1.0


def test_no_name_of_an_environment_hides_a_class_that_its_files_use(tmp_path: Path) -> None:
    used = set[str]()
    for path in scaffold(tmp_path / "own-words"):
        if path.suffix == ".py":
            nodes = list(ast.walk(ast.parse(path.read_text())))
            used |= {node.name for node in nodes if isinstance(node, ast.ClassDef)}
            used |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    for name in {name for name in used if name[0].isupper()} - {"OwnWords"}:
        module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        scaffold(tmp_path / module)
        source = (tmp_path / module / f"{module}.py").read_text()
        assert f"class {name}Environment(Environment[" in source, name


def test_a_project_with_an_owner_has_what_a_hub_needs(ludus: Ludus, tmp_path: Path) -> None:
    assert ludus("init", "word-play", "--owner", "alice").returncode == 0
    assert tomllib.loads((tmp_path / "word-play" / "ludus.toml").read_text())["id"] == "alice/word-play"
    project = tomllib.loads((tmp_path / "word-play" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "alice-word-play"
    refused = ludus("init", "other", "--owner", "Alice B")
    assert (refused.returncode, "--owner" in refused.stderr, (tmp_path / "other").exists()) == (2, True, False)


@pytest.mark.parametrize("name", ["Word", "1st", "json", "class", "a b", "ludus"])
def test_names_that_cannot_be_are_refused(ludus: Ludus, tmp_path: Path, name: str) -> None:
    assert ludus("init", name).returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_left_alone(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert ludus("init", "mine").returncode == 2
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_the_next_steps_install_pytest_before_they_run_it(ludus: Ludus, tmp_path: Path) -> None:
    steps = ludus("init", "word-play").stdout.partition("Next:")[2]
    assert steps.index('pip install -e ".[dev]"') < steps.index("python -m pytest")
    extras = tomllib.loads((tmp_path / "word-play" / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(requirement.startswith("pytest") for requirement in extras["dev"])


def test_the_wheel_that_the_image_needs_is_named_with_its_source(ludus: Ludus) -> None:
    """These tests run from a checkout, which pip recorded as the source of the installation."""
    said = ludus("init", "word-play").stdout
    assert f"pip wheel --no-deps --wheel-dir wheels {Path(__file__).parents[2]}" in said


def test_what_a_hub_would_show_of_the_templates_is_found_until_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "word-play"
    scaffold(folder, "ada")
    found = leftovers(folder)
    assert {Path(line.partition(":")[0]).name for line in found} == {
        "pyproject.toml", "ludus.toml", "README.md", "word_play.py",
    }  # fmt: skip
    assert len(found) == sum(map(len, SHOWN_TEXTS.values()))
    for line in found:
        path, number = line.split(":")[:2]
        lines = Path(path).read_text().splitlines()
        lines[int(number) - 1] = ""
        Path(path).write_text("\n".join(lines))
    assert leftovers(folder) == []


def test_a_file_of_its_own_name_is_read_as_the_card(tmp_path: Path) -> None:
    folder = tmp_path / "word-play"
    scaffold(folder, "ada")
    (folder / "README.md").rename(folder / "CARD.md")
    assert any("CARD.md:" in line for line in leftovers(folder, "CARD.md"))
    assert not any("README.md:" in line for line in leftovers(folder))
