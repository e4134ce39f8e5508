"""Line charts and stacked areas as SVG, with legends, intervals, and the values under the pointer.

The trainer's report draws curves with this module. Colors, dashes and hidden parts are in `charts.css`. The horizontal
axis counts steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ludus.viewing.page import escape

Points = Sequence[tuple[float, float]]
"""(step, value) pairs in order of steps."""
Curves = Mapping[str, Points]
"""Label → points."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 330, 176, 38, 6, 16, 32
POINTS: Final = 150
"""The maximum number of points of a curve; values of more steps are averaged."""
CURVES: Final = 8
"""The maximum number of curves of a chart, for which there are colors."""


def changes(points: Points) -> bool:
    """Return whether there is something to draw: two values that differ."""
    return len({value for _, value in points}) > 1


def chart(
    title: str, about: str, curves: Curves, *, bands: Mapping[str, Curves] | None = None, stacked: bool = False
) -> str:
    """Return a chart with its title, as HTML.

    Args:
        title: what is shown.
        about: one sentence about it.
        curves: label → points.
        bands: label → points of `low` and `high`, the curve's interval.
        stacked: draw the curves as parts of a whole that sum to 1 at every step.
    """
    curves = dict(list(curves.items())[:CURVES])
    drawn = _stack(curves, title) if stacked else _lines(curves, bands or {}, title)
    keys = "".join(f"<span>{_key(n, stacked=stacked)}{escape(label)}</span>" for n, label in enumerate(curves))
    legend = f'<div class="legend">{keys}</div>' if len(curves) > 1 else ""
    caption = f"<figcaption>{escape(about)}</figcaption>" if about else ""
    return f"<figure><h3>{escape(title)}</h3>{caption}{drawn}{legend}</figure>"


def _key(place: int, *, stacked: bool) -> str:
    """Return what a curve looks like, for the legend."""
    if stacked:
        return f'<i class="k{place}"></i>'
    return f'<svg viewBox="0 0 26 6" aria-hidden="true"><path class="s{place}" d="M0 3h26"/></svg>'


def number(value: float) -> str:
    """Return a number in at most four digits."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 10_000:
        return f"{value / 1000:z,.4g}k" if abs(value) < 1e7 else f"{value:z.3g}"
    return f"{value:z.4g}" if abs(value) >= 100 or value == int(value) else f"{value:z.3g}"


class _Scale(NamedTuple):
    """The mapping from steps and values to coordinates in the picture."""

    x0: float
    x1: float
    y0: float
    y1: float

    @classmethod
    def around(cls, points: Iterable[tuple[float, float]]) -> _Scale:
        """Return a scale that shows all points, and 0 unless they are far from it."""
        xs, ys = zip(*points, strict=True)
        low, high = min(ys), max(ys)
        low, high = min(low, 0.0) if low < 0.6 * high else low, max(high, 0.0)
        room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
        return cls(min(xs), max(xs), low if low == 0 else low - room, high + room)

    def x(self, step: float) -> float:
        """Return the horizontal coordinate of a step."""
        share = (step - self.x0) / (self.x1 - self.x0) if self.x1 > self.x0 else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        """Return the vertical coordinate of a value."""
        return round(HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the points in SVG's notation."""
        return " ".join(f"{self.x(step)},{self.y(value)}" for step, value in points)

    def line(self, style: str, points: Points) -> str:
        """Return a line through the points."""
        return f'<polyline class="{style}" points="{self.path(points)}"/>'

    def area(self, style: str, points: Points) -> str:
        """Return the area within the points."""
        return f'<polygon class="{style}" points="{self.path(points)}"/>'


def _lines(curves: Curves, bands: Mapping[str, Curves], title: str) -> str:
    curves = {label: _thin(points) for label, points in curves.items()}
    edges = [point for band in bands.values() for side in band.values() for point in side]
    scale = _Scale.around([point for points in curves.values() for point in points] + edges)
    drawn = []
    for n, (label, points) in enumerate(curves.items()):
        if (band := bands.get(label)) and band["low"] and band["high"]:
            drawn.append(scale.area(f"band f{n}", [*band["low"], *reversed(band["high"])]))
        smooth = _smooth(points) if len(points) >= 40 and len(curves) <= 4 else None
        drawn.append(scale.line(f"s{n}{' faint' if smooth else ''}", points))
        if smooth:
            drawn.append(scale.line(f"s{n}", smooth))
        if len(points) <= 12:
            drawn += [f'<circle class="f{n}" r="2.6" cx="{scale.x(x)}" cy="{scale.y(y)}"/>' for x, y in points]
    return _svg(scale, "".join(drawn), curves, title)


