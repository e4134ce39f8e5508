"""Pauses double up to the longest one, jitter only shortens them, and a server may name the pause."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.common.backoff import Backoff, retry_after


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
    [
        ("2", 2.0), ("1.5", 1.5), ("-1", 0.0), ("nan", None), ("inf", None), ("soon", None),
        ("Wed, 21 Oct 2020 07:28:00 GMT", 0.0), ("Wed, 99 Oct 2020 07:28:00 GMT", None),
    ],
)  # fmt: skip
def test_seconds_and_dates_of_retry_after_are_read_and_anything_else_is_ignored(
    header: str, seconds: float | None
) -> None:
    assert retry_after({"Retry-After": header}) == seconds
    assert retry_after({}) is None


@pytest.mark.parametrize("style", ["http", "rfc3339", "unix"])
def test_a_time_in_the_future_is_the_seconds_until_then(style: str) -> None:
    then = time.time() + 3_600
    header = {"http": formatdate(then, usegmt=True), "rfc3339": datetime.fromtimestamp(then, UTC).isoformat()}
    headers = {"x-ratelimit-reset": str(then)} if style == "unix" else {"Retry-After": header[style]}
    seconds = retry_after(headers)
    assert seconds is not None
    assert 3_000 < seconds <= 3_600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 7.66s.", 7.66), ("try again in 1m20s", 80.0), ("Try again in 120ms", 0.12),
        ("Please retry after 30 seconds.", 30.0), ('{"retryDelay": "34s"}', 34.0), ("try again in 5m", 300.0),
        ("try again in 2 minutes", 120.0),
        ("try again later", None), ("try again after a while", None),
    ],
)  # fmt: skip
def test_the_text_of_an_error_may_name_the_pause(text: str, seconds: float | None) -> None:
    assert retry_after({}, text) == seconds


def test_pauses_leave_the_shared_random_generator_alone() -> None:
    before = random.getstate()
    assert Backoff(1.0).next() <= 1.0
    assert random.getstate() == before
