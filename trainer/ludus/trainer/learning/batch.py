"""Conversion of groups of episodes to one batch of samples with advantages and weights per token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from ludus.trainer.config import AdvantageConfig, TrainConfig
from ludus.trainer.learning.advantages import group_advantages, overlong_penalty, step_advantages, whiten
from ludus.trainer.learning.losses import aggregation_weights
from ludus.trainer.samples import Rollout, RolloutGroup, RolloutStatus, Sample, TrainBatch, TrainSample, scored_rewards

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
    * `loss.truncated = "mask"` leaves out the tokens of truncated episodes, which still count in the baseline.
    * The weights' denominator counts the remaining tokens of the whole step. Samples without any are not in the batch,
      which may be empty.

    Raises:
        LearningError: the configured advantages do not support these rewards.
    """
    episodes = [episode for group in groups for episode in _compare(group, config)]
    if config.advantages.scale == "batch":
        _whiten(episodes, config.advantages)
    constant = config.loss.constant or config.rollouts.context
    weights = aggregation_weights([e.counts.total() for e in episodes], config.loss.aggregation, constant)
    samples = [
        _train_sample(sample, episode.credit, weight, number)
        for number, (episode, weight) in enumerate(zip(episodes, weights, strict=True))
        if weight
        for sample in episode.rollout.samples
    ]
    return TrainBatch(tuple(item for item in samples if any(item.weights)), tuple(groups))


def split_minibatches(batch: TrainBatch, config: TrainConfig) -> list[TrainBatch]:
    """Split the batch into `optimizer.minibatches` parts of whole groups, one for each optimizer step, and recompute
    the weights' denominator for each. There are fewer if there are fewer groups; a batch without groups is not split.
    """
    parts = min(config.optimizer.minibatches, len(batch.groups))
    if parts <= 1:
        return [batch]
    constant = config.loss.constant or config.rollouts.context
    part_of = [number * parts // len(batch.groups) for number, group in enumerate(batch.groups) for _ in group.scored]
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
    to an episode, or with `advantages.credit = "step"` to a turn, whose return differs from those it is compared with.

    Returns are compared, not lists of rewards: episodes of different length with the same total, or the same returns
    from each turn on, have advantages of 0. Differences that are only rounding do not count.
    """
    plain = config.advantages.model_copy(update={"baseline": "mean", "scale": "none"})
    episodes = _compare(group, config.model_copy(update={"advantages": plain}))
    scale = max((abs(reward) for reward in scored_rewards(group.rollouts)), default=0.0)
    rounding = ROUNDING * max(1.0, scale)
    return any(abs(e.credit[turn]) > rounding for e in episodes for turn, count in e.counts.items() if count)


def _compare(group: RolloutGroup, config: TrainConfig) -> list[_Episode]:
    """Return the scored episodes of a group with the advantage of each turn."""
    rollouts = group.scored
    limit, window = config.rollouts.context, config.loss.overlong
    penalties = [overlong_penalty(max((len(s.ids) for s in r.samples), default=0), limit, window) for r in rollouts]
    turns = [max([len(r.turn_rewards), *(turn + 1 for s in r.samples for turn in s.turns)]) for r in rollouts]
    if config.advantages.credit == "step":
        rewards = torch.zeros(len(rollouts), max(turns, default=0), dtype=torch.float64)
        taken = torch.zeros_like(rewards, dtype=torch.bool)
        for row, (rollout, count, penalty) in enumerate(zip(rollouts, turns, penalties, strict=True)):
            rewards[row, : len(rollout.turn_rewards)] = torch.tensor(rollout.turn_rewards, dtype=torch.float64)
            rewards[row, count - 1 : count] += penalty
            taken[row, :count] = True
        credits = step_advantages(rewards, taken, config.advantages).tolist()
    else:
        totals = [r + penalty for r, penalty in zip(scored_rewards(rollouts), penalties, strict=True)]
        advantages = group_advantages(torch.tensor(totals, dtype=torch.float64), config.advantages).tolist()
        credits = [[advantage] * count for advantage, count in zip(advantages, turns, strict=True)]
    alone = len(rollouts) < 2
    return [
        _Episode(rollout, credit, Counter() if alone else _counts(rollout, config))
        for rollout, credit in zip(rollouts, credits, strict=True)
    ]


def _counts(rollout: Rollout, config: TrainConfig) -> Counter[int]:
    if rollout.status is RolloutStatus.TRUNCATED and config.loss.truncated == "mask":
        return Counter()
    return Counter(
        turn for sample in rollout.samples for turn, count in zip(sample.turns, counted(sample), strict=True) if count
    )


def counted(sample: Sample) -> list[bool]:
    """Return for each token whether it can be learned from: it was sampled, with a finite log-probability."""
    return [own and math.isfinite(logprob) for own, logprob in zip(sample.mask, sample.logprobs, strict=True)]


def _whiten(episodes: Sequence[_Episode], config: AdvantageConfig) -> None:
    places = [(episode, turn) for episode in episodes for turn in range(len(episode.credit))]
    if not places:
        return
    advantages = torch.tensor([episode.credit[turn] for episode, turn in places], dtype=torch.float64)
    tokens = torch.tensor([episode.counts[turn] for episode, turn in places], dtype=torch.float64)
    for (episode, turn), advantage in zip(places, whiten(advantages, tokens, config).tolist(), strict=True):
        episode.credit[turn] = advantage


def _train_sample(sample: Sample, credit: Sequence[float], weight: float, sequence: int) -> TrainSample:
    advantages = tuple(credit[turn] if own else 0.0 for turn, own in zip(sample.turns, sample.mask, strict=True))
    return TrainSample(sample, advantages, tuple(weight if count else 0.0 for count in counted(sample)), sequence)
