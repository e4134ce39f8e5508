"""What a policy's episodes say about the tasks of a split: pass rates, the share in a band, cost and length.

Failed and unscored episodes count in no rate; they are told apart, for every task. All intervals are 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from ludus.client.summary import SUCCESS_TOLERANCE, Summary, pass_at_k, summarize, wilson
from ludus.evaluation.calibration.levels import Levels, levels_of, measured_half
from ludus.evaluation.calibration.mixture import share_within
from ludus.evaluation.calibration.statistics import band_probability, quantile, share_interval, zero_bound
from ludus.protocol.difficulty import check_band
from ludus.protocol.errors import InvalidParams
from ludus.protocol.trajectory import Trajectory, Usage

Interval = tuple[float, float]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class TaskFigures(_Part):
    """One task."""

    task: str
    index: int
    level: str | None
    """Its group, where tasks are grouped by a field or component."""
    attempts: int
    """Scored episodes; all other figures are over them."""
    passes: int
    pass_rate: float | None
    interval: Interval | None
    """Wilson's."""
    in_band: float | None
    """How probable it is that its true pass rate lies in the band, judged by this task alone; see
    `band_probability`."""
    mean_reward: float | None
    steps: float | None
    """Mean number."""
    tokens: float | None
    """Mean number, read and written, over the episodes that told it."""
    failed: dict[str, int]
    """Episodes without a verdict, by what broke: environment, infrastructure, policy."""
    unscored: int
    """Episodes that did not fail and yet have no reward."""


class LevelFigures(_Part):
    """The tasks of one difficulty."""

    level: str
    tasks: int
    attempts: int
    passes: int
    pass_rate: float | None
    """The mean of the tasks' pass rates."""
    interval: Interval | None
    """Clustered by task; see `share_interval`."""
    unscored: int
    """Episodes that failed or have no reward."""


class BandFigures(_Part):
    """How many tasks are neither too easy nor too hard."""

    low: float
    high: float
    tasks: int
    """Those with a scored episode, of which the rest speaks."""
    inside: int
    """Tasks whose measured pass rate lies in the band, ends included."""
    share: float
    interval: Interval
    """Wilson's, of `share`. It knows that the tasks are a draw, and takes each measured rate for the true one."""
    estimate: float
    """The estimated share of tasks whose true pass rate lies in the band, with the distribution of true rates learned
    from all tasks; see `ludus.evaluation.calibration.mixture`. A measured rate is a draw, too: with few episodes many
    tasks look to be in the band that are not, and the other way round."""
    estimate_interval: Interval
    """Of `estimate`, by resampling tasks."""


class ExtremeFigures(_Part):
    """Tasks that were never solved, or always."""

    tasks: int
    share: float
    interval: Interval
    bound: float | None
    """How far such a task's true pass rate may be from 0 (or 1): `zero_bound` of its attempts, the fewest among them.
    Null when there is no such task."""


class PassAtK(_Part):
    """The chance of at least one success in k episodes of a task."""

    value: float
    """Mean over tasks; unbiased for each (Chen et al., 2107.03374)."""
    interval: Interval
    tasks: int
    """Those with at least k scored episodes; the others do not take part."""


class Spread(_Part):
    """How something is distributed over the scored episodes."""

    median: float
    p90: float


class Cost(_Part):
    """What all episodes cost, the failed ones too, as far as they told it."""

    usage: Usage
    total: float | None
    """In the currency of the prices; null without prices."""
    per_episode: float | None
    """Over all episodes."""
    per_success: float | None
    """What one success cost, failures included; null without a success."""


