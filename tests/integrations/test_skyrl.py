"""SkyRL's own experiment and trainer prepare steps with `LudusGenerator`, on data that `ludus export` wrote."""

from __future__ import annotations

import asyncio
import gc
import importlib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from adapter_rows import check_groups, exported, exported_parquet, with_scored_siblings
from peer_clients import ROOT, peer_variables, python_of
from terminal import running_episodes

from ludus.client import ServerAddress
from ludus.client.sync import run_sync
from ludus.integrations.held import HeldEpisode
from ludus.protocol.errors import PeerNotUsable

RUN = (ROOT / "docs" / "snippets" / "skyrl_run.sh").read_text(encoding="utf-8")

pytestmark = pytest.mark.suite("integrations")


@pytest.mark.timeout(180)
def test_steps_of_skyrl_hold_what_was_sampled_and_unscored_episodes_leave_every_mean(
    server: str,
    doomed: tuple[str, int],
    tmp_path: Path,
    package: Path,
    run_peer: Callable[..., dict[str, Any]],
    record: Callable[..., None],
) -> None:
    sums = exported("skyrl", server, "sums", tmp_path / "sums.jsonl")
    breaking = exported_parquet("skyrl", "skyrl", server, "every_third_breaks", tmp_path / "breaking.parquet", package)
    killed = exported("skyrl", doomed[0], "sums", tmp_path / "killed.jsonl")
    settings = [one.replace('"', "") for one in re.findall(r"^ +([\w.]+=\S+)", RUN, re.MULTILINE)]
    assert settings.pop(0) == "trainer.override_entrypoint=ludus.integrations.skyrl_experiment"
    assert len(settings) > 20
    steps = {
        "sums": {"data": sums, "groups": 2, "samples": 4},
        "breaking": {"data": breaking, "groups": 3, "samples": 4},
        "short": {
            "data": sums,
            "groups": 1,
            "samples": 2,
            "more": ["generator.sampling_params.max_generate_length=40"],
        },
        "long": {
            "data": sums,
            "groups": 1,
            "samples": 1,
            "more": ["trainer.max_prompt_length=100", "generator.max_input_length=100"],
        },
        "theirs": {"data": sums, "groups": 2, "samples": 2, "theirs": True},
        "refused": {
            "data": sums,
            "groups": 1,
            "samples": 2,
            "more": ["generator.step_wise_trajectories=true"],
        },
        "theirs_turns": {"data": sums, "groups": 1, "samples": 2, "theirs": True, "more": ["generator.max_turns=1"]},
        "theirs_cut": {
            "data": sums,
            "groups": 1,
            "samples": 2,
            "theirs": True,
            "more": ["trainer.max_prompt_length=100", "generator.max_input_length=800"],
        },
        "theirs_breaking": {"data": breaking, "groups": 2, "samples": 4, "theirs": True},
        "killed": {"data": killed, "groups": 3, "samples": 4, "kill": doomed[1]},
        "gone": {"data": killed, "groups": 1, "samples": 4},
        "theirs_gone": {"data": killed, "groups": 1, "samples": 4, "theirs": True},
    }
    report = run_peer("skyrl", "skyrl_steps.py", {"command": settings, "steps": steps})
    assert report["command"] == {"turns": 8, "model": "Qwen/Qwen3-1.7B"}

    for name in ("sums", "breaking"):
        assert report[name]["sessions"]
        for row in report[name]["rows"]:
            assert row["same_length"], row
            assert row["sampled"] > 0
            if not row["unscored"]:
                assert row["exact"], row
                assert row["answers"] == 2  # of two calls in one message
                assert row["logprobs_exact"], row
                assert row["reason"] == "stop"

    rows = report["sums"]["rows"]
    assert len(rows) == 8
    assert {row["value"] for row in rows} == {0.0, 1.0}
    assert report["sums"]["counted"] == 0

    for row in report["short"]["rows"]:  # cut off in its first call: truncated, and worth what it has earned
        assert (row["learned"], row["sampled"], row["value"], row["unscored"]) == (40, 40, 0.0, 0.0)
        assert row["reason"] == "length"
    assert re.match(r"ValueError: the prompt of task sum-\d has \d+ tokens with its tools", report["long"]["error"])

    assert "Unsupported: the Ludus generator cannot do generator.step_wise" in report["refused"]["error"]

    rows = report["breaking"]["rows"]
    assert report["breaking"]["counted"] == sum(row["unscored"] for row in rows) == 4
    assert report["breaking"]["logged"] == pytest.approx(4 / 12)
    check_groups(rows)
    groups = {row["uid"]: [one["value"] for one in rows if one["uid"] == row["uid"] and one["learned"]] for row in rows}
    assert report["breaking"]["mean"] == pytest.approx(fmean(map(fmean, groups.values())))

    rows = report["theirs"]["rows"]  # SkyRL's own generator, with the environment of skyrl-gym
    assert len(rows) == 4
    assert {row["value"] for row in rows} == {0.0, 1.0}
    for row in rows:
        assert row["same_length"], row
        assert row["answers"] == 2
    for row in report["theirs_turns"]["rows"]:  # one turn, with two calls of a tool
        assert (row["reason"], row["value"], row["answers"]) == ("stop", 0.0, 0)
    for row in report["theirs_cut"]["rows"]:  # SkyRL stops after the first turn and does not ask the environment
        assert (row["reason"], row["value"]) == ("length", 0.0)
    # An environment of skyrl-gym cannot mask: the failure ends the step, and is not counted as a reward.
    assert "EnvironmentFailed" in report["theirs_breaking"]["error"]
    assert report["theirs_breaking"]["counted"] > 0

    rows = report["killed"]["rows"]
    unscored = [row for row in rows if row["unscored"]]
    assert report["killed"]["counted"] == len(unscored) > 0
    check_groups(with_scored_siblings(rows))
    for row in report["gone"]["rows"]:  # it never started
        assert (row["unscored"], row["learned"], row["same_length"]) == (1.0, 0, True)
        assert 0 < row["value"] < 1
    assert "ConnectionFailed" in report["theirs_gone"]["error"]
    assert report["theirs_gone"]["counted"] > 0

    record(
        "skyrl",
        "SkyRL",
        version="0.4.0",
        ran="46 episodes through its trainer's `generate`, batches and GRPO advantages, scripted tokens",
        unscored="loss mask 0, value of its scored siblings; the environment for its own generators raises",
        traps="an exception of one environment ends the step and closes no other; its chat templates get no tools",
    )


