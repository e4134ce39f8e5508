"""Evaluation of the policy on held-out tasks: mean reward, pass@k and pass^k, with confidence intervals."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ludus.client.seeds import derive_seed
from ludus.client.summary import SUCCESS_TOLERANCE, pass_at_k, pass_hat_k, wilson
from ludus.protocol.episodes import TaskRow
from ludus.trainer.chains.results import by_position, passes, return_of
from ludus.trainer.collecting.episodes import Player
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import RolloutError, unwrap_exception_group
from ludus.trainer.core.samples import RolloutGroup, scored_rewards
from ludus.trainer.rollouts.groups import ConnectedEnvironment, GroupSpec
from ludus.trainer.rollouts.sampler import TaskSampler
from ludus.trainer.rollouts.summary import no_value_message
from ludus.trainer.self_play.results import against_all, seated_metrics, whole_tasks

if TYPE_CHECKING:
    from ludus.rendering import Renderer
    from ludus.trainer.core.frozen import FrozenPolicies
    from ludus.trainer.engines.base import Engine
    from ludus.trainer.rollouts.harness import HarnessPlayer

PERSISTENCE: Final = 16
"""How many times the persistent baseline samples a turn again, at most."""
RESAMPLES: Final = 2_000


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    metrics: dict[str, float]
    """The metrics, named `evaluation/<label>/…`; see `evaluation_metrics`."""
    groups: tuple[RolloutGroup, ...]
    """The episodes, one group for each task."""


async def evaluate(
    engine: Engine,
    renderer: Renderer,
    source: TaskSampler,
    config: TrainConfig,
    *,
    persistent: bool = False,
    harness: HarnessPlayer | None = None,
    frozen: FrozenPolicies | None = None,
) -> Evaluation:
    """Run the held-out tasks of every environment. Tasks and seeds are the same in every evaluation of every run.

    In self-play, environments with seats are played against each opponent of `evaluated_plans`, from each seat. Chains
    are played whole.

    Args:
        engine: the engine that holds the policy.
        renderer: the renderer of the engine's model.
        source: the connected environments.
        config: the run's; `evaluation` sets the tasks, the samples and the temperature.
        persistent: evaluate a baseline that does not give up: a turn without a tool call is sampled again, up to
            `PERSISTENCE` times. Environments that grade a final message are left out, and no episodes are returned;
            the metrics are named `evaluation/<label>/persistent/…`.
        harness: the program that plays the episodes; None for the trainer's own loop.
        frozen: the snapshots that play as frozen opponents; None without self-play.

    Raises:
        RolloutError: no episode of any environment was scored.
        TrainerError: a server is unreachable or refuses, or the engine fails.
    """
    chosen = config.evaluation
    player = Player(
        engine,
        renderer,
        config.rollouts,
        source.episode_slots,
        temperature=chosen.temperature,
        persistence=PERSISTENCE if persistent else 0,
        wait_for_all=True,
        harness=harness,
        frozen=frozen,
    )
    environments = [candidate for candidate in source.evaluated if not (persistent and candidate.info.gradable)]
    draws = [
        draw for environment in environments
        for draw in against_all(held_out(environment, chosen.split, chosen.tasks), source.opponents)
    ]  # fmt: skip

    async def play(draw: GroupSpec) -> RolloutGroup:
        rollouts = await player.group(draw, chosen.samples)
        task = rollouts[0 if draw.chain > 1 else -1].trajectory.task.id
        return RolloutGroup(draw.task.index, draw.environment.label, task, rollouts, engine.version, draw.plan)

    with unwrap_exception_group():
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(play(draw)) for draw in draws]
    groups = tuple(task.result() for task in running)
    if groups and not any(group.scored for group in groups):
        raise RolloutError(no_value_message(groups))
    metrics: dict[str, float] = {}
    for environment in environments:
        own_groups = [group for group in groups if group.environment == environment.label]
        if any(group.plan is not None for group in own_groups):
            figures = evaluation_metrics(whole_tasks(own_groups), 1, chosen.threshold) | seated_metrics(
                own_groups, environment.info
            )
        else:
            figures = evaluation_metrics(own_groups, chosen.samples, chosen.threshold)
            if environment.chain > 1:
                figures |= chain_figures(own_groups)
        prefix = f"evaluation/{environment.label}{'/persistent' if persistent else ''}"
        metrics |= {f"{prefix}/{name}": value for name, value in figures.items()}
    return Evaluation(metrics, () if persistent else groups)


def held_out(environment: ConnectedEnvironment, split: str, count: int) -> list[GroupSpec]:
    """Return `count` random tasks of a split, or all tasks if it has fewer. The choice is the same every time. Where
    chains are played, return the first tasks of random chains with at least that many tasks together."""
    size, chain = next(row.count for row in environment.info.splits if row.name == split), environment.chain
    count, size = -(-count // chain), size and size // chain
    chosen = range(count) if size is None else sorted(random.Random(0).sample(range(size), min(count, size)))
    indices = [number * chain for number in chosen]
    return [
        GroupSpec(
            name=f"{environment.label}.{split}.{index}",
            environment=environment,
            task=TaskRow(id=str(index), split=split, index=index, fields={}),
            seed=derive_seed("evaluation", split, index),
        )
        for index in indices
    ]


def evaluation_metrics(groups: Sequence[RolloutGroup], samples: int, threshold: float) -> dict[str, float]:
    """Return `mean`, and `pass@k` and `pass^k` for every power of two k up to `samples`, each with `_low` and `_high`.

    Means are over tasks. Failed episodes are left out and counted in `failed`. A task with fewer than k scored
    episodes does not count in the metrics of k; a metric for which no task counts is left out. Where chains are played,
    `mean` is the mean reward of a task, and a chain passes if each of its tasks does; intervals are over chains.
    """
    rewards = [scored_rewards(group.rollouts) for group in groups]
    tries = [passes(group, threshold - SUCCESS_TOLERANCE) for group in groups]
    figures: dict[str, list[float]] = {
        "mean": [math.fsum(task_rewards) / len(task_rewards) for task_rewards in rewards if task_rewards]
    }
    for k in (2**power for power in range(samples.bit_length())):
        counts = [(len(task_tries), sum(task_tries)) for task_tries in tries if len(task_tries) >= k]
        figures[f"pass@{k}"] = [pass_at_k(tries, wins, k) for tries, wins in counts]
        figures[f"pass^{k}"] = [pass_hat_k(tries, wins, k) for tries, wins in counts]
    metrics = {"failed": float(sum(len(group.rollouts) - len(group.scored) for group in groups))}
    return metrics | _with_intervals(figures)


def chain_figures(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return `return`, the mean sum of the rewards of a chain, and `task_<n>`, the mean reward of its n-th task from 1,
    each with `_low` and `_high`. Means and intervals are over chains."""
    figures = {f"task_{position + 1}": means for position, means in by_position(groups).items()}
    metrics = _with_intervals(figures)
    if lengths := [chain[0].chain.length for group in groups for chain in group.chains if chain[0].chain is not None]:
        returns = [[return_of(chain) / lengths[0] for chain in group.chains] for group in groups]
        of_a_task = _with_intervals(
            {"return": [math.fsum(chain_returns) / len(chain_returns) for chain_returns in returns if chain_returns]}
        )
        metrics |= {name: value * lengths[0] for name, value in of_a_task.items()}
    return metrics


def _with_intervals(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the mean of each figure's values with its interval, `_low` and `_high`; leave out those without values."""
    metrics: dict[str, float] = {}
    for name, values in figures.items():
        if values:
            low, high = interval(values)
            metrics |= {name: math.fsum(values) / len(values), f"{name}_low": low, f"{name}_high": high}
    return metrics


def interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return a 95 % confidence interval of the mean of one value per task. Tasks are resampled, not episodes.

    If every value is 0 or 1, it is Wilson's interval, which is meaningful even when all values are equal. Otherwise it
    is the percentile bootstrap of 2,000 resamples (Efron 1979), the same for the same seed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    if set(values) <= {0, 1}:
        return wilson(round(sum(values)), len(values))
    tensor = torch.tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    means = tensor[torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)].mean(dim=1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
