"""Trajectories survive the file, crashes included, and their summary separates failures from rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.client import TrajectoryWriter, read_trajectories, summarize
from ludus.client.summary import mean_interval, t95, wilson
from ludus.protocol import EndReason, EpisodeStatus, Reward, TaskRow
from ludus.protocol.errors import ParseError
from ludus.protocol.items import text_message, to_json
from ludus.protocol.trajectory import Failure, Trajectory, TurnRecord, Usage, latest


def trajectory(task: str = "t", value: float | None = 1.0, sample: int = 0, **more: Any) -> Trajectory:
    fields: dict[str, Any] = {
        "environment": "e",
        "split": "train",
        "task": TaskRow(id=task, split="train", index=0, fields={"question": "ü\u2028"}),
        "sample": sample,
        "policy": "p",
        "status": EpisodeStatus.COMPLETED,
        "end_reason": EndReason.COMPLETED,
        "reward": None if value is None else Reward.of(value, {"part": value / 2}),
        "items": tuple(to_json([text_message("user", "ü\u2028\n")])),
        "started_at": 100.0,
        "seconds": 2.0,
    }
    return Trajectory(**{**fields, **more})


FAILED = Failure(kind="infrastructure", error="ConnectionFailed", message="gone", attempt=1)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.jsonl"
    written = [trajectory("a"), trajectory("b", None, failure=FAILED)]
    with TrajectoryWriter(path) as writer:
        for one in written:
            writer.write(one)
    assert list(read_trajectories(path)) == written
    assert all(json.loads(line)["format"] == "ludus.trajectory/0.1" for line in path.read_text().split("\n") if line)


def test_each_line_is_on_disk_before_write_returns(tmp_path: Path) -> None:
    writer = TrajectoryWriter(tmp_path / "t.jsonl")
    writer.write(trajectory())
    assert len(list(read_trajectories(tmp_path / "t.jsonl"))) == 1
    writer.close()


def test_an_existing_file_is_never_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    TrajectoryWriter(path).close()
    with TrajectoryWriter(path) as writer:
        writer.write(trajectory())
    with pytest.raises(FileExistsError, match="resume"):
        TrajectoryWriter(path)
    with TrajectoryWriter(path, overwrite=True):
        assert path.read_bytes() == b""


@pytest.mark.parametrize("torn", [b"", b'{"format": "ludus.traj', b"x" * 200_000])
def test_resuming_after_a_crash_keeps_whole_lines_and_tries_failures_again(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path) as writer:
        writer.write(trajectory("a"))
        writer.write(trajectory("b", None, failure=FAILED))
    with path.open("ab") as file:
        file.write(torn)
    with TrajectoryWriter(path, resume=True) as writer:
        assert writer.done == {("e", "train", "a", 0)}
        writer.write(trajectory("b", 0.5))
    found = latest(read_trajectories(path))
    assert [(t.task.id, t.value) for t in found] == [("a", 1.0), ("b", 0.5)]


def test_a_line_that_is_no_trajectory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path) as writer:
        writer.write(trajectory())
    with path.open("a") as file:
        file.write('{"format": "other"}\n')
    with pytest.raises(ParseError, match="line 2"):
        list(read_trajectories(path))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "environment: it is missing"),
        (json.dumps(["x" * 10_000]), "is not a table of fields"),
        ("{", "the line: "),
    ],
)
def test_a_bad_line_is_described_in_plain_words_of_bounded_length(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(ParseError) as refused:
        list(read_trajectories(path))
    said = refused.value.message.removeprefix(str(path))
    assert said.startswith(", line 1: not a trajectory: ")
    assert words in said
    assert len(said) < 400


@pytest.mark.requirement("REW-4")
def test_failures_and_unscored_rewards_stay_out_of_every_mean() -> None:
    unscored = trajectory("d", None, reward=Reward.unscored("the judge was silent"))
    summary = summarize([trajectory("a", 1.0), trajectory("b", 0.0), trajectory("c", None, failure=FAILED), unscored])
    assert (summary.episodes, summary.scored, summary.unscored) == (4, 2, 1)
    assert summary.mean == 0.5
    assert summary.failed == {"infrastructure": 1}
    assert summary.success == 0.5
    part = summary.components["part"]
    assert (part.mean, part.count, part.weight) == (0.25, 2, 1.0)
    assert summary.end_reasons == {"completed": 3, "infrastructure failure": 1}


def test_nothing_scored_has_no_mean() -> None:
    summary = summarize([trajectory("c", None, failure=FAILED)])
    assert (summary.mean, summary.interval, summary.success) == (None, None, None)
    assert summarize([]).episodes == 0


def test_with_one_episode_per_task_the_interval_is_students() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    interval = mean_interval([trajectory(str(v), v) for v in values])
    # mean 2.5, s = 1.290994, s / sqrt(4) = 0.645497, t(3) = 3.182446
    assert interval == pytest.approx((2.5 - 2.0543, 2.5 + 2.0543), abs=1e-3)


def test_repeating_an_episode_of_a_task_makes_no_interval_narrower() -> None:
    once = mean_interval([trajectory(str(i), v) for i, v in enumerate((0.0, 1.0, 1.0))])
    four_times = mean_interval([trajectory(str(i), v, s) for i, v in enumerate((0.0, 1.0, 1.0)) for s in range(4)])
    assert once is not None
    assert four_times == pytest.approx(once)
    assert mean_interval([trajectory("only", 1.0, s) for s in range(5)]) is None


def test_quantiles_and_proportions_match_tables() -> None:
    assert t95(1) == 12.706
    assert t95(40) == pytest.approx(2.0211, abs=1e-4)
    assert t95(10**6) == pytest.approx(1.95996, abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_usage_adds_up_over_turns() -> None:
    turn = TurnRecord(items=1, policy_seconds=0.1, environment_seconds=0.1, usage=Usage(requests=1, input_tokens=3))
    found = trajectory(turns=(turn, turn))
    assert found.usage == Usage(requests=2, input_tokens=6)
    assert trajectory().usage is None
