"""ART and Agent Lightning, unchanged, play with the adapter for endpoints, through the examples in the docs."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from peer_clients import ROOT
from terminal import LUDUS, clean_variables, run_ludus

from ludus.client import ServerAddress
from ludus.integrations.endpoint import play_task
from ludus.integrations.unscored import UNSCORED
from ludus.protocol.errors import EnvironmentFailed, InfrastructureFailed, PeerNotUsable, RequestError

pytestmark = pytest.mark.suite("integrations")

SUPPORT = ROOT / "tests" / "support"
SNIPPETS = ROOT / "docs" / "snippets"
PROGRAMS = Path(__file__).parent / "peers"

RunPeer = Callable[..., dict[str, Any]]


@pytest.fixture
def mortal() -> Iterator[tuple[str, int]]:
    """The address and the process id of a server with `hanging_sums` that a test may kill."""
    with mortal_server("adapter_limits.py:HangingSums") as found:
        yield found


@pytest.fixture
def mortal_sums() -> Iterator[tuple[str, int]]:
    """The address and the process id of a server with `sums` that a test may kill."""
    with mortal_server("adapter_world.py:Sums") as found:
        yield found


@contextmanager
def mortal_server(environment: str) -> Iterator[tuple[str, int]]:
    """Serve an environment, and yield the address and the process id."""
    command = [str(LUDUS), "serve", f"{SUPPORT}/{environment}", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_variables())
    try:
        assert process.stdout is not None
        lines = (re.search(r"http://[\d.]+:\d+", line) for line in process.stdout)
        yield next(found[0] for found in lines if found), process.pid
    finally:
        process.kill()
        process.communicate()


def exported(url: str, environment: str, out: Path) -> str:
    """Write the rows of tasks, and return the path of the file."""
    done = run_ludus("export", url, environment, "--form", "chat", "--out", out, "-n", 8, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return str(out)


@pytest.mark.timeout(150)
def test_groups_of_art_hold_raw_choices_and_unscored_episodes_are_exceptions(
    server: str, endpoint: str, mortal: tuple[str, int], run_peer: RunPeer, record: Callable[..., None]
) -> None:
    runs = {
        "sums": {"url": server, "environment": "sums", "model": "solver", "tasks": 2, "size": 4},
        "breaking": {"url": server, "environment": "every_third_breaks", "model": "mixed", "tasks": 3, "size": 3},
        "killed": {
            "url": mortal[0], "environment": "hanging_sums", "model": "solver", "tasks": 8, "size": 1, "kill": mortal[1]
        },
    }  # fmt: skip
    given = {"base_url": endpoint, "snippets": str(SNIPPETS), "runs": runs}
    report = run_peer("endpoints", "art_groups.py", given, timeout=120)

    sums = report["sums"]
    assert sums["groups"] == [[1.0] * 4] * 2
    assert sums["roles"] == [["user", "choice", "tool", "choice", "tool"]] * 8
    assert sums["tools"] == ["add", "submit"]
    assert sums["metrics"] == [{"right": 1.0}] * 8

    breaking = report["breaking"]
    healthy = [reward for group in breaking["groups"] for reward in group]
    broken = [error for group in breaking["exceptions"] for error in group]
    assert (len(healthy), len(broken), breaking["counted"]) == (6, 3, 3)
    assert all("EnvironmentFailed" in error for error in broken)
    for group, errors in zip(breaking["groups"], breaking["exceptions"], strict=True):
        assert len(group) + len(errors) == 3
        assert (
            len(set(group)) <= 1
        )  # of one task, every healthy episode earns the same: a 0 for a broken one would show

    killed = report["killed"]
    assert killed["groups"] == [[1.0], []] * 4
    assert [len(errors) for errors in killed["exceptions"]] == [0, 1] * 4
    assert killed["counted"] == 4
    record(
        "art",
        "ART",
        version="0.5.23",
        ran="25 episodes in groups, with its own model client and trajectory types, in a spawned process",
        unscored="an exception, which `trajectory_group(return_exceptions=True)` keeps apart from the trajectories",
        traps="a trajectory without a reward counts as 0.0; without `return_exceptions`, one failure ends the group",
    )


@pytest.mark.timeout(200)
def test_agent_lightning_leaves_unscored_rollouts_out_although_it_trains_on_failed_ones(
    server: str, endpoint: str, mortal: tuple[str, int], tmp_path: Path, run_peer: RunPeer, record: Callable[..., None]
) -> None:
    runs = {
        "breaking": {
            "data": exported(server, "every_third_breaks", tmp_path / "breaking.jsonl"), "tasks": 2, "samples": 3
        },
        "killed": {
            "data": exported(mortal[0], "hanging_sums", tmp_path / "killed.jsonl"),
            "tasks": 4, "samples": 1, "kill": mortal[1],
        },
    }  # fmt: skip
    given = {"base_url": endpoint, "snippets": str(SNIPPETS), "folder": str(tmp_path), "runs": runs}
    report = run_peer("endpoints", "agent_lightning_rollouts.py", given, timeout=150)

    rollouts = report["breaking"]["rollouts"]
    failed = [rollout for rollout in rollouts if rollout["state"] == "failed"]
    assert (len(rollouts), len(failed)) == (6, 2)
    for rollout in rollouts:
        if rollout in failed:
            assert (rollout["reward"], rollout["calls"]) == (None, 0)
        else:
            assert rollout["reward"] in {0.0, 1.0}
            assert rollout["calls"] == 2
    trained = [rollout["reward"] for rollout in rollouts if rollout["calls"]]
    assert fmean(trained) == fmean(rollout["reward"] for rollout in rollouts if rollout["state"] == "succeeded")

    killed = report["killed"]["rollouts"]
    ends = sorted((rollout["state"], rollout["calls"] > 0, rollout["reward"] is None) for rollout in killed)
    assert ends == [("failed", False, True)] * 2 + [("succeeded", True, False)] * 2
    record(
        "agent-lightning",
        "Agent Lightning",
        version="1.0.2",
        ran="10 rollouts by its server, its local controller (a process each) and its rollout manager",
        unscored="the rollout fails, with a last attempt that has no calls: nothing of it is trained on",
        traps="a missing reward is 0.0, and calls of a failed rollout are trained on with it; "
        "its mean reward counts 0.0 for failed rollouts",
    )


def test_an_episode_is_played_at_any_endpoint_and_the_model_gets_its_own_messages_back(
    server: str, endpoint: str
) -> None:
    async def go() -> None:
        task = ServerAddress(server).task("sums", "train", "sum-3")
        run = await play_task(task, "solver", base_url=endpoint, api_key="none", adapter="test")
        assert run.scored() == 1.0
        assert run.outcome.components == {"right": 1.0}
        assert [message["role"] for message in run.messages] == ["user", "assistant", "tool", "assistant", "tool"]
        assert [run.messages[at] for at in run.positions] == [reply["choices"][0]["message"] for reply in run.replies]
        assert [entry["message"]["role"] for entry in run.messages_and_choices() if "message" in entry] == [
            "assistant"
        ] * 2
        short = await play_task(task, "solver", base_url=endpoint, api_key="none", adapter="test", turns=1)
        assert (len(short.replies), short.outcome.stopped, short.scored()) == (1, "turn_limit", 0.0)

    asyncio.run(go())


def test_unscored_episodes_are_counted_and_never_worth_0(server: str, endpoint: str) -> None:
    async def go() -> None:
        address = ServerAddress(server)
        before = UNSCORED["test"]
        runs = [
            await play_task(
                address.task("every_third_breaks", "train", "sum-3"), "solver", base_url=endpoint, adapter="test"
            )
            for _ in range(9)
        ]
        values = [run.outcome.value for run in runs]
        assert (values.count(1.0), values.count(None)) == (6, 3)
        assert UNSCORED["test"] - before == 3
        with pytest.raises(EnvironmentFailed):
            runs[values.index(None)].scored()
        for replay, requests in ((False, 1), (True, 3)):  # an endpoint that records is not asked again
            client = Broken()
            broken = await play_task(
                address.task("sums", "train", "sum-3"), "solver", client=client, adapter="test", replay=replay
            )
            assert len(client.requests) == requests
            with pytest.raises(InfrastructureFailed):
                broken.scored()
        with pytest.raises(RequestError):  # every episode would fail like this
            await play_task(address.task("sums", "train", "no-such"), "solver", base_url=endpoint, adapter="test")

    asyncio.run(go())


class Broken:
    """A client whose requests fail, with an answer after which nothing is gained by asking again."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.chat = self.completions = self

    async def create(self, **body: Any) -> None:
        self.requests.append(body)
        error: Any = RuntimeError("out of order")
        error.response = SimpleNamespace(status_code=418, headers={}, text="out of order")
        raise error