class Calibration(_Part):
    """How hard a split is for a policy."""

    environment: str
    environment_version: str
    split: str
    policy: str
    seed: int | None
    success_at: float
    summary: Summary
    """Mean reward, end reasons, failures and the like of all episodes."""
    pass_rate: float | None
    """The mean of the tasks' pass rates: tasks count alike, however many of their episodes were scored."""
    interval: Interval | None
    """Clustered by task; see `share_interval`."""
    pass_at: dict[int, PassAtK]
    """By k: powers of two, and the most episodes that a task has."""
    band: BandFigures | None
    """Null when no episode was scored, as are the next two."""
    never: ExtremeFigures | None
    """Tasks none of whose scored episodes succeeded."""
    always: ExtremeFigures | None
    by: str
    """What `levels` are made by."""
    halved: bool
    """Whether tasks were grouped by one half of their episodes and `levels` tells of the other half."""
    levels: tuple[LevelFigures, ...]
    """Numbers in their order, names from the easiest to the hardest."""
    steps: Spread | None
    turns: Spread | None
    seconds: Spread | None
    tokens: Spread | None
    """Null when no episode told its tokens."""
    cost: Cost | None
    """Null when no episode told its tokens."""
    tasks: tuple[TaskFigures, ...]
    """In order of their index."""


class Origin(NamedTuple):
    """What trajectories must have in common to be measured together."""

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
    """The figures of some trajectories of one policy on one split.

    Args:
        trajectories: each (task, sample) once, as `latest` gives them.
        success_at: the least total reward that counts as a success.
        band: the pass rates that are worth learning from.
        by: what to tell difficulty by; see `levels_of`.
        seed: the run's seed, to be recorded.
        price_in: price of a million tokens read; without both prices, cost is told in tokens only.
        price_out: price of a million tokens written.

    Raises:
        InvalidParams: there are none, they are of several environments, versions, splits or policies, `band` is none,
            or nothing is called `by`.
    """
    everything = sorted(trajectories, key=lambda one: (one.task.index, one.task.id, one.sample))
    origin = origin_of(everything)
    try:
        low, high = check_band(band)
    except ValueError as error:
        raise InvalidParams(str(error)) from None
    least = success_at - SUCCESS_TOLERANCE
    tasks: dict[str, list[Trajectory]] = {}
    for one in everything:
        tasks.setdefault(one.task.id, []).append(one)
    scored = {task: [one for one in many if one.scored] for task, many in tasks.items()}
    rows = {task: many[0] for task, many in tasks.items()}
    levels = levels_of(scored, rows, by, lambda one: _passed(one, least))
    named = {} if levels.halved else {task: level for level, names in levels.tasks.items() for task in names}
    figures = tuple(_task(many, named.get(task), least, low, high) for task, many in tasks.items())
    counts = {one.task: (one.attempts, one.passes) for one in figures if one.attempts}
    rate, interval = _rate(list(counts.values()))
    flat = [one for many in scored.values() for one in many]
    return Calibration(
        environment=origin.environment, environment_version=origin.version, split=origin.split, policy=origin.policy,
        seed=seed, success_at=success_at, summary=summarize(everything, success_at=success_at),
        pass_rate=rate, interval=interval, pass_at=_pass_at(list(counts.values())),
        band=_band(figures, low, high) if counts else None,
        never=_extreme([(n, c == 0) for n, c in counts.values()]) if counts else None,
        always=_extreme([(n, c == n) for n, c in counts.values()]) if counts else None,
        by=levels.by, halved=levels.halved, levels=_levels(levels, tasks, scored, least),
        steps=_spread([len(one.steps) for one in flat]), turns=_spread([len(one.turns) for one in flat]),
        seconds=_spread([one.seconds for one in flat]),
        tokens=_spread([count for count in map(_tokens, flat) if count is not None]),
        cost=_cost(everything, sum(passes for _, passes in counts.values()), price_in, price_out), tasks=figures,
    )  # fmt: skip


def origin_of(trajectories: Sequence[Trajectory]) -> Origin:
    """What all of them are of.

    Raises:
        InvalidParams: there are none, or they are of different environments, versions, splits or policies.
    """
    if not trajectories:
        raise InvalidParams("there is no trajectory to calibrate from")
    origins = {Origin(one.environment, one.environment_version, one.split, one.policy) for one in trajectories}
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


