"""Measures the tasks of a split from a policy's episodes: pass rates, the share in a band, cost and length.

Failed and unscored episodes count in no rate; they are counted separately for every task. All intervals are 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from ludus.client.beta import band_probability
from ludus.client.summary import SUCCESS_TOLERANCE, Summary, pass_at_k, share_interval, summarize, wilson
from ludus.evaluation.calibration.levels import Levels, levels_of, measured_half
from ludus.evaluation.calibration.mixture import share_within
from ludus.evaluation.calibration.statistics import quantile, zero_bound
from ludus.protocol.difficulty import check_band
from ludus.protocol.errors import InvalidParams
from ludus.protocol.trajectory import Trajectory, Usage

Interval = tuple[float, float]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class TaskFigures(_Part):
    """The figures of one task."""

    task: str
    index: int
    level: str | None
    """The task's group, if tasks are grouped by a field or component."""
    attempts: int
    """The number of scored episodes; the figures below are over them, except `failed` and `unscored`."""
    passes: int
    pass_rate: float | None
    interval: Interval | None
    """Wilson's interval of the pass rate."""
    in_band: float | None
    """The probability that the true pass rate lies in the band, from this task alone; see `band_probability`."""
    mean_reward: float | None
    steps: float | None
    """The mean number of steps."""
    tokens: float | None
    """The mean number of tokens, read and written, over the episodes that report it."""
    failed: dict[str, int]
    """The number of failed episodes, by the part that broke: environment, infrastructure, policy."""
    unscored: int
    """The number of episodes that did not fail but have no reward."""


class LevelFigures(_Part):
    """The figures of the tasks of one level."""

    level: str
    tasks: int
    attempts: int
    passes: int
    pass_rate: float | None
    """The mean of the tasks' pass rates."""
    interval: Interval | None
    """The interval of the pass rate, clustered by task; see `share_interval`."""
    unscored: int
    """The number of episodes that failed or have no reward."""


class BandFigures(_Part):
    """The number and share of tasks in the band, which are neither too easy nor too hard."""

    low: float
    high: float
    tasks: int
    """The number of tasks with a scored episode; the other figures are over them."""
    inside: int
    """The number of tasks whose measured pass rate lies in the band, ends included."""
    share: float
    interval: Interval
    """Wilson's interval of `share`. It covers the sampling of tasks, and treats each measured rate as the true one."""
    estimate: float
    """The estimated share of tasks whose true pass rate lies in the band, with the distribution of true rates learned
    from all tasks; see `ludus.evaluation.calibration.mixture`. It differs from `share`, because measured rates are
    noisy: with few episodes, many tasks outside of the band are measured inside, and the reverse."""
    estimate_interval: Interval
    """The interval of `estimate`, by resampling tasks."""


class ExtremeFigures(_Part):
    """The figures of the tasks that were never solved, or always."""

    tasks: int
    share: float
    interval: Interval
    bound: float | None
    """How far the true pass rate of such a task may be from 0 (or 1): `zero_bound` of the fewest attempts among them.
    Null if there is no such task."""


class PassAtK(_Part):
    """The probability of at least one success in k episodes of a task."""

    value: float
    """The mean over tasks; unbiased for each task (Chen et al., arXiv 2107.03374)."""
    interval: Interval
    tasks: int
    """The number of tasks with at least k scored episodes; the others are left out."""


class Spread(_Part):
    """The median and the 90 % quantile of a quantity over the scored episodes."""

    median: float
    p90: float


class Cost(_Part):
    """The cost of all episodes that report their tokens, including the failed ones."""

    usage: Usage
    total: float | None
    """The total cost in the currency of the prices; null without prices."""
    per_episode: float | None
    """The total cost divided by the number of all episodes."""
    per_success: float | None
    """The total cost divided by the number of successes; null without a success."""


class Calibration(_Part):
    """The measured difficulty of a split for a policy."""

    environment: str
    environment_version: str
    split: str
    policy: str
    seed: int | None
    success_at: float
    summary: Summary
    """The summary of all episodes: mean reward, end reasons, failures and so on."""
    pass_rate: float | None
    """The mean of the tasks' pass rates: each task has the same weight, however many of its episodes were scored."""
    interval: Interval | None
    """The interval of the pass rate, clustered by task; see `share_interval`."""
    pass_at: dict[int, PassAtK]
    """pass@k by k, for powers of two and for the largest number of scored episodes of a task."""
    band: BandFigures | None
    """Null if no episode was scored, as are `never` and `always`."""
    never: ExtremeFigures | None
    """The tasks with scored episodes none of which succeeded."""
    always: ExtremeFigures | None
    """The tasks with scored episodes all of which succeeded."""
    by: str
    """The field or component that the levels are made by, or `MEASURED`."""
    halved: bool
    """Whether one half of the episodes grouped the tasks, so that `levels` has the figures of the other half."""
    levels: tuple[LevelFigures, ...]
    """The levels: numbers in their order, names from the easiest to the hardest."""
    steps: Spread | None
    turns: Spread | None
    seconds: Spread | None
    tokens: Spread | None
    """Null if no episode reports its tokens."""
    cost: Cost | None
    """Null if no episode reports its tokens."""
    tasks: tuple[TaskFigures, ...]
    """The tasks, in order of their index."""


