"""docs/generate.md: its template and its commands work as they are written, and its defaults are the program's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.generation.package import PackageRun
from ludus.generation.task_folder import TasksSettings, load_tasks
from ludus.generation.tasks import Calibration, TaskRun
from ludus.generation.template import Template
from ludus.server import Environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "generate.md").read_text(encoding="utf-8")


def template_of_the_page(folder: Path) -> Path:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    path = folder / "template.toml"
    path.write_text(found[1], encoding="utf-8")
    return path


def test_the_template_of_the_page_can_be_filled(tmp_path: Path) -> None:
    assert Template(template_of_the_page(tmp_path)).path.name == "template.toml"


def test_the_page_states_the_defaults() -> None:
    assert f"(Jaccard, {TaskRun.similarity})" in PAGE
    assert f"`--band` ({Calibration.low},{Calibration.high})" in PAGE
    assert f"`--rounds` ({PackageRun.rounds})" in PAGE


def test_the_page_names_the_hooks_of_environments() -> None:
    named = re.findall(r"^\| `(\w+)(?:\([^`]*\))?` \| ", PAGE.partition("## For your own environment")[2], re.MULTILINE)
    assert len(named) == 6
    assert [name for name in named if not hasattr(Environment, name)] == []


@pytest.mark.suite("generation")
@pytest.mark.timeout(300)
def test_tasks_are_generated_by_the_command_and_served(tmp_path: Path) -> None:
    template = template_of_the_page(tmp_path)
    command = [str(Path(sys.executable).with_name("ludus")), "generate", "tasks", "arithmetic"]
    command += ["--template", str(template), "--count", "3", "--out", "more", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["kept"], report["spending"]["requests"]) == (3, 0)
    served = load_tasks(tmp_path / "more", TasksSettings())
    assert served.splits["train"].count == 3
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert again.returncode == 3
    assert "--resume" in again.stderr