def test_the_example_of_skyrl_gym_on_the_page_runs(server: str, package: Path) -> None:
    program = (ROOT / "docs" / "snippets" / "skyrl_gym_episode.py").read_text(encoding="utf-8")
    done = subprocess.run(
        [python_of("skyrl"), "-c", program.replace("http://127.0.0.1:8000", server)],
        capture_output=True,
        text=True,
        check=False,
        env={**peer_variables(), "PYTHONPATH": str(package)},
    )
    assert done.stdout == "1.0 True\n", done.stderr


def test_an_episode_that_was_forgotten_is_closed(server: str) -> None:
    held = HeldEpisode(ServerAddress(server).task("sums", "train", "sum-0"), "hermes")
    task = held._block._task
    assert task is not None
    assert running_episodes(server) == 1
    del held
    gc.collect()
    run_sync(asyncio.wait_for(task, 10))
    assert running_episodes(server) == 0


@pytest.mark.parametrize(("module", "distribution"), [("skyrl", "skyrl"), ("skyrl_gym", "skyrl-gym")])
def test_a_missing_skyrl_is_named_with_the_command_that_installs_it(module: str, distribution: str) -> None:
    with pytest.raises(PeerNotUsable, match=rf"pip install '{distribution}==0\.4\.\*'"):
        importlib.import_module(f"ludus.integrations.{module}")
