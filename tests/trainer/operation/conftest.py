"""A run's configuration and rollouts to write down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.protocol.trajectory import Trajectory
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus, Sample
from ludus.trainer.core.settings import read_config

MakeConfig = Callable[..., TrainConfig]
MakeGroup = Callable[..., RolloutGroup]


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    """`make_config("--steps=3")`: quiet, in the folder `run`."""
    return lambda *overrides: read_config(
        None, [f"--output={tmp_path}/run", "--logging.console=false", "--logging.report=false", *overrides]
    )


def sample(*parts: str) -> Sample:
    """A sample of one token per character; what is in upper case was sampled, each part by a turn of its own."""
    ids, mask, turns, turn = [], [], [], -1
    for part in parts:
        own = part.isupper()
        turn += own
        ids += [ord(char) for char in part]
        mask += [own] * len(part)
        turns += [turn if own else -1] * len(part)
    return Sample(
        ids=tuple(ids),
        mask=tuple(mask),
        logprobs=tuple(-0.5 if own else 0.0 for own in mask),
        versions=tuple(3 if own else -1 for own in mask),
        turns=tuple(turns),
    )


@pytest.fixture
def make_group() -> MakeGroup:
    """`make_group(4, 1.0, 0.0, None)`: group 4 with a rollout per reward, None for a failed one."""

    def make(number: int, *rewards: float | None, prompt: str = "Guess.", answer: str = "Higher.", **more: Any) -> Any:
        return RolloutGroup(number, "guess", "task-7", tuple(_rollout(r, prompt, answer, more) for r in rewards), 2)

    return make


def _rollout(reward: float | None, prompt: str, answer: str, more: dict[str, Any]) -> Rollout:
    failure = {"kind": "environment", "error": "Broken", "message": "the tool broke", "attempt": 1}
    record = {
        "environment": "guess", "split": "train", "policy": "policy", "started_at": 1.0, "seconds": 2.0,
        "task": {"id": "task-7", "index": 7, "split": "train", "fields": {}},
        "status": "completed", "end_reason": "completed",
        "failure": None if reward is not None else failure,
        "reward": None if reward is None else {"value": reward},
        "items": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I halve."}]},
            {"type": "function_call", "call_id": "a", "name": "guess", "arguments": '{"number": 8}'},
            {"type": "function_call_output", "call_id": "a", "output": answer},
            {"type": "function_call", "call_id": "b", "name": "gues", "arguments": "{"},
            {"type": "function_call_output", "call_id": "b", "output": "There is no such tool."},
        ],
        "steps": [
            {"step": 1, "call_id": "a", "seconds": 0.1, "reward": {"value": 0.25}},
            {"step": 0, "call_id": "b", "seconds": 0.1, "error": "unknown_tool"},
        ],
        "turns": [
            {"items": 4, "policy_seconds": 0.1, "environment_seconds": 0.1},
            {"items": 6, "policy_seconds": 0.1, "environment_seconds": 0.1},
        ],
        **more,
    }  # fmt: skip
    return Rollout(
        status=RolloutStatus.FAILED if reward is None else RolloutStatus.COMPLETED,
        samples=(sample("prompt", "FIRST", "answer", "SEC"),),
        reward=reward,
        turn_rewards=() if reward is None else (reward, 0.0),
        trajectory=Trajectory.model_validate(record),
        parse_errors=1,
    )
