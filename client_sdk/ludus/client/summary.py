"""Summary statistics of a set of trajectories: mean reward, success rate, intervals, end reasons and failures.

The interval of the mean is Student's t at 95 % on the standard error clustered by task, because episodes of one task
are not independent draws (Miller 2024, "Adding Error Bars to Evals", https://arxiv.org/abs/2411.00640, section 2.2);
with one episode per task it is the ordinary t interval. The interval of the success rate is Wilson's.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from ludus.client.causes import Cause, causes_of
from ludus.protocol.episodes import NoiseKind
from ludus.protocol.rewards import Component
from ludus.protocol.trajectory import Trajectory, Usage

__all__ = ["SUCCESS_TOLERANCE"]


SUCCESS_TOLERANCE: Final = 1e-9
"""Rewards that are lower than the threshold by at most this much count as reaching it, because sums of floats round."""

_T95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5 % quantile of Student's t for 1 to 30 degrees of freedom (any table of it)."""

_ROUNDING: Final = 1e-12
Z95: Final = 1.959963985
"""The 97.5 % quantile of the normal distribution."""


class ComponentMean(BaseModel):
    """Statistics of a reward component over the scored trajectories.

    If `count` is less than their number, the other trajectories do not have the component, and its mean includes fewer
    episodes than the mean reward.
    """

    model_config = ConfigDict(frozen=True)

    mean: float
    """The mean of the unweighted values, over the trajectories that have the component."""
    count: int
    """The number of trajectories that have the component."""
    weight: float | None
    """The component's weight in the reward; null if it differs between trajectories."""


class Summary(BaseModel):
    """Statistics of a run. Means are over scored trajectories only; failures never count as a reward of 0."""

    model_config = ConfigDict(frozen=True)

    episodes: int
    """The number of trajectories."""
    scored: int
    """The number of trajectories with a reward, which are the ones in the means."""
    failed: dict[str, int]
    """The number of failed trajectories, by the part that broke: environment, infrastructure, policy."""
    unscored: int
    """The number of trajectories that did not fail but have no reward: a judge without a verdict, or a token that may
    not read rewards."""
    mean: float | None
    interval: tuple[float, float] | None
    """The 95 % interval of the mean reward; null with fewer than two tasks."""
    std: float | None
    """The standard deviation of the rewards of single episodes."""
    success_at: float
    success: float | None
    """The share of scored trajectories whose reward reaches `success_at`."""
    success_interval: tuple[float, float] | None
    end_reasons: dict[str, int]
    causes: tuple[Cause, ...]
    """The reasons why trajectories have no reward, most frequent first."""
    components: dict[str, ComponentMean]
    """The mean of each reward component, over the scored trajectories."""
    steps: float | None
    """The mean number of steps, over scored trajectories."""
    noise: dict[NoiseKind, int]
    """The number of steps that environments disturbed on purpose, by kind. They are not failures."""
    retried: int
    """The number of trajectories that needed more than one attempt."""
    usage: Usage | None
    seconds: float
    """Seconds from the first start to the last end."""


