"""OpenRLHF's own rollout actor plays with `LudusAgentExecutor`, on data that `ludus export` wrote."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from adapter_rows import check_groups, exported, exported_parquet, with_scored_siblings
from peer_clients import ROOT

from ludus.protocol.errors import PeerNotUsable

SNIPPETS = ROOT / "docs" / "snippets"
RUN = (SNIPPETS / "openrlhf_run.sh").read_text(encoding="utf-8")

pytestmark = pytest.mark.suite("integrations")


@pytest.mark.timeout(180)
def test_samples_of_openrlhf_hold_what_was_sampled_and_unscored_episodes_leave_every_mean(
    server: str,
    doomed: tuple[str, int],
    tmp_path: Path,
    package: Path,
    run_peer: Callable[..., dict[str, Any]],
    record: Callable[..., None],
) -> None:
    sums = exported("openrlhf", server, "sums", tmp_path / "sums.jsonl")
    breaking = exported_parquet(
        "learners", "openrlhf", server, "every_third_breaks", tmp_path / "breaking.parquet", package
    )
    killed = exported("openrlhf", doomed[0], "sums", tmp_path / "killed.jsonl")
    command = RUN.partition("train_ppo_ray \\\n")[2].replace("\\\n", " ").split()
    assert len(command) > 40
    batches = {
        "sums": {"data": sums, "groups": 2, "samples": 4},
        "breaking": {"data": breaking, "groups": 3, "samples": 4},
        "short": {"data": sums, "groups": 1, "samples": 2, "max_new_tokens": 40},
        "long": {"data": sums, "groups": 1, "samples": 2, "max_len": 100},
        "unlabeled": {"data": sums, "groups": 1, "samples": 2, "label_key": None},
        "killed": {"data": killed, "groups": 3, "samples": 4, "kill": doomed[1]},
        "gone": {"data": killed, "groups": 1, "samples": 4},
    }
    agent = str(SNIPPETS / "openrlhf_agent.py")
    report = run_peer("learners", "openrlhf_samples.py", {"agent": agent, "command": command, "batches": batches})
    assert report["command"] == {"model": "Qwen/Qwen3-1.7B", "agent": "openrlhf_agent.py"}

    for name in ("sums", "breaking", "killed"):
        assert report[name]["finite"]
        for row in report[name]["rows"]:
            assert row["same_length"], row
            assert row["logprobs_exact"], row
            if not row["unscored"]:
                assert row["exact"], row
                assert row["answers"] == 2  # of two calls in one message
                assert not row["truncated"]

    rows = report["sums"]["rows"]
    assert len(rows) == 8
    assert {row["value"] for row in rows} == {0.0, 1.0}
    assert report["sums"]["counted"] == 0

    assert not report["sums"]["finite_without_tokens"]  # why an unscored episode keeps one token

    for row in report["short"]["rows"]:  # cut off in its first call: truncated, and worth what it has earned
        assert (row["learned"], row["value"], row["unscored"], row["truncated"]) == (40, 0.0, 0.0, True)
    assert re.match(r"ValueError: the prompt of task sum-\d has \d+ tokens with its tools", report["long"]["error"])

    assert report["unlabeled"]["error"].startswith("InvalidParams: the label is no address of a task")

    rows = report["breaking"]["rows"]
    assert report["breaking"]["counted"] == sum(row["unscored"] for row in rows) == 4
    check_groups_of_rloo(rows)
    groups = {row["uid"]: [one["value"] for one in rows if one["uid"] == row["uid"]] for row in rows}
    healthy = {
        row["uid"]: [one["value"] for one in rows if one["uid"] == row["uid"] and not one["unscored"]] for row in rows
    }
    assert {uid: fmean(values) for uid, values in groups.items()} == pytest.approx(
        {uid: fmean(values) for uid, values in healthy.items()}
    )

    rows = report["killed"]["rows"]
    unscored = [row for row in rows if row["unscored"]]
    assert report["killed"]["counted"] == len(unscored) > 0
    check_groups_of_rloo(with_scored_siblings(rows))

    for row in report["gone"]["rows"]:  # it never started: a token after the row's own prompt
        assert (row["unscored"], row["learned"], row["same_length"], row["logprobs_exact"]) == (1.0, 1, True, True)
        assert 0 < row["value"] < 1
        assert row["advantage"] == 0

    record(
        "openrlhf",
        "OpenRLHF",
        version="0.11.2",
        ran="38 episodes through its rollout actor, experience maker (RLOO) and loss, scripted tokens",
        unscored="one token with advantage 0, value of its scored siblings",
        traps="an episode without learned tokens makes its KL metric NaN; no hook for the end of a run",
    )


def check_groups_of_rloo(rows: list[dict[str, Any]]) -> None:
    """Check groups with RLOO's advantages, the distance from the mean of the others, scaled to that from the mean."""
    sizes = {row["uid"]: sum(one["uid"] == row["uid"] for one in rows) for row in rows}
    scaled = [{**row, "advantage": row["advantage"] * (sizes[row["uid"]] - 1) / sizes[row["uid"]]} for row in rows]
    check_groups(scaled, learned=1)


def test_a_missing_openrlhf_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(PeerNotUsable, match=r"pip install 'openrlhf==0\.11\.\*'"):
        importlib.import_module("ludus.integrations.openrlhf")
