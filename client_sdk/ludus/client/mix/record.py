"""The statistics of one source of a mix."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.client.mix.policy import WINDOW, MixPolicy

FAST: Final = 16.0
"""The span of the fast average, in groups of the source; more than a step has of it."""
SLOW: Final = 64.0
"""The span of the slow average, in groups of the source."""
NOISE: Final = 0.5
"""How many standard errors of the difference of the averages are noise, which does not count as progress."""


@dataclass(slots=True)
class Average:
    """An exponential moving average without bias at the beginning, as in Adam (Kingma and Ba 2014, section 3)."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float, rate: float) -> None:
        """Add a value with the rate 1 / span."""
        self.total += rate * (value - self.total)
        self.weight += rate * (1 - self.weight)

    @property
    def value(self) -> float:
        """The average; 0 without values."""
        return self.total / self.weight if self.weight else 0.0


@dataclass(slots=True)
class SourceRecord:
    """What is known of a source. A group counts as one observation: the share of its scored episodes that passed."""

    drawn: int = 0
    """Groups drawn from it."""
    groups: int = 0
    """Groups with at least one scored episode."""
    episodes: int = 0
    """Scored episodes."""
    passes: int = 0
    """Scored episodes that passed."""
    unscored: int = 0
    """Episodes without a reward, which count nowhere else."""
    recent: deque[float] = field(default_factory=deque[float])
    """Pass rates of the newest groups since the stage began."""
    count: float = 0.0
    """Groups, each weighted by its age."""
    passed: float = 0.0
    """Their pass rates, summed with the same weights."""
    fast: Average = field(default_factory=Average)
    slow: Average = field(default_factory=Average)
    variance: Average = field(default_factory=Average)
    """Half the squared differences of successive groups, which a trend hardly affects."""
    last: float | None = None
    """The pass rate of the last group."""

    def add(self, rate: float, policy: MixPolicy, *, in_stage: bool) -> None:
        """Add a group's pass rate. `in_stage` says whether it was drawn since the stage began."""
        self.groups += 1
        if in_stage:
            self.recent.append(rate)
            while len(self.recent) > WINDOW:
                self.recent.popleft()
        keep = math.exp(-1 / policy.band.memory)
        self.count = self.count * keep + 1
        self.passed = self.passed * keep + rate
        if self.last is not None:
            self.variance.add((rate - self.last) ** 2 / 2, 1 / SLOW)
        self.fast.add(rate, 1 / FAST)
        self.slow.add(rate, 1 / SLOW)
        self.last = rate

    @property
    def pass_rate(self) -> float | None:
        """The recent pass rate; None without a scored group."""
        return self.fast.value if self.groups else None

    def progress(self) -> float:
        """Return the absolute learning progress beyond what noise explains, at least 0.

        For independent results of variance v, averages of rates a and b have the variances v·a/(2 − a) and v·b/(2 − b),
        and the covariance v·a·b/(a + b − a·b).
        """
        a, b = 1 / FAST, 1 / SLOW
        scale = a / (2 - a) + b / (2 - b) - 2 * a * b / (a + b - a * b)
        error = math.sqrt(max(0.0, self.variance.value * scale))
        return max(0.0, abs(self.fast.value - self.slow.value) - NOISE * error)

    def state(self) -> dict[str, Any]:
        """Return the record, JSON-ready."""
        averages = {name: [average.total, average.weight] for name, average in self._averages().items()}
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, **averages, "recent": list(self.recent), "last": self.last}

    @classmethod
    def load(cls, state: dict[str, Any]) -> SourceRecord:
        """Return the record of a `state()`."""
        record = cls(**{name: state[name] for name in _COUNTS}, recent=deque(state["recent"]), last=state["last"])
        for name, average in record._averages().items():
            average.total, average.weight = state[name]
        return record

    def _averages(self) -> dict[str, Average]:
        return {"fast": self.fast, "slow": self.slow, "variance": self.variance}


_COUNTS = ("drawn", "groups", "episodes", "passes", "unscored", "count", "passed")
