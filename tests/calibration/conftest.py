from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from terminal import run_ludus_here, serving

from ludus.protocol.episodes import TaskRow
from ludus.protocol.rewards import Component, Reward
from ludus.protocol.trajectory import Failure, FailureKind, StepRecord, Trajectory, TurnRecord, Usage

COINS = Path(__file__).parents[1] / "support" / "coins.py"


@pytest.fixture
def ludus(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ludus("calibrate", url, …)` runs the command to its end in this process."""
    return partial(run_ludus_here, cwd=tmp_path)


@pytest.fixture(scope="session")
def coins() -> Path:
    """The file of the environment and its policies."""
    return COINS


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a `ludus serve` process."""
    with serving(f"{COINS}:Coins", f"{COINS}:Broken") as address:
        yield address


def played(
    task: int,
    sample: int = 0,
    value: float | None = 1.0,
    *,
    failure: FailureKind | None = None,
    fields: dict[str, Any] | None = None,
    components: dict[str, float] | None = None,
    steps: int = 1,
    tokens: tuple[int, int] | None = None,
    **changes: Any,
) -> Trajectory:
    """A trajectory of task number `task`; without a value it is unscored."""
    parts = {name: Component(value=part) for name, part in (components or {}).items()}
    reward = Reward.unscored("no verdict") if value is None else Reward(value=value, components=parts)
    usage = None if tokens is None else Usage(requests=1, input_tokens=tokens[0], output_tokens=tokens[1])
    given: dict[str, Any] = {
        "environment": "env", "environment_version": "1", "split": "train", "policy": "p", "sample": sample,
        "task": TaskRow(id=f"t-{task}", split="train", index=task, fields=fields or {}),
        "reward": None if failure else reward, "started_at": 0.0, "seconds": float(steps),
        "steps": tuple(StepRecord(step=n + 1, call_id="c", seconds=0.1) for n in range(steps)),
        "turns": (TurnRecord(items=1, policy_seconds=0.1, environment_seconds=0.1, usage=usage),),
        "failure": Failure(kind=failure, error="E", message="m", attempt=1) if failure else None,
    }  # fmt: skip
    return Trajectory(**given | changes)


@pytest.fixture(name="played")
def played_fixture() -> Callable[..., Trajectory]:
    return played
