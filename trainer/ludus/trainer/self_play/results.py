"""What matches say: wins, draws and losses by opponent and by seat."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ludus.client.summary import wilson
from ludus.protocol.episodes import EnvironmentInfo
from ludus.trainer.core.opponents import CURRENT, POINTS, Opponents, Outcome, outcome_of
from ludus.trainer.core.samples import RolloutGroup
from ludus.trainer.rollouts.groups import GroupSpec
from ludus.trainer.rollouts.sampler import TaskSampler

NAMES: Final[Mapping[Outcome, str]] = {"win": "won", "draw": "drawn", "loss": "lost"}
"""Outcome → name of the metric with its share."""


def outcomes(groups: Sequence[RolloutGroup], reward_range: tuple[float, float]) -> list[Outcome]:
    """Return the outcome of each scored match, for each seat that the policy played in it."""
    rewards = [rollout.reward for group in groups for rollout in group.scored]
    return [outcome_of(reward, reward_range) for reward in rewards if reward is not None]


def match_metrics(
    groups: Sequence[RolloutGroup], dropped: Sequence[RolloutGroup], source: TaskSampler
) -> dict[str, float]:
    """Return the metrics of the matches of a batch and of the groups dropped since the previous one.

    `self_play/<label>/<opponent>/won`, `drawn`, `lost` and `matches` for each opponent but the policy itself, where the
    snapshots are one opponent, `pool`; `self_play/<label>/seat/<seat>` is the mean reward of a seat.
    """
    found: dict[str, float] = {}
    for environment in source.environments:
        label, declared = environment.label, environment.info.reward_range
        own = [group for group in (*groups, *dropped) if group.environment == label and group.plan is not None]
        by_opponent: dict[str, list[RolloutGroup]] = defaultdict(list)
        by_seat: dict[str, list[float]] = defaultdict(list)
        for group in own:
            assert group.plan is not None
            if group.plan.kind != "current":
                name = "pool" if group.plan.kind == "snapshot" else group.plan.opponent
                by_opponent[name].append(group)
            for rollout in group.scored:
                by_seat[rollout.seat].append(rollout.reward or 0.0)
        for name, many in by_opponent.items():
            if declared is not None and (results := outcomes(many, declared)):
                found |= {f"self_play/{label}/{name}/{key}": value for key, value in shares(results).items()}
        found |= {
            f"self_play/{label}/seat/{seat}": math.fsum(many) / len(many) for seat, many in sorted(by_seat.items())
        }
    return found


def shares(results: Sequence[Outcome]) -> dict[str, float]:
    """Return the shares `won`, `drawn` and `lost`, and the number of `matches`."""
    found = {name: results.count(outcome) / len(results) for outcome, name in NAMES.items()}
    return found | {"matches": float(len(results))}


def against_all(draws: Sequence[GroupSpec], opponents: Opponents | None) -> list[GroupSpec]:
    """Return the draws of an evaluation; those of environments with seats once for each opponent and seat."""
    found: list[GroupSpec] = []
    for draw in draws:
        info = draw.environment.info
        if opponents is None or not info.seats:
            found.append(draw)
            continue
        for plan in opponents.evaluated(info):
            name = f"{draw.name}.{plan.opponent}.{'.'.join(plan.seats)}"
            found.append(replace(draw, name=name, plan=plan))
    return found


def whole_tasks(groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
    """Return one group for each task, with its matches against all scripted opponents and from all seats. If none was
    scripted, those against the others count: the policy's own snapshots change during a run, and scripts do not."""
    scripted = [group for group in groups if group.plan is not None and group.plan.kind == "scripted"]
    by_task: dict[str, list[RolloutGroup]] = defaultdict(list)
    for group in scripted or groups:
        by_task[group.task].append(group)
    return [replace(own[0], rollouts=tuple(r for group in own for r in group.rollouts)) for own in by_task.values()]


def seated_metrics(groups: Sequence[RolloutGroup], info: EnvironmentInfo) -> dict[str, float]:
    """Return for each opponent `<opponent>/won`, `drawn` and `lost` with 95 % intervals, `points` (1 for a win, 1/2 for
    a draw) and `matches`; and `seat/<seat>`, the mean reward of a seat against scripted opponents."""
    found: dict[str, float] = {}
    by_opponent: dict[str, list[RolloutGroup]] = defaultdict(list)
    by_seat: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        if group.plan is not None:
            by_opponent[group.plan.opponent].append(group)
            if group.plan.kind == "scripted":
                for rollout in group.scored:
                    by_seat[rollout.seat].append(rollout.reward or 0.0)
    for name, own in by_opponent.items():
        if info.reward_range is not None and name != CURRENT and (results := outcomes(own, info.reward_range)):
            found |= {f"{name}/{key}": value for key, value in evaluated_shares(results).items()}
    return found | {f"seat/{seat}": math.fsum(own) / len(own) for seat, own in sorted(by_seat.items())}


def evaluated_shares(results: Sequence[Outcome]) -> dict[str, float]:
    """Return `shares` with Wilson's interval of each share, and the mean `points` (1 for a win, 1/2 for a draw)."""
    found = shares(results)
    for outcome, name in NAMES.items():
        found[f"{name}_low"], found[f"{name}_high"] = wilson(results.count(outcome), len(results))
    return found | {"points": math.fsum(POINTS[one] for one in results) / len(results)}