def test_without_exactly_one_endpoint_nothing_starts(server: str) -> None:
    task = ServerAddress(server).task("sums", "train", "sum-3")
    wrong: tuple[dict[str, Any], ...] = ({}, {"base_url": "http://127.0.0.1:1/v1", "client": Broken()})
    for given in wrong:
        with pytest.raises(ValueError, match="either base_url=… or client=…"):
            asyncio.run(play_task(task, "solver", adapter="test", **given))


@pytest.mark.parametrize(("snippet", "peer"), [("endpoint_areal", "areal==1.0"), ("endpoint_art", "openpipe-art==0.5")])
def test_without_its_system_an_example_says_what_to_install(
    snippet: str, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SNIPPETS))
    monkeypatch.setitem(sys.modules, "art", type(sys)("art"))
    with pytest.raises(PeerNotUsable, match=rf"pip install '{re.escape(peer)}\.\*'"):
        importlib.import_module(snippet)


def run_with_stand_ins(program: str, given: dict[str, Any]) -> dict[str, Any]:
    """Run a program in `peers/` with Ludus' own Python and the stand-ins of systems that are on no package index."""
    paths = [str(PROGRAMS / "stand_ins"), str(SNIPPETS)]
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), json.dumps(given)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**clean_variables(), "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def test_a_flow_of_rllm_raises_for_unscored_episodes_so_that_no_group_holds_them(server: str, endpoint: str) -> None:
    runs = {
        "sums": {"environment": "sums", "model": "solver", "n": 4, "attempts": 1},
        "breaking": {"environment": "every_third_breaks", "model": "mixed", "n": 9, "attempts": 1},
        "again": {"environment": "every_third_breaks", "model": "mixed", "n": 3, "attempts": 3},
    }
    report = run_with_stand_ins("rllm_flows.py", {"url": server, "base_url": endpoint, "runs": runs})
    assert report["sums"]["values"] == [[1.0]] * 4
    assert report["sums"]["correct"] == [True] * 4
    assert report["sums"]["artifacts"] == [{"right": 1.0}] * 4
    values = report["breaking"]["values"]
    assert (values.count([]), report["breaking"]["counted"]) == (3, 3)
    expected = run_with_stand_ins(
        "rllm_flows.py",
        {"url": server, "base_url": endpoint, "runs": {"sums": {**runs["breaking"], "environment": "sums"}}},
    )["sums"]["values"]
    healthy = [(value, right) for value, right in zip(values, expected, strict=True) if value]
    assert all(value == right for value, right in healthy)
    assert all(report["again"]["values"])  # rLLM plays an episode that failed again