class Origin(NamedTuple):
    """The properties that trajectories must share to be measured together."""

    environment: str
    version: str
    split: str
    policy: str


def calibrate(
    trajectories: Iterable[Trajectory],
    *,
    success_at: float = 1.0,
    band: tuple[float, float] = (0.2, 0.5),
    by: str | None = None,
    seed: int | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
) -> Calibration:
    """Measure a split from the trajectories of one policy.

    Args:
        trajectories: each (task, sample) once, as `latest` returns them.
        success_at: the lowest total reward that counts as a success.
        band: the lowest and highest pass rate that are worth learning from.
        by: the field or component to group tasks by; see `levels_of`.
        seed: the run's seed, which is only recorded.
        price_in: the price of a million tokens read; without both prices, the cost is only in tokens.
        price_out: the price of a million tokens written.

    Raises:
        InvalidParams: there are no trajectories; they are of several environments, versions, splits or policies; `band`
            is invalid; or there is no field or component `by`.
    """
    everything = sorted(trajectories, key=lambda episode: (episode.task.index, episode.task.id, episode.sample))
    origin = origin_of(everything)
    try:
        low, high = check_band(band)
    except ValueError as error:
        raise InvalidParams(str(error)) from None
    least = success_at - SUCCESS_TOLERANCE
    tasks: dict[str, list[Trajectory]] = {}
    for episode in everything:
        tasks.setdefault(episode.task.id, []).append(episode)
    scored = {task: [episode for episode in episodes if episode.scored] for task, episodes in tasks.items()}
    rows = {task: episodes[0] for task, episodes in tasks.items()}
    levels = levels_of(scored, rows, by, lambda episode: _passed(episode, least))
    named = {} if levels.halved else {task: level for level, names in levels.tasks.items() for task in names}
    figures = tuple(_task(episodes, named.get(task), least, low, high) for task, episodes in tasks.items())
    counts = {figure.task: (figure.attempts, figure.passes) for figure in figures if figure.attempts}
    rate, interval = _rate(list(counts.values()))
    flat = [episode for episodes in scored.values() for episode in episodes]
    return Calibration(
        environment=origin.environment, environment_version=origin.version, split=origin.split, policy=origin.policy,
        seed=seed, success_at=success_at, summary=summarize(everything, success_at=success_at),
        pass_rate=rate, interval=interval, pass_at=_pass_at(list(counts.values())),
        band=_band(figures, low, high) if counts else None,
        never=_extreme([(n, c == 0) for n, c in counts.values()]) if counts else None,
        always=_extreme([(n, c == n) for n, c in counts.values()]) if counts else None,
        by=levels.by, halved=levels.halved, levels=_levels(levels, tasks, scored, least),
        steps=_spread([len(episode.steps) for episode in flat]),
        turns=_spread([len(episode.turns) for episode in flat]),
        seconds=_spread([episode.seconds for episode in flat]),
        tokens=_spread([count for count in map(_tokens, flat) if count is not None]),
        cost=_cost(everything, sum(passes for _, passes in counts.values()), price_in, price_out), tasks=figures,
    )  # fmt: skip


def origin_of(trajectories: Sequence[Trajectory]) -> Origin:
    """Return the environment, version, split and policy that all trajectories share.

    Raises:
        InvalidParams: there are no trajectories, or they are of different environments, versions, splits or policies.
    """
    if not trajectories:
        raise InvalidParams("there is no trajectory to calibrate from")
    origins = {
        Origin(trajectory.environment, trajectory.environment_version, trajectory.split, trajectory.policy)
        for trajectory in trajectories
    }
    for name, different in zip(Origin._fields, map(set, zip(*origins, strict=True)), strict=True):
        if len(different) > 1:
            raise InvalidParams(
                f"the trajectories are of more than one {name} ({', '.join(sorted(map(repr, different)))}), and pass "
                "rates are of one; choose one of them, or keep them in files of their own"
            )
    return origins.pop()


def _passed(trajectory: Trajectory, least: float) -> bool:
    return (trajectory.value or 0.0) >= least


def _tokens(trajectory: Trajectory) -> int | None:
    usage = trajectory.usage
    return None if usage is None else usage.input_tokens + usage.output_tokens


