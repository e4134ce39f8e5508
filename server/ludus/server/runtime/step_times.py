"""Counts what a runner of steps has done, and how long it took."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from ludus.protocol.episodes import NoiseKind, StepResult
from ludus.server.runtime.episode import Call, Episode, StepRecord

STEP_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of step times, in seconds: from an inline tool to the default deadline."""


@dataclass(slots=True)
class StepTimes:
    """How long the steps of one environment took, without queueing; steps that were settled from outside left out."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_SECONDS) + 1))
    """Steps by the first bound of `STEP_SECONDS` that they do not exceed; the last place counts those beyond all."""
    seconds: float = 0.0


@dataclass(slots=True)
class StepCounts:
    """Counts of what the runner has done since the host started."""

    settled: int = 0
    tool_errors: int = 0
    noise: Counter[NoiseKind] = field(default_factory=Counter)
    """Steps that noise changed, by kind."""
    times: dict[str, StepTimes] = field(default_factory=dict)
    """By environment, those included that have had no step yet."""


def timed(call: Call, times: StepTimes) -> Call:
    """Wrap a call: measure how long it takes, unless its record is settled from outside."""
    clock = asyncio.get_running_loop().time

    async def measure(episode: Episode, record: StepRecord) -> StepResult:
        began = clock()
        try:
            return await call(episode, record)
        finally:
            if record.outcome is None:
                seconds = clock() - began
                times.seconds += seconds
                times.counts[bisect_left(STEP_SECONDS, seconds)] += 1

    return measure
