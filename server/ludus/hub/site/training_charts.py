"""The charts of training runs: which metrics are drawn together, a page of them, and several runs in one chart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from ludus.hub.training.curves import Curves
from ludus.registry.types.training import Curve, from_number
from ludus.viewing.charts import CURVES, chart, number
from ludus.viewing.figures import COMMON, FIGURES, FIRST, Figure, labels_of

CHARTS: Final = 12
"""The most charts of one page."""

ROWS: Final = 60
"""The most rows of the table of latest values on one page."""

POINTS_OF_PAGE: Final = 2_600
"""The most points of all curves on a page together, with those of their intervals."""

FEWEST_POINTS: Final = 16
"""The fewest points of a curve, where it has that many."""

ALL_FIGURES: Final = (*FIRST, *COMMON, *FIGURES[len(FIRST) :])
"""All charts in order: what a reader looks for first, then the metrics of any trainer, then those of our own."""


class Plan(NamedTuple):
    """One chart: its figure, and the metrics in it with their labels."""

    title: str
    about: str
    metrics: Mapping[str, str]
    stacked: bool


class Latest(NamedTuple):
    """A row of the table of latest values."""

    name: str
    value: str
    step: int
    not_finite: int


def plans(curves: Curves) -> list[Plan]:
    """Return the charts of a run, those of `ALL_FIGURES` first; metrics that never change have none."""
    left = {name: None for name, one in curves.metrics.items() if _changes(name, curves)}
    found: list[Plan] = []
    for figure in ALL_FIGURES:
        found += _taken(figure, left)
    return found + [Plan(name, "", {name: name}, stacked=False) for name in left]


def _taken(figure: Figure, left: dict[str, None]) -> list[Plan]:
    """Take the metrics of a figure from those that are left: one chart, or several if they are too many for one."""
    named = list(labels_of(figure, left).items())
    for name, _ in named:
        del left[name]
    parts = [dict(named[start : start + CURVES]) for start in range(0, len(named), CURVES)]
    return [
        Plan(figure.title if place == 0 else f"{figure.title} ({place + 1})", figure.about, part, figure.stacked)
        for place, part in enumerate(parts)
    ]


def _changes(name: str, curves: Curves) -> bool:
    if name.endswith(("_low", "_high")) and name.rpartition("_")[0] in curves.metrics:
        return False  # it is the interval of another one
    one = curves.metrics[name]
    values = {value for row in one.buckets.values() for value in (row[2], row[3])}
    return len(values) > 1


def page_of_charts(shown: Sequence[Plan], curves: Curves, marks: Sequence[int], address: str) -> Markup:
    """Return charts, with as many points as fit on a page together.

    Args:
        shown: the charts.
        curves: the curves of the run.
        marks: the steps from which the run was continued.
        address: the address of the page of one chart, to which its number is added.
    """
    count = sum(len(plan.metrics) for plan in shown)
    most = max(FEWEST_POINTS, min(128, POINTS_OF_PAGE // max(1, 3 * count)))
    drawn = []
    for plan in shown:
        name = next(iter(plan.metrics))
        drawn.append(_chart(plan, curves, most, marks, address + quote(name, safe=""), small=True))
    return Markup("").join(drawn)


def large_chart(plan: Plan, curves: Curves, marks: Sequence[int]) -> Markup:
    """Return one chart with all points that are kept."""
    return _chart(plan, curves, 256, marks, "", small=False)


def _chart(plan: Plan, curves: Curves, most: int, marks: Sequence[int], address: str, *, small: bool) -> Markup:
    # Everything in a chart is a number or was escaped by `ludus.viewing`.
    found = {label: curves.metrics[name].curve(name, most) for name, label in plan.metrics.items()}
    if plan.stacked:
        found = _aligned(found)
    bands = {} if plan.stacked else {label: _band(name, found[label], curves, most) for name, label in
                                     plan.metrics.items()}  # fmt: skip
    return Markup(
        chart(
            plan.title, plan.about, {label: points(one) for label, one in found.items() if one.steps}, bands=bands,
            stacked=plan.stacked, detail="small" if small else "plain", marks=marks, address=address,
        )
    )  # fmt: skip


def _band(name: str, curve: Curve, curves: Curves, most: int) -> dict[str, list[tuple[float, float]]]:
    """Return the interval of a curve: the one that was reported, or the least and greatest values of its buckets."""
    low, high = (curves.metrics.get(f"{name}_{side}") for side in ("low", "high"))
    if low is not None and high is not None:
        return {"low": points(low.curve(name, most)), "high": points(high.curve(name, most))}
    if all(one == other for one, other in zip(curve.low, curve.high, strict=True)):
        return {"low": [], "high": []}
    return {
        "low": list(zip(curve.steps, curve.low, strict=True)), "high": list(zip(curve.steps, curve.high, strict=True))
    }  # fmt: skip


def _aligned(found: dict[str, Curve]) -> dict[str, Curve]:
    """Return curves at the steps of the longest one, because parts of a whole are summed step by step."""
    steps = max((one.steps for one in found.values()), key=len)
    return {
        label: one.model_copy(update={"steps": steps, "mean": _stretched(one, steps)}) for label, one in found.items()
    }


def _stretched(curve: Curve, steps: Sequence[int]) -> tuple[float, ...]:
    """Return the means of a curve at other steps: that of the last bucket before each, and 0 before the first."""
    found, at = [], 0
    for step in steps:
        while at < len(curve.steps) and curve.steps[at] <= step:
            at += 1
        found.append(curve.mean[at - 1] if at else 0.0)
    return tuple(found)


def points(curve: Curve) -> list[tuple[float, float]]:
    """Return the points of a curve for a chart."""
    return list(zip(curve.steps, curve.mean, strict=True))


def latest(curves: Curves) -> list[Latest]:
    """Return the latest value of every metric, by name."""
    return [
        Latest(name, shown(one.latest[1]), max(0, one.latest[0]), one.not_finite)
        for name, one in sorted(curves.metrics.items())
    ]


def shown(value: float | str) -> str:
    """Return a number as the table shows it; what is not finite by its name."""
    found = from_number(value)
    return number(found) if math.isfinite(found) else str(found)


def comparison(name: str, runs: Iterable[tuple[str, Curves]], most: int) -> Markup | None:
    """Return a metric of several runs in one chart; None if no run has two values of it.

    Args:
        name: the metric.
        runs: the label and the curves of each run.
        most: the most points of a curve.
    """
    found = {label: curves.metrics[name].curve(name, most) for label, curves in runs if name in curves.metrics}
    drawn = {label: points(one) for label, one in found.items() if one.steps}
    if not any(len(row) > 1 for row in drawn.values()):
        return None
    return Markup(chart(name, "", drawn, detail="small"))
