"""Inspect AI, unchanged, evaluates environments through its own provider for OpenAI-compatible endpoints."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT, python_of
from terminal import running_episodes, serving

pytestmark = pytest.mark.suite("integrations")

SUPPORT = ROOT / "tests" / "support"

RunPeer = Callable[..., dict[str, Any]]


@pytest.fixture
def limits_server() -> Iterator[str]:
    """The address of a server with environments for limits, without open episodes afterwards."""
    with serving(f"{SUPPORT}/adapter_limits.py:PayingSums", f"{SUPPORT}/adapter_limits.py:HangingSums") as url:
        yield url
        assert running_episodes(url) == 0, "episodes are still open"


@pytest.mark.timeout(150)
def test_eval_scores_epochs_and_leaves_unscored_episodes_out_of_the_mean(
    server: str, endpoint: str, run_peer: RunPeer, record: Callable[..., None]
) -> None:
    runs = [
        {"environment": "sums", "n": 8, "options": {"epochs": 2}},
        {"environment": "every_third_breaks", "n": 9, "model": "mixed"},
        {"environment": "sums", "n": 2, "model": "broken", "options": {"max_retries": 0}},
    ]
    found = run_peer("agents", "inspect_eval.py", {"url": server, "base_url": endpoint, "runs": runs})
    solved, breaking, broken = found["runs"]
    assert [sample["value"] for sample in solved["samples"]] == [1.0] * 16
    assert {sample["epoch"] for sample in solved["samples"]} == {1, 2}
    for sample in solved["samples"]:
        assert sample["roles"] == ["user", "assistant", "tool", "assistant", "tool"]
        assert [name for name, _ in sample["tool_events"]] == ["add", "submit"]
        assert sample["model_events"] == 2
        assert sample["score"]["metadata"]["components"] == {"right": 1.0}
        assert sample["metadata"]["ludus"]["task"] == sample["id"]
    healthy = [sample["value"] for sample in breaking["samples"] if sample["value"] is not None]
    assert breaking["counts"] == [[6, 3]]
    assert breaking["counted"] == 3
    assert breaking["metrics"]["mean"] == pytest.approx(sum(healthy) / 6)
    assert 0 < sum(healthy) < 6
    unscored = [sample for sample in breaking["samples"] if sample["value"] is None]
    assert {sample["score"]["reason"] for sample in unscored} == {"environment_failure"}
    assert [sample["scored"] for sample in broken["samples"]] == [False, False]
    assert all(sample["error"] for sample in broken["samples"])
    assert broken["metrics"] == {}
    record(
        "inspect",
        "Inspect AI",
        version="0.3.285",
        ran="`inspect_ai.eval` over 8 tasks with 2 epochs, and 9 tasks of which 3 break",
        unscored="`Score.unscored()`, which its metrics leave out",
        traps="an error of the model endpoint is a sample error; set `max_retries`",
    )


@pytest.mark.timeout(150)
def test_limits_of_inspect_truncate_the_episode_which_keeps_what_it_earned(
    limits_server: str, endpoint: str, run_peer: RunPeer
) -> None:
    runs = [
        {"environment": "paying_sums", "n": 3, "options": {"message_limit": 3}},
        {"environment": "paying_sums", "n": 3, "options": {"token_limit": 30}},
        {"environment": "hanging_sums", "n": 3, "options": {"time_limit": 3}},
    ]
    found = run_peer("agents", "inspect_eval.py", {"url": limits_server, "base_url": endpoint, "runs": runs})
    for run, limit, stopped, value in zip(
        found["runs"], ("message", "token", "time"), ("turn_limit", "context_limit", "time_limit"), (0.25, 0.25, 0.0),
        strict=True,
    ):  # fmt: skip
        assert [(sample["limit"], sample["value"]) for sample in run["samples"]] == [(limit, value)] * 3
        assert {sample["score"]["metadata"]["stopped"] for sample in run["samples"]} == {stopped}


@pytest.mark.timeout(120)
def test_the_inspect_command_finds_the_task_by_its_entry_point(
    server: str, endpoint: str, package: Path, tmp_path: Path
) -> None:
    command = [str(Path(python_of("agents")).with_name("inspect")), "eval", "ludus/environment"]
    options = ["--model", "openai-api/fixture/talker", "-T", f"url={server}", "-T", "environment=sums", "-T", "n=8"]
    variables = {"FIXTURE_API_KEY": "none", "FIXTURE_BASE_URL": endpoint, "PYTHONPATH": str(package)}
    done = subprocess.run(
        [*command, *options, "--log-dir", str(tmp_path), "--log-format", "json", "--display", "plain"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    (log,) = [json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.json")]
    assert log["status"] == "success"
    assert log["results"]["scores"][0]["scored_samples"] == 8
    assert log["results"]["scores"][0]["metrics"]["mean"]["value"] == 1.0
