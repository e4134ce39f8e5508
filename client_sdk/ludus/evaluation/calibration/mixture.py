"""Estimates the share of a split's tasks whose true pass rate lies in a band, from a few episodes per task.

Counting measured rates or averaging the posteriors of single tasks does not estimate this share: with 8 episodes, a
task of true rate 0.15 is measured within 0.2 to 0.5 in a third of all cases, and under Jeffreys' prior a third of its
posterior lies there too, however many such tasks there are. So the distribution of true rates is learned from all tasks
together (empirical Bayes: Laird 1978, "Nonparametric Maximum Likelihood Estimation of a Mixing Distribution"; Efron
2016, "Empirical Bayes deconvolution estimates"). The method is expectation maximization on a grid. It begins at
Jeffreys' prior and stops early, because at convergence it would put all weight on a few points that depend on chance.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Final

from ludus.client.summary import wilson
from ludus.evaluation.calibration.statistics import quantile

CELLS: Final = 100
"""The number of grid cells of equal width between 0 and 1; the rates 0 and 1 themselves are two more points."""

ROUNDS: Final = 20
"""The number of rounds of expectation maximization. In simulations with 100 tasks of 8 episodes, 20 rounds had a bias
below 0.02 for smooth distributions; 100 rounds had no smaller bias and 1.5 times the scatter."""

RESAMPLES: Final = 200
FEWEST_RESAMPLES: Final = 80
"""The number of resamples if tasks have so many different counts that each resample takes long."""

ENDS: Final = 0.02
"""The initial weight of the rates 0 and 1 each, since impossible and trivial tasks exist."""

Seen = tuple[int, int]
"""Attempts and passes of a task."""


def share_within(counts: Sequence[Seen], low: float, high: float) -> tuple[float, tuple[float, float]]:
    """Return the estimated share of tasks whose true pass rate lies in the band, and its 95 % interval.

    The interval is the percentile bootstrap over tasks (Efron 1979) with a fixed random seed. It is widened to include
    Wilson's interval for the same number of tasks, because the bootstrap has no width if all tasks look alike. It is
    valid if the true rates are spread fairly smoothly; if all tasks have one of very few rates near an edge of the
    band, more episodes are needed.

    Raises:
        ValueError: there are no tasks, or one has no attempts.
    """
    if not counts or not all(attempts for attempts, _ in counts):
        raise ValueError("a share needs tasks, each with at least one attempt")
    distinct = sorted(set(counts))
    likelihoods = [_likelihood(attempts, passes) for attempts, passes in distinct]
    within = _within(low, high)
    estimate = _estimate(Counter(counts), distinct, likelihoods, within)
    rng = random.Random(0)
    resamples = min(RESAMPLES, max(FEWEST_RESAMPLES, 10_000 // len(distinct)))
    draws = (Counter(rng.choices(counts, k=len(counts))) for _ in range(resamples))
    estimates = [_estimate(draw, distinct, likelihoods, within) for draw in draws]
    around = wilson(estimate * len(counts), len(counts))
    return estimate, (
        max(0.0, min(around[0], quantile(estimates, 0.025))),
        min(1.0, max(around[1], quantile(estimates, 0.975))),
    )


def _estimate(
    counts: Mapping[Seen, int],
    distinct: Sequence[Seen],
    likelihoods: Sequence[Sequence[float]],
    within: Sequence[float],
) -> float:
    present = [index for index, kind in enumerate(distinct) if counts.get(kind)]
    rows = [likelihoods[index] for index in present]
    columns = list(zip(*rows, strict=True))
    total = sum(counts.values())
    shares = [counts[distinct[index]] / total for index in present]
    weights = _FIRST
    for _ in range(ROUNDS):
        ratios = [share / sum(map(mul, row, weights)) for share, row in zip(shares, rows, strict=True)]
        weights = [weight * sum(map(mul, ratios, column)) for weight, column in zip(weights, columns, strict=True)]
    return min(1.0, math.fsum(map(mul, weights, within)))


def _likelihood(attempts: int, passes: int) -> list[float]:
    """Return the likelihood of each rate of the grid, relative to the largest, so that it does not underflow."""
    logs = [_log_likelihood(rate, attempts, passes) for rate in _GRID]
    greatest = max(logs)
    return [math.exp(value - greatest) for value in logs]


def _log_likelihood(rate: float, attempts: int, passes: int) -> float:
    lost = attempts - passes
    if (rate == 0 and passes) or (rate == 1 and lost):
        return -math.inf
    return (passes * math.log(rate) if passes else 0.0) + (lost * math.log1p(-rate) if lost else 0.0)


def _within(low: float, high: float) -> list[float]:
    """Return the fraction of each cell that lies in the band."""
    cells = [
        max(0.0, min(high, (cell + 1) / CELLS) - max(low, cell / CELLS)) * CELLS for cell in range(CELLS)
    ]  # fmt: skip
    return [float(low <= 0), *cells, float(high >= 1)]


def _first() -> list[float]:
    density = [1 / math.sqrt(rate * (1 - rate)) for rate in _GRID[1:-1]]
    scale = (1 - 2 * ENDS) / sum(density)
    return [ENDS, *(value * scale for value in density), ENDS]


_GRID: Final = [0.0, *((cell + 0.5) / CELLS for cell in range(CELLS)), 1.0]
_FIRST: Final = _first()
