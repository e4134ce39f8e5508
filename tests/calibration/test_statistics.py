"""The mathematics of pass rates, against sums, integrals and simulations made without it."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.client.beta import band_probability, beta_cdf
from ludus.client.summary import share_interval, wilson
from ludus.evaluation.calibration.mixture import share_within
from ludus.evaluation.calibration.statistics import quantile, zero_bound

counts = st.integers(0, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
rates = st.integers(0, 1000).map(lambda part: part / 1000)


def integral(low: float, high: float, a: float, b: float) -> float:
    """Of the Beta density, with x = sin²θ, after which Simpson's rule is exact enough for half-integers from ½ on."""
    start, stop, parts = math.asin(math.sqrt(low)), math.asin(math.sqrt(high)), 2_000
    width = (stop - start) / parts

    def density(angle: float) -> float:
        return 2 * math.pow(math.sin(angle), 2 * a - 1) * math.pow(math.cos(angle), 2 * b - 1)

    weights = [1, *([4, 2] * (parts // 2 - 1)), 4, 1]
    area = sum(weight * density(start + place * width) for place, weight in enumerate(weights)) * width / 3
    return area * math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))


@settings(deadline=None, max_examples=60)
@given(rates, st.integers(1, 40), st.integers(1, 40))
def test_the_beta_distribution_is_a_sum_of_binomial_terms_for_whole_numbers(x: float, a: int, b: int) -> None:
    n = a + b - 1
    expected = math.fsum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
    assert beta_cdf(x, a, b) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(counts, rates, rates)
def test_the_chance_of_a_band_is_the_integral_of_the_posterior(seen: tuple[int, int], one: float, other: float) -> None:
    attempts, passes = seen
    low, high = sorted((one, other))
    expected = integral(low, high, passes + 0.5, attempts - passes + 0.5)
    assert band_probability(passes, attempts, low, high) == pytest.approx(expected, abs=1e-9)


@given(counts, rates)
def test_chances_of_two_bands_that_make_up_everything_add_up_to_one(seen: tuple[int, int], edge: float) -> None:
    attempts, passes = seen
    lower, upper = band_probability(passes, attempts, 0, edge), band_probability(passes, attempts, edge, 1)
    assert lower + upper == pytest.approx(1)
    mirrored = band_probability(attempts - passes, attempts, 1 - edge, 1)
    assert lower == pytest.approx(mirrored, abs=1e-9)


def test_many_episodes_leave_no_doubt_where_a_rate_lies() -> None:
    assert band_probability(3_500, 10_000, 0.2, 0.5) == pytest.approx(1, abs=1e-9)
    assert band_probability(6_000, 10_000, 0.2, 0.5) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("attempts", [1, 8, 30, 1000])
def test_a_task_never_solved_has_the_rate_at_which_that_happens_once_in_twenty(attempts: int) -> None:
    bound = zero_bound(attempts)
    assert (1 - bound) ** attempts == pytest.approx(0.05)
    assert bound <= 3 / attempts
    if attempts >= 30:
        assert bound == pytest.approx(3 / attempts, rel=0.06)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.integers(1, 99))
def test_quantiles_are_those_of_the_standard_library(values: list[float], percent: int) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    assert quantile(values, percent / 100) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(counts.filter(lambda seen: seen[0] > 0), min_size=1, max_size=20))
def test_an_interval_of_a_share_holds_the_share_and_stays_between_0_and_1(seen: list[tuple[int, int]]) -> None:
    attempts, passes = (sum(column) for column in zip(*seen, strict=True))
    found = share_interval(seen, attempts)
    assert found is not None
    low, high = found
    share = passes / attempts
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    assert high - low > 1e-3


def test_episodes_of_one_task_are_no_independent_draws() -> None:
    alike = share_interval([(8, 8), (8, 0)] * 10, 160)
    assert alike is not None
    low, high = alike
    naive = wilson(80, 160)
    assert high - low > 2.5 * (naive[1] - naive[0])
    assert (low, high) == pytest.approx(wilson(10, 20), abs=0.02)
    assert share_interval([(8, 0)] * 5, 40) == pytest.approx(wilson(0, 5))
    assert share_interval([], 0) is None
    assert share_interval([(8, 3)], 8) == wilson(3, 8)


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("tasks", [2, 10, 50])
def test_one_more_failure_near_the_end_of_the_range_narrows_the_interval_only_a_little(
    tasks: int, mirror: bool
) -> None:
    widths = []
    for successes in range(4):
        seen = [(1.0, 0.01 * (index < successes)) for index in range(tasks)]
        if mirror:
            seen = [(size, size - part) for size, part in seen]
        low, high = share_interval(seen, 100 * tasks) or (0.0, 0.0)
        widths.append(high - low)
    assert all(1 / 3 < after / before < 1.1 for before, after in itertools.pairwise(widths))


