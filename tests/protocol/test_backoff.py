"""Pauses double up to the longest one, and jitter only shortens them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ludus.protocol.backoff import Backoff


@given(st.floats(0.001, 10), st.floats(0.001, 100), st.integers(1, 20))
def test_pauses_double_up_to_the_longest_and_jitter_takes_at_most_half(
    first: float, longest: float, count: int
) -> None:
    backoff = Backoff(first, longest)
    for number in range(count):
        full = min(first * 2**number, longest)
        assert full / 2 <= backoff.next() <= full
