"""Rewards: finite or unscored, and totals that say the truth."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ludus.protocol import Component, Reward
from ludus.protocol.rewards import total

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)
SCORED = st.builds(Reward.of, FINITE, st.dictionaries(st.sampled_from("abc"), FINITE, max_size=3))
NOT_NUMBERS = [math.nan, math.inf, -math.inf]


@pytest.mark.requirement("REW-1")
@pytest.mark.parametrize("number", NOT_NUMBERS)
def test_a_reward_that_is_not_finite_cannot_be_made(number: float) -> None:
    with pytest.raises(ValueError, match="must be a finite number"):
        Reward.of(number)
    with pytest.raises(ValueError, match="part is .*must be a finite number"):
        Reward.of(1.0, {"part": number})
    with pytest.raises(ValidationError):
        Reward(value=number)
    with pytest.raises(ValidationError):
        Component(value=number)
    with pytest.raises(ValidationError):
        Component(value=1.0, weight=number)


@pytest.mark.requirement("REW-2")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reason": "x"},
        {"value": None},
        {"value": None, "reason": None},
        {"value": None, "reason": ""},
        {"value": 1.0, "valid": True},
    ],
    ids=str,
)
def test_a_reward_without_a_value_must_say_so_and_why(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Reward.model_validate(fields)


@pytest.mark.requirement("REW-2")
def test_a_number_needs_no_reason() -> None:
    assert Reward.model_validate({"value": 0}) == Reward.of(0.0)


def test_an_unscored_reward_says_why() -> None:
    reward = Reward.unscored("the judge gave no verdict")
    assert (reward.value, reward.reason) == (None, "the judge gave no verdict")


def test_whole_numbers_and_booleans_become_numbers() -> None:
    assert Reward.of(True).value == 1.0
    assert Reward.of(3, {"a": 2}).components["a"] == Component(value=2.0, weight=1.0)


def test_components_keep_the_weights_they_were_given() -> None:
    part = Component(value=1.0, weight=0.25)
    assert Reward.of(0.25, {"a": part}).components == {"a": part}


@pytest.mark.requirement("REW-5", "REW-6")
@given(st.lists(SCORED, min_size=1, max_size=6))
def test_the_total_is_the_sum_of_values_and_of_components_by_name(rewards: list[Reward]) -> None:
    whole = total(rewards)
    assert whole.value == math.fsum(reward.value or 0.0 for reward in rewards)
    for name in "abc":
        parts = [reward.components[name].value for reward in rewards if name in reward.components]
        assert (name in whole.components) == bool(parts)
        if parts:
            assert whole.components[name].value == pytest.approx(sum(parts), abs=1e-3)


@pytest.mark.requirement("REW-6")
def test_weight_evidence_reason_and_rubric_of_a_total_are_those_of_the_last_entry() -> None:
    first = Reward(
        value=1.0, components={"a": Component(value=1.0, weight=0.5, evidence="one")}, missing={"m": "no judge"},
        rubric="r@1",
    )  # fmt: skip
    second = Reward(
        value=2.0, components={"a": Component(value=2.0, weight=0.25, evidence="two")}, missing={"m": "no verdict"},
        rubric="r@2",
    )  # fmt: skip
    whole = total([first, second])
    assert whole.components == {"a": Component(value=3.0, weight=0.25, evidence="two")}
    assert (whole.missing, whole.rubric) == ({"m": "no verdict"}, "r@2")


@pytest.mark.requirement("REW-5")
@given(st.lists(SCORED, max_size=3), st.lists(SCORED, max_size=3))
def test_one_unscored_reward_makes_the_total_unscored(before: list[Reward], after: list[Reward]) -> None:
    whole = total([*before, Reward.unscored("the judge was down"), *after])
    assert whole == Reward.unscored("the judge was down")


@pytest.mark.requirement("REW-8")
def test_no_reward_at_all_is_nought_and_says_so() -> None:
    whole = total([])
    assert whole.value == 0.0
    assert whole.reason == "no reward was given"


@pytest.mark.parametrize("part", [1.7e308, -1.7e308])
def test_a_total_beyond_the_largest_number_is_unscored(part: float) -> None:
    whole = total([Reward.of(part), Reward.of(part)])
    assert whole == Reward.unscored("the sum of the rewards is too large for a number")
