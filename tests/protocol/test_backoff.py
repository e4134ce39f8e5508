"""Pauses double up to the longest one, jitter only shortens them, and a server may name the pause."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.protocol.backoff import Backoff, retry_after


@given(st.floats(0.001, 10), st.floats(0.001, 100), st.integers(1, 20))
def test_pauses_double_up_to_the_longest_and_jitter_takes_at_most_half(
    first: float, longest: float, count: int
) -> None:
    backoff = Backoff(first, longest)
    for number in range(count):
        full = min(first * 2**number, longest)
        assert full / 2 <= backoff.next() <= full


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("2", 2.0), ("1.5", 1.5), ("-1", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("nan", None), ("inf", None)],
)
def test_seconds_of_retry_after_are_read_and_anything_else_is_ignored(header: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": header}) == seconds
    assert retry_after({}) is None


def test_pauses_leave_the_shared_random_generator_alone() -> None:
    before = random.getstate()
    assert Backoff(1.0).next() <= 1.0
    assert random.getstate() == before
