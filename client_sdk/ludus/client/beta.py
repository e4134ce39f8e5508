"""What a few episodes say about a pass rate: its Beta posterior and its bounds."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

_STEPS: Final = 10_000
_TINY: Final = 1e-300


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the probability that a Beta(a, b) variable is at most x: the regularized incomplete beta function.

    It is computed from the continued fraction with Lentz's method (DLMF 8.17.22, https://dlmf.nist.gov/8.17.v).
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction of the complement converges faster here
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


def band_probability(passes: float, attempts: float, low: float, high: float) -> float:
    """Return the probability that a task's true pass rate lies in the band, given its attempts and passes.

    It is the posterior under Jeffreys' prior, Beta(passes + ½, failures + ½) (Brown, Cai and DasGupta 2001, "Interval
    Estimation for a Binomial Proportion", sections 3.2.1 and 4.3). Without attempts it is the probability under the
    prior. Counts may be effective ones.
    """
    a, b = passes + 0.5, attempts - passes + 0.5
    return max(0.0, beta_cdf(high, a, b) - beta_cdf(low, a, b))


def one_sided_bounds(passes: float, count: float, confidence: float) -> tuple[float, float]:
    """Return the one-sided lower and upper Wilson bounds of a proportion; counts may be effective ones."""
    z = NormalDist().inv_cdf(confidence)
    share = min(1.0, passes / count)
    center = share + z * z / (2 * count)
    margin = z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    scale = 1 + z * z / count
    return max(0.0, (center - margin) / scale), min(1.0, (center + margin) / scale)
