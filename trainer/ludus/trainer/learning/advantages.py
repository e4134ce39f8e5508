"""Advantages: how much better an episode, or one of its turns, was than others of its group. Pure functions on tensors.

A group has G episodes with rewards R. Failed episodes are not part of it: they have no reward, and do not count in the
mean, in the deviation, or in G. The advantage of an episode without another one in its group is 0. If `scale` divides
by a statistic and all rewards of the group are equal, their advantages are also 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from ludus.trainer.core.config_learning import AdvantageConfig
from ludus.trainer.core.errors import LearningError

EPSILON: Final = 1e-6
"""Added to the divisors of `scale`."""


def group_advantages(rewards: Tensor, config: AdvantageConfig) -> Tensor:
    """Return the configured advantages [G] of a group's rewards [G]. `whiten` does the rest of `scale = "batch"`.

    * GRPO (2402.03300): baseline mean, scale group
    * Dr.GRPO (2503.20783): mean, none
    * RLOO (2402.14740): leave_one_out, none
    * REINFORCE++ (2501.03262): none, batch; its variant with a baseline: mean, batch
    * MaxRL (2602.02710): mean, mean

    Raises:
        LearningError: the mean is the divisor, and it is negative.
    """
    if len(rewards) < 2:
        return torch.zeros_like(rewards)
    match config.baseline:
        case "mean":
            centred = rewards - rewards.mean()
        case "leave_one_out":
            centred = rewards - leave_one_out(rewards)
        case "none":
            centred = rewards
    if config.scale in ("none", "batch"):
        return centred
    if rewards.min() == rewards.max():
        return torch.zeros_like(rewards)
    if config.scale == "group":
        return centred / (rewards.std() + EPSILON)
    mean = rewards.mean()
    if mean < 0:
        raise LearningError(
            f'advantages.scale = "mean" (MaxRL) divides by the mean reward, which must not be negative; a group has '
            f"{mean:.3g}. Shift the environment's rewards, or choose another scale."
        )
    return centred / (mean + EPSILON)


def leave_one_out(rewards: Tensor) -> Tensor:
    """Return the mean of the other rewards, (Σ R − Rᵢ)/(G − 1), for each of at least two episodes."""
    return (rewards.sum() - rewards) / (len(rewards) - 1)


def whiten(advantages: Tensor, tokens: Tensor) -> Tensor:
    """Return (A − mean)/(std + ε), with mean and std over all tokens of the step: REINFORCE++ (2501.03262).

    Args:
        advantages: [E], one for each episode or turn of the step.
        tokens: [E], the number of tokens with that advantage.
    """
    total = tokens.sum()
    if total <= 1 or advantages.min() == advantages.max():
        return torch.zeros_like(advantages)
    mean = (tokens * advantages).sum() / total
    variance = (tokens * (advantages - mean).square()).sum() / (total - 1)
    return (advantages - mean) / (variance.sqrt() + EPSILON)


def returns_to_go(rewards: Tensor, discount: float) -> Tensor:
    """Return the discounted reward from each turn on, Σ_{v ≥ u} γ^(v − u) r_v, of rewards [G, turns]."""
    returns, following = torch.empty_like(rewards), torch.zeros_like(rewards[:, :1]).squeeze(1)
    for turn in reversed(range(rewards.shape[1])):
        following = returns[:, turn] = rewards[:, turn] + discount * following
    return returns


def step_advantages(rewards: Tensor, exists: Tensor, config: AdvantageConfig) -> Tensor:
    """Return advantages of single turns: their discounted returns-to-go, compared within the group turn by turn.

    Args:
        rewards: [G, turns], the reward of each turn; 0 where an episode has no such turn.
        exists: [G, turns], whether the episode has the turn.
        config: how returns become advantages.

    Returns:
        [G, turns]; 0 where the episode does not have the turn, or no other episode has it.

    Raises:
        LearningError: as for `group_advantages`.
    """
    returns = returns_to_go(rewards, config.discount)
    advantages = torch.zeros_like(returns)
    for turn in range(returns.shape[1]):
        active = exists[:, turn]
        advantages[active, turn] = group_advantages(returns[active, turn], config)
    return advantages


def monte_carlo_advantages(rewards: Tensor, values: Mapping[int, float], discount: float) -> Tensor:
    """Return the advantage of each turn of an episode, by values of its states: VinePPO (2410.01679).

    If every state has a value, this is A_t = r_t + γ V(s_t+1) − V(s_t). The turns between two states a and b with a
    value have one advantage, Σ_{a ≤ u < b} γ^(u − a) r_u + γ^(b − a) V(s_b) − V(s_a).

    Args:
        rewards: [turns], the reward of each turn.
        values: V of states, by the number of turns before them; that of the start is among them. NaN if it should be
            there and is unknown. The value of the end is 0.
        discount: γ.

    Returns:
        [turns]; NaN next to a state whose value is unknown.
    """
    turns = len(rewards)
    state_values = {**{turn: value for turn, value in values.items() if turn < turns}, turns: 0.0}
    advantages = torch.empty_like(rewards)
    for a, b in pairwise(sorted(state_values)):
        earned = returns_to_go(rewards[None, a:b], discount)[0, 0]
        advantages[a:b] = earned + discount ** (b - a) * state_values[b] - state_values[a]
    return advantages


def overlong_penalty(length: int, limit: int, window: int) -> float:
    """Return DAPO's soft overlong punishment (2503.14476, equation 13), which is added to the reward: 0 until `window`
    tokens before the limit, then falling linearly to −1 at the limit. It is always 0 if `window` is 0.
    """
    if window == 0:
        return 0.0
    return -min(1.0, max(0.0, (length - (limit - window)) / window))