def summarize(
    trajectories: Iterable[Trajectory],
    *,
    success_at: float = 1.0,
    reward_range: tuple[float, float] | None = None,
) -> Summary:
    """Return the summary of some trajectories; a total reward of at least `success_at` is a success.

    Branches of a rollout are left out, because they share its beginning and are no independent episodes. Only `usage`
    counts them.

    Args:
        trajectories: the trajectories of the run.
        success_at: the lowest reward that counts as success.
        reward_range: the lowest and highest possible reward; the interval of the mean is clipped to it.
    """
    all_trajectories = list(trajectories)
    everything = [trajectory for trajectory in all_trajectories if trajectory.branch is None]
    scored = [trajectory for trajectory in everything if trajectory.scored]
    tasks = _by_task(scored)
    values = [reward for rewards in tasks for reward in rewards]
    wins = sum(value >= success_at - SUCCESS_TOLERANCE for value in values)
    interval = mean_interval(scored)
    if interval is not None and reward_range is not None:
        if reward_range[0] <= min(values) and max(values) <= reward_range[1]:  # else the range is wrong
            sums = [(len(rewards), math.fsum(rewards)) for rewards in tasks]
            interval = interval_within(interval, reward_range, sums, len(values))
    ends = [t.started_at + t.seconds for t in everything]
    usages = [trajectory.usage for trajectory in all_trajectories if trajectory.usage is not None]
    return Summary(
        episodes=len(everything),
        scored=len(scored),
        failed=dict(Counter[str](t.failure.kind for t in everything if t.failure is not None)),
        unscored=sum(not t.scored and t.failure is None for t in everything),
        mean=math.fsum(values) / len(values) if values else None,
        interval=interval,
        std=statistics.stdev(values) if len(values) > 1 else None,
        success_at=success_at,
        success=wins / len(values) if values else None,
        success_interval=share_interval(
            [(len(rewards), sum(reward >= success_at - SUCCESS_TOLERANCE for reward in rewards)) for rewards in tasks],
            len(values),
        ),
        end_reasons=dict(Counter(t.outcome for t in everything).most_common()),
        causes=causes_of(everything),
        components=_components(scored),
        steps=sum(len(t.steps) for t in scored) / len(scored) if scored else None,
        noise=dict(Counter(step.noise for t in everything for step in t.steps if step.noise is not None)),
        retried=sum(t.attempts > 1 for t in everything),
        usage=sum(usages[1:], usages[0]) if usages else None,
        seconds=max(ends, default=0.0) - min((t.started_at for t in everything), default=0.0),
    )


def _by_task(scored: Sequence[Trajectory]) -> list[list[float]]:
    """Return the rewards of each task."""
    by_task: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for trajectory in scored:
        if trajectory.reward is not None and trajectory.reward.value is not None:
            by_task[trajectory.key[:3]].append(trajectory.reward.value)
    return list(by_task.values())


