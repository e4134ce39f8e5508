"""Groups of tasks for pass rates: by a field of the task, by a reward component, or by measured difficulty."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.evaluation.calibration.statistics import quantile
from ludus.protocol.errors import InvalidParams
from ludus.protocol.trajectory import Trajectory

USUAL_FIELDS: Final = ("difficulty", "level")
"""Public task fields that tasks are grouped by when the caller names none."""

MEASURED: Final = "measured pass rate"
"""The name of the grouping when no field gives the difficulty of the tasks."""

MOST_VALUES: Final = 8
"""The most different numbers that are levels of their own; more are put into ranges."""

RANGES: Final = 4
MISSING: Final = "(none)"

_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Levels:
    """A grouping of tasks."""

    by: str
    """The field or component, or `MEASURED`."""
    tasks: dict[str, list[str]]
    """Task ids by level."""
    ordered: bool
    """Whether the levels have an order of their own, as numbers have and names have not."""
    halved: bool = False
    """Whether the levels come from the first, third, … scored episode of each task, so that only the other episodes
    give unbiased figures for them."""


def levels_of(
    scored: Mapping[str, Sequence[Trajectory]],
    rows: Mapping[str, Trajectory],
    by: str | None,
    passed: Callable[[Trajectory], bool],
) -> Levels:
    """Return the tasks in groups.

    Args:
        scored: the scored trajectories of each task, in order of their samples.
        rows: any trajectory of each task, for its public fields.
        by: a public field (`size`, or `shape.size` for a nested one) or else a reward component; None takes the first
            of `USUAL_FIELDS` that exists, or else quarters by the measured pass rate.
        passed: returns whether a scored trajectory counts as solved.

    Raises:
        InvalidParams: there is no field or component `by`; the message lists the existing ones.
    """
    for name in USUAL_FIELDS if by is None else (by,):
        values = {task: _field(row.task.fields, name) for task, row in rows.items()}
        if any(value is not _MISSING for value in values.values()):
            return Levels(name, *_grouped(values))
    if by is None:
        return Levels(MEASURED, _quarters(scored, passed), ordered=True, halved=True)
    components = _components(scored, by)
    if not components:
        fields = sorted({name for row in rows.values() for name in row.task.fields})
        parts = sorted({name for episodes in scored.values() for episode in episodes for name in _parts(episode)})
        raise InvalidParams(
            f"tasks cannot be grouped by {by!r}: it is neither a public field ({', '.join(fields) or 'none here'}) "
            f"nor a reward component ({', '.join(parts) or 'none here'})"
        )
    return Levels(by, *_grouped({task: components.get(task, _MISSING) for task in rows}))


def ranked_half(scored: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """Return the episodes of a task that decide its level by measured pass rate."""
    return scored[::2]


def measured_half(scored: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """Return the other episodes of a task, which measure how hard the levels are."""
    return scored[1::2]


def _field(fields: Mapping[str, Any], path: str) -> Any:
    if path in fields:
        return fields[path]
    value: Any = fields
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _parts(trajectory: Trajectory) -> Mapping[str, Any]:
    return trajectory.reward.components if trajectory.reward is not None else {}


def _components(scored: Mapping[str, Sequence[Trajectory]], name: str) -> dict[str, float]:
    """Return the mean value of a component for each task that has it."""
    rewards = {
        task: [_parts(episode)[name].value for episode in episodes if name in _parts(episode)]
        for task, episodes in scored.items()
    }
    return {task: statistics.fmean(values) for task, values in rewards.items() if values}


def _grouped(values: Mapping[str, Any]) -> tuple[dict[str, list[str]], bool]:
    """Return the groups, and whether they have an order."""
    present = [value for value in values.values() if value is not _MISSING]
    groups: dict[str, list[str]] = {}
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        label = _ranges(present)
        for task, value in sorted(values.items(), key=lambda pair: (pair[1] is _MISSING, _number(pair[1]))):
            groups.setdefault(MISSING if value is _MISSING else label(value), []).append(task)
        return groups, True
    for task, value in values.items():
        name = MISSING if value is _MISSING else value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        groups.setdefault(name, []).append(task)
    return groups, False


def _number(value: Any) -> float:
    return 0.0 if value is _MISSING else float(value)


def _ranges(numbers: Sequence[float]) -> Any:
    """Return a function that labels a number: by itself if there are few, else by one of `RANGES` quantile ranges."""
    if len(set(numbers)) <= MOST_VALUES:
        return lambda value: f"{value:g}"
    edges = sorted({quantile(numbers, part / RANGES) for part in range(RANGES + 1)})

    def name(value: float) -> str:
        upper = next(index for index in range(1, len(edges)) if value <= edges[index])
        preposition = "from" if upper == 1 else "above"
        return f"{preposition} {edges[upper - 1]:g} to {edges[upper]:g}"

    return name


def _quarters(scored: Mapping[str, Sequence[Trajectory]], passed: Callable[[Trajectory], bool]) -> dict[str, list[str]]:
    """Return the tasks in quarters by their pass rate in half of the episodes.

    If the same episodes ranked and measured the tasks, the easiest quarter would look too easy and the hardest one too
    hard.
    """

    def ease(task: str) -> tuple[float, float]:
        half = ranked_half(repeated[task])
        return statistics.fmean(map(passed, half)), statistics.fmean(episode.value or 0.0 for episode in half)

    repeated = {task: episodes for task, episodes in scored.items() if len(episodes) >= 2}
    count = min(RANGES, len(repeated))
    ordered = sorted(repeated, key=ease, reverse=True)
    edges = [round(index * len(ordered) / count) for index in range(count + 1)] if count else []
    names = [f"{index + 1} of {count}" for index in range(count)]
    if count > 1:
        names[0], names[-1] = f"{names[0]} (easiest)", f"{names[-1]} (hardest)"
    return {name: ordered[edges[index] : edges[index + 1]] for index, name in enumerate(names)}
