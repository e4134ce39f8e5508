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

pytestmark = pytest.mark.timeout(240)
suite = pytest.mark.suite("integrations")
HERE = Path(__file__).parent
WORLD = ROOT / "tests" / "support" / "adapter_world.py"
PLUGINS = ROOT / "docs" / "snippets"

Play = Callable[..., dict[str, Any]]

BEST_OF_2 = {"id": "best-of-n", "n": 2, "agent": {"runtime": {"type": "subprocess"}}}


@pytest.fixture
def play(server: str, endpoint: str, run_peer: Callable[..., dict[str, Any]]) -> Play:
    """`reports = play(one={"environment": …, "model": …, "n": …})`: episodes through verifiers' evaluation loop."""

    def run(**cases: dict[str, Any]) -> dict[str, Any]:
        folders = {"plugins": str(PLUGINS), "path": str(ROOT / ".venv" / "bin")}
        given = {**folders, "url": server, "endpoint": endpoint, "cases": cases}
        return run_peer("verifiers", "verifiers_runs.py", given, timeout=120)

    return run


def right(prompt: str) -> float:
    """Return what the model `mixed` earns."""
    a, b = map(int, re.findall(r"\d+", prompt))
    return float((a + b) % 2 == 0)


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


@pytest.mark.suite("integrations")
def test_vf_eval_plays_40_rollouts_and_its_rewards_are_the_servers(
    server: str, endpoint: str, package: Path, tmp_path: Path, record: Callable[..., None]
) -> None:
    where = ("--env.taskset.url", server, "--env.taskset.environment", "sums", "--client.base-url", endpoint)
    traces = vf_eval(package, tmp_path, *where, "-m", "mixed", "-n", "8", "-r", "5")
    assert len(traces) == 40
    assert all(trace["ok"] for trace in traces)
    for trace in traces:
        assert trace["rewards"]["reward"]["score"] == right(trace["task"]["data"]["prompt"])
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


@suite
def test_the_null_harness_plays_over_the_play_url_and_is_scored_over_the_control_plane(play: Play) -> None:
    if not (shutil.which("uv") or (ROOT / ".venv" / "bin" / "uv").exists()):
        pytest.skip("the null harness runs with uv, which is not installed")
    null = {"environment": "sums", "env": {"agent": {"harness": {"id": "null"}}}}
    twice = {"agent": {"harness": {"id": "null"}, "retries": {"max_retries": 1}}}
    reports = play(
        mixed={**null, "model": "mixed", "n": 4},
        talker={**null, "model": "talker", "n": 2},
        twice={**null, "model": "talker", "n": 1, "env": twice},
    )
    calling, talking = reports["mixed"]["traces"], reports["talker"]["traces"]
    if any("failed to prepare uv script" in str(trace["errors"]) for trace in calling):
        pytest.skip("uv cannot install the packages of the null harness here")
    assert all(trace["ok"] for trace in calling + talking), [trace["errors"] for trace in calling + talking]
    assert [trace["reward"] for trace in calling] == [right(trace["prompt"]) for trace in calling]
    assert len({trace["reward"] for trace in calling}) == 2
    # The model would go on calling tools; the task stops it when the episode has ended.
    assert [(trace["stop"], trace["turns"]) for trace in calling] == [("episode_ended", 2)] * 4
    assert all(trace["called"] == ["ludus_add", "ludus_submit"] for trace in calling)
    # An episode cannot be played twice, so verifiers must not retry the agent alone.
    assert reports["twice"]["traces"] == []
    assert "set --env.retries instead" in reports["twice"]["episodes"][0]["errors"][0]
    # A harness that only talks gets its last reply graded.
    assert [(trace["reward"], trace["ludus"]["end_reason"]) for trace in talking] == [(1.0, "submitted")] * 2


@suite
def test_unscored_limits_and_failures_of_the_model_are_what_verifiers_records(play: Play) -> None:
    once = {"agent": {"harness": {"id": "ludus_sums", "attempts": 1}}}
    reports = play(
        breaks={"environment": "every_third_breaks", "model": "mixed", "n": 12, "rollouts": 2},
        limited={"environment": "sums", "model": "solver", "n": 8, "env": {"agent": {"max_turns": 1}}},
        best={"environment": "sums", "model": "solver", "n": 2, "env": BEST_OF_2},
        no_model={"environment": "sums", "model": "broken", "n": 8, "env": once},
    )
    check_unscored(reports["breaks"])
    limited = reports["limited"]["traces"]
    assert {(trace["stop"], trace["ludus"]["stopped"]) for trace in limited} == {("max_turns", "turn_limit")}
    assert [(trace["ok"], trace["reward"]) for trace in limited] == [(True, 0.0)] * 8
    assert [trace["reward"] for trace in reports["best"]["traces"]] == [1.0] * 4
    failed = reports["no_model"]["traces"]
    assert [(trace["ok"], trace["reward"]) for trace in failed] == [(False, None)] * 8
    assert all("ProviderError" in trace["errors"][-1] for trace in failed)


def check_unscored(report: dict[str, Any]) -> None:
    """Check that 8 of 24 episodes are failed traces, and that the mean is that of the healthy ones."""
    traces = report["traces"]
    healthy = [trace["reward"] for trace in traces if trace["ok"]]
    broken = [trace for trace in traces if not trace["ok"]]
    assert (len(healthy), len(broken)) == (16, 8)
    assert all(trace["reward"] is None and not trace["trainable"] for trace in broken)
    assert all("EnvironmentFailed" in trace["errors"][-1] for trace in broken)
    assert 0 < statistics.mean(healthy) < 1
    assert report["summary"]["avg_reward"] == statistics.mean(healthy)
    assert report["summary"]["avg_error"] == pytest.approx(8 / 24)
    assert report["unscored"] == 8


@suite
def test_an_env_server_in_a_spawned_process_plays_the_rows(play: Play) -> None:
    case = {"environment": "every_third_breaks", "model": "solver", "n": 9, "served": True}
    traces = play(served=case)["served"]["traces"]
    assert [trace["key"] for trace in traces] == [f"every_third_breaks/train/sum-{index}/0" for index in range(9)]
    assert [trace["reward"] for trace in traces if trace["ok"]] == [1.0] * 6
    assert [trace["reward"] for trace in traces if not trace["ok"]] == [None] * 3
    assert [(trace["branches"], trace["turns"]) for trace in traces] == [(1, 2)] * 9


@suite
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


@suite
def test_a_killed_server_leaves_unscored_episodes_and_no_hang(
    endpoint: str, run_peer: Callable[..., dict[str, Any]]
) -> None:
    python_of("verifiers")
    command = [str(LUDUS), "serve", f"{WORLD}:Sums", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_variables())
    try:
        assert process.stdout is not None
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        case = {"environment": "sums", "model": "solver", "n": 16, "max_concurrent": 4}
        given = {"plugins": str(PLUGINS), "url": url, "endpoint": endpoint, "cases": {"killed": case}}
        kill = {"pid": process.pid, "after": 5}
        report = run_peer("verifiers", "verifiers_runs.py", {**given, "kill": kill}, timeout=120)["killed"]
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
