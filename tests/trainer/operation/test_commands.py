"""`ludus train` as a process: what it prints, and with which code it exits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ludus.trainer.core.settings import config_toml, read_config

Train = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """`train("run.toml", "--steps=3")` runs the command to its end."""

    def run(*arguments: object, **variables: str) -> CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LUDUS_")}
        return subprocess.run(
            [Path(sys.executable).with_name("ludus"), "train", *map(str, arguments)],
            env={**clean, "NO_COLOR": "1", "TERM": "dumb", **variables},
            cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip

    return run


def test_the_defaults_are_printed_as_a_file_that_can_be_used(train: Train, tmp_path: Path) -> None:
    done = train("--print-config")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == config_toml()
    (tmp_path / "run.toml").write_text(done.stdout)
    assert train("run.toml", "--print-config").stdout == done.stdout


def test_values_come_in_any_place_among_the_arguments(train: Train, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(config_toml())
    done = train("--steps=3", "run.toml", "--print-config", "--loss.kl=k2")
    assert done.returncode == 0
    (tmp_path / "printed.toml").write_text(done.stdout)
    config = read_config(tmp_path / "printed.toml")
    assert (config.steps, config.loss.kl) == (3, "k2")


def test_printing_needs_no_torch(train: Train, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    assert train("--print-config", PYTHONPATH=str(tmp_path)).returncode == 0


def test_a_project_file_is_no_suggestion_for_a_configuration(train: Train, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert train("project.toml").stderr.strip() == "ludus: there is no configuration file project.toml"


@pytest.mark.suite("training", first=2)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which configuration file? `ludus train --print-config` prints one"),
        (("none.toml",), "there is no configuration file none.toml"),
        (("rum.toml",), "there is no configuration file rum.toml; did you mean run.toml?"),
        (("run.toml", "--setps=3"), "unknown key setps; did you mean steps?"),
        (("run.toml", "--steps", "3"), "one configuration file is enough, not 'run.toml', '3'"),
        (("run.toml", "--output=\x1b[31m", "--x=3"), "unknown key x"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    train: Train, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "run.toml").write_text(config_toml())
    done = train(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("ludus: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


def test_of_several_ranks_only_the_first_reports_a_mistake(train: Train) -> None:
    done = train("none.toml", RANK="1")
    assert (done.returncode, done.stderr) == (2, "")


def test_a_traceback_is_shown_when_asked_for(train: Train) -> None:
    assert "Traceback" in train("none.toml", LUDUS_DEBUG="1").stderr


def test_help_shows_how_values_are_written(train: Train) -> None:
    done = train("--help")
    assert done.returncode == 0
    assert "--rollouts.group_size=4" in done.stdout
