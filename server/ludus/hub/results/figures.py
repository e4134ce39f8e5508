"""What counts on a board, and the statistics of runs and of boards.

All rows of a run count: the denominator was fixed when the run was registered. See `ludus.registry.types.results`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple, TypeVar

from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.evaluation.statistics import mean_estimate, pass_estimates, share_estimate
from ludus.protocol.evaluation import Estimate, Interval
from ludus.registry.types.results import EARNED, Declared, RunEpisode, RunFigures

N = TypeVar("N", int, float)

GREATEST: Final = 1e12
"""The greatest reward, of either sign, in an environment that declares no range."""

BINS: Final = 10
"""The number of bins of a distribution of pass rates."""


class TaskSums(NamedTuple):
    """The episodes of one task, summed up."""

    task: str
    episodes: int
    total: float
    """The sum of the counted values."""
    passes: int
    ended: int
    """The episodes with a reward of their own. The others say nothing about the task: something on the player's side or
    on the hub's broke, or the player left."""


@dataclass(frozen=True)
class Statistics:
    """The statistics of one or more runs."""

    mean: Estimate
    median: float
    """The median over tasks of each task's mean."""
    success: Estimate
    pass_at: dict[int, Estimate]
    tasks: int
    episodes: int


def bounds_of(reward_range: Interval | None) -> Interval:
    """Return the least and the greatest reward that count in an environment."""
    return reward_range or (-GREATEST, GREATEST)


def is_possible(reward: float, reward_range: Interval | None) -> bool:
    """Return whether a reward is within the range that an environment declares, rounding allowed for."""
    low, high = bounds_of(reward_range)
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    return low - slack <= reward <= high + slack


def sums_of(rows: Iterable[RunEpisode], success_at: float) -> list[TaskSums]:
    """Return the sums of each task, in the order of the rows."""
    found: dict[str, TaskSums] = {}
    for row in rows:
        before = found.get(row.task, TaskSums(row.task, 0, 0.0, 0, 0))
        found[row.task] = TaskSums(
            row.task, before.episodes + 1, before.total + row.value, before.passes + is_success(row, success_at),
            before.ended + has_ended(row),
        )  # fmt: skip
    return list(found.values())


def has_ended(row: RunEpisode) -> bool:
    """Return whether an episode has a reward of its own."""
    return row.reward is not None and row.end in EARNED


def is_success(row: RunEpisode, success_at: float) -> bool:
    """Return whether an episode has a reward of its own that reaches `success_at`."""
    return row.reward is not None and row.end in EARNED and row.reward >= success_at - SUCCESS_TOLERANCE


def added(many: Iterable[Sequence[TaskSums]]) -> list[TaskSums]:
    """Return the sums of several runs together."""
    found: dict[str, TaskSums] = {}
    for sums in many:
        for sum_ in sums:
            before = found.get(sum_.task)
            found[sum_.task] = sum_ if before is None else TaskSums(
                sum_.task, before.episodes + sum_.episodes, before.total + sum_.total, before.passes + sum_.passes,
                before.ended + sum_.ended,
            )  # fmt: skip
    return list(found.values())


def statistics_of(sums: Sequence[TaskSums], samples: int, reward_range: Interval | None) -> Statistics:
    """Return the statistics of at least one task.

    Args:
        sums: the tasks.
        samples: the largest k of pass@k.
        reward_range: the declared range, to which intervals are clipped.
    """
    means = [sum_.total / sum_.episodes for sum_ in sums]
    mean = mean_estimate(means, reward_range)
    episodes = sum(sum_.episodes for sum_ in sums)
    success = share_estimate([sum_.passes / sum_.episodes for sum_ in sums], episodes)
    assert mean is not None
    assert success is not None
    counts = [(sum_.episodes, sum_.passes) for sum_ in sums]
    ks = sorted({*(2**power for power in range(samples.bit_length())), samples})
    pass_at = {k: found for k in ks if (found := pass_estimates(counts, k)[0]) is not None}
    return Statistics(mean, median(means), success, pass_at, len(sums), episodes)


def run_figures(
    rows: Sequence[RunEpisode], sums: Sequence[TaskSums], declared: Declared, reward_range: Interval | None
) -> RunFigures:
    """Return the figures of an ended run."""
    found = statistics_of(sums, max(sum_.episodes for sum_ in sums), reward_range)
    begun = [row for row in rows if row.attempts]
    given, taken = (
        sum_if_known(row.input_tokens for row in begun), sum_if_known(row.output_tokens for row in begun),
    )  # fmt: skip
    return RunFigures(
        mean=found.mean, success=found.success, pass_at=found.pass_at, ends=dict(Counter(row.end for row in rows)),
        episodes=len(rows), unscored=sum(row.reward is None or row.end not in EARNED for row in rows),
        input_tokens=given, output_tokens=taken, cost=_cost(given, taken, declared),
    )  # fmt: skip


def difficulty(sums: Iterable[TaskSums]) -> tuple[int, ...]:
    """Return the number of tasks by pass rate, in `BINS` bins from 0 to 1; the last one includes 1.

    Only episodes with a reward of their own count here, so an outage does not make a task look hard.
    """
    bins = [0] * BINS
    for sum_ in sums:
        if sum_.ended:
            bins[min(BINS - 1, sum_.passes * BINS // sum_.ended)] += 1
    return tuple(bins) if any(bins) else ()


def sum_if_known(amounts: Iterable[N | None]) -> N | None:
    """Return the sum of amounts; None if there are none, or one of them is not known."""
    every = list(amounts)
    known = [amount for amount in every if amount is not None]
    return sum(known[1:], start=known[0]) if known and len(known) == len(every) else None


def _cost(given: int | None, taken: int | None, declared: Declared) -> float | None:
    if given is None or taken is None or declared.price_in is None or declared.price_out is None:
        return None
    cost = (given * declared.price_in + taken * declared.price_out) / 1e6
    return cost if math.isfinite(cost) else None
