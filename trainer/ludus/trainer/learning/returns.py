"""What counts for one task of a chain: its own rewards, and those of the chain's other tasks. Pure functions.

Samples of a chain begin in branches of one world with one seed, so their first tasks are alike. Later ones are not:
each begins with what its own sample has left. So an episode is responsible for its own rewards and for later ones, and
not for earlier ones, which its actions cannot change. Counting only these (`to_go`) leaves the policy gradient as it is
and removes noise from it (GPOMDP; Baxter and Bartlett 2001, doi:10.1613/jair.806). The baseline is the mean of the same
task in the other samples: it does not depend on what this sample does from then on, so it adds no bias either
(Greensmith, Bartlett and Baxter 2004, JMLR 5:1471), although the worlds are different by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ludus.trainer.core.config import ChainsConfig
from ludus.trainer.core.samples import Rollout, RolloutGroup


def other_rewards(rewards: Sequence[float], config: ChainsConfig) -> list[float]:
    """Return for each task of a chain what the rewards of its other tasks count for it.

    * `to_go`: Σ_{q > p} R_q
    * `chain`: Σ_{q ≠ p} R_q
    * `task`: 0

    Args:
        rewards: the rewards of the tasks, in order. Tasks that a sample did not reach in time are missing and count 0.
        config: the credit.
    """
    match config.credit:
        case "task":
            return [0.0] * len(rewards)
        case "chain":
            return [math.fsum([*rewards[:index], *rewards[index + 1 :]]) for index in range(len(rewards))]
        case "to_go":
            return [math.fsum(rewards[index + 1 :]) for index in range(len(rewards))]


def with_chain_returns(group: RolloutGroup, config: ChainsConfig) -> RolloutGroup:
    """Return a group whose scored rollouts earn in their last turn also what the chain's other tasks count for them.
    Their `reward` stays that of the task. Groups without chains stay as they are."""
    added: dict[int, float] = {}
    for chain in group.chains:
        other_sums = other_rewards([rollout.reward or 0.0 for rollout in chain], config)
        added |= {id(rollout): other_sum for rollout, other_sum in zip(chain, other_sums, strict=True)}
    if not any(added.values()):
        return group
    return replace(group, rollouts=tuple(_earning(rollout, added.get(id(rollout), 0.0)) for rollout in group.rollouts))


def _earning(rollout: Rollout, more: float) -> Rollout:
    if not more:
        return rollout
    *turns, final = rollout.turn_rewards
    return replace(rollout, turn_rewards=(*turns, final + more))
