"""Who has won a match, by how the episodes of its seats have ended."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.hub.results.matches.outcomes import decide_match
from ludus.protocol.episodes import EpisodeInfo
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward

RANGE = (0.0, 1.0)


def ended(reward: float | None, end: EndReason = EndReason.COMPLETED) -> EpisodeInfo:
    value = Reward(value=reward) if reward is not None else None
    fields: dict[str, Any] = {"reward": value, "end_reason": end}
    return EpisodeInfo.model_construct(**fields)


def score(*seats: EpisodeInfo, left: int | None = None) -> float | None:
    decision = decide_match(dict(enumerate(seats)), RANGE, left)
    return decision.score if decision is not None else None


def test_the_higher_reward_wins_and_a_difference_by_rounding_is_a_draw() -> None:
    assert score(ended(0.7), ended(0.6)) == 1.0
    assert score(ended(0.6), ended(0.7)) == 0.0
    assert score(ended(0.1 + 0.2), ended(0.3)) == 0.5


@pytest.mark.parametrize("end", [EndReason.CLOSED, EndReason.EXPIRED])
def test_a_seat_that_left_loses_whatever_its_reward(end: EndReason) -> None:
    assert score(ended(1.0, end), ended(0.0)) == 0.0
    assert score(ended(0.0), ended(1.0, end)) == 1.0
    assert score(ended(1.0, end), ended(0.0, end), left=1) == 1.0, "the other one was closed after it had left"


@pytest.mark.parametrize("end", [EndReason.INFRASTRUCTURE_ERROR, EndReason.SERVER_STOPPED, EndReason.ENVIRONMENT_ERROR])
def test_a_match_that_broke_is_void_unless_a_seat_left_it_before(end: EndReason) -> None:
    assert score(ended(1.0, end), ended(0.0, end)) is None
    assert score(ended(1.0, end), ended(0.0, end), left=0) == 0.0


def test_a_match_without_a_reward_is_void() -> None:
    assert score(ended(None), ended(1.0)) is None


@pytest.mark.parametrize(("reward", "result"), [(0.6, 1.0), (0.5, 0.5), (0.4, 0.0)])
def test_a_reward_against_a_script_is_compared_with_the_middle_of_the_range(reward: float, result: float) -> None:
    for seat in (0, 1):
        decision = decide_match({seat: ended(reward)}, RANGE)
        assert decision is not None
        assert decision.score == (result if seat == 0 else 1 - result)
        assert (decision.first, decision.second)[1 - seat].reward is None
    left = decide_match({1: ended(reward, EndReason.CLOSED)}, RANGE, 1)
    assert left is not None
    assert left.score == 1.0
