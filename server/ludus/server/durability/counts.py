"""What a journal counts for `/metrics`: plain numbers, changed once for each row that it writes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, NamedTuple

COMMIT_SECONDS: Final = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Upper bounds of the histogram of commit times, in seconds: from a row in memory to a disk in trouble."""


@dataclass(slots=True)
class JournalCounts:
    """Counts of the rows that were written since the journal was opened."""

    bytes: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(COMMIT_SECONDS) + 1))
    """Commits by the first bound of `COMMIT_SECONDS` that they do not exceed; the last place counts those beyond."""

    def commit(self, size: int, seconds: float) -> None:
        """Count a row of `size` bytes that was written in `seconds`."""
        self.bytes += size
        self.seconds += seconds
        self.buckets[bisect_left(COMMIT_SECONDS, seconds)] += 1


class JournalStats(NamedTuple):
    """The state of a journal that survives the process."""

    counts: JournalCounts
    waiting: int
    """Entries that were appended and are not durable yet."""
    broken: bool
    """Whether it cannot be written, so that requests are refused."""
