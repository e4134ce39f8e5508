"""Statistics of an evaluation: means over tasks with clustered standard errors, and paired differences of two runs.

The values of one task's episodes are averaged first, so every task has the same weight and the standard error is that
of the tasks' means: the clustered one (Miller 2024, "Adding Error Bars to Evals", https://arxiv.org/abs/2411.00640,
sections 2.2 and 4.2).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ludus.client.beta import beta_cdf
from ludus.client.summary import interval_within, pass_at_k, pass_hat_k, share_interval, t95
from ludus.protocol.evaluation import Difference, Estimate, Interval

__all__ = ["mean_estimate", "pass_estimates", "share_estimate"]


Counts = tuple[int, int]
"""The scored episodes and the successes of a task."""


def mean_estimate(values: Sequence[float], bounds: Interval | None = None) -> Estimate | None:
    """Return the mean of one value per task, with Student's t interval; None without values.

    Args:
        values: the mean reward of each task.
        bounds: the lowest and highest possible reward, to which the interval is clipped. If all values are equal, the
            interval is that of a share of `bounds` (Wilson's); without bounds there is none. It also widens the
            interval if some values are at the bound that is nearer to the mean: there, few values show their spread.
    """
    if not values:
        return None
    value, count = math.fsum(values) / len(values), len(values)
    if bounds is not None and not (bounds[0] <= min(values) and max(values) <= bounds[1]):
        bounds = None  # the declared range is wrong
    error = _standard_error(values)
    interval: Interval | None = None
    if error is not None and (error or (bounds is not None and bounds[0] < bounds[1])):
        margin = t95(count - 1) * error
        interval = value - margin, value + margin
        if bounds is not None:
            limit = math.inf if error else count  # a task's mean may rest on any number of episodes
            interval = interval_within(interval, bounds, [(1.0, mean) for mean in values], limit)
    return Estimate(value=value, error=error, interval=_around(interval, value), tasks=count)


def share_estimate(values: Sequence[float], episodes: int) -> Estimate | None:
    """Return the mean of one share per task, with an interval within 0 and 1; None without values.

    Args:
        values: the share of each task, such as its pass rate.
        episodes: the number of episodes behind all of them.
    """
    if not values:
        return None
    value = math.fsum(values) / len(values)
    interval = share_interval([(1.0, value) for value in values], episodes)
    return Estimate(value=value, error=_standard_error(values), interval=_around(interval, value), tasks=len(values))


def pass_estimates(counts: Sequence[Counts], k: int) -> tuple[Estimate | None, Estimate | None]:
    """Return pass@k and pass^k; None for both if no task has at least k scored episodes."""
    enough = [(scored, passed) for scored, passed in counts if scored >= k]
    episodes = sum(scored for scored, _ in enough)
    at_least_one = share_estimate([pass_at_k(scored, passed, k) for scored, passed in enough], episodes)
    return at_least_one, share_estimate([pass_hat_k(scored, passed, k) for scored, passed in enough], episodes)


def paired_difference(first: Mapping[str, float], second: Mapping[str, float]) -> Difference | None:
    """Return the mean of `second` minus `first` over the tasks that both have; None if there are none.

    The interval and the p-value are those of Student's t on the differences of the tasks. If all differences are equal,
    nothing shows their spread: there is no interval, and the p-value is that of the exact sign-flip test.
    """
    differences = [second[task] - first[task] for task in first if task in second]
    if not differences:
        return None
    value, count = math.fsum(differences) / len(differences), len(differences)
    error = _standard_error(differences)
    if error is None:
        return Difference(value=value, error=None, interval=None, p=None, tasks=count)
    if not error:
        p = 1.0 if value == 0 else 2.0 ** (1 - count)
        return Difference(value=value, error=0.0, interval=None, p=p, tasks=count)
    margin = t95(count - 1) * error
    p = student_p(value / error, count - 1)
    return Difference(value=value, error=error, interval=(value - margin, value + margin), p=p, tasks=count)


def student_p(t: float, freedom: int) -> float:
    """Return the probability that Student's t with `freedom` degrees of freedom is at least as far from 0 as `t`."""
    if not math.isfinite(t):
        return 0.0
    return min(1.0, max(0.0, beta_cdf(freedom / (freedom + t * t), freedom / 2, 0.5)))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values that are adjusted for the number of comparisons (Holm 1979); None stays None."""
    ranked = sorted((value, index) for index, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, position) in enumerate(ranked):
        highest = max(highest, min(1.0, value * (len(ranked) - rank)))
        adjusted[position] = highest
    return adjusted


def _standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean; None with fewer than two values, 0 if only rounding separates them."""
    if len(values) < 2:
        return None
    if max(values) - min(values) <= 1e-12 * max(1.0, *map(abs, values)):
        return 0.0
    return statistics.stdev(values) / math.sqrt(len(values))


def _around(interval: Interval | None, value: float) -> Interval | None:
    """Return the interval, widened by a rounding error if `value` is outside."""
    return None if interval is None else (min(interval[0], value), max(interval[1], value))
