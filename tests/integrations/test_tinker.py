"""tinker-cookbook's own rollouts play the groups of `LudusDatasetBuilder`, and its own functions make data of them."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest

from ludus.protocol.errors import PeerNotUsable

pytestmark = pytest.mark.suite("integrations")


@pytest.mark.timeout(180)
def test_data_of_tinker_cookbook_hold_what_was_sampled_and_unscored_episodes_leave_every_mean(
    server: str,
    doomed: tuple[str, int],
    run_peer: Callable[..., dict[str, Any]],
    record: Callable[..., None],
) -> None:
    sums = {"url": server, "environment": "sums", "n": 2, "batch_size": 2, "group_size": 4}
    one = {**sums, "n": 1}
    dead = {**one, "url": doomed[0]}
    batches = {
        "sums": {"dataset": sums},
        "spawned": {"dataset": sums, "spawned": True},
        "breaking": {"dataset": {**sums, "n": 3, "batch_size": 3, "environment": "every_third_breaks"}},
        "cut": {"dataset": one, "max_tokens": 40},
        "turns": {"dataset": {**one, "max_turns": 1}},
        "long": {"dataset": {**one, "max_trajectory_tokens": 100}},
        "retried": {"dataset": one, "fails": 2, "retry": True},
        "failed": {"dataset": one, "fails": 2},
        "empty": {"dataset": {**one, "batch_size": 0}},
        "misnamed": {"dataset": {**one, "split": "trian"}},
        "killed": {"dataset": {**dead, "n": 3, "batch_size": 3}, "kill": doomed[1]},
    }
    dataset = {**sums, "n": 3, "epochs": 2, "test_split": "test", "test_n": 2}
    script = {**one, "split": "train", "n": 2, "test_split": "test"}
    given = {"batches": batches, "dataset": dataset, "script": script}
    report = run_peer("learners", "tinker_rollouts.py", given, timeout=150)

    for name in ("sums", "spawned", "breaking", "retried", "script"):
        for row in report[name]["rows"]:
            assert len(row["lengths"]) == 1, row
            assert row["sampled"] > 0
            if not row["unscored"]:
                assert row["logprobs_exact"], row
                if name != "spawned":
                    assert row["exact"], row
                    assert row["answers"] == 2  # of two calls in one message
    for name in ("sums", "spawned", "script"):
        rows = report[name]["rows"]
        assert len(rows) == 8
        assert {row["value"] for row in rows} == {0.0, 1.0}
        assert all(row["metrics"]["ludus/right"] == row["value"] for row in rows)
        assert (report[name]["counted"], report[name]["dropped"]) == (0, 0)

    rows = report["breaking"]["rows"]
    assert report["breaking"]["counted"] == sum(row["unscored"] for row in rows) == 4
    check_groups(rows)
    healthy = [row["value"] for row in rows if row["learned"]]
    assert fmean(healthy) == fmean(row["value"] for row in rows if not row["unscored"])

    for row in report["cut"]["rows"]:  # in its first call: truncated, and worth what it has earned
        assert (row["learned"], row["value"], row["unscored"], row["stop"]) == (40, 0.0, 0.0, "max_tokens")
    for row in report["turns"]["rows"]:
        assert (row["turns"], row["value"], row["unscored"], row["stop"]) == (1, 0.0, 0.0, "max_turns")
    assert "ValueError: the prompt of task sum-" in report["long"]["error"]
    assert [(row["unscored"], row["errors"]) for row in report["retried"]["rows"]] == [(0.0, 1)] * 4
    assert "InvalidParams: batch_size is 0" in report["empty"]["error"]
    assert "SplitNotFound: environment 'sums' has no split 'trian'" in report["misnamed"]["error"]
    assert report["failed"]["error"] == "ConnectionError: the sampler failed"

    rows = report["killed"]["rows"]
    (unscored,) = [row for row in rows if row["unscored"]]
    assert "infrastructure failure" in unscored["why"]
    assert (len(rows), unscored["sampled"] > 0) == (4, True)
    check_groups(rows)
    assert report["killed"]["dropped"] == 2, "no episode of the other groups could start"
    assert report["killed"]["counted"] == 1 + 2 * 4

    assert report["script"]["clamped"] is False
    check_dataset(report["dataset"])
    record(
        "tinker",
        "tinker-cookbook",
        version="0.6.1",
        ran="60 episodes through its rollouts, some in a spawned process, to `assemble_training_data`; scripted tokens",
        unscored="masked, value of its scored siblings; a group without a scored episode is dropped",
        traps="its message wrapper replaces what was earned by -1.0 (parse error) and -0.1 (overflow); it counts a "
        "dropped group of a test set as 0",
    )


def check_groups(rows: list[dict[str, Any]]) -> None:
    """Check that unscored episodes have no tokens to learn from and do not change the advantages of their group."""
    for number in {row["group"] for row in rows}:
        group = [row for row in rows if row["group"] == number]
        mean = fmean(row["value"] for row in group if not row["unscored"])
        for row in group:
            assert row["advantage"] == pytest.approx(row["value"] - mean, abs=1e-6)
            if row["unscored"]:
                assert row.get("learned", 0) == 0
                assert row["value"] == pytest.approx(mean)


def check_dataset(found: dict[str, Any]) -> None:
    """Check three tasks in batches of two, played twice."""
    assert [len(batch) for batch in found["tasks"]] == [2, 1, 2, 1]
    first, second = (sorted(found["tasks"][at] + found["tasks"][at + 1]) for at in (0, 2))
    assert first == second == ["sum-0", "sum-1", "sum-2"]
    assert len({seed for batch in found["seeds"] for seed in batch}) == 6
    assert found["again"] == found["seeds"][0]
    assert found["test"] == [1, 1]
    assert found["copies"], "a builder pickles while its episodes are open"
    assert found["tags"] == ["sums"]
    assert found["groups"] == [1, 4], "one group at first; single episodes after a failure"


def test_a_missing_tinker_cookbook_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(PeerNotUsable, match=r"pip install 'tinker-cookbook==0\.6\.\*'"):
        importlib.import_module("ludus.integrations.tinker")


def test_another_tinker_cookbook_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.integrations.peers.version", lambda _: "0.7.0")
    with pytest.raises(PeerNotUsable, match=r"tinker-cookbook 0\.7\.0 is installed"):
        importlib.import_module("ludus.integrations.tinker")
