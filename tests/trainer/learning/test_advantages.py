"""Advantages: golden values, who is compared with whom, and credit turn by turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.trainer.core.config_learning import AdvantageConfig
from ludus.trainer.core.errors import LearningError
from ludus.trainer.learning.advantages import (
    group_advantages,
    overlong_penalty,
    returns_to_go,
    step_advantages,
    whiten,
)

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())


def tensor(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


REWARDS = tensor(*GOLDEN["inputs"]["rewards"])
KINDS: dict[str, dict[str, Any]] = {
    "grpo_std1_eps1e-6": {"scale": "group"},
    "drgrpo": {},
    "rloo": {"baseline": "leave_one_out"},
    "maxrl": {"scale": "mean"},
}


def advantages(rewards: Tensor, **config: Any) -> list[float]:
    values: list[float] = group_advantages(rewards, AdvantageConfig(**config)).tolist()
    return values


def test_every_golden_advantage_has_a_case() -> None:
    assert set(KINDS) == set(GOLDEN["advantages"])


@pytest.mark.parametrize("name", KINDS)
def test_advantages_equal_the_golden_ones(name: str) -> None:
    assert advantages(REWARDS, **KINDS[name]) == pytest.approx(GOLDEN["advantages"][name], abs=1e-9)


def test_leave_one_out_is_the_mean_baseline_times_g_over_g_minus_one() -> None:
    plain = advantages(REWARDS)
    assert advantages(REWARDS, baseline="leave_one_out") == pytest.approx([a * 4 / 3 for a in plain], abs=1e-12)


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "none"])
@pytest.mark.parametrize("scale", ["none", "group", "batch", "mean"])
def test_an_only_episode_has_none_to_be_compared_with(baseline: str, scale: str) -> None:
    assert advantages(tensor(7.0), baseline=baseline, scale=scale) == [0.0]
    assert advantages(tensor(), baseline=baseline, scale=scale) == []


@pytest.mark.parametrize("scale", ["none", "group", "mean"])
@pytest.mark.parametrize("reward", [0.0, 0.1])
def test_a_constant_group_teaches_nothing(scale: str, reward: float) -> None:
    """The mean of three times 0.1 is not 0.1: a deviation of 1e-17 must not make advantages of 1."""
    result = advantages(tensor(reward, reward, reward), scale=scale)
    assert result == pytest.approx([0, 0, 0], abs=1e-15)


def test_maxrl_refuses_a_negative_mean_which_would_turn_every_advantage_around() -> None:
    with pytest.raises(LearningError, match="must not be negative; a group has -0.5"):
        advantages(tensor(-1.0, 0.0), scale="mean")


def test_whitening_is_that_of_all_tokens_laid_side_by_side() -> None:
    values, tokens = tensor(1.0, -0.5, 0.25, 2.0), tensor(3, 4, 2, 3)
    laid = values.repeat_interleave(tokens.long())
    expected = (values - laid.mean()) / (laid.std() + 1e-6)
    torch.testing.assert_close(whiten(values, tokens), expected, rtol=0, atol=1e-9)


def test_whitening_counts_only_what_has_tokens_and_survives_a_step_without_any() -> None:
    with_ghost = whiten(tensor(1.0, -1.0, 100.0), tensor(2, 2, 0))
    torch.testing.assert_close(with_ghost[:2], whiten(tensor(1.0, -1.0), tensor(2, 2)))
    assert whiten(tensor(1.0, 2.0), tensor(0, 0)).tolist() == [0, 0]
    assert whiten(tensor(1.0, 1.0), tensor(5, 5)).tolist() == [0, 0]


def test_returns_discount_later_turns() -> None:
    rewards = tensor([1.0, 0.0, 2.0], [0.0, 3.0, 0.0])
    assert returns_to_go(rewards, 0.5).tolist() == [[1.5, 1.0, 2.0], [1.5, 3.0, 0.0]]
    assert returns_to_go(rewards, 0.0).tolist() == rewards.tolist()
    assert returns_to_go(rewards[:, :0], 1.0).tolist() == [[], []]


def test_turns_are_compared_only_with_episodes_that_took_them() -> None:
    rewards = tensor([0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 4.0])
    taken = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    result = step_advantages(rewards, taken, AdvantageConfig(credit="step"))
    # Turn 0: returns 1, 1, 4. Turn 1: 1 and 4, the second episode had ended. Turn 2: no episode to compare with.
    assert result.tolist() == [[-1.0, -1.5, 0.0], [-1.0, 0.0, 0.0], [2.0, 1.5, 0.0]]


def test_credit_by_step_is_credit_by_episode_when_every_episode_has_one_turn() -> None:
    for config in (AdvantageConfig(credit="step", scale="group"), AdvantageConfig(baseline="leave_one_out")):
        one_turn = step_advantages(REWARDS[:, None], torch.ones(4, 1, dtype=torch.bool), config)
        torch.testing.assert_close(one_turn[:, 0], group_advantages(REWARDS, config))


@pytest.mark.parametrize(("length", "penalty"), [(0, 0.0), (80, 0.0), (85, -0.25), (100, -1.0), (130, -1.0)])
def test_the_soft_punishment_falls_linearly_within_the_window(length: int, penalty: float) -> None:
    assert overlong_penalty(length, limit=100, window=20) == pytest.approx(penalty)
    assert overlong_penalty(length, limit=100, window=0) == 0
