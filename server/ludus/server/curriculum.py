"""What has been reported of tasks, for draws that depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ludus.protocol.episodes import Outcome


class Curriculum:
    """The outcomes measured and reported of one split's tasks."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}
        self.recorded = 0
        """How many outcomes were reported; what `prime` was given does not count."""

    def prime(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Begin with tries and passes that were measured earlier; reports add to them."""
        for task, (tries, passes) in counts.items():
            before = self._counts.get(task, (0, 0))
            self._counts[task] = (before[0] + tries, before[1] + passes)

    def report(self, outcomes: Iterable[Outcome]) -> None:
        """Count outcomes."""
        for outcome in outcomes:
            tries, passes = self._counts.get(outcome.task, (0, 0))
            self._counts[outcome.task] = (tries + 1, passes + outcome.passed)
            self.recorded += 1

    def in_band(self, low: float, high: float) -> list[str]:
        """Ids of tasks whose pass rate lies in the band, ends included."""
        return sorted(task for task, (tries, passes) in self._counts.items() if low <= passes / tries <= high)

    def knows(self, task: str) -> bool:
        """Whether anything was measured or reported of it."""
        return task in self._counts