def _stack(curves: Curves, title: str) -> str:
    """Draw areas that sum to 1 at every step."""
    steps = sorted({step for points in curves.values() for step, _ in points})
    values = [dict(points) for points in curves.values()]
    totals = {step: sum(value.get(step, 0.0) for value in values) or 1.0 for step in steps}
    shares = [_thin([(step, value.get(step, 0.0) / totals[step]) for step in steps]) for value in values]
    scale, drawn = _Scale(steps[0], max(steps[-1], steps[0] + 1), 0.0, 1.0), ""
    below = [(step, 0.0) for step, _ in shares[0]]
    for n, own in enumerate(shares):
        above = [(step, low + share) for (step, low), (_, share) in zip(below, own, strict=True)]
        # A single step is as wide as the picture.
        wide = [(scale.x1, above[0][1]), (scale.x1, below[0][1])] if len(above) == 1 else []
        drawn += scale.area(f"area f{n}", [*above, *wide, *reversed(below)])
        below = above
    return _svg(scale, drawn, dict(zip(curves, shares, strict=True)), title)


def _svg(scale: _Scale, drawn: str, curves: Curves, title: str) -> str:
    base = HEIGHT - BOTTOM
    heights = [(scale.y(value), value) for value in _ticks(scale.y0, scale.y1, 5)]
    lines = "".join(f"M{LEFT} {y}H{WIDTH - RIGHT}" for y, _ in heights)
    numbers = "".join(f'<text x="{LEFT - 6}" y="{y + 4:g}">{number(value)}</text>' for y, value in heights)
    steps = [step for step in _ticks(scale.x0, scale.x1, 6) if step == int(step)]
    below = "".join(f'<text x="{scale.x(step):g}" y="{HEIGHT - 18}">{number(step)}</text>' for step in steps)
    below += f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 4}">step</text>'
    parts = [f'<path class="g" d="{lines}"/><g text-anchor="end">{numbers}</g><g text-anchor="middle">{below}</g>']
    parts.append(f'<line class="x" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>{drawn}')
    parts.append(_under_pointer(scale, curves))
    label = escape(f"{title}, steps {number(scale.x0)} to {number(scale.x1)}")
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _under_pointer(scale: _Scale, curves: Curves) -> str:
    """Return the values of each step, which the pointer makes visible."""
    parts, base = [], HEIGHT - BOTTOM
    by_step: dict[float, list[str]] = {}
    for points in curves.values():
        for step, value in points:
            by_step.setdefault(step, []).append(number(value))
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(by_step) - 1)
    for step, values in sorted(by_step.items()):
        x, text = scale.x(step), f"step {number(step)}: {' · '.join(values)}"
        place = f'x="{x - wide / 2:.1f}" y="{TOP}" width="{wide:.1f}" height="{base - TOP}"'
        line = f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{base}"/>'
        parts.append(f'<g class="h"><rect {place}/>{line}<text x="{LEFT}" y="9">{text}</text></g>')
    return "".join(parts)


def _thin(points: Points) -> list[tuple[float, float]]:
    """Return at most `POINTS` points, each the mean of neighboring points at the step of the last one."""
    size = math.ceil(len(points) / POINTS)
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


def _smooth(points: Points) -> list[tuple[float, float]]:
    reach = max(2, len(points) // 20)
    near = [points[max(0, i - reach) : i + reach + 1] for i in range(len(points))]
    return [(step, sum(v for _, v in part) / len(part)) for (step, _), part in zip(points, near, strict=True)]


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers from `low` to `high`, about `count` of them."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    exponent = math.floor(math.log10(rough))
    unit = 10.0**exponent
    size = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    numbers = range(math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9) + 1)
    return [round(n * size, 1 - exponent) for n in numbers]
