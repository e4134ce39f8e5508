"""verl's own worker of agent loops plays with `LudusAgentLoop`, on data that `ludus export` wrote."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from adapter_rows import check_groups, exported, exported_parquet, with_scored_siblings
from peer_clients import ROOT

from ludus.client import EpisodeOutcome
from ludus.client.driver import failure_of
from ludus.integrations.siblings import Siblings
from ludus.protocol.errors import InfrastructureFailed, PeerNotUsable

SNIPPETS = ROOT / "docs" / "snippets"
AGENT = (SNIPPETS / "verl_agent.yaml").read_text(encoding="utf-8")
RUN = (SNIPPETS / "verl_run.sh").read_text(encoding="utf-8")

pytestmark = pytest.mark.suite("integrations")


@pytest.mark.timeout(180)
def test_batches_of_verl_hold_what_was_sampled_and_unscored_episodes_leave_every_mean(
    server: str,
    doomed: tuple[str, int],
    tmp_path: Path,
    package: Path,
    run_peer: Callable[..., dict[str, Any]],
    record: Callable[..., None],
) -> None:
    sums = exported("verl", server, "sums", tmp_path / "sums.jsonl")
    breaking = exported_parquet(
        "learners", "verl", server, "every_third_breaks", tmp_path / "breaking.parquet", package
    )
    killed = exported("verl", doomed[0], "sums", tmp_path / "killed.jsonl")
    settings = re.findall(r"^ +(\S+?=\S+)", RUN, re.MULTILINE)
    assert len(settings) > 20
    batches = {
        "sums": {"data": sums, "groups": 2, "samples": 4},
        "breaking": {"data": breaking, "groups": 3, "samples": 4},
        "short": {"data": sums, "groups": 1, "samples": 2, "rollout": {"response_length": 40}},
        "long": {"data": sums, "groups": 1, "samples": 1, "rollout": {"prompt_length": 100}},
        "killed": {"data": killed, "groups": 3, "samples": 4, "kill": doomed[1]},
    }
    report = run_peer("learners", "verl_rollouts.py", {"agent": AGENT, "command": settings, "batches": batches})

    for name in ("sums", "breaking"):
        for row in report[name]["rows"]:
            assert row["same_length"], row
            assert row["sampled"] > 0
            if not row["unscored"]:
                assert row["exact"], row
                assert row["answers"] == 2  # of two calls in one message
                assert row["logprobs_exact"], row
                assert row["steps"] == 3

    rows = report["sums"]["rows"]
    assert len(rows) == 8
    assert {row["value"] for row in rows} == {0.0, 1.0}
    assert report["sums"]["counted"] == 0

    for row in report["short"]["rows"]:  # cut off in its first call: truncated, and worth what it has earned
        assert (row["learned"], row["sampled"], row["value"], row["unscored"]) == (40, 40, 0.0, 0.0)
    assert "ValueError: the prompt of task sum-0 has" in report["long"]["error"]

    rows = report["breaking"]["rows"]
    assert report["breaking"]["counted"] == sum(row["unscored"] for row in rows) == 4
    check_groups(rows)
    healthy = [row["value"] for row in rows if row["learned"]]
    assert fmean(healthy) == fmean(row["value"] for row in rows if not row["unscored"])

    rows = report["killed"]["rows"]
    unscored = [row for row in rows if row["unscored"]]
    assert report["killed"]["counted"] == len(unscored) > 0
    assert all("infrastructure failure" in row["why"] for row in unscored)
    check_groups(with_scored_siblings(rows))

    record(
        "verl",
        "verl",
        version="0.9.0",
        ran="32 episodes through `AgentLoopWorker.generate_sequences` and its GRPO advantages, scripted tokens",
        unscored="loss mask 0, value of its scored siblings",
        traps="one missing reward drops the rewards of the whole batch; the length filter does not see the tools",
    )


def test_an_unscored_episode_gets_the_mean_of_its_scored_siblings_and_never_a_made_up_number() -> None:
    async def values(*given: float | None) -> list[float | BaseException]:
        siblings = Siblings()

        async def play(value: float | None) -> float:
            with siblings.join("group") as sibling:
                return await sibling.value(outcome(value))

        return await asyncio.gather(*map(play, given), return_exceptions=True)

    assert asyncio.run(values(None, 1.0, 0.5, None)) == [0.75, 1.0, 0.5, 0.75]
    (alone,) = asyncio.run(values(None))
    assert isinstance(alone, InfrastructureFailed)


def test_without_siblings_the_mean_of_earlier_episodes_is_the_value() -> None:
    async def go() -> float:
        siblings = Siblings()
        for value in (1.0, 0.0):
            with siblings.join(value) as sibling:
                await sibling.value(outcome(value))
        with siblings.join("alone") as sibling:
            return await sibling.value(outcome(None))

    assert asyncio.run(go()) == 0.5


def outcome(value: float | None) -> EpisodeOutcome:
    failure = None if value is not None else failure_of(InfrastructureFailed("the sandbox died"))
    return EpisodeOutcome(value, "", {}, end_reason=None, stopped=None, failure=failure)


def test_a_missing_verl_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(PeerNotUsable, match=r"pip install 'verl==0\.9\.\*'"):
        importlib.import_module("ludus.integrations.verl")
