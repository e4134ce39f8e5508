"""Choice of the tasks to play, and of those that need more episodes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from ludus.client.environment import find_split
from ludus.client.summary import SUCCESS_TOLERANCE, wilson
from ludus.protocol.episodes import EnvironmentInfo
from ludus.protocol.trajectory import Trajectory

ENDLESS: Final = 2**53
"""The upper bound of the indices that are drawn from endless splits."""


def choose_tasks(info: EnvironmentInfo, split: str, n: int | None, seed: int | None) -> list[int]:
    """Return the indices of `n` tasks of a split; of all tasks when `n` is None.

    Without a seed they are spread evenly over the split; with one they are drawn at random. An endless split has no
    even spread: without a seed, its first `n` tasks are taken.

    Raises:
        SplitNotFound: there is no such split.
        InvalidParams: the split is endless, and `n` is None.
    """
    row = find_split(info, split, n)
    if n is None or (row.count is not None and n >= row.count):
        return list(range(row.count or 0))
    if seed is not None:
        return sorted(random.Random(seed).sample(range(row.count or ENDLESS), n))
    return list(range(n)) if row.count is None else [(2 * index + 1) * row.count // (2 * n) for index in range(n)]


def wider(played: Sequence[Trajectory], width: float, threshold: float) -> set[int]:
    """Return the indices of the tasks whose interval is wider than `width`, or that have no scored episode yet."""
    counts: dict[int, list[int]] = {}
    for episode in played:
        attempts, passes = counts.setdefault(episode.task.index, [0, 0])
        if episode.scored:
            won = (episode.value or 0.0) >= threshold - SUCCESS_TOLERANCE
            counts[episode.task.index] = [attempts + 1, passes + won]
    wide = set()
    for index, (attempts, passes) in counts.items():
        low, high = wilson(passes, attempts) if attempts else (0.0, 1.0)
        if high - low > width:
            wide.add(index)
    return wide
