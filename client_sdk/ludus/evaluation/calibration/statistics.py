"""Statistics of pass rates: estimates for a task from a few episodes, and for a split from its tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ludus.client.summary import Z95, t95, wilson


def zero_bound(attempts: int) -> float:
    """Return the one-sided 95 % upper bound of a pass rate when none of `attempts` attempts succeeded.

    It is 1 − 0.05^(1/n), approximately 3/n by the rule of three (Hanley and Lippman-Hand 1983, "If Nothing Goes Wrong,
    Is Everything All Right?"). By symmetry, it also bounds how far the rate is below 1 when all attempts succeeded.
    """
    return -math.expm1(math.log(0.05) / attempts)


def share_interval(clusters: Sequence[tuple[float, float]], most: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a share counted in clusters, such as successes among the episodes of some tasks.

    It is Wilson's interval with the effective sample size p(1 − p)/SE², where SE is the clustered standard error, times
    (z/t)² for few clusters (Korn and Graubard 1998, "Confidence Intervals for Proportions with Small Expected Number of
    Positive Counts Estimated from Survey Data", with Wilson's interval in place of Clopper and Pearson's, as Dean and
    Pagano 2015 recommend). It stays within 0 and 1. If the share is 0 or 1, nothing shows how similar the episodes of
    one cluster are, so each cluster counts as one observation.

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
    if share in (0.0, 1.0):
        return wilson(share * count, count)
    squares = math.fsum((part - share * size) ** 2 for size, part in clusters)
    variance = squares * count / (count - 1) / total**2
    adjusted = variance * (t95(count - 1) / Z95) ** 2
    effective = min(most, share * (1 - share) / adjusted) if adjusted > 0 else most
    return wilson(share * effective, effective)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of `values` at `share`, with linear interpolation (Hyndman and Fan's type 7).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
