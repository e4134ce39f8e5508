"""The report of a run: one HTML page that fetches and runs nothing, made of the files in the run's folder.

It shares its charts, tables and episodes with `ludus view` (`ludus.viewing`). Metrics that never change
get no chart; one table lists them.
"""

from __future__ import annotations

import json
import math
import re
import time
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ludus.protocol.trajectory import Trajectory
from ludus.trainer.core.errors import TrainerError
from ludus.viewing import page
from ludus.viewing.charts import Curves, Points, changes, chart, number
from ludus.viewing.figures import FIGURES, FIRST, Figure, labels_of
from ludus.viewing.html import episode
from ludus.viewing.reading import ViewedEpisode

ALGORITHMS: Final = {
    ("ppo", "mean"): "GRPO",
    ("gspo", "mean"): "GSPO",
    ("cispo", "mean"): "CISPO",
    ("dppo", "mean"): "DPPO",
    ("reinforce", "leave_one_out"): "RLOO",
    ("reinforce", "none"): "REINFORCE",
}
"""The usual names of a loss with a baseline."""
EPISODES: Final = 24
"""The maximum number of episodes on the page."""


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run's folder, from `metrics.jsonl`, `rollouts.jsonl` and `config.toml` there.

    Raises:
        TrainerError: the folder cannot be written to.
    """
    records = list(_read_lines(folder / "metrics.jsonl"))
    metrics = _by_name(records)
    file = folder / "config.toml"
    config = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    episodes = "".join(_episodes(folder / "rollouts.jsonl"))
    text = "".join(
        (
            page.head(_title(folder, config, metrics), _facts(folder, records, metrics)),
            page.section("Held-out tasks", f'<div class="grid wide">{"".join(_headline(metrics))}</div>'),
            _opponents(metrics),
            page.section("Learning", _charts(metrics) or '<p class="soft">No steps yet.</p>'),
            page.section("Episodes", episodes, "Some of the last, a middle and the first step.") if episodes else "",
            _notes(records),
            page.section("Configuration", page.fold("config.toml", f"<pre>{page.escape(config)}</pre>", "card"))
            if config
            else "",
            page.foot(),
        )
    )
    report, temporary = folder / "report.html", folder / "report.html.new"
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(report)
    except OSError as error:
        raise TrainerError(f"cannot write {report}: {error.strerror}") from None
    return report


# ---- reading


def _read_lines(path: Path, steps: Container[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, or only those of the wanted steps. Skip incomplete lines."""
    for step, line in _steps_and_lines(path):
        if steps is None or step in steps:
            with suppress(ValueError):
                yield json.loads(line)


def _steps_and_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each complete line with its step, without parsing the line: a long run has too many rollouts for that."""
    if path.exists():
        with path.open("rb") as lines:
            for line in lines:
                if (match := re.match(rb'\{"step": (\d+),', line)) and line.endswith(b"}\n"):
                    yield int(match[1]), line


def _by_name(records: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return the values of each metric, with the seconds of a step that no part of it explains in `time/rest`."""
    steps: dict[int, dict[str, float]] = {}
    for record in records:
        numbers = {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k not in ("step", "time")}
        if numbers:
            steps.setdefault(record["step"], {}).update(numbers)
    metrics: dict[str, list[tuple[float, float]]] = {}
    for step, values in sorted(steps.items()):
        if (step_seconds := values.get("time/step")) is not None:
            parts = sum(values.get(f"time/{part}", 0.0) for part in ("wait", "update", "sync"))
            values["time/rest"] = max(0.0, step_seconds - parts)
        for name, value in values.items():
            metrics.setdefault(name, []).append((step, value))
    return metrics


# ---- the head


def _title(folder: Path, config: str, metrics: Curves) -> str:
    """Return `MODEL on ENVIRONMENTS, ALGORITHM`, as the configuration names them."""
    try:
        values = tomllib.loads(config)
        labels = [match[1] for name in metrics if (match := re.fullmatch(r"evaluation/([^/]+)/mean", name))]
        names = [entry.get("label") or entry.get("name") for entry in values["environments"]]
        names = [name for name in names if name] or labels or [entry["url"] for entry in values["environments"]]
        loss, baseline = values["loss"]["kind"], values["advantages"]["baseline"]
        algorithm = ALGORITHMS.get((loss, baseline), f"{loss} with baseline {baseline}")
        return f"{Path(values['model']['path']).name} on {', '.join(dict.fromkeys(names))}, {algorithm}"
    except (ValueError, LookupError, TypeError, AttributeError):
        return folder.resolve().name


