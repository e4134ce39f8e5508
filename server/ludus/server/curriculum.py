"""What has been reported of tasks, for draws that depend on it."""

from __future__ import annotations

from collections import OrderedDict

from ludus.protocol.episodes import Outcome
from ludus.protocol.errors import KeyConflict

_KEYS_KEPT = 10_000


class Curriculum:
    """The outcomes reported of one split's tasks."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}
        self._keys: OrderedDict[str, int] = OrderedDict()
        self.recorded = 0

    def report(self, outcomes: tuple[Outcome, ...], key: str) -> None:
        """Count outcomes, once per key.

        Raises:
            KeyConflict: the key stands for other outcomes.
        """
        digest = hash(outcomes)
        known = self._keys.get(key)
        if known is not None:
            if known != digest:
                raise KeyConflict("the key already stands for another report; use a new key for a new report")
            return
        self._keys[key] = digest
        if len(self._keys) > _KEYS_KEPT:
            self._keys.popitem(last=False)
        for outcome in outcomes:
            tries, passes = self._counts.get(outcome.task, (0, 0))
            self._counts[outcome.task] = (tries + 1, passes + outcome.passed)
            self.recorded += 1

    def in_band(self, low: float, high: float) -> list[str]:
        """Ids of tasks whose pass rate lies in the band, ends included."""
        return sorted(task for task, (tries, passes) in self._counts.items() if low <= passes / tries <= high)

    def knows(self, task: str) -> bool:
        """Whether anything was reported of it."""
        return task in self._counts
