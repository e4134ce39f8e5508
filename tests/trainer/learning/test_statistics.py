"""Success in k attempts against golden values and enumeration; intervals that say how sure one is."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.client.summary import pass_at_k, pass_hat_k, wilson
from ludus.trainer.evaluation import interval

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.mark.parametrize("name", GOLDEN["pass_at_k"])
def test_pass_at_k_equals_its_golden_value(name: str) -> None:
    n, c, k = map(int, re.findall(r"\d+", name))
    assert pass_at_k(n, c, k) == pytest.approx(GOLDEN["pass_at_k"][name], abs=1e-9)


def test_both_estimates_are_the_share_of_all_draws_of_k() -> None:
    for n, k in ((4, 1), (4, 3), (5, 2), (5, 5)):
        for c in range(n + 1):
            draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)
            assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws), abs=1e-12)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, 1, 0), (4, -1, 2)])
def test_figures_that_cannot_be_are_refused(n: int, c: int, k: int) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="needs 1 ≤ k ≤ episodes"):
            estimate(n, c, k)


def test_an_interval_of_successes_is_wilsons_and_has_a_width_when_all_succeed() -> None:
    assert interval([1.0] * 20) == wilson(20, 20)
    low, high = interval([1.0] * 20)
    assert low < 0.9 < high == 1.0


def test_an_interval_of_rewards_covers_the_mean_about_19_times_in_20() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(200, 64, generator=generator, dtype=torch.float64) ** 2
    bounds = [interval(row.tolist()) for row in draws]
    covered = sum(low <= 1 / 3 <= high for low, high in bounds)
    assert 180 <= covered <= 199
    assert interval(draws[0].tolist()) == bounds[0]


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        interval([])