def test_samples_of_slime_are_exact_and_unscored_ones_are_masked_with_the_mean_of_their_group(
    server: str, mortal_sums: tuple[str, int]
) -> None:
    runs = {
        "sums": {"url": server, "environment": "sums", "groups": 2, "size": 4},
        "breaking": {"url": server, "environment": "every_third_breaks", "groups": 3, "size": 4},
        "aborted": {"url": server, "environment": "sums", "groups": 1, "size": 2, "abort": True},
        "killed": {"url": mortal_sums[0], "environment": "sums", "groups": 3, "size": 4, "kill": mortal_sums[1]},
    }
    report = run_with_stand_ins("slime_samples.py", {"runs": runs})
    for row in report["sums"]["rows"]:
        assert row["same_length"], row
        assert row["exact"], row
        assert row["status"] == "completed"
    assert {row["reward"] for row in report["sums"]["rows"]} == {0.0, 1.0}
    assert [(row["status"], row["reward"]) for row in report["aborted"]["rows"]] == [("aborted", None)] * 2
    for name, least in (("breaking", 4), ("killed", 1)):
        rows = report[name]["rows"]
        removed = [row for row in rows if row["removed"]]
        assert report[name]["counted"] == len(removed) >= least
        for row in rows:
            group = [one["reward"] for one in rows if one["group"] == row["group"] and not one["removed"]]
            if row["removed"]:
                assert (row["learned"], row["same_length"]) == (0, True)
            if group:
                expected = 0.0 if row["removed"] else row["reward"] - fmean(group)
                assert row["advantage"] == pytest.approx(expected)
