"""Advantages: how much better an episode, or a turn of it, went than others of its group. Pure functions on tensors.

A group has G episodes with rewards R. Failed episodes are no part of it: they have no reward, and count neither in the
mean, nor in the deviation, nor in G. An episode that has nobody to be compared with has the advantage 0, and so have
those of a group whose rewards are all the same where these are to be divided by something.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.trainer.config import AdvantageConfig
from ludus.trainer.errors import LearningError


def group_advantages(rewards: Tensor, config: AdvantageConfig) -> Tensor:
    """Advantages [G] of a group's rewards [G], as configured; `scale = "batch"` is left to `whiten`.

    * GRPO (2402.03300): baseline mean, scale group
    * Dr.GRPO (2503.20783): mean, none
    * RLOO (2402.14740): leave_one_out, none
    * REINFORCE++ (2501.03262): none, batch; its variant with a baseline: mean, batch
    * MaxRL (2602.02710): mean, mean

    Raises:
        LearningError: a negative mean, where the mean is the divisor.
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
        return centred / (rewards.std(correction=config.ddof) + config.epsilon)
    mean = rewards.mean()
    if mean < 0:
        raise LearningError(
            f'advantages.scale = "mean" (MaxRL) divides by the mean reward, which must not be negative; a group has '
            f"{mean:.3g}. Shift the environment's rewards, or choose another scale."
        )
    return centred / (mean + config.epsilon)


def leave_one_out(rewards: Tensor) -> Tensor:
    """The mean of the others, (Σ R − Rᵢ)/(G − 1), for each of at least two episodes."""
    return (rewards.sum() - rewards) / (len(rewards) - 1)


def whiten(advantages: Tensor, tokens: Tensor, config: AdvantageConfig) -> Tensor:
    """(A − mean)/(std + ε), both over all tokens of the step: REINFORCE++ (2501.03262).

    Args:
        advantages: [E], one for each episode or turn of the step.
        tokens: [E], how many tokens have it.
    """
    total = tokens.sum()
    if total <= config.ddof or advantages.min() == advantages.max():
        return torch.zeros_like(advantages)
    mean = (tokens * advantages).sum() / total
    variance = (tokens * (advantages - mean).square()).sum() / (total - config.ddof)
    return (advantages - mean) / (variance.sqrt() + config.epsilon)


def returns_to_go(rewards: Tensor, discount: float) -> Tensor:
    """What each turn and those after it earned, Σ_{v ≥ u} γ^(v − u) r_v, from rewards [G, turns]."""
    returns, following = torch.empty_like(rewards), torch.zeros_like(rewards[:, :1]).squeeze(1)
    for turn in reversed(range(rewards.shape[1])):
        following = returns[:, turn] = rewards[:, turn] + discount * following
    return returns


def step_advantages(rewards: Tensor, taken: Tensor, config: AdvantageConfig) -> Tensor:
    """Advantages of single turns: their discounted returns-to-go, compared within the group turn by turn.

    Args:
        rewards: [G, turns], what each turn earned; 0 where an episode did not get that far.
        taken: [G, turns], whether the episode took the turn.

    Returns:
        [G, turns]; 0 where the turn was not taken, or by nobody else.

    Raises:
        LearningError: as for `group_advantages`.
    """
    returns = returns_to_go(rewards, config.discount)
    advantages = torch.zeros_like(returns)
    for turn in range(returns.shape[1]):
        there = taken[:, turn]
        advantages[there, turn] = group_advantages(returns[there, turn], config)
    return advantages


def overlong_penalty(length: int, limit: int, window: int) -> float:
    """DAPO's soft overlong punishment (2503.14476, equation 13), added to the reward: 0 until `window` tokens before
    the limit, from there falling linearly to −1 at it; 0 when the window is 0.
    """
    if window == 0:
        return 0.0
    return -min(1.0, max(0.0, (length - (limit - window)) / window))
