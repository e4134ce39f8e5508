"""The types of live training runs on a hub.

A training run belongs to one account. Its sender opens it under a key of its own choice and appends numbered batches
of points. Opening it again under the same key continues it: each process of the sender is an *attempt*, and a new
attempt replaces what earlier ones have sent of the steps after its checkpoint. Batches count from 0 over all attempts,
so that a batch that is sent twice is kept once, and a missing one is noticed.

Numbers that are not finite, which JSON does not have, travel as the texts `NaN`, `Infinity` and `-Infinity`.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, StringConstraints

from ludus.protocol.integers import Whole
from ludus.protocol.model import WireModel
from ludus.registry.types.packages import PackageId, VersionText

METRICS: Final = 200
"""The most different metrics of a run."""

BATCH_POINTS: Final = 500
"""The most points of one batch."""

BATCH_VALUES: Final = 20_000
"""The most values of one batch."""

POINT_METRICS: Final = METRICS
"""The most metrics of one point."""

METRIC_NAME_LETTERS: Final = 120
"""The most characters of a metric's name."""

CONFIG_BYTES: Final = 64 * 1024
"""The largest configuration, as JSON."""

ROLLOUT_BYTES: Final = 256 * 1024
"""The largest sample rollout, as JSON."""

LATEST_TIME: Final = 4_102_444_800.0
"""The last time that a point may have: the year 2100, in Unix seconds."""

TrainingState = Literal["running", "finished", "failed", "lost"]
"""How a run stands. `lost` is a run that says it runs, and of which the hub has not heard for a while."""

Visibility = Literal["private", "public"]
"""Who sees a run: its account alone, or all."""

TrainingKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22}$")]
"""The name of a run in addresses."""

SenderKey = Annotated[str, StringConstraints(pattern=r"^[\w.:@+-]{8,100}$")]
"""A name that a sender has chosen."""

MetricName = Annotated[
    str, StringConstraints(min_length=1, max_length=METRIC_NAME_LETTERS, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
Title = Annotated[str, StringConstraints(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Remark = Annotated[str, StringConstraints(max_length=500)]

_NAMES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


Number = Annotated[
    Annotated[float, Field(strict=True, allow_inf_nan=False)] | Literal["NaN", "Infinity", "-Infinity"],
    Field(union_mode="left_to_right"),
]
"""A finite number, or the name of one that is not."""


def to_number(value: float) -> float | Literal["NaN", "Infinity", "-Infinity"]:
    """Return a number as it travels."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def from_number(value: float | str) -> float:
    """Return a number that has traveled."""
    return _NAMES[value] if isinstance(value, str) else value


class TrainingPoint(WireModel):
    """The metrics of one step. Several points of one step are possible, such as those of an evaluation after it."""

    step: Whole
    time: Annotated[float, Field(ge=0, le=LATEST_TIME)]
    """When it was measured by the sender's clock, in Unix seconds. The hub uses its own clock for everything else."""
    metrics: dict[MetricName, Number] = Field(min_length=1, max_length=POINT_METRICS)


class TrainingEnvironment(WireModel):
    """An environment that a run trains on."""

    name: Title
    package: PackageId | None = None
    """The package on this hub that it is from, as `owner/name`; null if it is from none."""
    version: VersionText | None = None


class OpenTraining(WireModel):
    """The request to open a training run, or to continue it."""

    sender_key: SenderKey
    """The sender's name of the run; with the same one, the account's run is continued."""
    attempt: SenderKey
    """The name of the sending process. Opening again with the same one changes nothing."""
    name: Title
    trainer: Title = "unknown"
    """The program that trains, with its version."""
    config: dict[str, JsonValue] = {}
    """The configuration, without secrets; at most `CONFIG_BYTES` as JSON."""
    environments: tuple[TrainingEnvironment, ...] = Field(default=(), max_length=50)
    steps: Whole | None = None
    """How many steps are planned; null if that is not known."""
    resumed_from: Whole = 0
    """The step of the checkpoint from which this attempt continues. What earlier attempts have sent of later steps is
    replaced."""
    visibility: Visibility = "private"
    """Who sees a new run; a run that exists stays as it is."""


class Restart(WireModel):
    """A continuation of a run by another attempt."""

    step: Whole
    """The step from which it went on."""
    at: datetime


class TrainingInfo(WireModel):
    """A training run."""

    key: TrainingKey
    name: Title
    by: str
    visibility: Visibility
    state: TrainingState
    reason: Remark = ""
    """Why it failed."""
    trainer: Title
    config: dict[str, JsonValue]
    environments: tuple[TrainingEnvironment, ...]
    steps: Whole | None
    """How many steps are planned."""
    last_step: Whole | None
    """The last step of which there is a point; null without points."""
    points: Whole
    """The points of all attempts."""
    dropped: Whole
    """Points that the sender could not send."""
    rollouts: Whole
    next_batch: Whole
    """The number of the batch that is expected next."""
    restarts: tuple[Restart, ...]
    created_at: datetime
    heard_at: datetime
    """When the hub heard from the sender last."""
    ended_at: datetime | None
    url: str
    """The page of the run."""


class TrainingList(WireModel):
    """One page of training runs, without their configurations."""

    runs: tuple[TrainingInfo, ...]
    total: Whole
    page: Whole


class PointBatch(WireModel):
    """A numbered batch of points."""

    attempt: SenderKey
    number: Whole
    points: tuple[TrainingPoint, ...] = Field(min_length=1, max_length=BATCH_POINTS)


class BatchKept(WireModel):
    """The answer to a batch, the same whenever it is sent."""

    number: Whole
    points: Whole
    """How many points of this batch the hub has kept."""


class PointPage(WireModel):
    """Points as they were sent, in order, with those that were replaced."""

    batches: tuple[PointBatch, ...]
    next: Whole | None
    """The number of the batch at which the next page begins; null at the end."""


class Curve(WireModel):
    """One metric over the steps, as at most a bounded number of buckets."""

    name: MetricName
    latest: Number
    latest_step: Whole
    not_finite: Whole = 0
    """How many values were not finite; these are in no bucket."""
    steps: tuple[Whole, ...]
    """The last step of each bucket."""
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class CurveSet(WireModel):
    """The curves of a run."""

    key: TrainingKey
    upto: Whole
    """How many batches they are made of."""
    curves: tuple[Curve, ...]


class Alive(WireModel):
    """A sign of life of an attempt that has no points to send."""

    attempt: SenderKey


class EndTraining(WireModel):
    """The end of a run. A later attempt may continue it."""

    attempt: SenderKey
    state: Literal["finished", "failed"] = "finished"
    reason: Remark = ""
    dropped: Whole = 0
    """How many points could not be sent."""


class SetVisibility(WireModel):
    """A change of who sees a run."""

    visibility: Visibility


class TrainingRollout(WireModel):
    """A sample rollout of a run."""

    attempt: SenderKey
    step: Whole
    trajectory: dict[str, Any]
    """The trajectory, as a line of `ludus run --out`; at most `ROLLOUT_BYTES` as JSON."""
