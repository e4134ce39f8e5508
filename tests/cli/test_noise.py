"""`ludus serve --noise`: any environment with tools that fail; `ludus rescore --noise` plays its episodes again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ludus.client.trajectory_files import read_trajectories

Ludus = Callable[..., CompletedProcess[str]]

POLICY = """
from ludus.protocol import Call


async def noting(conversation):
    if conversation.turn <= 8:
        return Call("note", {"text": "a line\\nand another"})
    return Call("submit", {"number": conversation.task.fields["a"] + 2})
"""


@pytest.fixture
def noting(tmp_path: Path) -> str:
    """A policy that notes things down and then submits until it is heard."""
    (tmp_path / "noting.py").write_text(POLICY)
    return f"{tmp_path / 'noting.py'}:noting"


def test_any_environment_is_served_with_noise_which_fails_no_episode(
    ludus: Ludus, serve_process: Callable[..., str], world: Path, noting: str
) -> None:
    noise = "sums:rate=0.5,kinds=tool_error+truncation,seed=1"
    url = serve_process(f"{world}:Sums", f"{world}:Riddle", "--noise", noise)
    options = ("--split", "train", "--seed", "3", "--policy", noting)
    done = ludus("run", url, "sums", *options, "--out", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    assert "steps with noise: tool_error" in done.stdout
    summary = json.loads(ludus("run", url, "sums", *options, "--json").stdout)
    assert set(summary["noise"]) == {"tool_error", "truncation"}
    assert (summary["failed"], summary["mean"], summary["episodes"]) == ({}, 1.0, 6)
    told = ludus("rescore", "runs.jsonl", "--env", f"{world}:Sums", "--noise", noise, "--json", "--check")
    assert told.returncode == 0, told.stdout + told.stderr
    plain = ludus("rescore", "runs.jsonl", "--env", f"{world}:Sums", "--json")
    assert plain.returncode == 1
    assert json.loads(plain.stdout)["problems"] > 0, "without its noise an episode comes out differently"


def test_an_oracle_makes_a_call_again_that_never_reached_its_tool(
    ludus: Ludus, serve_process: Callable[..., str], world: Path
) -> None:
    url = serve_process(f"{world}:Sums", "--noise", "rate=0.6,kinds=tool_error,seed=1")
    options = ("--split", "train", "--seed", "3", "--policy", "oracle", "--source", f"{world}:Sums")
    summary = json.loads(ludus("run", url, "sums", *options, "--json").stdout)
    assert summary["noise"]["tool_error"] > 0
    assert (summary["failed"], summary["mean"]) == ({}, 1.0)


@pytest.mark.suite("breadth")
def test_runs_with_one_seed_meet_the_same_noise(
    ludus: Ludus, serve_process: Callable[..., str], world: Path, noting: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        url = serve_process(f"{world}:Sums", "--noise", '{"rate": 0.4, "kinds": ["flaky_output"]}')
        options = ("--split", "train", "-n", "3", "--seed", "3", "--policy", noting)
        assert ludus("run", url, "sums", *options, "--out", f"{name}.jsonl").returncode == 0
    first, second = (
        {t.key: [step.noise for step in t.steps] for t in read_trajectories(tmp_path / f"{name}.jsonl")}
        for name in ("a", "b")
    )
    assert first == second
    assert any("flaky_output" in marks for marks in first.values())


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("noise", "why"),
    [("rate=2", "rate: Input should be less"), ("other:rate=0.1", "'other', which is not served; there are: sums")],
)
def test_noise_that_cannot_be_is_refused_at_startup(ludus_process: Ludus, world: Path, noise: str, why: str) -> None:
    done = ludus_process("serve", f"{world}:Sums", "--noise", noise)
    assert done.returncode != 0
    assert why in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