def _task(episodes: Sequence[Trajectory], level: str | None, least: float, low: float, high: float) -> TaskFigures:
    scored = [episode for episode in episodes if episode.scored]
    attempts, passes = len(scored), sum(_passed(episode, least) for episode in scored)
    tokens = [count for count in map(_tokens, scored) if count is not None]
    return TaskFigures(
        task=episodes[0].task.id,
        index=episodes[0].task.index,
        level=level,
        attempts=attempts,
        passes=passes,
        pass_rate=passes / attempts if attempts else None,
        interval=wilson(passes, attempts) if attempts else None,
        in_band=band_probability(passes, attempts, low, high) if attempts else None,
        mean_reward=math.fsum(episode.value or 0.0 for episode in scored) / attempts if attempts else None,
        steps=statistics.fmean(len(episode.steps) for episode in scored) if attempts else None,
        tokens=statistics.fmean(tokens) if tokens else None,
        failed=dict(Counter[str](episode.failure.kind for episode in episodes if episode.failure is not None)),
        unscored=sum(episode.failure is None and not episode.scored for episode in episodes),
    )


def _levels(
    levels: Levels, tasks: Mapping[str, Sequence[Trajectory]], scored: Mapping[str, Sequence[Trajectory]], least: float
) -> tuple[LevelFigures, ...]:
    figures = []
    for level, names in levels.tasks.items():
        samples = [measured_half(scored[name]) if levels.halved else scored[name] for name in names]
        counts = [
            (len(episodes), sum(_passed(episode, least) for episode in episodes)) for episodes in samples if episodes
        ]
        rate, interval = _rate(counts)
        figures.append(
            LevelFigures(
                level=level,
                tasks=len(names),
                attempts=sum(n for n, _ in counts),
                passes=sum(c for _, c in counts),
                pass_rate=rate,
                interval=interval,
                unscored=sum(len(tasks[name]) - len(scored[name]) for name in names),
            )
        )
    if not levels.ordered:
        figures.sort(key=lambda level: (-(level.pass_rate or 0.0), level.level))
    return tuple(figures)


def _rate(counts: Sequence[tuple[int, int]]) -> tuple[float | None, Interval | None]:
    """Return the mean of the tasks' pass rates and its interval, from pairs of attempts and passes."""
    rates = [passes / attempts for attempts, passes in counts]
    interval = share_interval([(1.0, rate) for rate in rates], sum(attempts for attempts, _ in counts))
    return (statistics.fmean(rates) if rates else None), interval


def _band(figures: Sequence[TaskFigures], low: float, high: float) -> BandFigures:
    rates = [figure.pass_rate for figure in figures if figure.pass_rate is not None]
    inside = sum(low <= rate <= high for rate in rates)
    estimate, interval = share_within(
        [(figure.attempts, figure.passes) for figure in figures if figure.attempts], low, high
    )
    return BandFigures(
        low=low,
        high=high,
        tasks=len(rates),
        inside=inside,
        share=inside / len(rates),
        interval=wilson(inside, len(rates)),
        estimate=estimate,
        estimate_interval=interval,
    )


def _extreme(counts: Sequence[tuple[int, bool]]) -> ExtremeFigures:
    """Return the figures of the extreme tasks, from each task's attempts and whether it is extreme."""
    those = [attempts for attempts, belongs in counts if belongs]
    return ExtremeFigures(
        tasks=len(those),
        share=len(those) / len(counts),
        interval=wilson(len(those), len(counts)),
        bound=zero_bound(min(those)) if those else None,
    )


def _pass_at(counts: Sequence[tuple[int, int]]) -> dict[int, PassAtK]:
    largest = max((attempts for attempts, _ in counts), default=0)
    values_at = {}
    for k in sorted({*(2**power for power in range(largest.bit_length())), largest} - {0}):
        values = [pass_at_k(attempts, passes, k) for attempts, passes in counts if attempts >= k]
        interval = share_interval([(1.0, value) for value in values], sum(n for n, _ in counts if n >= k))
        assert interval is not None
        values_at[k] = PassAtK(value=statistics.fmean(values), interval=interval, tasks=len(values))
    return values_at


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(median=quantile(values, 0.5), p90=quantile(values, 0.9)) if values else None


def _cost(
    everything: Sequence[Trajectory], passes: int, price_in: float | None, price_out: float | None
) -> Cost | None:
    usages = [episode.usage for episode in everything if episode.usage is not None]
    if not usages:
        return None
    usage = sum(usages[1:], usages[0])
    if price_in is None or price_out is None:
        return Cost(usage=usage, total=None, per_episode=None, per_success=None)
    total = (usage.input_tokens * price_in + usage.output_tokens * price_out) / 1e6
    return Cost(
        usage=usage, total=total, per_episode=total / len(everything), per_success=total / passes if passes else None
    )
