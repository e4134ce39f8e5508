"""The report of a run, `report.html`: one HTML file that loads no other files and runs no scripts.

It shows texts that environments and models wrote, so all text is escaped and the page's Content-Security-Policy
forbids scripts. Curves are SVG, and CSS alone shows their values under the pointer. Files that a crash left incomplete,
runs of one step and runs without evaluation are shown as far as possible.
"""

from __future__ import annotations

import html
import json
import math
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any, Final, NamedTuple

from ludus.protocol.text import printable
from ludus.trainer.errors import TrainerError

Curves = Mapping[str, Sequence[tuple[float, float]]]
"""Label → (step, value) pairs in order of steps."""


class Figure(NamedTuple):
    """One picture with one or more curves."""

    title: str
    about: str
    metrics: Sequence[str]
    """Patterns of the metrics' names; the first group of a match is the curve's label in the legend."""
    stacked: bool = False
    """Whether the curves are parts of a whole."""


FIGURES: Final = (
    Figure("Reward", "Mean of all scored episodes, those of dropped groups too.", ["reward/(?!std$)(.+)"]),
    Figure("Held-out", "Mean reward on tasks kept apart, with its 95 % interval.", ["evaluation/(.+)/mean"]),
    Figure("Length", "Tokens that the policy sampled per episode.", ["rollout/(tokens)"]),
    Figure("Turns", "Of the policy, per episode.", ["rollout/(turns)"]),
    Figure("Ends", "Why the episodes ended.", ["ends/(.+)"], stacked=True),
    Figure("Failed and cut", "Share of the episodes. Failed ones are not trained on.", ["rollout/(failed|truncated)"]),
    Figure("Unreadable calls", "Of tools, per episode.", ["rollout/(parse_errors)"]),
    Figure("Dropped groups", "Failed, or with all rewards alike; others were played.", ["rollout/dropped_(.+)"]),
    Figure("Staleness", "Age of the weights that sampled, in optimizer steps.", ["rollout/staleness_(.+)"]),
    Figure("k3(μ‖π)", "Between the policy that sampled and the one that learns.", ["loss/(mismatch_k3)"]),
    Figure("Clipped and masked", "Share of tokens: gradient clipped, left out.", ["loss/(clipped|masked)"]),
    Figure("Entropy", "Of the policy, nats per token. Near 0 it explores no more.", ["loss/(entropy)"]),
    Figure("Gradient norm", "Before clipping.", ["loss/(gradient_norm)"]),
    Figure("Throughput", "Tokens per second.", ["throughput/(trained|sampled)_tokens"]),
    Figure("Time", "Where the seconds of a step go.", ["time/(wait|update|sync|rest)"], stacked=True),
)
"""The pictures, in order. Metrics that are in none of them follow under "all other metrics"."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 330, 165, 38, 6, 16, 20
POINTS: Final = 150
"""The maximum number of points of a curve; values of more steps are averaged."""
SHOWN_TEXT: Final = 8_000
"""The maximum number of characters shown of one text."""


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run's folder, from `metrics.jsonl`, `rollouts.jsonl` and `config.toml` there.

    Raises:
        TrainerError: the folder cannot be written to.
    """
    records = list(_read_lines(folder / "metrics.jsonl"))
    steps: dict[int, dict[str, float]] = {}
    for record in records:
        numbers = {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k not in ("step", "time")}
        if numbers:
            steps.setdefault(record["step"], {}).update(numbers)
    metrics: dict[str, list[tuple[float, float]]] = {}
    for step in sorted(steps):
        for name, value in _with_rest_of_time(steps[step]).items():
            metrics.setdefault(name, []).append((step, value))
    config = folder / "config.toml"
    page = Template(Path(__file__).with_name("report_template.html").read_text(encoding="utf-8")).substitute(
        title=esc(folder.resolve().name),
        facts="".join(f"<span>{esc(fact)}</span>" for fact in _facts(records, metrics)),
        headline="".join(_headline(metrics)),
        **_curves(metrics),
        **_episodes(folder / "rollouts.jsonl"),
        notes=_notes(records),
        config=esc(config.read_text(encoding="utf-8", errors="replace") if config.exists() else "not there"),
    )
    file, temporary = folder / "report.html", folder / "report.html.new"
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise TrainerError(f"cannot write {file}: {error.strerror}") from None
    return file


