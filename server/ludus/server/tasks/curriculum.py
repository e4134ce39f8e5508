"""What has been reported of tasks, for draws that depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ludus.protocol.episodes import Outcome

_BANDS_KEPT = 16


class Curriculum:
    """The outcomes measured and reported of one split's tasks."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}
        self._bands: dict[tuple[float, float], list[str]] = {}
        """What `in_band` found since the last change: a measured split may have very many tasks."""
        self.recorded = 0
        """How many outcomes were reported; `add_measured` does not count."""

    def add_measured(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Add tries and passes that were measured earlier."""
        self._bands.clear()
        for task, (tries, passes) in counts.items():
            before = self._counts.get(task, (0, 0))
            self._counts[task] = (before[0] + tries, before[1] + passes)

    def report(self, outcomes: Iterable[Outcome]) -> None:
        """Count outcomes."""
        self._bands.clear()
        for outcome in outcomes:
            tries, passes = self._counts.get(outcome.task, (0, 0))
            self._counts[outcome.task] = (tries + 1, passes + outcome.passed)
            self.recorded += 1

    def in_band(self, low: float, high: float) -> Sequence[str]:
        """Ids of tasks whose pass rate lies in the band, ends included, in alphabetical order."""
        found = self._bands.get((low, high))
        if found is None:
            found = sorted(task for task, (tries, passes) in self._counts.items() if low <= passes / tries <= high)
            if len(self._bands) >= _BANDS_KEPT:
                self._bands.clear()
            self._bands[low, high] = found
        return found

    def knows(self, task: str) -> bool:
        """Whether anything was measured or reported of it."""
        return task in self._counts
