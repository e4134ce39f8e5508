"""The figures of one cell of an evaluation, from the trajectories of its episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ludus.client.causes import causes_of
from ludus.client.summary import SUCCESS_TOLERANCE, summarize
from ludus.evaluation.config import ModelSpec
from ludus.evaluation.statistics import mean_estimate, paired_difference, pass_estimates, share_estimate
from ludus.protocol.evaluation import (
    CauseCount,
    Cell,
    ComponentFigures,
    EpisodeFigures,
    Interval,
    Probe,
    ProbeFigures,
    TaskFigures,
    Tokens,
)
from ludus.protocol.trajectory import Trajectory

LONGEST_MESSAGE = 1_000
"""The most characters of a cause that the results keep."""


def cell_figures(
    episodes: Sequence[Trajectory],
    *,
    spec: ModelSpec,
    environment: str,
    version: str,
    split: str,
    seeded: bool,
    planned: int,
    samples: int,
    success_at: float,
    reward_range: Interval | None,
    probes: Sequence[ProbeFigures],
    problem: str | None,
    trajectories: str,
) -> Cell:
    """Return the figures of a cell.

    Args:
        episodes: each (task, sample) once.
        spec: the model.
        environment: the environment's name.
        version: its version.
        split: the split.
        seeded: whether the episodes have seeds.
        planned: the number of episodes that belong to the cell.
        samples: the number of episodes per task, up to which pass@k is given.
        success_at: the lowest reward that counts as a success.
        reward_range: the lowest and highest possible reward, if the environment declares them.
        probes: the contamination checks.
        problem: why the cell stopped early.
        trajectories: the file of the episodes, relative to the results.
    """
    by_task = group_by_task(episodes)
    counts = [count for episodes in by_task.values() if (count := _count(episodes, success_at))[0]]
    summary = summarize(episodes, success_at=success_at)
    passes = {k: pass_estimates(counts, k) for k in ks_of(samples)}
    tokens = tokens_of(episodes)
    return Cell(
        model=spec.label,
        environment=environment,
        environment_version=version[:LONGEST_MESSAGE],
        split=split,
        seeded=seeded,
        problem=problem,
        planned=planned,
        episodes=len(episodes),
        scored=summary.scored,
        failed=summary.failed,
        unscored=summary.unscored,
        causes=_causes(episodes),
        success_at=success_at,
        reward_range=reward_range,
        mean=mean_estimate(list(task_means(by_task).values()), reward_range),
        success=share_estimate([passed / scored for scored, passed in counts], summary.scored),
        pass_at={k: at for k, (at, _) in passes.items() if at is not None},
        pass_hat={k: hat for k, (_, hat) in passes.items() if hat is not None},
        components={
            name: ComponentFigures(mean=component.mean, episodes=component.count, weight=component.weight)
            for name, component in summary.components.items()
        },
        ends=summary.end_reasons,
        steps=summary.steps,
        seconds=max(0.0, summary.seconds),
        tokens=tokens,
        cost=cost_of(tokens, spec),
        tasks=tuple(_task(episodes) for episodes in by_task.values()),
        probes=tuple(probes),
        trajectories=trajectories,
    )


def probe_figures(
    probe: Probe,
    episodes: Sequence[Trajectory],
    full: Sequence[Trajectory],
    *,
    spec: ModelSpec,
    applies: bool,
    planned: int,
    success_at: float,
    reward_range: Interval | None,
    trajectories: str,
) -> ProbeFigures:
    """Return the figures of a contamination check; `full` are the episodes of the cell, for the other arguments see
    `cell_figures`."""
    by_task = group_by_task(episodes)
    counts = {task: _count(episodes, success_at) for task, episodes in by_task.items()}
    scored_counts = {task: count for task, count in counts.items() if count[0]}
    scored = sum(count for count, _ in scored_counts.values())
    means = task_means(by_task)
    tokens = tokens_of(episodes)
    return ProbeFigures(
        probe=probe,
        applies=applies,
        planned=planned,
        episodes=len(episodes),
        scored=scored,
        mean=mean_estimate(list(means.values()), reward_range),
        success=share_estimate([passed / count for count, passed in scored_counts.values()], scored),
        difference=paired_difference(task_means(group_by_task(full)), means),
        solved=tuple(task for task, (_, passed) in scored_counts.items() if passed),
        causes=_causes(episodes),
        tokens=tokens,
        cost=cost_of(tokens, spec),
        trajectories=trajectories,
    )


def ks_of(samples: int) -> list[int]:
    """Return the k of pass@k: the powers of two up to the number of episodes per task, and that number."""
    return sorted({*(2**power for power in range(samples.bit_length())), samples})


def group_by_task(episodes: Sequence[Trajectory]) -> dict[str, list[Trajectory]]:
    """Return the episodes of each task, in order of tasks and samples."""
    by_task: dict[str, list[Trajectory]] = {}
    for episode in sorted(episodes, key=lambda episode: (episode.task.index, episode.task.id, episode.sample)):
        by_task.setdefault(episode.task.id, []).append(episode)
    return by_task


def task_means(by_task: Mapping[str, Sequence[Trajectory]]) -> dict[str, float]:
    """Return the mean reward of each task that has a scored episode."""
    values = {
        task: [episode.value for episode in episodes if episode.value is not None] for task, episodes in by_task.items()
    }
    return {task: math.fsum(value) / len(value) for task, value in values.items() if value}


def tokens_of(episodes: Sequence[Trajectory]) -> Tokens | None:
    """Return the tokens of all episodes together; None if none reports them."""
    usages = [usage for episode in episodes if (usage := _usage(episode)) is not None]
    if not usages:
        return None
    started = sum(bool(episode.turns) for episode in episodes)
    return Tokens(
        input=sum(tokens for tokens, _ in usages),
        output=sum(tokens for _, tokens in usages),
        episodes=len(usages),
        unreported=max(0, started - len(usages)),
    )


def cost_of(tokens: Tokens | None, spec: ModelSpec) -> float | None:
    """Return the price of the tokens; None without prices, or if an episode does not report its tokens."""
    if tokens is None or tokens.unreported or spec.price_in is None or spec.price_out is None:
        return None
    return (tokens.input * spec.price_in + tokens.output * spec.price_out) / 1e6


def _usage(episode: Trajectory) -> tuple[int, int] | None:
    """Return the input and output tokens of an episode; None if it has no turn, or a turn that does not report them."""
    usages = [turn.usage for turn in episode.turns]
    recorded = [usage for usage in usages if usage is not None]
    if not usages or len(recorded) < len(usages):
        return None
    return sum(usage.input_tokens for usage in recorded), sum(usage.output_tokens for usage in recorded)


def _task(episodes: Sequence[Trajectory]) -> TaskFigures:
    row = episodes[0].task
    return TaskFigures(task=row.id, index=row.index, episodes=tuple(map(_episode, episodes)))


def _episode(episode: Trajectory) -> EpisodeFigures:
    used = _usage(episode)
    return EpisodeFigures(
        sample=episode.sample,
        seed=episode.seed,
        reward=episode.value,
        end=episode.outcome,
        input_tokens=used[0] if used else None,
        output_tokens=used[1] if used else None,
    )


def _count(episodes: Sequence[Trajectory], success_at: float) -> tuple[int, int]:
    values = [episode.value for episode in episodes if episode.value is not None]
    return len(values), sum(value >= success_at - SUCCESS_TOLERANCE for value in values)


def _causes(episodes: Sequence[Trajectory]) -> tuple[CauseCount, ...]:
    return tuple(
        CauseCount(kind=cause.kind, message=cause.message[:LONGEST_MESSAGE], count=cause.count)
        for cause in causes_of(episodes)
    )