def _task(many: Sequence[Trajectory], level: str | None, least: float, low: float, high: float) -> TaskFigures:
    scored = [one for one in many if one.scored]
    attempts, passes = len(scored), sum(_passed(one, least) for one in scored)
    tokens = [count for count in map(_tokens, scored) if count is not None]
    return TaskFigures(
        task=many[0].task.id,
        index=many[0].task.index,
        level=level,
        attempts=attempts,
        passes=passes,
        pass_rate=passes / attempts if attempts else None,
        interval=wilson(passes, attempts) if attempts else None,
        in_band=band_probability(passes, attempts, low, high) if attempts else None,
        mean_reward=math.fsum(one.value or 0.0 for one in scored) / attempts if attempts else None,
        steps=statistics.fmean(len(one.steps) for one in scored) if attempts else None,
        tokens=statistics.fmean(tokens) if tokens else None,
        failed=dict(Counter(one.failure.kind for one in many if one.failure is not None)),
        unscored=sum(one.failure is None and not one.scored for one in many),
    )


def _levels(
    levels: Levels, tasks: Mapping[str, Sequence[Trajectory]], scored: Mapping[str, Sequence[Trajectory]], least: float
) -> tuple[LevelFigures, ...]:
    found = []
    for level, names in levels.tasks.items():
        told = [measured_half(scored[name]) if levels.halved else scored[name] for name in names]
        counts = [(len(many), sum(_passed(one, least) for one in many)) for many in told if many]
        rate, interval = _rate(counts)
        found.append(
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
        found.sort(key=lambda one: (-(one.pass_rate or 0.0), one.level))
    return tuple(found)


def _rate(counts: Sequence[tuple[int, int]]) -> tuple[float | None, Interval | None]:
    """The mean of the tasks' pass rates, from their attempts and passes, and its interval."""
    rates = [passes / attempts for attempts, passes in counts]
    interval = share_interval([(1.0, rate) for rate in rates], sum(attempts for attempts, _ in counts))
    return (statistics.fmean(rates) if rates else None), interval


def _band(figures: Sequence[TaskFigures], low: float, high: float) -> BandFigures:
    rates = [one.pass_rate for one in figures if one.pass_rate is not None]
    inside = sum(low <= rate <= high for rate in rates)
    estimate, interval = share_within([(one.attempts, one.passes) for one in figures if one.attempts], low, high)
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


def _extreme(found: Sequence[tuple[int, bool]]) -> ExtremeFigures:
    """From each task's attempts, and whether it belongs."""
    those = [attempts for attempts, belongs in found if belongs]
    return ExtremeFigures(
        tasks=len(those),
        share=len(those) / len(found),
        interval=wilson(len(those), len(found)),
        bound=zero_bound(min(those)) if those else None,
    )


def _pass_at(counts: Sequence[tuple[int, int]]) -> dict[int, PassAtK]:
    most = max((attempts for attempts, _ in counts), default=0)
    found = {}
    for k in sorted({*(2**power for power in range(most.bit_length())), most} - {0}):
        values = [pass_at_k(attempts, passes, k) for attempts, passes in counts if attempts >= k]
        interval = share_interval([(1.0, value) for value in values], sum(n for n, _ in counts if n >= k))
        assert interval is not None
        found[k] = PassAtK(value=statistics.fmean(values), interval=interval, tasks=len(values))
    return found


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(median=quantile(values, 0.5), p90=quantile(values, 0.9)) if values else None


def _cost(
    everything: Sequence[Trajectory], passes: int, price_in: float | None, price_out: float | None
) -> Cost | None:
    told = [one.usage for one in everything if one.usage is not None]
    if not told:
        return None
    usage = sum(told[1:], told[0])
    if price_in is None or price_out is None:
        return Cost(usage=usage, total=None, per_episode=None, per_success=None)
    total = (usage.input_tokens * price_in + usage.output_tokens * price_out) / 1e6
    return Cost(
        usage=usage, total=total, per_episode=total / len(everything), per_success=total / passes if passes else None
    )
