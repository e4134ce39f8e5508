"""A browser in a sandbox, driven by an oracle on the pages of a small shop."""

from __future__ import annotations

import pytest
from web_shop import WebShop

from ludus.client import RandomPolicy
from ludus.environments.computer import missing_for_browser
from ludus.testing import play

pytestmark = [
    pytest.mark.suite("computer"),
    pytest.mark.skipif(missing_for_browser() is not None, reason=str(missing_for_browser())),
]


def test_the_oracle_earns_the_best_reward() -> None:
    with play(WebShop) as shop:
        assert shop.oracle(index=1).reward == 1.0


@pytest.mark.suite("computer")
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_oracle_earns_the_best_reward_in_every_split(split: str, index: int) -> None:
    with play(WebShop) as shop:
        assert shop.oracle(index=index, split=split).reward == 1.0


@pytest.mark.suite("computer")
def test_an_empty_cart_earns_nothing() -> None:
    with play(WebShop) as shop:
        episode = shop.start(index=0)
        assert "Kitchen shop" in episode.look().text
        episode.answer("Done.")
        assert episode.reward == 0.0


@pytest.mark.suite("computer")
def test_nothing_breaks_whatever_a_policy_does() -> None:
    with play(WebShop) as shop:
        assert [one.failure for one in shop.rollout(RandomPolicy(), 3)] == [None] * 3