@pytest.mark.parametrize(
    ("a", "b", "tasks", "episodes"), [(0.1, 0.9, 10, 100), (0.05, 0.95, 10, 100), (0.5, 9.5, 50, 20)]
)
def test_the_interval_of_a_rare_success_holds_the_truth(a: float, b: float, tasks: int, episodes: int) -> None:
    rng, truth, held = random.Random(8), a / (a + b), 0
    for _ in range(200):
        rates = [rng.betavariate(a, b) for _ in range(tasks)]
        seen = [(1.0, sum(rng.random() < rate for _ in range(episodes)) / episodes) for rate in rates]
        low, high = share_interval(seen, tasks * episodes) or (0.0, 0.0)
        held += low <= truth <= high
    assert held >= 184


def test_the_interval_of_a_share_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(5)
    held = 0
    for _ in range(400):
        tasks = [rng.betavariate(0.5, 1.5) for _ in range(25)]
        found = share_interval([(6, sum(rng.random() < rate for _ in range(6))) for rate in tasks], 150)
        assert found is not None
        held += found[0] <= 0.25 <= found[1]
    assert 0.92 <= held / 400 <= 0.99


# ── the share of tasks in a band ────────────────────────────────────────────────────────────────────────────────────


def measured(rng: random.Random, tasks: list[float], attempts: int) -> list[tuple[int, int]]:
    return [(attempts, sum(rng.random() < rate for _ in range(attempts))) for rate in tasks]


@pytest.mark.suite("breadth")
@pytest.mark.parametrize(("shape", "truth"), [((1.0, 1.0), 0.3), ((2.0, 4.0), 0.5499)])
def test_the_estimated_share_is_right_on_average_and_its_interval_holds_it(
    shape: tuple[float, float], truth: float
) -> None:
    assert beta_cdf(0.5, *shape) - beta_cdf(0.2, *shape) == pytest.approx(truth, abs=1e-3)
    rng = random.Random(11)
    estimates, held = [], 0
    for _ in range(12):
        tasks = [rng.betavariate(*shape) for _ in range(60)]
        estimate, (low, high) = share_within(measured(rng, tasks, 8), 0.2, 0.5)
        estimates.append(estimate)
        held += low <= truth <= high
    assert statistics.fmean(estimates) == pytest.approx(truth, abs=0.08)
    assert held >= 10


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("rates", [(0.0, 0.3, 0.45, 1.0), (0.35,)])
def test_the_estimate_is_nearer_to_the_truth_than_counting_or_averaging_the_tasks_alone(
    rates: tuple[float, ...],
) -> None:
    rng = random.Random(2)
    tasks = [rates[index % len(rates)] for index in range(100)]
    truth = sum(0.2 <= rate <= 0.5 for rate in tasks) / len(tasks)
    runs = [measured(rng, tasks, 8) for _ in range(5)]
    counted = [sum(0.2 <= passes / attempts <= 0.5 for attempts, passes in seen) / len(seen) for seen in runs]
    averaged = [statistics.fmean(band_probability(c, n, 0.2, 0.5) for n, c in seen) for seen in runs]
    estimated = [share_within(seen, 0.2, 0.5)[0] for seen in runs]
    assert error(estimated, truth) < 0.75 * min(error(counted, truth), error(averaged, truth))


def error(shares: list[float], truth: float) -> float:
    return abs(statistics.fmean(shares) - truth)


def test_tasks_that_are_never_solved_are_not_in_the_band_and_few_of_them_prove_little() -> None:
    estimate, (low, high) = share_within([(8, 0)] * 20, 0.2, 0.5)
    assert estimate < 1e-6
    assert low == pytest.approx(0)
    assert high == pytest.approx(wilson(0, 20)[1], abs=1e-6)


@pytest.mark.suite("breadth")
@settings(deadline=None, max_examples=6)
@given(st.lists(counts.filter(lambda seen: seen[0] > 0), min_size=1, max_size=6), rates)
def test_the_shares_of_two_bands_that_make_up_everything_add_up_to_one(
    seen: list[tuple[int, int]], edge: float
) -> None:
    parts = [share_within(seen, 0, edge), share_within(seen, edge, 1)]
    whole, (_, high) = share_within(seen, 0, 1)
    assert whole == pytest.approx(1)
    assert high == pytest.approx(1)
    if 0 < edge < 1:
        assert sum(estimate for estimate, _ in parts) == pytest.approx(1)
    for estimate, (low, high) in parts:
        assert 0 <= low <= estimate + 1e-9
        assert estimate - 1e-9 <= high <= 1


def test_a_share_of_nothing_is_refused() -> None:
    for seen in ([], [(8, 3), (0, 0)]):
        with pytest.raises(ValueError, match="at least one attempt"):
            share_within(seen, 0.2, 0.5)
