"""Servers of environments, a stand-in for model providers, and trajectories made by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT
from terminal import run_ludus, run_ludus_here, serving

from ludus.protocol.episodes import TaskRow
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Failure, FailureKind, Trajectory, TurnRecord, Usage

SUMS = ROOT / "tests" / "support" / "adapter_world.py"

Ran = subprocess.CompletedProcess[str]
Ludus = Callable[..., Ran]


@pytest.fixture
def ludus(tmp_path: Path) -> Ludus:
    """`ludus("eval", …)` runs the command to its end in this process."""
    return partial(run_ludus_here, cwd=tmp_path)


@pytest.fixture
def ludus_process(tmp_path: Path) -> Ludus:
    """`ludus_process("eval", …)` runs the command to its end in a process of its own."""
    return partial(run_ludus, cwd=tmp_path)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a `ludus serve` process with `sums` and `every_third_breaks`."""
    with serving(f"{SUMS}:Sums", f"{SUMS}:EveryThirdBreaks") as address:
        yield address


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of the stand-in for model providers."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "provider_endpoint.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.stdin.close()
            process.wait(timeout=20)


def played(
    task: int,
    sample: int = 0,
    value: float | None = 1.0,
    *,
    failure: FailureKind | None = None,
    tokens: tuple[int, int] | None = None,
    **changes: Any,
) -> Trajectory:
    """A trajectory of task number `task`; without a value it is unscored."""
    usage = None if tokens is None else Usage(requests=1, input_tokens=tokens[0], output_tokens=tokens[1])
    given: dict[str, Any] = {
        "environment": "env", "environment_version": "1", "split": "train", "policy": "p", "sample": sample,
        "task": TaskRow(id=f"t-{task}", split="train", index=task, fields={}),
        "reward": None if failure else Reward.unscored("no verdict") if value is None else Reward.of(value),
        "seed": 7, "started_at": 0.0, "seconds": 1.0,
        "turns": (TurnRecord(items=1, policy_seconds=0.1, environment_seconds=0.1, usage=usage),),
        "failure": Failure(kind=failure, error="E", message="broke", attempt=1) if failure else None,
    }  # fmt: skip
    return Trajectory(**{**given, **changes})


@pytest.fixture(name="played")
def played_fixture() -> Callable[..., Trajectory]:
    """`played(task, sample, value, …)` makes a trajectory."""
    return played
