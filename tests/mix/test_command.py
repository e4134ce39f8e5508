"""`ludus mix check` and `ludus train --mix`: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from terminal import run_ludus_here

from ludus.client.mix import read_mix

ROOT = Path(__file__).parents[2]
SAYING = ROOT / "tests" / "support" / "saying.py"
MIX = f"""
serve = ["{SAYING}:Saying"]

[policy]
kind = "stages"

[[sources]]
environment = "saying"
label = "easy"

[[sources]]
environment = "saying"
label = "hard"
split = "hard"
stage = 2
"""


@pytest.fixture
def mix(tmp_path: Path) -> Path:
    path = tmp_path / "mix.toml"
    path.write_text(MIX)
    return path


def test_a_mix_is_resolved_on_its_servers_and_its_schedule_is_shown(mix: Path, tmp_path: Path) -> None:
    done = run_ludus_here("mix", "check", mix, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "policy: stages" in done.stdout
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in done.stdout.split("\n")]
    assert ["easy", "saying", "train", "40", "1", "1", "100.0%"] in rows
    assert ["hard", "saying", "hard", "10", "1", "2", "0.0%"] in rows


def test_the_schedule_as_json_moves_from_stage_to_stage(mix: Path, tmp_path: Path) -> None:
    done = run_ludus_here("mix", "check", mix, "--offline", "--json", "--groups", "300", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [source["label"] for source in found["sources"]] == ["easy", "hard"]
    assert "tasks" not in found["sources"][0]
    schedule = found["schedule"]
    assert [schedule[0]["stage"], schedule[-1]["stage"]] == [1, 2]
    assert schedule[0]["shares"] == {"easy": 1.0, "hard": 0.0}
    assert schedule[-1]["shares"] == {"easy": 0.1, "hard": 0.9}
    again = run_ludus_here("mix", "check", mix, "--offline", "--json", "--groups", "300", cwd=tmp_path)
    assert again.stdout == done.stdout


def test_mistakes_are_named_and_have_exit_codes(mix: Path, tmp_path: Path) -> None:
    mix.write_text(MIX.replace('split = "hard"', 'split = "hrad"'))
    wrong = run_ludus_here("mix", "check", mix, cwd=tmp_path)
    assert wrong.returncode == 3
    assert "has no split 'hrad'" in wrong.stderr
    assert run_ludus_here("mix", "check", mix, "--offline", cwd=tmp_path).returncode == 0
    mix.write_text(MIX.replace("stage = 2", "stage = -2"))
    wrong = run_ludus_here("mix", "check", mix, "--offline", cwd=tmp_path)
    assert wrong.returncode == 3
    assert "mix.toml, line 15: sources.1.stage: -2 is too small; the least is 1" in wrong.stderr
    mix.write_text(MIX.replace(MIX.split("\n")[1], 'url = "http://127.0.0.1:9"'))
    assert run_ludus_here("mix", "check", mix, cwd=tmp_path).returncode == 4


def test_ludus_train_takes_its_environments_from_the_mix(mix: Path, tmp_path: Path) -> None:
    done = run_ludus_here("train", "--mix", mix, "--print-config", "--steps=7", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'kind = "stages"' in done.stdout
    assert done.stdout.count('name = "saying"') == 2
    for arguments, what in [
        (("--mix", mix, "--serve", "saying"), "--serve and --mix exclude each other"),
        (("--mix", tmp_path / "none.toml"), "--mix: the mix"),
    ]:
        wrong = run_ludus_here("train", "run.toml", *arguments, cwd=tmp_path)
        assert wrong.returncode == 2
        assert what in wrong.stderr


def test_the_example_is_a_mix(tmp_path: Path) -> None:
    path = ROOT / "examples" / "mix.toml"
    assert [source.name for source in read_mix(path).sources] == ["arithmetic-easy", "guess_number-tiny"]
    assert run_ludus_here("mix", "check", path, cwd=tmp_path).returncode == 0
