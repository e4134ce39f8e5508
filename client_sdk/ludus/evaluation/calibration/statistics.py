"""The statistics of pass rates: what a handful of episodes says about a task, and tasks about a split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ludus.client.summary import Z95, t95, wilson

_STEPS: Final = 10_000
_TINY: Final = 1e-300


def beta_cdf(x: float, a: float, b: float) -> float:
    """The chance that a Beta(a, b) variable is at most x: the regularised incomplete beta function.

    By its continued fraction, evaluated as Lentz proposed (DLMF 8.17.22, https://dlmf.nist.gov/8.17.v).
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # there the fraction of the complement converges faster
        return 1 - beta_cdf(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(1, _STEPS):
        half, odd = divmod(step, 2)
        if odd:
            part = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            part = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        denominator = 1 / (1 + part * denominator or _TINY)
        numerator = 1 + part / numerator or _TINY
        change = numerator * denominator
        value *= change
        if abs(change - 1) < 1e-15:
            break
    return value


def band_probability(passes: int, attempts: int, low: float, high: float) -> float:
    """How probable it is that the task's true pass rate lies in the band, given what was seen of it.

    The posterior under Jeffreys' prior, Beta(passes + ½, failures + ½) (Brown, Cai and DasGupta 2001, "Interval
    Estimation for a Binomial Proportion", section 3.2.1 and 4.3). Without attempts it is the prior's.
    """
    a, b = passes + 0.5, attempts - passes + 0.5
    return max(0.0, beta_cdf(high, a, b) - beta_cdf(low, a, b))


def zero_bound(attempts: int) -> float:
    """The greatest pass rate that none of so many attempts succeeding leaves plausible, at 95 % one-sided.

    1 − 0.05^(1/n), of which 3/n is the rule of thumb (Hanley and Lippman-Hand 1983, "If Nothing Goes Wrong, Is
    Everything All Right?"). By symmetry also how far below 1 the rate may be when all succeeded.
    """
    return -math.expm1(math.log(0.05) / attempts)


def share_interval(clusters: Sequence[tuple[float, float]], most: float) -> tuple[float, float] | None:
    """The 95 % interval of a share that was counted in clusters, such as successes among the episodes of some tasks.

    Wilson's with the effective sample size p(1 − p)/SE², SE being clustered, times (z/t)² for few clusters (Korn and
    Graubard 1998, "Confidence Intervals for Proportions with Small Expected Number of Positive Counts Estimated from
    Survey Data", with Wilson's in place of Clopper and Pearson's as Dean and Pagano 2015 recommend). It stays within
    0 and 1. Where every cluster is all 0 or all 1, nothing tells how alike episodes of one cluster are, and each
    cluster counts as one observation.

    Args:
        clusters: size and sum of each.
        most: the effective sample size is no greater: how many observations there are.

    Returns:
        None without clusters; for a single one, Wilson's interval of it alone.
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
    """The value below which that share lies, between neighbors by their distance (Hyndman and Fan's type 7).

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
