"""Values of unscored episodes, for trainers that need a number from each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from ludus.client import EpisodeOutcome
from ludus.integrations import siblings
from ludus.integrations.siblings import Siblings
from ludus.protocol.errors import EpisodeFailed

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "integrations.md"


def ended(value: float | None) -> EpisodeOutcome:
    reason = "" if value is not None else "infrastructure failure: the server is gone"
    return EpisodeOutcome(value, reason, {}, end_reason=None, stopped=None, failure=None)


async def value_of(all_episodes: Siblings, group: str, value: float | None) -> float:
    with all_episodes.join(group) as sibling:
        return await sibling.value(ended(value))


async def test_an_unscored_episode_has_the_mean_of_all_scored_ones_if_its_group_has_none() -> None:
    all_episodes = Siblings()
    assert [await value_of(all_episodes, "a", value) for value in (1.0, 0.0)] == [1.0, 0.0]
    assert await value_of(all_episodes, "b", None) == 0.5


async def test_the_first_episode_has_no_made_up_value() -> None:
    with pytest.raises(EpisodeFailed, match="no episode has a value yet: infrastructure failure: the server is gone"):
        await value_of(Siblings(), "a", None)


async def test_a_run_stops_after_many_unscored_episodes_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "LIMIT", 3)
    all_episodes = Siblings()
    for _ in range(4):
        await value_of(all_episodes, "a", 1.0)
        assert [await value_of(all_episodes, "a", None) for _ in range(2)] == [1.0, 1.0]
    with pytest.raises(EpisodeFailed, match="3 episodes in a row were unscored.*the server is gone"):
        await value_of(all_episodes, "a", None)


def test_the_documented_limit_is_the_real_one() -> None:
    assert f"after {siblings.LIMIT} unscored episodes in a row" in PAGE.read_text(encoding="utf-8")
