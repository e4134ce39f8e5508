"""lighteval, unchanged, makes Inspect tasks of rows that `ludus export` wrote, which our solver and scorer play."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from terminal import run_ludus

pytestmark = pytest.mark.suite("integrations")


def exported(url: str, environment: str, n: int, folder: Path) -> str:
    """Write rows into a folder as lighteval reads them, and return the folder's path."""
    folder.mkdir()
    out = folder / "test.jsonl"
    done = run_ludus("export", url, environment, "--split", "train", "--out", out, "-n", n, cwd=folder)
    assert done.returncode == 0, done.stderr
    return str(folder)


@pytest.mark.timeout(180)
def test_tasks_of_lighteval_play_episodes_and_leave_unscored_ones_out_of_the_mean(
    server: str,
    endpoint: str,
    tmp_path: Path,
    run_peer: Callable[..., dict[str, Any]],
    record: Callable[..., None],
) -> None:
    runs = {
        "sums": (exported(server, "sums", 6, tmp_path / "sums"), "solver"),
        "breaking": (exported(server, "every_third_breaks", 8, tmp_path / "breaking"), "mixed"),
    }
    report = run_peer("lighteval", "lighteval_eval.py", {"base_url": endpoint, "runs": runs}, timeout=150)

    solved = report["sums"]
    assert (solved["finished"], solved["status"], solved["task"]) == (True, "success", "sums")
    assert sorted(solved["episodes"]) == [[f"sum-{index}", epoch] for index in range(6) for epoch in (1, 2)]
    assert solved["values"] == [1.0] * 12
    assert solved["tools"] == [["add", "submit"]] * 12
    assert solved["counted"] == 0

    breaking = report["breaking"]
    played = list(zip(breaking["episodes"], breaking["values"], strict=True))
    epochs = [
        [value for (task, _), value in played if task == f"sum-{index}" and value is not None] for index in range(8)
    ]
    means = [fmean(values) for values in epochs if values]
    assert (sum(map(len, epochs)), breaking["counted"]) == (10, 6)
    assert breaking["reasons"] == ["environment_failure"]
    assert any(len(values) == 1 for values in epochs), "an episode of a task is scored, and another one is not"
    assert breaking["mean"] == pytest.approx(fmean(means))
    assert 0 < breaking["mean"] < 1

    assert report["cached"] == 6, "it reads a folder once"
    assert report["ignores_custom_tasks"]
    record(
        "lighteval",
        "lighteval",
        version="0.13.0",
        ran="28 episodes with 2 epochs: its `get_inspect_ai_task` on exported rows, played by Inspect AI 0.3.285",
        unscored="`Score.unscored()`, which the mean of a task's epochs and the mean of the tasks leave out",
        traps="`lighteval eval` ignores `--custom-tasks`; a folder of rows is read once and then cached",
    )
