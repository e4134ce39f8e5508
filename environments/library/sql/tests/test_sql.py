"""`sql`, played over the wire as trainers and agents play it. Run with `pytest`."""

from __future__ import annotations

from ludus.client import RandomPolicy
from ludus.testing import play
from ludus_sql import Sql


def test_the_oracle_earns_the_best_reward() -> None:
    with play(Sql) as environment:
        assert {environment.oracle(index=index).reward for index in range(6)} == {1.0}


def test_nothing_breaks_whatever_a_policy_does() -> None:
    with play(Sql) as environment:
        assert [trajectory.failure for trajectory in environment.rollout(RandomPolicy(), 6)] == [None] * 6


def test_the_query_stays_on_the_server() -> None:
    assert "solution" not in Sql.load_task("train", 0).public()
