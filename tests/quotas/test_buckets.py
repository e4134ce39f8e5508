"""The token bucket, by itself and shared by processes: what it grants in any span of time, and what is never lost."""

from __future__ import annotations

import itertools
import mmap

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from quota_world import Clock

from ludus.protocol.errors import CapacityError
from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import MOST_DRAWN, Quotas
from ludus.server.auth.usage import STALE_SECONDS, UsageTable, size_of


def workers(count: int, clock: Clock, limits: TokenLimits) -> list[Quotas]:
    """Return the quotas of workers that share one table, as if each were a process of its own.

    They run in turns, so the locks that keep processes apart are not needed.
    """
    memory = mmap.mmap(-1, size_of(8))
    shared = UsageTable(memory, None, 8, clock)
    tables = []
    for column in range(count):
        table = UsageTable(memory, None, 8, clock)
        table.column = column
        tables.append(table)
    shared._write(72, count)
    return [Quotas(limits, table=table, clock=clock) for table in tables]


def take(quotas: Quotas) -> bool:
    meter = quotas.account(Principal("lab", frozenset())).steps
    assert meter is not None
    try:
        meter.take()
    except CapacityError:
        return False
    return True


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),  # the worker
        st.sampled_from([1, 2, 3, 7, 20, 33, 500]),  # how many steps it tries
        st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.09, 0.11, 0.21, 0.5, 3.0]),  # the time that passes before
    ),
    min_size=1,
    max_size=60,
)


@example([(0, 2, 0.0), (0, 20, 0.01)], 900.0, 8, 1)  # a worker that held a permit while the bucket filled
@given(EVENTS, st.sampled_from([0.5, 3.0, 40.0, 900.0]), st.integers(1, 400), st.integers(1, 4))
def test_in_any_span_no_more_is_granted_than_the_burst_and_what_the_rate_adds(
    events: list[tuple[int, int, float]], rate: float, burst: int, count: int
) -> None:
    """The bound is exact, over all workers: drawing in batches adds nothing to it."""
    clock = Clock()
    shared = workers(count, clock, TokenLimits(steps_per_second=rate, step_burst=burst))
    granted: list[float] = []
    for worker, tries, passed in events:
        clock.now += passed
        granted += [clock.now for _ in range(tries) if take(shared[worker % count])]
    check_every_span(granted, rate, burst)


@pytest.mark.parametrize("passed", [0.0, 0.05, 0.099, 0.11, 0.25])
def test_permits_that_a_worker_holds_are_missing_in_the_bucket(passed: float) -> None:
    """A worker keeps a part of its batch until the bucket would be full; then all that can be had is taken at once."""
    rate, burst = 4000.0, 400
    for spent_before in range(1, 64):
        clock = Clock()
        holder, other = workers(2, clock, TokenLimits(steps_per_second=rate, step_burst=burst))
        granted = [clock.now for _ in range(spent_before) if take(holder)]
        clock.now += passed
        for worker in (other, holder):
            while take(worker):
                granted.append(clock.now)
        check_every_span(granted, rate, burst)


def check_every_span(granted: list[float], rate: float, burst: int) -> None:
    """Check the bound between any two permits; those of one time are a span from the first to the last of them."""
    times = sorted(set(granted))
    before = [sum(one < time for one in granted) for time in times]
    until = [sum(one <= time for one in granted) for time in times]
    for first, last in itertools.combinations_with_replacement(range(len(times)), 2):
        assert until[last] - before[first] <= burst + rate * (times[last] - times[first]) + 1e-6


@given(st.integers(1, 4), st.sampled_from([(5.0, 5), (50.0, 10), (1000.0, 200)]))
def test_workers_that_ask_without_pause_get_nearly_all_that_the_rate_allows(
    count: int, limit: tuple[float, int]
) -> None:
    """Permits that one of them does not spend are not lost."""
    rate, burst = limit
    clock = Clock()
    shared = workers(count, clock, TokenLimits(steps_per_second=rate, step_burst=burst))
    spent = 0
    for turn in range(20_000):
        clock.now += 0.0005
        spent += take(shared[turn % count])
    assert spent >= 0.95 * min(20_000, burst + rate * 10) - MOST_DRAWN


def test_most_steps_of_a_busy_worker_need_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, draws = Clock(), 0
    quotas = Quotas(TokenLimits(steps_per_second=100_000), clock=clock)
    draw = UsageTable.draw

    def counted(*args: object) -> tuple[int, float]:
        nonlocal draws
        draws += 1
        return draw(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(UsageTable, "draw", counted)
    for _ in range(10_000):
        clock.now += 0.0001
        assert take(quotas)
    assert draws <= 10_000 / (MOST_DRAWN / 2)


def test_a_worker_that_goes_quiet_keeps_its_permits_from_the_others_for_a_short_time_only() -> None:
    clock = Clock()
    busy, other = workers(2, clock, TokenLimits(steps_per_second=0.001, step_burst=80))
    assert [take(busy) for _ in range(4)] == [True] * 4  # the last batch of 4 has 3 left
    got = sum(take(other) for _ in range(100))
    assert got <= 76
    clock.now += 3 * STALE_SECONDS
    got += sum(take(busy) for _ in range(100))
    assert got == 76


def test_refused_callers_get_times_one_after_the_other() -> None:
    clock = Clock()
    quotas = Quotas(TokenLimits(steps_per_second=10, step_burst=1), clock=clock)
    meter = quotas.account(Principal("lab", frozenset())).steps
    assert meter is not None
    meter.take()
    waits = []
    for _ in range(4):
        with pytest.raises(CapacityError) as caught:
            meter.take()
        waits.append(caught.value.retry_after)
    assert waits == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_limits_that_change_apply_to_what_was_used_before() -> None:
    clock = Clock()
    quotas = Quotas(clock=clock)
    principal = Principal("lab", frozenset())
    quotas.account(principal).open(3)
    tight = Principal("lab", frozenset(), limits=TokenLimits(open_episodes=4))
    account = quotas.account(tight)
    account.open(1)
    with pytest.raises(CapacityError):
        account.open(1)
    assert quotas.account(principal).limits == TokenLimits()
