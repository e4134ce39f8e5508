"""Statistics of an evaluation: the confidence interval of a mean over tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ludus.client.summary import wilson

RESAMPLES = 2_000


def interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return a 95 % confidence interval of the mean of one value per task. Tasks are resampled, not episodes.

    If every value is 0 or 1, it is Wilson's interval, which is meaningful even when all values are equal. Otherwise it
    is the percentile bootstrap of 2,000 resamples (Efron 1979), the same for the same seed.

    Raises:
        ValueError: there are no values.
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