def esc(text: object) -> str:
    """Return text as HTML, with U+FFFD in place of control characters and of characters that reorder text."""
    return html.escape(printable(str(text)))


def _read_lines(path: Path, wanted: Container[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, or only those of the wanted steps. Skip incomplete lines."""
    for step, line in _steps_and_lines(path):
        if wanted is None or step in wanted:
            with suppress(ValueError):
                yield json.loads(line)


def _steps_and_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each complete line with its step, without parsing the line: a long run has too many rollouts for that."""
    if path.exists():
        with path.open("rb") as lines:
            for line in lines:
                if (found := re.match(rb'\{"step": (\d+),', line)) and line.endswith(b"}\n"):
                    yield int(found[1]), line


def _with_rest_of_time(metrics: dict[str, float]) -> dict[str, float]:
    named = sum(metrics.get(f"time/{part}", 0.0) for part in ("wait", "update", "sync"))
    whole = metrics.get("time/step")
    return metrics if whole is None else metrics | {"time/rest": max(0.0, whole - named)}


def _facts(records: Sequence[dict[str, Any]], metrics: Curves) -> Iterator[str]:
    times = [record["time"] for record in records if isinstance(record.get("time"), int | float)]
    if times:
        yield time.strftime("%Y-%m-%d %H:%M", time.localtime(times[0]))
        yield f"{(times[-1] - times[0]) / 60:.1f} minutes"
    yield f"{max((record['step'] for record in records), default=0)} steps"
    for name, what in (("throughput/trained_tokens", "tokens/s trained"), ("rollout/tokens", "tokens per episode")):
        if values := [value for _, value in metrics.get(name, ())]:
            yield f"{_number(sum(values) / len(values))} {what}"


def _notes(records: Iterable[dict[str, Any]]) -> str:
    rows = [
        f"<tr><td>{record['step']}</td><td>{esc(record['note'])}</td></tr>" for record in records if "note" in record
    ]
    table = f"<table><tr><th>step</th><th>note</th></tr>{''.join(rows)}</table>"
    return f'<section><h2>Notes</h2><div class="card">{table}</div></section>' if rows else ""


# ---- before and after


def _headline(metrics: Curves) -> Iterator[str]:
    """Yield one card per evaluated environment, or one with the training reward if there was no evaluation."""
    labels = [found[1] for name in metrics if (found := re.fullmatch(r"evaluation/(.+)/mean", name))]
    for label in labels:
        prefix = f"evaluation/{label}/"
        names = sorted(name for name in metrics if name.startswith(prefix) and f"{name}_low" in metrics)
        names.sort(key=lambda name: not name.endswith("/mean"))
        rows = "".join(_row(name.removeprefix(prefix), name, metrics) for name in names)
        head = "<tr><th></th><th>first, with 95 % interval</th><th>last</th></tr>"
        table = f"<table>{head}{rows}</table>" if rows else ""
        yield f'<div class="card"><h3>{esc(label)}</h3>{_before_after(f"{prefix}mean", metrics)}{table}</div>'
    if not labels and (rewards := metrics.get("reward/mean")):
        tenth = max(1, len(rewards) // 10)
        first, last = ([value for _, value in part] for part in (rewards[:tenth], rewards[-tenth:]))
        numbers = _arrow(sum(first) / tenth, sum(last) / tenth)
        about = f"Mean training reward of the first and the last {tenth} steps. No held-out tasks were played."
        yield f'<div class="card"><h3>training reward</h3>{numbers}<p class="small soft">{about}</p></div>'
    elif not labels:
        yield '<p class="soft">Nothing has been measured yet.</p>'


def _before_after(name: str, metrics: Curves) -> str:
    points, intervals = metrics[name], _interval(name, metrics)
    if len(points) < 2:
        when = f"Mean reward, measured once, at step {points[0][0]:.0f}."
        return f'<p class="numbers">{_number(points[0][1])}</p><p class="small soft">{when}</p>'
    (first, before), (last, after) = points[0], points[-1]
    said = f"Mean reward at step {first:.0f} and at step {last:.0f}."
    if first in intervals and last in intervals:
        (low, high), (new_low, new_high) = intervals[first], intervals[last]
        apart = new_low > high or new_high < low
        said += " The intervals do not overlap." if apart else " The intervals overlap: this may be chance."
    return f'{_arrow(before, after)}<p class="small soft">{said}</p>'


def _arrow(before: float, after: float) -> str:
    tone = "good" if after > before else "bad" if after < before else ""
    numbers = f'<span class="from">{_number(before)}</span><span class="arrow">→</span>'
    return f'<p class="numbers">{numbers}<span class="{tone}">{_number(after)}</span></p>'


def _row(label: str, name: str, metrics: Curves) -> str:
    points, intervals = metrics[name], _interval(name, metrics)
    cells = [f"<td>{esc(label)}</td>"]
    for step, value in dict.fromkeys((points[0], points[-1])):
        low, high = intervals.get(step, (math.nan, math.nan))
        cells.append(f'<td>{value:.3f} <span class="soft">{low:.3f} to {high:.3f}</span></td>')
    return f"<tr>{''.join(cells)}</tr>"


def _interval(name: str, metrics: Curves) -> dict[float, tuple[float, float]]:
    highs = dict(metrics.get(f"{name}_high", ()))
    return {step: (low, highs[step]) for step, low in metrics.get(f"{name}_low", ()) if step in highs}


# ---- curves


def _curves(metrics: Curves) -> dict[str, str]:
    """Draw the pictures of `FIGURES`, and one of every metric that is in none of them."""
    pictures, left = [], dict(metrics)
    for figure in FIGURES:
        chosen: dict[str, Sequence[tuple[float, float]]] = {}
        bands: dict[str, Curves] = {}
        for name in metrics:
            found = next(filter(None, (re.fullmatch(pattern, name) for pattern in figure.metrics)), None)
            # With one environment, its reward equals the mean over all, so one of the two curves is left out.
            if found and left.pop(name) not in chosen.values():
                chosen[label := found[1].replace("_", " ")] = metrics[name]
                bands[label] = {side: metrics.get(f"{name}_{side}", ()) for side in ("low", "high")}
        if chosen:
            pictures.append(_figure(figure, chosen, bands))
    known = re.compile(r"evaluation/.+|time/step")
    rest = {name: points for name, points in left.items() if not known.fullmatch(name)}
    others = "".join(_figure(Figure(name, "", ()), {name: points}, {}) for name, points in rest.items())
    folded = f'<details><summary class="soft">all other metrics</summary><div class="grid">{others}</div></details>'
    return {"curves": "".join(pictures) or '<p class="soft">No steps yet.</p>', "others": folded if others else ""}


def _figure(figure: Figure, curves: Curves, bands: Mapping[str, Curves]) -> str:
    curves = dict(list(curves.items())[:8])
    draw = _stack(curves) if figure.stacked else _lines(curves, bands)
    keys = "".join(f'<span><i class="k{n}"></i>{esc(label)}</span>' for n, label in enumerate(curves))
    legend = f'<div class="legend">{keys}</div>' if len(curves) > 1 else ""
    return f"<figure><h3>{esc(figure.title)}</h3><figcaption>{esc(figure.about)}</figcaption>{draw}{legend}</figure>"


class Scale(NamedTuple):
    """The mapping from steps and values to coordinates in the picture."""

    x0: float
    x1: float
    y0: float
    y1: float

    @classmethod
    def around(cls, points: Iterable[tuple[float, float]]) -> Scale:
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


def _lines(curves: Curves, bands: Mapping[str, Curves]) -> str:
    curves = {label: _thin(points) for label, points in curves.items()}
    edges = [point for band in bands.values() for side in band.values() for point in side]
    scale = Scale.around([point for points in curves.values() for point in points] + edges)
    drawn = []
    for n, (label, points) in enumerate(curves.items()):
        if (band := bands.get(label)) and band["low"] and band["high"]:
            drawn.append(f'<polygon class="band f{n}" points="{scale.path([*band["low"], *reversed(band["high"])])}"/>')
        smooth = _smooth(points) if len(points) >= 40 and len(curves) <= 4 else None
        drawn.append(f'<polyline class="s{n}{" faint" if smooth else ""}" points="{scale.path(points)}"/>')
        if smooth:
            drawn.append(f'<polyline class="s{n}" points="{scale.path(smooth)}"/>')
        if len(points) <= 12:
            drawn += [f'<circle class="f{n}" r="2.6" cx="{scale.x(x)}" cy="{scale.y(y)}"/>' for x, y in points]
    return _svg(scale, "".join(drawn), curves)


def _stack(curves: Curves) -> str:
    """Draw areas that sum to 1 at every step."""
    steps = sorted({step for points in curves.values() for step, _ in points})
    values = [dict(points) for points in curves.values()]
    totals = {step: sum(own.get(step, 0.0) for own in values) or 1.0 for step in steps}
    shares = [_thin([(step, own.get(step, 0.0) / totals[step]) for step in steps]) for own in values]
    scale, drawn = Scale(steps[0], max(steps[-1], steps[0] + 1), 0.0, 1.0), ""
    below = [(step, 0.0) for step, _ in shares[0]]
    for n, own in enumerate(shares):
        above = [(step, low + share) for (step, low), (_, share) in zip(below, own, strict=True)]
        # A single step is as wide as the picture.
        wide = [(scale.x1, above[0][1]), (scale.x1, below[0][1])] if len(above) == 1 else []
        drawn += f'<polygon class="area f{n}" points="{scale.path([*above, *wide, *reversed(below)])}"/>'
        below = above
    return _svg(scale, drawn, dict(zip(curves, shares, strict=True)))


def _svg(scale: Scale, drawn: str, curves: Curves) -> str:
    parts = []
    for value in _ticks(scale.y0, scale.y1, 5):
        y = scale.y(value)
        parts.append(f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{_number(value)}</text>')
    for step in _ticks(scale.x0, scale.x1, 6):
        if step == int(step):
            parts.append(f'<text x="{scale.x(step)}" y="{HEIGHT - 4}" text-anchor="middle">{_number(step)}</text>')
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="x" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>{drawn}')
    by_step: dict[float, list[str]] = {}
    for points in curves.values():
        for step, value in points:
            by_step.setdefault(step, []).append(_number(value))
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(by_step) - 1)
    for step, told in sorted(by_step.items()):
        x, text = scale.x(step), f"step {_number(step)}: {' · '.join(told)}"
        place = f'x="{x - wide / 2:.1f}" y="{TOP}" width="{wide:.1f}" height="{base - TOP}"'
        line = f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{base}"/>'
        parts.append(f'<g class="h"><rect {place}/>{line}<text x="{LEFT}" y="9">{text}</text></g>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `POINTS` points, each the mean of neighboring points at the step of the last one."""
    size = math.ceil(len(points) / POINTS)
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
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


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 10_000:
        return f"{value / 1000:,.4g}k" if abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:.4g}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


# ---- episodes


def _episodes(path: Path) -> dict[str, str]:
    """Show episodes of the first, the middle and the last step of which rollouts were recorded."""
    steps = sorted({step for step, _ in _steps_and_lines(path)})
    wanted = {steps[at] for at in (-1, len(steps) // 2, 0)} if steps else set()
    chosen = list(_read_lines(path, wanted))
    chosen.sort(key=lambda record: (-record["step"], record.get("group", 0)))
    shown = "".join(_episode(record, is_open=n == 0) for n, record in enumerate(chosen[:24]))
    about = "Some of the last, a middle and the first step; rollouts.jsonl holds them token by token."
    return {"episodes": shown, "episodes_about": about if shown else "None were kept."}


def _episode(record: dict[str, Any], *, is_open: bool) -> str:
    played = record.get("trajectory") or {}
    samples = record.get("samples") or []
    sampled = sum(sum(sample["mask"]) for sample in samples)
    ended = dict.fromkeys(
        filter(
            None,
            (
                record.get("held_out") and "held-out",
                record.get("status"),
                played.get("end_reason"),
                played.get("stopped"),
            ),
        )
    )
    chips = [_reward_chip(record.get("reward"), "reward "), _chip(", ".join(ended))]
    chips.append(_chip(f"{sampled} tokens sampled, {sum(len(sample['ids']) for sample in samples)} in all"))
    failure = played.get("failure")
    broken = f'<p class="bad small">{esc(failure["error"])}: {esc(failure["message"])}</p>' if failure else ""
    title = f"step {record['step']} · {record.get('environment', '')} · {record.get('task', '')}"
    head = f"<summary><strong>{esc(title)}</strong>{''.join(chips)}</summary>"
    body = f"{broken}{''.join(_conversation(played, samples))}{''.join(_tokens(sample) for sample in samples)}"
    return f'<details class="episode"{" open" if is_open else ""}>{head}{body}</details>'


def _conversation(played: dict[str, Any], samples: Sequence[dict[str, Any]]) -> Iterator[str]:
    steps = {step["call_id"]: step for step in played.get("steps", ())}
    starts = [0, *(turn["items"] for turn in played.get("turns", ()))]
    sampled = [turn for sample in samples for turn in sample["turns"]]
    turn = -1
    for n, item in enumerate(played.get("items", ())):
        own = item.get("type") == "function_call" or item.get("role") == "assistant"
        current = sum(n >= start for start in starts) - 1
        if own and current > turn:
            turn = current
            yield f'<p class="turn">turn {turn + 1} · {sampled.count(turn)} tokens</p>'
        yield _item(item, steps.get(item.get("call_id", ""), {}))


def _item(item: dict[str, Any], step: dict[str, Any]) -> str:
    """Show a message, a call, or the output of a call with the reward of its step."""
    chips = ""
    if item.get("type") == "function_call":
        who, kind, shown = "call", "call", _text(f"{item.get('name')}({item.get('arguments')})")
    elif item.get("type") == "function_call_output":
        who, kind, shown = "answer", "tool", _content(item.get("output"))
        chips = _reward_chip((step.get("reward") or {}).get("value"), "") + _chip(step.get("error") or "", "bad")
    else:
        who = kind = str(item.get("role", item.get("type", "")))
        shown = _content(item.get("content"))
    kind = kind if kind in ("call", "tool", "assistant") else "other"
    return f'<div class="said {kind}"><div class="who">{esc(who)}{chips}</div>{shown}</div>'


def _content(content: Any) -> str:
    if not isinstance(content, list):
        return _text(content)
    return "".join(_image(str(block["image_url"])) if "image_url" in block else _text(block.get("text", block))
                   for block in content)  # fmt: skip


def _image(url: str) -> str:
    if len(url) < 300_000 and re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", url):
        return f'<img alt="image" src="{url}">'
    return _text("[an image]")


def _text(text: Any) -> str:
    text = str(text)
    more = f"\n… {len(text) - SHOWN_TEXT:,} characters more" if len(text) > SHOWN_TEXT else ""
    return f"<pre>{esc(text[:SHOWN_TEXT])}{more}</pre>"


def _tokens(sample: dict[str, Any]) -> str:
    """Show the sample as the engine saw it, with the text that the policy sampled marked."""
    runs = [f"<mark>{esc(text[:SHOWN_TEXT])}</mark>" if own else esc(text[:SHOWN_TEXT])
            for own, text in sample.get("text") or ()]  # fmt: skip
    title = f"as tokens: {len(sample['ids'])}, of which the marked {sum(sample['mask'])} are trained on"
    body = f'<pre class="raw">{"".join(runs)}</pre>'
    return f'<details><summary class="small soft">{title}</summary>{body}</details>' if runs else ""


def _chip(text: str, tone: str = "") -> str:
    return f'<span class="chip {tone}">{esc(text)}</span>' if text else ""


def _reward_chip(value: float | None, label: str) -> str:
    return _chip(f"{label}{value:g}", "good" if value > 0 else "bad" if value < 0 else "") if value is not None else ""
