"""The configurations of `examples/`: they can be read, and those that are measured say how to make the demonstrations
that they were measured with."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from ludus.trainer.core.settings import read_config

ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "examples").glob("train_*.toml"))
UNMEASURED = ("train_company.toml",)


@pytest.fixture(scope="module")
def subjects() -> dict[str, Any]:
    """The runs that `benchmarks/learning.py` measures, by configuration."""
    found = runpy.run_path(str(ROOT / "benchmarks" / "learning.py"))["SUBJECTS"]
    return {one.config: one for one in found.values()}


def test_all_examples_but_that_of_chains_are_measured(subjects: dict[str, Any]) -> None:
    assert sorted([*subjects, *UNMEASURED]) == [path.name for path in CONFIGS]


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_an_example_is_a_configuration_for_held_out_tasks_of_what_is_measured(
    path: Path, subjects: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    games = tmp_path / "games.jsonl"
    games.touch()
    config = read_config(path, [f'--sft.demonstrations=["{games}"]'])
    if path.name not in UNMEASURED:
        assert config.environments[0].name == subjects[path.name].environment
    assert config.environments[0].split == "train"
    assert config.evaluation.split == "validation"
    assert config.rollouts.max_tokens < config.rollouts.context <= config.engine.torch.cache_tokens


@pytest.mark.parametrize("path", [one for one in CONFIGS if one.name not in UNMEASURED], ids=lambda path: path.stem)
def test_an_example_says_how_to_make_the_demonstrations_that_it_is_measured_with(
    path: Path, subjects: dict[str, Any]
) -> None:
    subject, text = subjects[path.name], path.read_text("utf-8")
    out = re.search(r'^demonstrations = \["(\S+)"\]', text, re.MULTILINE)
    assert out is not None
    assert f"#     {' '.join(subject.demonstrations)} --out {out[1]}\n" in text
