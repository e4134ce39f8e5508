"""Charts: any values can be drawn, parts stay parts, and axes have few round numbers and a name."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ludus.viewing.charts import _ticks, chart, number


def test_the_horizontal_axis_has_a_name() -> None:
    assert ">step</text>" in chart("Reward", "", {"mean": [(1, 0.5), (2, 0.75)]})


def test_parts_of_a_whole_stay_parts_when_a_long_run_is_averaged() -> None:
    rare = [(step, 1.0) for step in range(0, 1_000, 3)]
    drawn = chart("Ends", "", {"often": [(step, 3.0) for step in range(1_000)], "rare": rare}, stacked=True)
    shares = [tuple(map(float, found)) for found in re.findall(r"step \S+: (\S+) · ([\d.]+)<", drawn)]
    assert len(shares) <= 150
    assert all(often + second == pytest.approx(1, abs=0.01) for often, second in shares)
    assert all(0.85 < often < 0.97 for often, _ in shares)


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(finite, min_size=1, max_size=60))
def test_any_values_can_be_drawn(values: list[float]) -> None:
    points = list(enumerate(values))
    for stacked in (False, True):
        drawn = chart("Reward", "", {"a": points, "b": points[:1]}, stacked=stacked)
        assert not re.search(r'="[^"]*(nan|inf)', drawn)


@given(finite, finite)
@example(0.0, 9.5e-13)
def test_ticks_are_few_and_within(one: float, other: float) -> None:
    low, high = sorted((one, other))
    ticks = _ticks(low, high, 5)
    assert len(ticks) <= 8
    room = 1e-6 * max(abs(low), abs(high))
    assert all(low - room <= tick <= high + room for tick in ticks)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1, "1"), (0.5, "0.5"), (0.123456, "0.123"), (1234, "1234"), (12_345, "12.35k"), (5e9, "5e+09"),
     (1e-5, "1e-05"), (-0.25, "-0.25"), (float("nan"), "–")],
)  # fmt: skip
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