def mean_interval(scored: Sequence[Trajectory]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean reward, clustered by task; None with fewer than two tasks."""
    tasks = _by_task(scored)
    clusters = len(tasks)
    if clusters < 2:
        return None
    count = sum(map(len, tasks))
    mean = math.fsum(value for values in tasks for value in values) / count
    squares = math.fsum(math.fsum(value - mean for value in values) ** 2 for values in tasks)
    error = math.sqrt(squares * clusters / (clusters - 1)) / count
    margin = t95(clusters - 1) * error
    return mean - margin, mean + margin


def interval_within(
    interval: tuple[float, float], bounds: tuple[float, float], clusters: Sequence[tuple[float, float]], most: float
) -> tuple[float, float]:
    """Return the interval of a mean clipped to the bounds of its values, and widened where it says too much.

    If a cluster has only values at the bound that is nearer to the mean, or if the interval has no width, few clusters
    show how values differ. Then it holds the interval of a share of `bounds`, too; see `share_interval`.

    Args:
        interval: the interval.
        bounds: the lowest and highest possible value; none lies outside.
        clusters: the size and the sum of each cluster, such as the rewards of a task.
        most: the number of observations.
    """
    low, width = bounds[0], bounds[1] - bounds[0]
    if width <= 0:
        return interval
    shares = [(size, (part - low * size) / width) for size, part in clusters]
    nearer = 0.0 if math.fsum(part for _, part in shares) * 2 <= math.fsum(size for size, _ in shares) else 1.0
    lowest, highest = interval
    if lowest == highest or any(abs(part / size - nearer) <= _ROUNDING for size, part in shares):
        share = share_interval(shares, most)
        assert share is not None
        lowest, highest = min(lowest, low + width * share[0]), max(highest, low + width * share[1])
    return max(lowest, low), min(highest, bounds[1])


def t95(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    Beyond 30 degrees of freedom it is the Cornish-Fisher expansion, with an error below 1e-5.
    """
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = Z95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def wilson(wins: float, count: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion, which is valid also at 0 and 1; counts may be effective ones."""
    z2 = Z95**2
    share = wins / count
    center = share + z2 / (2 * count)
    margin = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    low, high = (center - margin) / (1 + z2 / count), (center + margin) / (1 + z2 / count)
    return max(0.0, low), min(1.0, high)


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Return pass@k: the probability that at least one of k episodes succeeds, 1 − C(n − c, k)/C(n, k).

    The estimate is unbiased, from n ≥ k episodes of a task with c successes (Chen et al., arXiv 2107.03374, equation 1,
    in its stable form).

    Raises:
        ValueError: there are fewer samples than k.
    """
    _check_counts(samples, successes, k)
    return 1 - math.prod(1 - k / drawn for drawn in range(samples - successes + 1, samples + 1))


def pass_hat_k(samples: int, successes: int, k: int) -> float:
    """Return pass^k: the probability that all k episodes succeed, C(c, k)/C(n, k).

    The estimate is unbiased, as `pass_at_k` is (τ-bench, arXiv 2406.12045, section 3).

    Raises:
        ValueError: there are fewer samples than k.
    """
    _check_counts(samples, successes, k)
    return math.comb(successes, k) / math.comb(samples, k)


def _check_counts(samples: int, successes: int, k: int) -> None:
    if not (1 <= k <= samples and 0 <= successes <= samples):
        raise ValueError(f"k = {k} with {successes} successes among {samples} episodes: needs 1 ≤ k ≤ episodes")


def _components(scored: Sequence[Trajectory]) -> dict[str, ComponentMean]:
    parts_by_name: dict[str, list[Component]] = defaultdict(list)
    for trajectory in scored:
        for name, part in trajectory.reward.components.items() if trajectory.reward is not None else ():
            parts_by_name[name].append(part)
    means: dict[str, ComponentMean] = {}
    for name, parts in sorted(parts_by_name.items()):
        weights = {part.weight for part in parts}
        mean = math.fsum(part.value for part in parts) / len(parts)
        weight = weights.pop() if len(weights) == 1 else None
        means[name] = ComponentMean(mean=mean, count=len(parts), weight=weight)
    return means


def share_interval(clusters: Sequence[tuple[float, float]], most: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a share counted in clusters, such as successes among the episodes of some tasks.

    It is Wilson's interval with the effective sample size p(1 − p)/SE², where SE is the clustered standard error, times
    (z/t)² for few clusters (Korn and Graubard 1998, "Confidence Intervals for Proportions with Small Expected Number of
    Positive Counts Estimated from Survey Data", with Wilson's interval in place of Clopper and Pearson's, as Dean and
    Pagano 2015 recommend). It stays within 0 and 1.

    Near 0 and 1, most clusters show only the common outcome, and nothing shows how similar the episodes of one cluster
    are. So the inverse of the effective sample size is averaged with that of one observation for each cluster. The
    first weighs as much as there are clusters that show something else; the second as their absent share, or at least
    as 1/clusters², since two clusters may be equal by chance. If the share is 0 or 1, only the second counts.

    Args:
        clusters: the size and the sum of each cluster.
        most: the upper bound of the effective sample size: the number of observations.

    Returns:
        None without clusters; for a single cluster, its Wilson interval.
    """
    total = math.fsum(size for size, _ in clusters)
    if not total:
        return None
    count, share = len(clusters), math.fsum(part for _, part in clusters) / total
    if count == 1:
        return wilson(share * most, most)
    common = 0.0 if share <= 0.5 else 1.0
    differing = sum(abs(part / size - common) > _ROUNDING for size, part in clusters if size)
    squares = math.fsum((part - share * size) ** 2 for size, part in clusters)
    variance = squares * count / (count - 1) / total**2
    adjusted = variance * (t95(count - 1) / Z95) ** 2
    observed = min(most, share * (1 - share) / adjusted) if adjusted > 0 and 0 < share < 1 else most
    absent = max(1 - differing / count, 1 / count**2)
    effective = (differing + absent) / (differing / observed + absent / count)
    return wilson(share * effective, effective)
