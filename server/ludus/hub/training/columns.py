"""Batches of points by column, as they are kept: the name of a metric is written once for all points of a batch.

`{"step": [1, 2], "time": [1.5, 2.5], "metrics": {"loss": [0.5, null]}}`; null is a point without that metric, and a
text is a number that is not finite.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ludus.registry.types.training import TrainingPoint, from_number


class Value(NamedTuple):
    """One value of a batch."""

    name: str
    step: int
    value: float


class Packed(NamedTuple):
    """A batch as it is kept.

    Attributes:
        data: its compressed JSON.
        size: its bytes before compression.
        digest: the SHA-256 digest of its JSON.
    """

    data: bytes
    size: int
    digest: str


def pack(points: Sequence[TrainingPoint]) -> Packed:
    """Return points as they are kept."""
    names = dict.fromkeys(name for point in points for name in point.metrics)
    text = json.dumps(
        {
            "step": [point.step for point in points],
            "time": [round(point.time, 3) for point in points],
            "metrics": {name: [point.metrics.get(name) for point in points] for name in names},
        },
        allow_nan=False, separators=(",", ":"),
    ).encode()  # fmt: skip
    return Packed(zlib.compress(text), len(text), hashlib.sha256(text).hexdigest())


def text_of(data: bytes) -> str:
    """Return a kept batch as JSON."""
    return zlib.decompress(data).decode()


def points_of(data: bytes) -> tuple[TrainingPoint, ...]:
    """Return the points of a kept batch."""
    found: Any = json.loads(text_of(data))
    columns = list(found["metrics"].items())
    return tuple(
        TrainingPoint(
            step=step, time=time,
            metrics={name: column[place] for name, column in columns if column[place] is not None},
        )
        for place, (step, time) in enumerate(zip(found["step"], found["time"], strict=True))
    )  # fmt: skip


def values_of(data: bytes) -> Iterator[Value]:
    """Yield the values of a kept batch, metric by metric in the order of points."""
    found: Any = json.loads(text_of(data))
    steps = found["step"]
    for name, column in found["metrics"].items():
        for step, value in zip(steps, column, strict=True):
            if value is not None:
                yield Value(name, step, from_number(value))
