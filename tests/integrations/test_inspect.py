"""Inspect AI, unchanged, evaluates environments through its own provider for OpenAI-compatible endpoints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT, python_of
from terminal import LUDUS, clean_variables, running_episodes, serving

pytestmark = pytest.mark.suite("integrations")

SUPPORT = ROOT / "tests" / "support"

RunPeer = Callable[..., Any]


@pytest.fixture
def limits_server() -> Iterator[str]:
    """The address of a server with environments for limits, without open episodes afterwards."""
    with serving(
        *(f"{SUPPORT}/adapter_limits.py:{name}" for name in ("PayingSums", "HangingSums", "BreakingSums"))
    ) as url:
        yield url
        assert running_episodes(url) == 0, "episodes are still open"


@pytest.fixture
def mortal_server() -> Iterator[tuple[str, int]]:
    """The address and the process id of a server that may be killed."""
    command = [str(LUDUS), "serve", f"{SUPPORT}/adapter_limits.py:HangingSums", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_variables())
    try:
        assert process.stdout is not None
        lines = (re.search(r"http://[\d.]+:\d+", line) for line in process.stdout)
        yield next(found[0] for found in lines if found), process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timeout(150)
def test_eval_scores_epochs_and_leaves_unscored_episodes_out_of_the_mean(
    server: str, endpoint: str, run_peer: RunPeer, record: Callable[..., None]
) -> None:
    runs = [
        {"environment": "sums", "n": 8, "options": {"epochs": 2}},
        {"environment": "every_third_breaks", "n": 9, "model": "mixed"},
        {"environment": "sums", "n": 2, "model": "broken", "options": {"max_retries": 0}},
        {"environment": "sums", "n": 2, "text_input": True},
    ]
    given = {"url": server, "base_url": endpoint, "runs": runs, "spawn": True}
    solved, breaking, broken, text = run_peer("agents", "inspect_eval.py", given, timeout=120)
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
    assert [sample["value"] for sample in text["samples"]] == [1.0] * 2, "the input of a sample may be a text"
    record(
        "inspect",
        "Inspect AI",
        version="0.3.285",
        ran="`inspect_ai.eval` over 8 tasks with 2 epochs, and 9 tasks of which 3 break",
        unscored="`Score.unscored()`, which its metrics leave out",
        traps="an error of the model endpoint is a sample error; set `max_retries`",
    )


@pytest.mark.timeout(150)
def test_limits_truncate_an_interrupt_closes_and_a_killed_server_leaves_unscored_samples(
    limits_server: str, mortal_server: tuple[str, int], endpoint: str, run_peer: RunPeer
) -> None:
    runs = [
        {"environment": "paying_sums", "n": 3, "options": {"message_limit": 3}},
        {"environment": "paying_sums", "n": 3, "options": {"token_limit": 30}},
        {"environment": "hanging_sums", "n": 4, "options": {"time_limit": 4}},
        {"environment": "breaking_sums", "n": 2},
        {"environment": "hanging_sums", "n": 8, "signal": [signal.SIGINT, None]},
        {"environment": "hanging_sums", "n": 16, "url": mortal_server[0], "signal": [signal.SIGKILL, mortal_server[1]]},
    ]
    given = {"url": limits_server, "base_url": endpoint, "runs": runs}
    messages, tokens, time, broken, canceled, killed = run_peer("agents", "inspect_eval.py", given, timeout=120)
    check_limit(messages["samples"], "message", "turn_limit", [0.25] * 3)
    check_limit(tokens["samples"], "token", "context_limit", [0.25] * 3)
    assert [sample["value"] for sample in time["samples"][::2]] == [1.0] * 2
    check_limit(time["samples"][1::2], "time", "time_limit", [0.0] * 2)
    # If no sample has a value, Inspect reports NaN, not 0.
    assert (broken["counts"], broken["counted"], broken["metrics"]["mean"]) == ([[0, 2]], 2, None)
    assert canceled["status"] == "cancelled"
    check_killed(killed)


def check_limit(samples: list[dict[str, Any]], limit: str, stopped: str, values: list[float]) -> None:
    """Check that a limit of Inspect ended these samples, and that they have these values."""
    assert [(sample["limit"], sample["value"]) for sample in samples] == [(limit, value) for value in values]
    assert {sample["score"]["metadata"]["stopped"] for sample in samples} == {stopped}


def check_killed(killed: dict[str, Any]) -> None:
    """Check that the episodes that hung when their server was killed are unscored, and that the others count."""
    assert killed["status"] == "success"
    assert [sample["value"] for sample in killed["samples"]] == [1.0, None] * 8
    assert {sample["score"]["reason"] for sample in killed["samples"][1::2]} == {"infrastructure_failure"}
    assert killed["counts"] == [[8, 8]]
    assert killed["counted"] == 8
    assert killed["metrics"]["mean"] == 1.0


@pytest.mark.timeout(120)
def test_the_inspect_command_and_the_example_in_the_docs_evaluate_environments(
    server: str, endpoint: str, package: Path, tmp_path: Path
) -> None:
    python = Path(python_of("agents"))
    model = "openai-api/fixture/talker"
    command: list[str | Path] = [python.with_name("inspect"), "eval", "ludus/environment", "--model", model]
    options = ["-T", f"url={server}", "-T", "environment=sums", "-T", "n=8", "--log-dir", "by_command"]
    variables = {"FIXTURE_API_KEY": "none", "FIXTURE_BASE_URL": endpoint, "PYTHONPATH": str(package)}
    commands: tuple[list[str | Path], ...] = (
        [*command, *options, "--log-format", "json", "--display", "plain"],
        [python, ROOT / "docs" / "snippets" / "inspect_evaluate.py", server, "sums", model],
    )
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    one, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
                    env={**os.environ, **variables},
                )
            )
            for one in commands
        ]  # fmt: skip
        said = [process.communicate(timeout=100)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], "".join(said)[-3000:]
    (log,) = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "by_command").glob("*.json")]
    assert log["status"] == "success"
    assert log["results"]["scores"][0]["scored_samples"] == 8
    assert log["results"]["scores"][0]["metrics"]["mean"]["value"] == 1.0
    assert said[1].splitlines()[-1].strip() == "1.0 of 8 samples; 0 unscored"


def test_without_inspect_the_adapter_says_what_to_install() -> None:
    code = "import ludus.integrations.inspect"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PeerNotUsable: inspect-ai is not installed; install it with: pip install 'inspect-ai==0.3.*'" in done.stderr
