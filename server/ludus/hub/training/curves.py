"""Curves of any number of points in bounded memory.

How this works: each metric has at most `BUCKETS` buckets of equal width in steps. A bucket holds the number of its
values, their sum, least and greatest, and its last step. When there are too many buckets, the width doubles and
neighbors merge. So the extremes of a long run never vanish, and adding a batch costs nothing that depends on what came
before. A summary of all buckets is kept with the run; reading adds only the batches that came after it.

The steps after a checkpoint that a later attempt has trained again cannot be taken out of a bucket. Then the curves are
computed again from all batches (`limits_of_attempts`).
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.hub.training.columns import Value
from ludus.registry.types.training import Curve, from_number, to_number

BUCKETS: Final = 256
"""The most buckets of a metric."""


@dataclass(slots=True)
class MetricCurve:
    """The buckets of one metric.

    Attributes:
        width: how many steps are in a bucket, a power of 2.
        buckets: by step // width: the number of values, their sum, the least, the greatest, and the last step.
        latest: the value of the last step, and that step.
        not_finite: how many values were not finite; these are in no bucket.
    """

    width: int = 1
    buckets: dict[int, list[float]] = field(default_factory=dict)
    latest: tuple[int, float] = (-1, math.nan)
    not_finite: int = 0

    def add(self, step: int, value: float) -> None:
        """Add a value."""
        if step >= self.latest[0]:
            self.latest = (step, value)
        if not math.isfinite(value):
            self.not_finite += 1
            return
        place = step // self.width
        found = self.buckets.get(place)
        if found is None:
            self.buckets[place] = [1, value, value, value, step]
            while len(self.buckets) > BUCKETS:
                self._widen()
            return
        found[0] += 1
        found[1] += value
        found[2], found[3], found[4] = min(found[2], value), max(found[3], value), max(found[4], step)

    def _widen(self) -> None:
        self.width *= 2
        self.buckets = merged(self.buckets)

    def curve(self, name: str, most: int = BUCKETS) -> Curve:
        """Return the curve with at most some buckets, in order of steps."""
        buckets = self.buckets
        while len(buckets) > most:
            buckets = merged(buckets)
        rows = [buckets[place] for place in sorted(buckets)]
        return Curve(
            name=name, latest=to_number(self.latest[1]), latest_step=max(0, self.latest[0]),
            not_finite=self.not_finite, steps=tuple(int(row[4]) for row in rows),
            mean=tuple(_mean(row) for row in rows), low=tuple(row[2] for row in rows),
            high=tuple(row[3] for row in rows),
        )  # fmt: skip


class Curves:
    """The curves of a run.

    Attributes:
        metrics: by name, in the order in which they appeared.
        attempts: of how many attempts the run was when these were computed.
        upto: how many batches are in them.
        values: how many values are in them.
    """

    def __init__(self, attempts: int = 1) -> None:
        self.metrics: dict[str, MetricCurve] = {}
        self.attempts = attempts
        self.upto = 0
        self.values = 0

    def add(self, values: Iterable[Value], limit: float = math.inf) -> None:
        """Add one batch.

        Args:
            values: the batch's values.
            limit: the last step of it that counts.
        """
        for name, step, value in values:
            self.values += 1
            if step <= limit:
                found = self.metrics.get(name)
                if found is None:
                    found = self.metrics[name] = MetricCurve()
                found.add(step, value)
        self.upto += 1

    def pack(self) -> bytes:
        """Return the curves as they are kept."""
        found = {
            name: [one.width, one.latest[0], to_number(one.latest[1]), one.not_finite, list(one.buckets.items())]
            for name, one in self.metrics.items()
        }
        whole = [self.attempts, self.upto, self.values, found]
        return zlib.compress(json.dumps(whole, separators=(",", ":")).encode(), 3)

    @classmethod
    def unpack(cls, data: bytes) -> Curves:
        """Return the curves that `pack` has made."""
        attempts, upto, values, found = json.loads(zlib.decompress(data))
        curves = cls(attempts)
        curves.upto, curves.values = upto, values
        for name, one in found.items():
            curves.metrics[name] = _unpacked(one)
        return curves


def merged(buckets: dict[int, list[float]]) -> dict[int, list[float]]:
    """Return buckets of twice the width."""
    found: dict[int, list[float]] = {}
    for place, row in buckets.items():
        other = found.get(place // 2)
        if other is None:
            found[place // 2] = list(row)
            continue
        other[0] += row[0]
        other[1] += row[1]
        other[2], other[3], other[4] = min(other[2], row[2]), max(other[3], row[3]), max(other[4], row[4])
    return found


def limits_of_attempts(starts: Sequence[int]) -> list[float]:
    """Return the last step of each attempt that counts, from the steps at which the attempts went on.

    An attempt that went on from step 30 replaces what earlier ones have sent of later steps.
    """
    limits, least = [math.inf] * len(starts), math.inf
    for place in range(len(starts) - 1, -1, -1):
        limits[place] = least
        least = min(least, starts[place])
    return limits


def _mean(row: Sequence[float]) -> float:
    mean = row[1] / row[0]
    # A sum of finite values may overflow, and rounding may leave the interval.
    return min(max(mean, row[2]), row[3]) if math.isfinite(mean) else row[2] / 2 + row[3] / 2


def _unpacked(one: Sequence[Any]) -> MetricCurve:
    width, step, latest, not_finite, buckets = one
    return MetricCurve(width, {place: row for place, row in buckets}, (step, from_number(latest)), not_finite)