def _facts(folder: Path, records: Sequence[Mapping[str, Any]], metrics: Curves) -> Iterator[str]:
    yield folder.resolve().name
    times = [record["time"] for record in records if isinstance(record.get("time"), int | float)]
    if times:
        yield time.strftime("%Y-%m-%d %H:%M", time.localtime(times[0]))
        yield f"{(times[-1] - times[0]) / 60:.1f} minutes"
    yield f"{max((record['step'] for record in records), default=0)} steps"
    for name, label in (("throughput/trained_tokens", "tokens/s trained"), ("rollout/tokens", "tokens per episode")):
        if values := [value for _, value in metrics.get(name, ())]:
            yield f"{number(sum(values) / len(values))} {label}"
    if idle := sum(value == 1 for _, value in metrics.get("loss/zero_gradient", ())):
        yield f"gradient = 0 in {idle} of {len(metrics['loss/zero_gradient'])} steps"


def _notes(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the notes as a table; a note that was repeated is one row."""
    steps: dict[str, list[int]] = {}
    for record in records:
        if "note" in record:
            steps.setdefault(str(record["note"]), []).append(record["step"])
    rows = [(", ".join(map(str, dict.fromkeys(at[:8]))) + (" …" if len(at) > 8 else ""), text)
            for text, at in steps.items()]  # fmt: skip
    return page.section("Notes", f'<div class="card">{page.table(("step", "note"), rows)}</div>') if rows else ""


# ---- before and after


def _headline(metrics: Curves) -> Iterator[str]:
    """Yield one card per evaluated environment, or one with the training reward if there was no evaluation."""
    labels = [match[1] for name in metrics if (match := re.fullmatch(r"evaluation/(.+)/mean", name))]
    for label in labels:
        rows = list(_measured(f"evaluation/{label}/", metrics))
        columns = ("", "first, with 95 % interval", "last")[: max((len(row) for row in rows), default=0)]
        table = page.table(columns, rows) if rows else ""
        curve = _before_after(f"evaluation/{label}/mean", metrics)
        yield f'<div class="card"><h3>{page.escape(label)}</h3>{curve}{table}</div>'
    if not labels and (rewards := metrics.get("reward/mean")):
        tenth = max(1, len(rewards) // 10)
        early, late = ([value for _, value in part] for part in (rewards[:tenth], rewards[-tenth:]))
        numbers = _arrow(sum(early) / tenth, sum(late) / tenth)
        about = f"Mean training reward of the first and the last {tenth} steps. No held-out tasks were run."
        yield f'<div class="card"><h3>training reward</h3>{numbers}<p class="small soft">{about}</p></div>'
    elif not labels:
        yield '<p class="soft">Nothing has been measured yet.</p>'


def _before_after(name: str, metrics: Curves) -> str:
    points, intervals = metrics[name], _interval(name, metrics)
    if len(points) < 2:
        caption = f"Mean reward, measured once, at step {points[0][0]:.0f}."
        return f'<p class="numbers">{number(points[0][1])}</p><p class="small soft">{caption}</p>'
    (first_step, before), (last_step, after) = points[0], points[-1]
    text = f"Mean reward at step {first_step:.0f} and at step {last_step:.0f}."
    if first_step in intervals and last_step in intervals:
        (low, high), (new_low, new_high) = intervals[first_step], intervals[last_step]
        apart = new_low > high or new_high < low
        text += " The intervals do not overlap." if apart else " The intervals overlap: this may be chance."
    return f'{_arrow(before, after)}<p class="small soft">{text}</p>'


def _arrow(before: float, after: float) -> str:
    tone = "good" if after > before else "bad" if after < before else ""
    numbers = f'<span class="from">{number(before)}</span><span class="arrow">→</span>'
    return f'<p class="numbers">{numbers}<span class="{tone}">{number(after)}</span></p>'


def _measured(prefix: str, metrics: Curves) -> Iterator[tuple[str, ...]]:
    """Yield the rows of an evaluation: each metric's first and last value. Metrics with equal values share a row."""
    pattern = re.compile(re.escape(prefix) + "[^/]+")
    names = sorted(name for name in metrics if pattern.fullmatch(name) and f"{name}_low" in metrics)
    merged: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(names, key=lambda name: not name.endswith("/mean")):
        points, intervals = metrics[name], _interval(name, metrics)
        cells = []
        for step, value in dict.fromkeys((points[0], points[-1])):
            low, high = intervals.get(step, (math.nan, math.nan))
            cells.append(f"{value:.3f} ({low:.3f} to {high:.3f})")
        merged.setdefault(tuple(cells), []).append(name.removeprefix(prefix))
    for values, labels in merged.items():
        yield (" = ".join(labels), *values)


def _opponents(metrics: Curves) -> str:
    """Return the table of held-out matches: what was won, drawn and lost against each opponent, first and last."""
    matches = [match for name in metrics if (match := re.fullmatch(r"evaluation/(.+)/([^/]+)/won", name))]
    rows = []
    for match in matches:
        prefix = f"evaluation/{match[1]}/{match[2]}/"
        steps = [step for step, _ in metrics[f"{prefix}won"]]
        for step in dict.fromkeys((steps[0], steps[-1])):
            at = {key: dict(metrics[f"{prefix}{key}"])[step] for key in ("won", "drawn", "lost", "matches")}
            low, high = _interval(f"{prefix}won", metrics)[step]
            shares = (f"{at['won']:.1%} ({low:.1%} to {high:.1%})", f"{at['drawn']:.1%}", f"{at['lost']:.1%}")
            rows.append((match[1], match[2], f"{step:.0f}", *shares, f"{at['matches']:.0f}"))
    if not rows:
        return ""
    head = ("environment", "opponent", "step", "won, with 95 % interval", "drawn", "lost", "matches")
    about = "Held-out matches from all seats of the policy. `step-…` are frozen snapshots of the policy itself."
    return page.section("Opponents", f'<div class="card">{page.table(head, rows)}</div>', about)


def _interval(name: str, metrics: Curves) -> dict[float, tuple[float, float]]:
    highs = dict(metrics.get(f"{name}_high", ()))
    return {step: (low, highs[step]) for step, low in metrics.get(f"{name}_low", ()) if step in highs}


# ---- charts


def _charts(metrics: Curves) -> str:
    """Return the charts of `FIRST`, and folded below them all others and the metrics that did not change."""
    drawn: list[str] = []
    shown_first = 0
    remaining = {name: points for name, points in metrics.items() if not re.fullmatch(r"time/step|.+_(low|high)", name)}
    for name in [name for name in remaining if name.startswith("reward/") and name != "reward/mean"]:
        if remaining[name] == remaining.get("reward/mean"):  # as with a single environment
            del remaining[name]
    for position, figure in enumerate(FIGURES):
        curves, bands = _matching(figure, remaining, metrics)
        if curves:
            drawn.append(chart(figure.title, figure.about, curves, bands=bands, stacked=figure.stacked))
            shown_first += position < len(FIRST)
    drawn += [chart(name, "", {name: points}) for name, points in remaining.items() if changes(points)]
    constant = [(name, number(points[-1][1])) for name, points in remaining.items() if not changes(points)]
    others_grid = f'<div class="grid">{"".join(drawn[shown_first:])}</div>' if drawn[shown_first:] else ""
    if constant:
        others_grid += f'<div class="card">{page.table(("metric that did not change", "value"), constant)}</div>'
    first_grid = f'<div class="grid wide">{"".join(drawn[:shown_first])}</div>' if shown_first else ""
    return first_grid + (page.fold("all other metrics", others_grid, is_open=not shown_first) if others_grid else "")


def _matching(figure: Figure, remaining: dict[str, Points], metrics: Curves) -> tuple[Curves, Mapping[str, Curves]]:
    """Take the curves of a chart from `remaining`, unless none of them changes; return them and their intervals."""
    names = labels_of(figure, remaining)
    if not any(changes(remaining[name]) for name in names):
        return {}, {}
    curves: dict[str, Points] = {}
    bands: dict[str, Curves] = {}
    for name, label in names.items():
        curves[label] = remaining.pop(name)
        bands[label] = {side: metrics.get(f"{name}_{side}", ()) for side in ("low", "high")}
    return curves, bands


# ---- episodes


def _episodes(path: Path) -> Iterator[str]:
    """Yield episodes of the first, the middle and the last step of which rollouts were recorded."""
    steps = sorted({step for step, _ in _steps_and_lines(path)})
    chosen_steps = {steps[at] for at in (-1, len(steps) // 2, 0)} if steps else set()
    chosen = sorted(_read_lines(path, chosen_steps), key=lambda record: (-record["step"], record.get("group", 0)))
    for record in chosen[:EPISODES]:
        with suppress(ValidationError):
            viewed = ViewedEpisode(
                0, Trajectory.model_validate(record.get("trajectory")), record["step"], bool(record.get("held_out"))
            )
            samples = record.get("samples") or []
            sampled = sum(sum(sample["mask"]) for sample in samples)
            tokens = page.chip(f"{sampled} tokens sampled, {sum(len(sample['ids']) for sample in samples)} in all")
            yield episode(viewed, notes=tokens, below="".join(_tokens(sample) for sample in samples))


def _tokens(sample: Mapping[str, Any]) -> str:
    """Return the sample as the engine saw it, with the text that the policy sampled marked."""
    runs = [f"<mark>{page.escape(text[: page.SHOWN_TEXT])}</mark>" if sampled else page.escape(text[: page.SHOWN_TEXT])
            for sampled, text in sample.get("text") or ()]  # fmt: skip
    title = f"as tokens: {len(sample['ids'])}, of which the marked {sum(sample['mask'])} are trained on"
    return page.fold(title, f'<pre class="raw">{"".join(runs)}</pre>') if runs else ""
