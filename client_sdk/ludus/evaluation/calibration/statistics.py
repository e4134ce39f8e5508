"""Statistics of pass rates: estimates for a task from a few episodes, and for a split from its tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence


def zero_bound(attempts: int) -> float:
    """Return the one-sided 95 % upper bound of a pass rate when none of `attempts` attempts succeeded.

    It is 1 − 0.05^(1/n), approximately 3/n by the rule of three (Hanley and Lippman-Hand 1983, "If Nothing Goes Wrong,
    Is Everything All Right?"). By symmetry, it also bounds how far the rate is below 1 when all attempts succeeded.
    """
    return -math.expm1(math.log(0.05) / attempts)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of `values` at `share`, with linear interpolation (Hyndman and Fan's type 7).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
