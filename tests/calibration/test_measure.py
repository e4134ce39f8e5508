"""What a calibration says of given trajectories: failures apart, rates by task and by difficulty, cost and length."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.client import pass_at_k
from ludus.client.summary import wilson
from ludus.evaluation.calibration import calibrate
from ludus.evaluation.calibration.sampling import choose_tasks
from ludus.evaluation.calibration.statistics import zero_bound
from ludus.protocol.episodes import EnvironmentInfo, SplitInfo
from ludus.protocol.errors import InvalidParams, SplitNotFound
from ludus.protocol.trajectory import Trajectory

Played = Callable[..., Trajectory]


def test_episodes_without_a_verdict_count_in_no_rate_and_are_listed_for_each_task(played: Played) -> None:
    found = calibrate(
        [
            played(0, 0, 1.0), played(0, 1, 0.0), played(0, 2, failure="environment"), played(0, 3, None),
            played(1, 0, failure="infrastructure"), played(1, 1, failure="policy"),
        ]
    )  # fmt: skip
    first, second = found.tasks
    assert (first.attempts, first.passes, first.pass_rate) == (2, 1, 0.5)
    assert (first.failed, first.unscored) == ({"environment": 1}, 1)
    assert first.interval == wilson(1, 2)
    assert (second.attempts, second.pass_rate, second.interval, second.in_band) == (0, None, None, None)
    assert second.failed == {"infrastructure": 1, "policy": 1}
    assert found.pass_rate == 0.5
    assert found.summary.failed == {"environment": 1, "infrastructure": 1, "policy": 1}
    assert found.band is not None
    assert found.band.tasks == 1
    assert found.never is not None
    assert found.never.tasks == 0


def test_nothing_is_said_where_nothing_was_scored(played: Played) -> None:
    found = calibrate([played(0, 0, failure="environment")])
    assert (found.pass_rate, found.interval, found.band, found.never, found.always) == (None,) * 5
    assert (found.pass_at, found.steps) == ({}, None)


def test_tasks_count_alike_however_many_of_their_episodes_were_scored(played: Played) -> None:
    found = calibrate([played(0, 0, 1.0), *(played(1, sample, 0.0) for sample in range(9))])
    assert found.pass_rate == 0.5
    assert found.summary.success == 0.1


def test_a_sum_of_floats_just_below_the_threshold_is_a_success(played: Played) -> None:
    found = calibrate([played(0, 0, 0.1 + 0.7)], success_at=0.8)
    assert found.pass_rate == 1
    assert calibrate([played(0, 0, 0.79)], success_at=0.8).pass_rate == 0


def test_the_band_holds_its_ends_and_extremes_say_how_far_they_may_be_wrong(played: Played) -> None:
    passes = {0: 0, 1: 1, 2: 2, 3: 3, 4: 5, 5: 5}
    found = calibrate(
        [played(task, sample, float(sample < won)) for task, won in passes.items() for sample in range(5)],
        band=(0.2, 0.4),
    )
    assert found.band is not None
    assert (found.band.inside, found.band.tasks, found.band.share) == (2, 6, 2 / 6)
    assert found.band.interval == wilson(2, 6)
    assert found.never is not None
    assert found.always is not None
    assert (found.never.tasks, found.always.tasks) == (1, 2)
    assert (found.never.bound, found.always.interval) == (zero_bound(5), wilson(2, 6))
    assert set(found.pass_at) == {1, 2, 4, 5}
    for k, one in found.pass_at.items():
        assert one.value == pytest.approx(math.fsum(pass_at_k(5, won, k) for won in passes.values()) / 6)
        assert one.interval[0] <= one.value <= one.interval[1]


def test_pass_at_k_leaves_out_tasks_with_fewer_episodes(played: Played) -> None:
    found = calibrate([played(0, 0, 0.0), *(played(1, sample, float(sample == 0)) for sample in range(3))])
    assert {k: one.tasks for k, one in found.pass_at.items()} == {1: 2, 2: 1, 3: 1}
    assert [one.value for one in found.pass_at.values()] == pytest.approx([1 / 6, 2 / 3, 1])


def test_length_is_of_scored_episodes_and_cost_of_all(played: Played) -> None:
    lengths = [1, 2, 3, 4, 10]
    found = calibrate(
        [
            *(played(0, n, float(n == 0), steps=steps, tokens=(100, 10)) for n, steps in enumerate(lengths)),
            played(0, 9, failure="infrastructure", steps=50, tokens=(1000, 0)),
        ],
        price_in=2.0,
        price_out=10.0,
    )  # fmt: skip
    assert found.steps is not None
    assert found.steps.median == 3
    assert found.steps.p90 == pytest.approx(7.6)
    assert found.tokens is not None
    assert found.tokens.median == 110
    assert found.cost is not None
    assert found.cost.total is not None
    assert found.cost.total == pytest.approx((1500 * 2 + 50 * 10) / 1e6)
    assert found.cost.per_success == found.cost.total
    assert found.cost.per_episode == pytest.approx(found.cost.total / 6)
    free = calibrate([played(0, 0, 1.0, tokens=(5, 5))]).cost
    assert free is not None
    assert (free.usage.input_tokens, free.total) == (5, None)
    assert calibrate([played(0)], price_in=1.0, price_out=1.0).cost is None


# ── difficulty ──────────────────────────────────────────────────────────────────────────────────────────────────────


def levels(found: Any) -> dict[str, tuple[int, int, int]]:
    return {one.level: (one.tasks, one.passes, one.attempts) for one in found.levels}


def test_a_field_called_difficulty_or_level_is_taken_unasked(played: Played) -> None:
    rows = [
        played(n, sample, float(n % 2 == 0), fields={"level": "low" if n % 2 == 0 else "high", "size": {"x": n % 3}})
        for n in range(6)
        for sample in range(2)
    ]
    found = calibrate(rows)
    assert (found.by, levels(found)) == ("level", {"low": (3, 6, 6), "high": (3, 0, 6)})
    assert [one.level for one in found.tasks] == ["low", "high"] * 3
    assert levels(calibrate(rows, by="size.x")) == {"0": (2, 2, 4), "1": (2, 2, 4), "2": (2, 2, 4)}


def test_many_numbers_are_put_into_ranges_of_about_as_many_tasks(played: Played) -> None:
    rows = [played(n, fields={"size": n}) for n in range(1, 21)] + [played(30)]
    found = levels(calibrate(rows, by="size"))
    assert list(found) == ["from 1 to 5.75", "above 5.75 to 10.5", "above 10.5 to 15.25", "above 15.25 to 20", "(none)"]
    assert [tasks for tasks, *_ in found.values()] == [5, 5, 5, 5, 1]


def test_tasks_can_be_grouped_by_a_reward_component(played: Played) -> None:
    rows = [
        played(n, sample, float(n), components={"grace": n % 2 + sample - 0.5}) for n in range(4) for sample in (0, 1)
    ]
    assert levels(calibrate(rows, by="grace")) == {"0": (2, 2, 4), "1": (2, 4, 4)}


def test_a_name_that_is_neither_field_nor_component_is_refused_with_those_there_are(played: Played) -> None:
    with pytest.raises(InvalidParams, match=r"'hue'.*\(size\).*\(grace\)"):
        calibrate([played(0, fields={"size": 1}, components={"grace": 1.0})], by="hue")


def test_quarters_by_measured_rate_are_not_measured_by_the_luck_that_made_them(played: Played) -> None:
    rng = random.Random(3)
    rows = [played(n, sample, float(rng.random() < 0.5)) for n in range(200) for sample in range(8)]
    found = calibrate(rows)
    assert (found.halved, [one.tasks for one in found.levels]) == (True, [50] * 4)
    assert [one.attempts for one in found.levels] == [200] * 4
    for one in found.levels:
        assert one.pass_rate == pytest.approx(0.5, abs=0.12)
        assert one.interval is not None
        assert one.interval[0] <= 0.5 <= one.interval[1]
    assert all(one.level is None for one in found.tasks)
    ordered = [played(n, sample, float(sample < n % 9)) for n in range(72) for sample in range(8)]
    rates = [one.pass_rate or 0.0 for one in calibrate(ordered).levels]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] - rates[-1] > 0.6


# ── what is measured together ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"environment": "other"}, "environment"),
        ({"environment_version": "2"}, "version"),
        ({"split": "test"}, "split"),
        ({"policy": "other"}, "policy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trajectories_of_different_origin_are_not_measured_together(
    played: Played, changes: dict[str, str], name: str
) -> None:
    with pytest.raises(InvalidParams, match=f"more than one {name} "):
        calibrate([played(0), played(1, **changes)])


def test_nothing_and_a_band_that_is_none_are_refused(played: Played) -> None:
    with pytest.raises(InvalidParams, match="no trajectory"):
        calibrate([])
    for band in [(0.5, 0.2), (-0.1, 0.5), (0.2, 1.5)]:
        with pytest.raises(InvalidParams, match="lower one first"):
            calibrate([played(0)], band=band)


# ── which tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def described(count: int = 10) -> EnvironmentInfo:
    """An environment with a split of that many tasks and one without end."""
    splits = (
        SplitInfo(name="train", type="train", count=count), SplitInfo(name="endless", type="train", count=None),
    )  # fmt: skip
    return EnvironmentInfo(
        name="env", description="", version="1", splits=splits, tools=(), seedable=True, gradable=False,
        forkable=False, group_scoring=False, reward_range=None,
    )  # fmt: skip


@pytest.fixture
def info() -> EnvironmentInfo:
    return described()


def test_tasks_are_spread_evenly_or_drawn_by_the_seed(info: EnvironmentInfo) -> None:
    assert choose_tasks(info, "train", None, None) == list(range(10))
    assert choose_tasks(info, "train", 50, 3) == list(range(10))
    assert choose_tasks(info, "train", 5, None) == [1, 3, 5, 7, 9]
    assert choose_tasks(info, "train", 1, None) == [5]
    drawn = choose_tasks(info, "train", 5, 3)
    assert drawn == choose_tasks(info, "train", 5, 3) == sorted(set(drawn))
    assert len(drawn) == 5
    assert drawn != choose_tasks(info, "train", 5, 4)
    assert choose_tasks(info, "endless", 3, None) == [0, 1, 2]
    assert max(choose_tasks(info, "endless", 3, 1)) > 1000


@given(st.integers(1, 60), st.integers(1, 60), st.none() | st.integers(0, 99))
def test_chosen_tasks_are_distinct_ordered_and_as_many_as_wanted(count: int, n: int, seed: int | None) -> None:
    chosen = choose_tasks(described(count), "train", n, seed)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(n, count)
    assert set(chosen) <= set(range(count))
    if seed is None and len(chosen) > 1:
        gaps = {later - earlier for earlier, later in itertools.pairwise(chosen)}
        assert max(gaps) - min(gaps) <= 1


def test_an_endless_split_needs_a_number_and_an_unknown_one_is_named(info: EnvironmentInfo) -> None:
    with pytest.raises(InvalidParams, match="endless"):
        choose_tasks(info, "endless", None, None)
    with pytest.raises(SplitNotFound, match="'exam'.*'train', 'endless'"):
        choose_tasks(info, "exam", 3, None)
