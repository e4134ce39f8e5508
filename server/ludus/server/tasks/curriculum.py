"""Pass rates of tasks, as reported or measured, for sampling tasks by difficulty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ludus.protocol.episodes import Outcome

_BANDS_KEPT = 16


class Curriculum:
    """The task outcomes of one split, measured or reported."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}
        self._bands: dict[tuple[float, float], list[str]] = {}
        """Results of `in_band` since the last change, cached because a measured split may have very many tasks."""
        self.recorded = 0
        """How many outcomes were reported, not counting those of `add_measured`."""

    def add_measured(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Add tries and passes, by task id, that were measured earlier."""
        self._bands.clear()
        for task, (tries, passes) in counts.items():
            before = self._counts.get(task, (0, 0))
            self._counts[task] = (before[0] + tries, before[1] + passes)

    def restore(self, counts: Mapping[str, tuple[int, int]], recorded: int) -> None:
        """Add outcomes that were reported to an earlier process: tries and passes by task id, and their number."""
        self.add_measured(counts)
        self.recorded += recorded

    def report(self, outcomes: Iterable[Outcome]) -> None:
        """Add reported outcomes."""
        self._bands.clear()
        for outcome in outcomes:
            tries, passes = self._counts.get(outcome.task, (0, 0))
            self._counts[outcome.task] = (tries + 1, passes + outcome.passed)
            self.recorded += 1

    def in_band(self, low: float, high: float) -> Sequence[str]:
        """Return the ids of tasks whose pass rate is from `low` to `high`, both included, in alphabetical order."""
        tasks = self._bands.get((low, high))
        if tasks is None:
            tasks = sorted(task for task, (tries, passes) in self._counts.items() if low <= passes / tries <= high)
            if len(self._bands) >= _BANDS_KEPT:
                self._bands.clear()
            self._bands[low, high] = tasks
        return tasks

    def knows(self, task: str) -> bool:
        """Return whether any outcome of a task was measured or reported."""
        return task in self._counts
