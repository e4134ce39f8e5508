"""Conversion of groups of episodes to one batch of samples with advantages and weights per token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import (
    Rollout,
    RolloutGroup,
    RolloutStatus,
    Sample,
    TrainBatch,
    TrainSample,
    scored,
    scored_rewards,
)
from ludus.trainer.learning.advantages import (
    group_advantages,
    monte_carlo_advantages,
    overlong_penalty,
    returns_to_go,
    step_advantages,
    whiten,
)
from ludus.trainer.learning.losses import aggregation_weights
from ludus.trainer.learning.returns import with_chain_returns

ROUNDING: Final = 1e-9
"""Returns whose difference, relative to the greatest reward, is at most this count as equal."""


@dataclass(slots=True)
class _Episode:
    rollout: Rollout
    credit: list[float]
    """The advantage of each turn."""
    counts: Counter[int]
    """The number of tokens of each turn that count in the loss."""


def make_batch(groups: Sequence[RolloutGroup], config: TrainConfig) -> TrainBatch:
    """Compute advantages and weights of the tokens of some groups, for one optimizer step.

    * A failed episode does not count in mean, deviation, G, or loss.
    * An episode whose group has no other scored episode has no comparison and is left out.
    * A token whose log-probability is not finite is left out.
    * A turn next to a state of unknown value is left out (`advantages.credit = "monte_carlo"`).
    * `loss.truncated = "mask"` leaves out the tokens of truncated episodes, which still count in the baseline.
    * The weights' denominator counts the remaining tokens of the whole step. Samples without any are not in the batch,
      which may be empty.

    Raises:
        LearningError: the configured advantages do not support these rewards.
    """
    episodes = [episode for group in groups for episode in _compare(group, config)]
    if config.advantages.scale == "batch":
        _whiten(episodes)
    constant = config.loss.constant or config.rollouts.context
    weights = aggregation_weights([e.counts.total() for e in episodes], config.loss.aggregation, constant)
    samples = [
        _train_sample(sample, episode.credit, weight, number)
        # Numbered with the episodes that do not count: `split_minibatches` finds the group by this number.
        for number, (episode, weight) in enumerate(zip(episodes, weights, strict=True))
        if weight
        for sample in episode.rollout.samples
    ]
    unvalued = sum(math.isnan(value) for episode in episodes for value in episode.credit)
    return TrainBatch(tuple(item for item in samples if any(item.weights)), tuple(groups), unvalued)


def split_minibatches(batch: TrainBatch, config: TrainConfig) -> list[TrainBatch]:
    """Split the batch into `optimizer.minibatches` parts of whole groups, one for each optimizer step, and recompute
    the weights' denominator for each. There are fewer if there are fewer groups; a batch without groups is not split.
    """
    parts = min(config.optimizer.minibatches, len(batch.groups))
    if parts <= 1:
        return [batch]
    constant = config.loss.constant or config.rollouts.context
    part_of = [
        number * parts // len(batch.groups) for number, g in enumerate(batch.groups) for _ in range(_learned(g, config))
    ]
    minibatches = []
    for part in range(parts):
        samples = [item for item in batch.samples if part_of[item.sequence] == part]
        counts = Counter[int]()
        for item in samples:
            counts[item.sequence] += sum(map(bool, item.weights))
        weights = aggregation_weights(list(counts.values()), config.loss.aggregation, constant)
        weight_of = dict(zip(counts, weights, strict=True))
        samples = [
            replace(item, weights=tuple(weight_of[item.sequence] if weight else 0.0 for weight in item.weights))
            for item in samples
        ]
        groups = [group for number, group in enumerate(batch.groups) if number * parts // len(batch.groups) == part]
        if samples:
            minibatches.append(TrainBatch(tuple(samples), tuple(groups)))
    return minibatches


def informative(group: RolloutGroup, config: TrainConfig) -> bool:
    """Return whether the policy can learn from comparing the group's episodes: a token that counts in the loss belongs
    to an episode, or with `advantages.credit = "step"` to a turn, whose return differs from those it is compared with;
    or with `"monte_carlo"` to a turn that has changed the state's value.

    Returns are compared, not lists of rewards: episodes of different length with the same total, or the same returns
    from each turn on, have advantages of 0. Differences that are only rounding do not count.
    """
    plain = config.advantages.model_copy(update={"baseline": "mean", "scale": "none"})
    episodes = _compare(group, config.model_copy(update={"advantages": plain}))
    scale = max((abs(reward) for reward in scored_rewards(group.rollouts)), default=0.0)
    rounding = ROUNDING * max(1.0, scale)
    return any(abs(e.credit[turn]) > rounding for e in episodes for turn, count in e.counts.items() if count)


def _compare(group: RolloutGroup, config: TrainConfig) -> list[_Episode]:
    """Return the scored episodes of a group with the advantage of each turn, in the order of `_learned`. Those of a
    match are compared with the same seat of the group's other matches, and those of a chain with the same task of its
    other samples."""
    if config.chains is not None:
        group = with_chain_returns(group, config.chains)
    return [
        episode for compared in group.comparable for episode in _compare_seat(replace(group, rollouts=compared), config)
    ]


def _compare_seat(group: RolloutGroup, config: TrainConfig) -> list[_Episode]:
    rollouts = group.scored
    rewards = [_turn_rewards(rollout, config) for rollout in rollouts]
    if config.advantages.credit == "monte_carlo":
        credits = _monte_carlo(rollouts, rewards, config)
    elif config.advantages.credit == "step":
        table = torch.zeros(len(rollouts), max(map(len, rewards), default=0), dtype=torch.float64)
        exists = torch.zeros_like(table, dtype=torch.bool)
        for row, turn_rewards in enumerate(rewards):
            table[row, : len(turn_rewards)] = turn_rewards
            exists[row, : len(turn_rewards)] = True
        credits = step_advantages(table, exists, config.advantages).tolist()
    else:
        credits = _whole(rewards, config)
    # No token counts without a comparison, but the episode stays, so that the numbers of `_learned` match.
    alone = len(rollouts) < 2
    episodes = [
        _Episode(rollout, credit, Counter() if alone else _counts(rollout, credit, config))
        for rollout, credit in zip(rollouts, credits, strict=True)
    ]
    for siblings in _siblings(group, config):
        credits = _whole([_turn_rewards(continuation, config) for continuation in siblings], config)
        episodes += [
            _Episode(continuation, c, _counts(continuation, c, config))
            for continuation, c in zip(siblings, credits, strict=True)
        ]
    return episodes


def _learned(group: RolloutGroup, config: TrainConfig) -> int:
    """Return the number of episodes of a group that count in the loss."""
    return len(group.scored) + sum(map(len, _siblings(group, config)))


def _siblings(group: RolloutGroup, config: TrainConfig) -> list[tuple[Rollout, ...]]:
    """Return the continuations to learn from, in sets that are compared with each other: those of one state."""
    if not config.advantages.monte_carlo.train:
        return []
    sets = [
        scored(continuations) for rollout in group.scored for _, continuations in sorted(rollout.continuations.items())
    ]
    return [siblings for siblings in sets if len(siblings) > 1]


def _turn_rewards(rollout: Rollout, config: TrainConfig) -> Tensor:
    """Return the reward of each turn, with the penalty for length in the last one."""
    penalty = overlong_penalty(
        max((len(sample.ids) for sample in rollout.samples), default=0), config.rollouts.context, config.loss.overlong
    )
    # A turn may have tokens but no reward, for example a truncated one, and its credit is looked up by turn.
    turns = max([len(rollout.turn_rewards), *(turn + 1 for sample in rollout.samples for turn in sample.turns)])
    rewards = torch.zeros(turns, dtype=torch.float64)
    rewards[: len(rollout.turn_rewards)] = torch.tensor(rollout.turn_rewards, dtype=torch.float64)
    rewards[turns - 1 : turns] += penalty
    return rewards


def _whole(rewards: Sequence[Tensor], config: TrainConfig) -> list[list[float]]:
    """Return for each turn the advantage of its whole episode."""
    # `fsum`, because equal rewards in another order must give equal totals: rounding would become an advantage.
    totals = torch.tensor([math.fsum(turn_rewards.tolist()) for turn_rewards in rewards], dtype=torch.float64)
    advantages = group_advantages(totals, config.advantages).tolist()
    return [[advantage] * len(turn_rewards) for advantage, turn_rewards in zip(advantages, rewards, strict=True)]


def _monte_carlo(rollouts: Sequence[Rollout], rewards: Sequence[Tensor], config: TrainConfig) -> list[list[float]]:
    """Return for each turn its advantage by the values of the states before and after it; NaN if one is unknown.

    The value of a state is the mean return of its scored continuations. For the start, which the whole group shares,
    these are the other episodes of the group.
    """
    discount = config.advantages.discount

    def value(continuations: Sequence[Tensor], turn: int) -> float:
        returns = [
            float(returns_to_go(turn_rewards[None, turn:], discount)[0, 0])
            for turn_rewards in continuations
            if len(turn_rewards) > turn
        ]
        return math.fsum(returns) / len(returns) if returns else math.nan

    credits = []
    for index, (rollout, turn_rewards) in enumerate(zip(rollouts, rewards, strict=True)):
        # Without the episode itself: a baseline that holds its own return would depend on its own actions.
        values = {0: value([*rewards[:index], *rewards[index + 1 :]], 0)}
        for turn, continued in rollout.continuations.items():
            values[turn] = value([_turn_rewards(continuation, config) for continuation in scored(continued)], turn)
        credits.append(monte_carlo_advantages(turn_rewards, values, discount).tolist())
    return credits


def _counts(rollout: Rollout, credit: Sequence[float], config: TrainConfig) -> Counter[int]:
    if rollout.status is RolloutStatus.TRUNCATED and config.loss.truncated == "mask":
        return Counter()
    return Counter(
        turn
        for sample in rollout.samples
        for turn, count in zip(sample.turns, counted(sample), strict=True)
        if count and not math.isnan(credit[turn])
    )


def counted(sample: Sample) -> list[bool]:
    """Return for each token whether it can be learned from: it was sampled, with a finite log-probability."""
    return [sampled and math.isfinite(logprob) for sampled, logprob in zip(sample.mask, sample.logprobs, strict=True)]


def _whiten(episodes: Sequence[_Episode]) -> None:
    turns = [(e, turn) for e in episodes for turn, value in enumerate(e.credit) if not math.isnan(value)]
    if not turns:
        return
    advantages = torch.tensor([episode.credit[turn] for episode, turn in turns], dtype=torch.float64)
    tokens = torch.tensor([episode.counts[turn] for episode, turn in turns], dtype=torch.float64)
    for (episode, turn), advantage in zip(turns, whiten(advantages, tokens).tolist(), strict=True):
        episode.credit[turn] = advantage


def _train_sample(sample: Sample, credit: Sequence[float], weight: float, sequence: int) -> TrainSample:
    sampled = [mine and not math.isnan(credit[turn]) for turn, mine in zip(sample.turns, sample.mask, strict=True)]
    # A weight of 0 does not remove an unknown credit: 0 · NaN is NaN, and would reach every parameter.
    advantages = tuple(
        credit[turn] if is_sampled else 0.0 for turn, is_sampled in zip(sample.turns, sampled, strict=True)
    )
    counting = zip(counted(sample), sampled, strict=True)
    return TrainSample(sample, advantages, tuple(weight if all(flags) else 0.0 for flags in counting), sequence)
