"""docs/train-your-own.md: its commands run as they are written, with a smaller budget, and the full run learns."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "train-your-own.md"
SMALL = ["--steps=1", "--sft.steps=3", "--rollouts.groups=2", "--rollouts.group_size=2", "--evaluation.tasks=2"]


def follow(folder: Path, *more: str, timeout: float) -> str:
    """Run the page's commands in a folder, with further values for `ludus train`; return what they print."""
    shutil.copy(ROOT / "docs" / "snippets" / "largest.py", folder)
    commands = re.findall(r"^ludus .+$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [shlex.split(command)[1] for command in commands] == ["demos", "train", "view"]
    printed = ""
    for command in commands:
        words = shlex.split(command)
        words += more if words[1] == "train" else ()
        done = subprocess.run(
            [Path(sys.executable).with_name("ludus"), *words[1:]],
            cwd=folder, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        printed += done.stdout + done.stderr
    return printed


@pytest.mark.suite("training")
@pytest.mark.timeout(240)
def test_the_commands_work_as_they_are_written(tmp_path: Path) -> None:
    printed = follow(tmp_path, *SMALL, timeout=200)
    assert "games.jsonl: 500 of 500 episodes kept, 500 with a reward above 0" in printed
    assert "warm-up: 3 batches of 500 episodes" in printed
    run = tmp_path / "runs" / "largest"
    assert "tiny-model on largest, GRPO" in (run / "report.html").read_text(encoding="utf-8")
    assert (run / "tiny-model" / "tokenizer.json").exists()
    weights = (run / "tiny-model" / "model.safetensors").stat().st_size / 4
    assert 450_000 < weights < 600_000, "the page says half a million"
    assert (run / "model" / "model.safetensors").exists()
    assert "largest · " in (tmp_path / "episodes.html").read_text(encoding="utf-8")


@pytest.mark.suite("training")
@pytest.mark.timeout(900)
def test_the_run_on_the_page_learns_more_than_its_demonstrations_taught(tmp_path: Path) -> None:
    follow(tmp_path, timeout=800)
    lines = (tmp_path / "runs" / "largest" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    held_out = [record["evaluation/largest/mean"] for line in lines
                if "evaluation/largest/mean" in (record := json.loads(line))]  # fmt: skip
    assert held_out[-1] > held_out[0] + 0.15
    assert held_out[-1] > 0.6
