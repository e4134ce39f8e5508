"""Figures of an evaluation: success in k attempts, and how sure one can be of a mean over tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ludus.client.summary import wilson

RESAMPLES = 2_000


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """The chance that at least one of k episodes succeeds, 1 − C(n − c, k)/C(n, k): unbiased from n ≥ k episodes of a
    task, c of them successes (Chen et al., 2107.03374, equation 1, in its stable form).

    Raises:
        ValueError: fewer samples than k.
    """
    _check(samples, successes, k)
    return 1 - math.prod(1 - k / drawn for drawn in range(samples - successes + 1, samples + 1))


def pass_hat_k(samples: int, successes: int, k: int) -> float:
    """The chance that all k episodes succeed, pass^k = C(c, k)/C(n, k): unbiased as `pass_at_k` is (τ-bench,
    2406.12045, section 3).

    Raises:
        ValueError: fewer samples than k.
    """
    _check(samples, successes, k)
    return math.comb(successes, k) / math.comb(samples, k)


def interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """A 95 % interval of the mean of one value per task; tasks are what is drawn, not episodes.

    Wilson's where every value is 0 or 1, which stays sensible when all are the same; else the percentile bootstrap of
    2,000 resamples (Efron 1979), the same for the same seed.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    if set(values) <= {0, 1}:
        return wilson(round(sum(values)), len(values))
    tensor = torch.tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    means = tensor[torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)].mean(dim=1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def _check(samples: int, successes: int, k: int) -> None:
    if not (1 <= k <= samples and 0 <= successes <= samples):
        raise ValueError(f"k = {k} with {successes} successes among {samples} episodes: needs 1 ≤ k ≤ episodes")
