"""The statistics of an evaluation, against sums, enumerations, integrals and simulations made without it."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.evaluation.statistics import (
    holm,
    mean_estimate,
    paired_difference,
    pass_estimates,
    share_estimate,
    student_p,
)

rewards = st.integers(-40, 40).map(lambda part: part / 8)
shares = st.integers(0, 40).map(lambda part: part / 40)
counts = st.lists(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1, max_size=8)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(rewards, min_size=n, max_size=n), min_size=2, max_size=9)))
def test_the_error_is_the_clustered_one_of_single_episodes(tasks: list[list[float]]) -> None:
    """Miller 2024, equation 4, with the usual factor n / (n - 1) for few clusters."""
    episodes = [value for own in tasks for value in own]
    mean = math.fsum(episodes) / len(episodes)
    pairs = math.fsum((one - mean) * (other - mean) for own in tasks for one in own for other in own)
    expected = math.sqrt(max(0.0, pairs) * len(tasks) / (len(tasks) - 1)) / len(episodes)
    found = mean_estimate([math.fsum(own) / len(own) for own in tasks])
    assert found is not None
    assert found.error is not None
    assert found.value == pytest.approx(mean, abs=1e-12)
    assert found.error == pytest.approx(expected, abs=1e-7)
    assert found.tasks == len(tasks)


@given(st.lists(rewards, min_size=1, max_size=12))
def test_an_interval_holds_its_value_and_stays_in_the_range(values: list[float]) -> None:
    for bounds in (None, (-5.0, 5.0), (0.0, 1.0)):
        found = mean_estimate(values, bounds)
        assert found is not None
        if found.interval is None:
            assert len(values) == 1 or bounds is None or bounds == (0.0, 1.0)
            continue
        low, high = found.interval
        assert low <= found.value <= high
        assert low < high
        if bounds is not None and bounds[0] <= min(values) and max(values) <= bounds[1]:
            assert bounds[0] <= low
            assert high <= bounds[1]


def test_equal_values_have_an_interval_only_if_the_range_is_known() -> None:
    for values, bounds, known in (([1.0] * 9, None, False), ([1.0] * 9, (0.0, 1.0), True), ([1.0], (0.0, 1.0), False)):
        found = mean_estimate(values, bounds)
        assert found is not None
        assert (found.interval is not None) == known
    assert mean_estimate([]) is None
    assert share_estimate([], 0) is None


def test_a_mean_near_a_bound_is_not_known_better_for_one_task_that_differs() -> None:
    def width(*values: float) -> float:
        estimate = mean_estimate(values, (0.0, 1.0))
        assert estimate is not None
        assert estimate.interval is not None
        return estimate.interval[1] - estimate.interval[0]

    assert width(*[0.0] * 10) / 2 < width(*[0.0] * 9, 0.01) < width(*[0.0] * 10)
    assert width(*[1.0] * 10) / 2 < width(*[1.0] * 9, 0.99) < width(*[1.0] * 10)
    assert width(*[0.5] * 9, 0.51) < 0.01


@given(counts, st.integers(1, 6))
def test_pass_at_k_and_pass_hat_k_are_the_shares_of_all_drawings(given_counts: list[tuple[int, int]], k: int) -> None:
    at_least_one, each = pass_estimates(given_counts, k)
    any_shares, all_shares = [], []
    for n, c in given_counts:
        if n >= k:
            drawn = list(itertools.combinations([True] * c + [False] * (n - c), k))
            any_shares.append(statistics.fmean(map(any, drawn)))
            all_shares.append(statistics.fmean(map(all, drawn)))
    if not any_shares:
        assert at_least_one is None
        assert each is None
        return
    assert at_least_one is not None
    assert each is not None
    assert at_least_one.value == pytest.approx(statistics.fmean(any_shares), abs=1e-12)
    assert each.value == pytest.approx(statistics.fmean(all_shares), abs=1e-12)
    for found in (at_least_one, each):
        assert found.tasks == len(any_shares)
        assert found.interval is not None
        assert 0 <= found.interval[0] <= found.value <= found.interval[1] <= 1


def tail(t: float, freedom: int) -> float:
    """Twice the integral of Student's density from |t| on, by Simpson's rule with x = tan θ."""
    start, stop, parts = math.atan(abs(t)), math.pi / 2, 4_000
    width = (stop - start) / parts
    log_factor = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2

    def density(angle: float) -> float:
        cosine = math.cos(angle)
        if cosine < 1e-12:
            return 1.0 / math.pi if freedom == 1 else 0.0
        x = math.tan(angle)
        return math.exp(log_factor - (freedom + 1) / 2 * math.log1p(x * x / freedom)) / cosine**2

    weights = [1, *([4, 2] * (parts // 2 - 1)), 4, 1]
    return 2 * sum(weight * density(start + at * width) for at, weight in enumerate(weights)) * width / 3


@settings(max_examples=40)
@given(st.integers(-80, 80).map(lambda part: part / 10), st.integers(1, 60))
def test_the_p_value_is_the_tail_of_students_distribution(t: float, freedom: int) -> None:
    assert student_p(t, freedom) == pytest.approx(tail(t, freedom), abs=1e-6)


@settings(max_examples=40)
@given(st.lists(rewards, min_size=2, max_size=40))
def test_an_interval_leaves_out_five_percent_of_students_distribution(values: list[float]) -> None:
    found = mean_estimate(values)
    assert found is not None
    if not found.error:
        assert found.interval is None
        return
    assert found.interval is not None
    for end in found.interval:
        assert tail((end - found.value) / found.error, len(values) - 1) == pytest.approx(0.05, abs=2e-4)


tables = st.dictionaries(st.sampled_from("abcdefghij"), rewards, min_size=1)


@given(tables, tables)
def test_a_paired_difference_uses_the_shared_tasks_only_and_changes_sign_with_the_order(
    first: dict[str, float], second: dict[str, float]
) -> None:
    found, back = paired_difference(first, second), paired_difference(second, first)
    shared = first.keys() & second.keys()
    if not shared:
        assert found is None
        return
    assert found is not None
    assert back is not None
    changes = [second[task] - first[task] for task in shared]
    assert found.tasks == len(shared)
    assert found.value == pytest.approx(statistics.fmean(changes), abs=1e-12)
    assert back.value == pytest.approx(-found.value, abs=1e-12)
    assert back.p == pytest.approx(found.p) if found.p is not None else back.p is None
    if len(set(changes)) > 1:
        assert found.error == pytest.approx(statistics.stdev(changes) / math.sqrt(len(changes)))
        assert found.interval is not None
        assert found.p is not None
        # The interval excludes 0 exactly where the test rejects; the table of quantiles has three decimals.
        if abs(found.p - 0.05) > 1e-3:
            assert (found.interval[0] <= 0 <= found.interval[1]) == (found.p > 0.05)


def test_equal_differences_have_no_interval_and_the_exact_p_value() -> None:
    names = "abcdef"
    found = paired_difference(dict.fromkeys(names, 0.1), dict.fromkeys(names, 0.3))
    assert found is not None
    assert (found.interval, found.p) == (None, 2 / 2**6)
    same = paired_difference(dict.fromkeys(names, 0.1), dict.fromkeys(names, 0.1))
    assert same is not None
    assert (same.value, same.interval, same.p) == (0.0, None, 1.0)
    single = paired_difference({"a": 0.0}, {"a": 1.0})
    assert single is not None
    assert (single.value, single.error, single.interval, single.p) == (1.0, None, None, None)


def test_the_paired_interval_covers_and_its_test_rejects_as_often_as_they_say() -> None:
    """900 runs of 30 tasks of different difficulty with 4 episodes each; tasks, not episodes, are independent."""
    rng = random.Random(3)
    covered = rejected = 0
    runs = 900
    for _ in range(runs):
        first: dict[str, float] = {}
        second: dict[str, float] = {}
        for task in range(30):
            rate = rng.random()
            change = rng.choice((-0.3, 0.3))  # tasks change, and their mean does not
            first[str(task)] = statistics.fmean(rng.random() < rate for _ in range(4))
            second[str(task)] = statistics.fmean(rng.random() < rate + change for _ in range(4))
        # Rates beyond 0 and 1 are cut symmetrically, so the expected difference is 0.
        found = paired_difference(first, second)
        assert found is not None
        assert found.interval is not None
        assert found.p is not None
        covered += found.interval[0] <= 0 <= found.interval[1]
        rejected += found.p < 0.05
    assert 0.93 <= covered / runs <= 0.97
    assert 0.03 <= rejected / runs <= 0.07


@given(st.lists(st.one_of(st.none(), st.integers(0, 100).map(lambda part: part / 100)), max_size=7))
def test_holms_adjustment_rejects_what_the_step_down_procedure_rejects(values: list[float | None]) -> None:
    adjusted = holm(values)
    known = sorted(value for value in values if value is not None)
    for level in (0.01, 0.05, 0.2):
        rejected = 0
        while rejected < len(known) and known[rejected] * (len(known) - rejected) <= level:
            rejected += 1
        assert sum(one is not None and one <= level for one in adjusted) == rejected
    assert [one is None for one in adjusted] == [one is None for one in values]
