"""`ludus demos`: what it keeps, and what it says of demonstrations that nothing can be learned from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import typer
from terminal import run_ludus_here

from ludus.cli import ExitCode
from ludus.cli._playing import interruptible
from ludus.client import read_trajectories

ROOT = Path(__file__).parents[2]


@pytest.fixture
def target(tmp_path: Path) -> str:
    shutil.copy(ROOT / "docs" / "snippets" / "largest.py", tmp_path)
    return f"{tmp_path}/largest.py:Largest"


def test_the_oracle_plays_and_the_next_command_is_shown(target: str, tmp_path: Path) -> None:
    out = tmp_path / "games.jsonl"
    done = run_ludus_here("demos", target, "--out", out, "-n", 6, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 episodes kept, 6 with a reward above 0" in done.stdout
    assert f"ludus train --tiny-from {out} --serve {target}" in done.stdout
    assert [trajectory.value for trajectory in read_trajectories(out)] == [1.0] * 6
    again = run_ludus_here("demos", target, "--out", out, cwd=tmp_path)
    assert "exists; say --overwrite or another --out" in " ".join(again.stderr.replace("│", " ").split())
    assert "--resume" not in again.stderr


@pytest.mark.parametrize("resumable", [True, False])
def test_only_a_command_that_can_resume_says_so_when_it_is_interrupted(
    resumable: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as end, interruptible(Path("games.jsonl"), resumable=resumable):
        raise KeyboardInterrupt
    assert end.value.exit_code == ExitCode.INTERRUPTED
    shown = capsys.readouterr().err
    assert "interrupted: games.jsonl has what was played" in shown
    assert ("--resume" in shown) is resumable


def test_only_episodes_of_enough_reward_are_kept(target: str, tmp_path: Path) -> None:
    policy = tmp_path / "first.py"
    policy.write_text(
        "from ludus.client import Call\n\n\nasync def first(conversation):\n"
        "    return Call('pick', {'number': conversation.task.fields['numbers'][-1]})\n"
    )
    out = tmp_path / "games.jsonl"
    options = ("--out", str(out), "-n", "20", "--policy", f"{policy}:first")
    done = run_ludus_here("demos", target, *options, "--reward", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    values = [trajectory.value for trajectory in read_trajectories(out)]
    assert 0 < len(values) < 20
    assert set(values) == {1.0}
    never = run_ludus_here("demos", target, *options, "--reward", "2", "--overwrite", cwd=tmp_path)
    assert never.returncode == 1
    assert "must sometimes win" in never.stdout
