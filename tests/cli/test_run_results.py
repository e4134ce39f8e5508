"""The tables of `ludus run`: results by difficulty, and the episodes with the lowest rewards."""

from __future__ import annotations

from ludus.cli.run_tables import WORST, results_of
from ludus.protocol.episodes import TaskRow
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Failure, Trajectory


def played(index: int, reward: float | None, *, sample: int = 0, **fields: object) -> Trajectory:
    task = TaskRow(id=f"task-{index}", split="train", index=index, fields=fields)
    failure = None if reward is not None else Failure(kind="environment", error="E", message="broke", attempt=1)
    return Trajectory(
        environment="e", split="train", task=task, sample=sample, policy="p", started_at=0.0, seconds=1.0,
        reward=None if reward is None else Reward.of(reward), end_reason=EndReason.COMPLETED, failure=failure,
    )  # fmt: skip


def test_results_are_grouped_by_the_tasks_difficulty_in_its_order() -> None:
    recorded = [
        played(3, 0.0, level=2), played(0, 1.0, level=1), played(1, None, level=1), played(2, 0.5, level=2),
        played(4, 0.0, level=10),
    ]  # fmt: skip
    results = results_of("e", "train", recorded, 1.0, (0.0, 1.0))
    assert results.by == "level"
    found = [(one.name, one.tasks, one.summary.scored, one.summary.mean) for one in results.levels]
    assert found == [("1", 2, 1, 1.0), ("2", 2, 2, 0.25), ("10", 1, 1, 0.0)]
    assert results.as_json()["difficulty"]["levels"][1] == {
        "level": "2", "tasks": 2, "episodes": 2, "scored": 2, "mean": 0.25, "success": 0.0,
    }  # fmt: skip


def test_tasks_without_a_difficulty_are_not_grouped() -> None:
    results = results_of("e", "train", [played(0, 1.0), played(1, 0.0)], 1.0, None)
    assert (results.by, results.levels, results.as_json()["difficulty"]) == (None, (), None)


def test_the_worst_episodes_are_scored_unsuccessful_and_named_with_their_lines() -> None:
    recorded = [played(0, 1.0), played(1, 0.5), played(2, None), played(3, -1.0, sample=1), played(1, 0.25)]
    worst = results_of("e", "train", recorded, 1.0, None).worst
    assert [(one.task, one.sample, one.reward, one.end, one.line) for one in worst] == [
        ("task-3", 1, -1.0, "completed", 4), ("task-1", 0, 0.25, "completed", 5),
    ]  # fmt: skip
    many = [played(index, 0.0) for index in range(3 * WORST)]
    assert len(results_of("e", "train", many, 1.0, None).worst) == WORST
