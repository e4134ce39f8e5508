"""Charts of results as SVG, drawn by the server: bars with intervals, and distributions. Colors are in `site.css`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

WIDTH: Final = 460
LABEL: Final = 190
"""The width of the labels, in units of the picture."""
LINE: Final = 24
"""The height of one bar."""
LETTERS: Final = 26
"""The most characters of a label."""


class Bar(NamedTuple):
    """One bar."""

    label: str
    value: float
    low: float | None
    high: float | None


def bar_chart(title: str, bars: Sequence[Bar], low: float, high: float) -> Markup:
    """Return a chart of values with their intervals, on a scale from `low` to `high`.

    Args:
        title: what is shown, for those who do not see it.
        bars: from top to bottom.
        low, high: the ends of the scale, which grows if a value is outside.
    """
    low = min([low, *(bar.value if bar.low is None else bar.low for bar in bars)])
    high = max([high, *(bar.value if bar.high is None else bar.high for bar in bars)])
    room = WIDTH - LABEL - 46

    def x(value: float) -> float:
        return round(LABEL + room * ((value - low) / (high - low) if high > low else 0.5), 1)

    parts = []
    for index, bar in enumerate(bars):
        y = index * LINE + 4
        parts.append(
            f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(_short(bar.label))}</text>'
            f'<rect class="track" x="{LABEL}" y="{y + 3}" width="{room}" height="12" rx="3"/>'
            f'<rect class="bar" x="{min(x(0.0 if low < 0 else low), x(bar.value))}" y="{y + 3}" '
            f'width="{round(abs(x(bar.value) - x(0.0 if low < 0 else low)), 1)}" height="12" rx="3"/>'
        )
        if bar.low is not None and bar.high is not None:
            drawn = f"M{x(bar.low)} {y + 9}H{x(bar.high)}M{x(bar.low)} {y + 5}v8M{x(bar.high)} {y + 5}v8"
            parts.append(f'<path class="halo" d="{drawn}"/><path class="whisker" d="{drawn}"/>')
        parts.append(f'<text x="{LABEL + room + 6}" y="{y + 13}">{_number(bar.value)}</text>')
    return _svg(title, "".join(parts), len(bars) * LINE + 6)


def histogram(title: str, counts: Sequence[int]) -> Markup:
    """Return a distribution over equal bins from 0 to 1."""
    most, height = max(counts), 74
    wide = WIDTH / len(counts)
    parts = []
    for index, count in enumerate(counts):
        tall = round(count / most * height, 1)
        parts.append(
            f'<rect class="bar" x="{round(index * wide + 2, 1)}" y="{round(height + 14 - tall, 1)}" '
            f'width="{round(wide - 4, 1)}" height="{tall}" rx="2"/>'
        )
        if count:
            parts.append(
                f'<text x="{round((index + 0.5) * wide, 1)}" y="{round(height + 10 - tall, 1)}" '
                f'text-anchor="middle">{count}</text>'
            )
    base = height + 15
    parts.append(
        f'<path class="whisker" d="M0 {base}H{WIDTH}"/><text x="0" y="{base + 14}">never solved</text>'
        f'<text x="{WIDTH}" y="{base + 14}" text-anchor="end">always solved</text>'
    )
    return _svg(title, "".join(parts), base + 20)


def _svg(title: str, drawn: str, height: int) -> Markup:
    # Everything in `drawn` is a number or was escaped.
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{drawn}</svg>'
    )


def _number(value: float) -> str:
    return f"{value:z.3g}" if abs(value) < 1000 else f"{value:z.0f}"


def _short(label: str) -> str:
    plain = "".join(letter for letter in label if letter.isprintable())
    return plain if len(plain) <= LETTERS else f"{plain[: LETTERS - 1]}…"
