"""What chains say: their returns, the mean reward of each of their tasks, and how many were played again."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus
from ludus.trainer.rollouts.sampler import TaskSampler


def return_of(chain: Sequence[Rollout]) -> float:
    """Return the sum of the rewards of a chain's tasks."""
    return math.fsum(rollout.reward or 0.0 for rollout in chain)


def passes(group: RolloutGroup, least: float) -> list[bool]:
    """Return whether each scored try of a group passed: an episode, or a whole chain, each of whose tasks passed.

    Args:
        group: the tries.
        least: the lowest reward of a task that passes.
    """
    if not any(rollout.chain for rollout in group.rollouts):
        return [rollout.reward >= least for rollout in group.rollouts if rollout.reward is not None]
    return [
        len(chain) == chain[0].chain.length and all((rollout.reward or 0.0) >= least for rollout in chain)
        for chain in group.chains
        if chain[0].chain is not None
    ]


def by_position(groups: Sequence[RolloutGroup]) -> dict[int, list[float]]:
    """Return for each task of a chain, by its number from 0, the mean reward in each group that has one."""
    means: dict[int, list[float]] = defaultdict(list)
    for group in groups:
        rewards_at: dict[int, list[float]] = defaultdict(list)
        for rollout in group.scored:
            if rollout.chain is not None and rollout.reward is not None:
                rewards_at[rollout.chain.position].append(rollout.reward)
        for position, rewards in rewards_at.items():
            means[position].append(math.fsum(rewards) / len(rewards))
    return dict(sorted(means.items()))


def chain_metrics(
    groups: Sequence[RolloutGroup], dropped: Sequence[RolloutGroup], source: TaskSampler
) -> dict[str, float]:
    """Return the metrics of the chains of a batch and of the groups dropped since the previous one.

    `chains/<label>/return` is the mean sum of the rewards of a chain, `task_<n>` the mean reward of its n-th task (from
    1), `cut` the share of chains that were ended because others waited for them, `replayed` the number of chains that
    broke and were played again or given up.
    """
    metrics: dict[str, float] = {}
    for label in [environment.label for environment in source.environments if environment.chain > 1]:
        label_groups = [group for group in (*groups, *dropped) if group.environment == label]
        chains = [chain for group in label_groups for chain in group.chains]
        if not label_groups:
            continue
        metrics[f"chains/{label}/replayed"] = float(sum(map(_broken, label_groups)))
        if not chains:
            continue
        metrics[f"chains/{label}/return"] = math.fsum(map(return_of, chains)) / len(chains)
        cut = sum(chain[0].chain is not None and len(chain) < chain[0].chain.length for chain in chains)
        metrics[f"chains/{label}/cut"] = cut / len(chains)
        for position, means in by_position(label_groups).items():
            metrics[f"chains/{label}/task_{position + 1}"] = math.fsum(means) / len(means)
    return metrics


def _broken(group: RolloutGroup) -> int:
    """Return how many attempts at a chain failed: each has one rollout of the first task."""
    failed = RolloutStatus.FAILED
    return sum(r.status is failed and r.chain is not None and r.chain.position == 0 for r in group.rollouts)
