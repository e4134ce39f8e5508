"""Tests of `sqlite.py`. Run with `pytest examples/test_sqlite.py`."""

from __future__ import annotations

import pytest
from sqlite import COUNTS, Shop

from ludus.client import RandomPolicy
from ludus.testing import play


@pytest.mark.parametrize("split", COUNTS)
def test_the_oracle_earns_the_best_reward(split: str) -> None:
    with play(Shop) as shop:
        assert [shop.oracle(index=index, split=split).reward for index in range(3)] == [1.0] * 3


def test_wrong_changes_lower_the_reward() -> None:
    with play(Shop) as shop:
        episode = shop.start(index=1)
        assert episode.execute(sql=episode.task.solution).text.endswith("rows changed")
        assert episode.execute(sql="DELETE FROM orders WHERE status = 'shipped'").error is None
        episode.finish()
        assert episode.reward is not None
        assert 0 < episode.reward < 1
        untouched = shop.start(index=1)
        untouched.finish()
        assert untouched.components == {"changes": 0.0}


def test_statements_that_could_do_harm_are_refused() -> None:
    with play(Shop) as shop:
        episode = shop.start()
        assert len(episode.execute(sql="SELECT * FROM orders").text.splitlines()) == 20
        for sql in (
            "ATTACH DATABASE '/tmp/other' AS other", "PRAGMA page_size", "DROP TABLE orders", "SELECT 1; SELECT 2",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n", "no sql",
        ):  # fmt: skip
            assert episode.execute(sql=sql).error == "refused", sql


@pytest.mark.suite("breadth")
def test_nothing_breaks_whatever_a_policy_does() -> None:
    with play(Shop) as shop:
        assert [one.failure for one in shop.rollout(RandomPolicy(), 5)] == [None] * 5
