"""verifiers plays Ludus environments through its own evaluation, env server and harnesses."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT, python_of
from terminal import LUDUS, clean_variables

pytestmark = pytest.mark.suite("integrations")
HERE = Path(__file__).parent
WORLD = ROOT / "tests" / "support" / "adapter_world.py"
PLUGINS = ROOT / "docs" / "snippets"

Play = Callable[..., dict[str, Any]]


@pytest.fixture
def play(server: str, endpoint: str, run_peer: Callable[..., dict[str, Any]]) -> Play:
    """`report = play("sums", "solver", 8)`: episodes through verifiers' evaluation loop."""

    def run(environment: str, model: str, n: int, **more: Any) -> dict[str, Any]:
        common = {"plugins": str(PLUGINS), "url": server, "endpoint": endpoint}
        given = {**common, "environment": environment, "model": model, "n": n, **more}
        return run_peer("verifiers", "verifiers_runs.py", given, timeout=120)

    return run


def vf_eval(package: Path, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run verifiers' own command as a user would, and return the traces that it wrote."""
    python = Path(python_of("verifiers"))
    tools = os.pathsep.join((str(ROOT / ".venv" / "bin"), os.environ["PATH"]))
    done = subprocess.run(
        [str(python.with_name("vf-eval")), "ludus_sums", *arguments, "--no-push", "--no-rich", "--output-dir", "out"],
        cwd=folder,
        env={**clean_variables(), "PATH": tools, "PYTHONPATH": f"{package}{os.pathsep}{PLUGINS}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (file,) = folder.glob("out/*/traces.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [trace for row in rows for trace in row.get("traces", [row])]


def test_vf_eval_plays_40_rollouts_and_its_rewards_are_the_servers(
    server: str, endpoint: str, package: Path, tmp_path: Path, record: Callable[..., None]
) -> None:
    where = ("--env.taskset.url", server, "--env.taskset.environment", "sums", "--client.base-url", endpoint)
    traces = vf_eval(package, tmp_path, *where, "-m", "mixed", "-n", "8", "-r", "5")
    assert len(traces) == 40
    assert all(trace["ok"] for trace in traces)
    for trace in traces:
        a, b = map(int, re.findall(r"\d+", trace["task"]["data"]["prompt"]))
        assert trace["rewards"]["reward"]["score"] == float((a + b) % 2 == 0)
        assert trace["metrics"] == {"right": trace["rewards"]["reward"]["score"]}
        assert trace["info"]["ludus"]["end_reason"] == "completed"
    assert len({trace["info"]["ludus"]["episode"] for trace in traces}) == 40
    record(
        "verifiers",
        "verifiers, prime-rl",
        version="0.4.0",
        ran="`vf-eval`, 40 rollouts; an env server in a spawned process; the null harness over play URLs",
        unscored="`trace.ok` is false and the trace is not trainable",
        traps="`--push` is on by default; the default runtime is remote; a failed trace counts as 0.0 in `avg_reward`",
    )


def test_the_null_harness_plays_over_the_play_url_and_stops_when_the_episode_has_ended(
    server: str, endpoint: str, package: Path, tmp_path: Path
) -> None:
    if not (shutil.which("uv") or (ROOT / ".venv" / "bin" / "uv").exists()):
        pytest.skip("the null harness runs with uv, which is not installed")
    where = ("--env.taskset.url", server, "--env.taskset.environment", "sums", "--client.base-url", endpoint)
    traces = vf_eval(package, tmp_path, *where, "-m", "mixed", "-n", "4", "--env.agent.harness.id", "null")
    if any("failed to prepare uv script" in str(trace["errors"]) for trace in traces):
        pytest.skip("uv cannot install the packages of the null harness here")
    assert [trace["ok"] for trace in traces] == [True] * 4, [trace["errors"] for trace in traces]
    for trace in traces:
        a, b = map(int, re.findall(r"\d+", trace["task"]["data"]["prompt"]))
        assert trace["rewards"]["reward"]["score"] == float((a + b) % 2 == 0)
        assert trace["stop_condition"] == "episode_ended"
        assert sum(node["message"]["role"] == "assistant" for node in trace["nodes"]) == 2


def test_the_null_harness_gets_its_final_message_graded(
    server: str, endpoint: str, package: Path, tmp_path: Path
) -> None:
    where = ("--env.taskset.url", server, "--env.taskset.environment", "sums", "--client.base-url", endpoint)
    traces = vf_eval(package, tmp_path, *where, "-m", "talker", "-n", "2", "--env.agent.harness.id", "null")
    if any("failed to prepare uv script" in str(trace["errors"]) for trace in traces):
        pytest.skip("uv cannot install the packages of the null harness here")
    assert [trace["rewards"]["reward"]["score"] for trace in traces] == [1.0, 1.0]
    assert [trace["info"]["ludus"]["end_reason"] for trace in traces] == ["submitted"] * 2


def test_unscored_episodes_are_failed_traces_and_the_mean_is_that_of_the_healthy(play: Play) -> None:
    report = play("every_third_breaks", "mixed", 12, rollouts=2)
    traces = report["traces"]
    healthy = [trace["reward"] for trace in traces if trace["ok"]]
    broken = [trace for trace in traces if not trace["ok"]]
    assert len(traces) == 24
    assert len(broken) == 8
    assert all(trace["reward"] is None for trace in broken)
    assert not any(trace["trainable"] for trace in broken)
    assert all("EnvironmentFailed" in trace["errors"][-1] for trace in broken)
    assert 0 < statistics.mean(healthy) < 1
    assert report["summary"]["avg_reward"] == statistics.mean(healthy)
    assert report["summary"]["avg_error"] == pytest.approx(8 / 24)
    assert report["unscored"] == 8


def test_an_env_server_in_a_spawned_process_plays_the_rows(play: Play) -> None:
    report = play("every_third_breaks", "solver", 9, served=True)
    traces = report["traces"]
    assert [trace["key"] for trace in traces] == [f"every_third_breaks/train/sum-{index}/0" for index in range(9)]
    assert [trace["reward"] for trace in traces if trace["ok"]] == [1.0] * 6
    assert [trace["reward"] for trace in traces if not trace["ok"]] == [None] * 3
    assert [(trace["branches"], trace["turns"]) for trace in traces] == [(1, 2)] * 9


def test_the_train_client_gets_ids_masks_and_logprobs_of_one_branch_per_rollout(
    server: str, run_peer: Callable[..., dict[str, Any]]
) -> None:
    given = {"plugins": str(PLUGINS), "url": server, "n": 8, "toml": (PLUGINS / "verifiers_rl.toml").read_text()}
    report = run_peer("verifiers", "verifiers_tokens.py", given, timeout=120)
    traces = report["traces"]
    assert [(trace["ok"], trace["reward"], trace["branches"]) for trace in traces] == [(True, 1.0, 1)] * 8, traces
    assert all(len(set(trace["lengths"])) == 1 and trace["lengths"][0] > 0 for trace in traces)
    assert sum(trace["sampled"] for trace in traces) == report["sampled"] > 0
    assert all(trace["right"] == trace["lengths"][0] for trace in traces)
    # The configuration in the docs for prime-rl is one that verifiers resolves to our classes.
    assert report["resolved"]["taskset"]["environment"] == "guess_number"
    assert report["resolved"]["agent"]["max_turns"] == 20
    assert report["resolved"]["retries"]["rules"][0]["max_retries"] == 2


def test_a_turn_limit_truncates_the_episode(play: Play) -> None:
    traces = play("sums", "solver", 8, env={"agent": {"max_turns": 1}})["traces"]
    assert {(trace["stop"], trace["ludus"]["stopped"]) for trace in traces} == {("max_turns", "turn_limit")}
    assert [(trace["ok"], trace["reward"]) for trace in traces] == [(True, 0.0)] * 8


def test_a_broken_model_endpoint_leaves_no_reward_and_no_open_episode(play: Play) -> None:
    traces = play("sums", "broken", 8, env={"agent": {"harness": {"id": "ludus_sums", "attempts": 1}}})["traces"]
    assert all(not trace["ok"] and trace["reward"] is None for trace in traces)
    assert all("ProviderError" in trace["errors"][-1] for trace in traces)


def test_a_killed_server_leaves_unscored_episodes_and_no_hang(
    endpoint: str, run_peer: Callable[..., dict[str, Any]]
) -> None:
    python_of("verifiers")
    command = [str(LUDUS), "serve", f"{WORLD}:Sums", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_variables())
    try:
        assert process.stdout is not None
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        given = {"plugins": str(PLUGINS), "url": url, "environment": "sums", "endpoint": endpoint}
        more = {"model": "solver", "n": 16, "max_concurrent": 4, "kill": {"pid": process.pid, "after": 5}}
        report = run_peer("verifiers", "verifiers_runs.py", given | more, timeout=120)
    finally:
        process.kill()
        process.communicate()
    rewards = [trace["reward"] for trace in report["traces"]]
    assert len(report["episodes"]) == 16
    assert set(rewards) == {1.0, None}
    assert rewards.count(1.0) >= 5
    assert report["unscored"] == sum(not episode["ok"] for episode in report["episodes"]) >= 4
    assert report["summary"]["avg_reward"] == 1.0


def test_without_verifiers_the_adapter_says_what_to_install() -> None:
    code = "import ludus.integrations.verifiers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PeerNotUsable: verifiers is not installed; install it with: pip install 'verifiers==0.4.*'" in done.stderr
