"""The results of `ludus eval` as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ludus.protocol.evaluation import Cell, Estimate, EvaluationResults, ProbeFigures, TaskFigures
from ludus.viewing import page

SHOWN_TASKS: Final = 200
"""How many tasks of a cell are listed, those with the lowest rewards first."""

WIDTH: Final = 760
LABEL: Final = 300
ROW: Final = 24


def write_evaluation_page(results: EvaluationResults, file: Path) -> None:
    """Write the page; an existing file is replaced as a whole.

    Raises:
        OSError: it cannot be written.
    """
    temporary = file.with_name(f"{file.name}.new")
    with temporary.open("w", encoding="utf-8") as whole:
        whole.write(page.head("Evaluation", _facts(results)))
        for part in _sections(results):
            whole.write(part)
        whole.write(page.foot())
    temporary.replace(file)


def estimate_text(one: Estimate | None, *, percent: bool = False) -> str:
    """Return an estimate with its interval: `0.51 (0.43 to 0.59)`; a dash for None."""
    if one is None:
        return "–"
    form = "{:z.1%}" if percent else "{:z.3f}"
    if one.interval is None:
        return form.format(one.value)
    return f"{form.format(one.value)} ({form.format(one.interval[0])} to {form.format(one.interval[1])})"


def p_text(p: float | None) -> str:
    """Return a p-value in three digits; a dash for None."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _facts(results: EvaluationResults) -> Iterator[str]:
    episodes = sum(cell.episodes for cell in results.cells)
    yield f"{episodes:,} episodes"
    yield f"{results.samples} per task"
    yield f"seed {results.seed}"
    yield results.updated_at.strftime("%Y-%m-%d %H:%M %Z")
    yield f"Ludus {results.ludus_version}"
    if not results.finished:
        yield "not finished"


def _sections(results: EvaluationResults) -> Iterator[str]:
    cells = results.cells
    if problems := list(results.problems()):
        yield page.section(
            "Missing", "".join(f'<p class="bad small">{page.escape(problem)}</p>' for problem in problems)
        )
    about = "Mean over tasks with its 95 % interval, clustered by task. Unscored episodes count in no mean."
    yield page.section("Reward", _intervals(cells) + _overview(cells), about)
    if results.samples > 1:
        yield page.section(
            "pass@k and pass^k", _passes(cells),
            "The probability that at least one, or that each, of k episodes of a task succeeds.",
        )  # fmt: skip
    yield page.section(
        "Tokens and cost", _costs(cells),
        "Tokens as the providers report them; cost by the prices in the configuration, of recorded attempts only.",
    )  # fmt: skip
    if any(cell.probes for cell in cells):
        yield page.section(
            "Contamination", _probes(cells),
            "The same tasks without tools or with a cut prompt. A policy that still succeeds may have seen them "
            "before. The difference is to the full task, paired by task.",
        )  # fmt: skip
    yield page.section("Cells", "".join(map(_details, cells)))


def _overview(cells: Sequence[Cell]) -> str:
    columns = ("model", "environment / split", "version", "mean reward", "success", "success at", "scored", "tasks")
    return page.table(
        columns,
        (
            (*_names(cell), cell.environment_version, estimate_text(cell.mean),
             estimate_text(cell.success, percent=True), f"{cell.success_at:g}", f"{cell.scored} of {cell.planned}",
             len(cell.tasks))
            for cell in cells
        ),
    )  # fmt: skip


def _passes(cells: Sequence[Cell]) -> str:
    ks = sorted({k for cell in cells for k in cell.pass_at})
    rows = [
        (*_names(cell), name, *(estimate_text(values.get(k), percent=True) for k in ks))
        for cell in cells
        for name, values in (("pass@k", cell.pass_at), ("pass^k", cell.pass_hat))
    ]
    return page.table(("model", "environment / split", "", *(f"k = {k}" for k in ks)), rows)


def _costs(cells: Sequence[Cell]) -> str:
    rows = []
    for cell in cells:
        tokens = cell.tokens
        counts = ("unknown", "unknown", "") if tokens is None else (
            f"{tokens.input:,}", f"{tokens.output:,}",
            f"unknown for {tokens.unreported} episodes" if tokens.unreported else "",
        )  # fmt: skip
        rows.append((*_names(cell), *counts, "unknown" if cell.cost is None else f"{cell.cost:.4g}"))
    return page.table(("model", "environment / split", "input tokens", "output tokens", "", "cost"), rows)


def _probes(cells: Sequence[Cell]) -> str:
    columns = ("model", "environment / split", "check", "mean reward", "success", "difference", "p", "tasks solved")
    return page.table(columns, (_probe(cell, probe) for cell in cells for probe in cell.probes))


def _probe(cell: Cell, probe: ProbeFigures) -> tuple[object, ...]:
    if not probe.applies:
        return (*_names(cell), probe.probe, "does not apply: no final message is graded", "–", "–", "–", "–")
    found = probe.difference
    change = "–" if found is None else f"{found.value:+z.3f}"
    if found is not None and found.interval is not None:
        change += f" ({found.interval[0]:+z.3f} to {found.interval[1]:+z.3f})"
    return (*_names(cell), probe.probe, estimate_text(probe.mean), estimate_text(probe.success, percent=True), change,
            p_text(None if found is None else found.p), len(probe.solved))  # fmt: skip


def _details(cell: Cell) -> str:
    parts = []
    if cell.causes:
        rows = [(cause.count, cause.kind, cause.message) for cause in cell.causes]
        parts.append(page.table(("unscored", "what broke", "why"), rows))
    parts.append(page.table(("end", "episodes"), cell.ends.items()))
    if cell.components:
        rows_of_parts = [
            (
                name,
                f"{component.mean:z.4g}",
                "differs" if component.weight is None else f"{component.weight:zg}",
                component.episodes,
            )
            for name, component in cell.components.items()
        ]
        parts.append(page.table(("component", "mean", "weight", "episodes"), rows_of_parts))
    tasks = sorted(cell.tasks, key=_reward_of)
    more = f" of {len(tasks):,}" if len(tasks) > SHOWN_TASKS else ""
    listed = page.table(("task", "rewards", "ends"), map(_task, tasks[:SHOWN_TASKS]))
    parts.append(page.fold(f"{min(len(tasks), SHOWN_TASKS):,}{more} tasks, the lowest rewards first", listed))
    for probe in cell.probes:
        if probe.solved:
            parts.append(page.fold(f"solved in the check {probe.probe}", page.text_block("\n".join(probe.solved))))
    parts.append(f'<p class="soft small">ludus view {page.escape(cell.trajectories)}</p>')
    return page.fold(" · ".join(_names(cell)), "".join(parts), "episode")


def _task(task: TaskFigures) -> tuple[str, str, str]:
    rewards = " ".join("unscored" if episode.reward is None else f"{episode.reward:zg}" for episode in task.episodes)
    return task.task, rewards, ", ".join(dict.fromkeys(episode.end for episode in task.episodes))


def _reward_of(task: TaskFigures) -> float:
    known = [episode.reward for episode in task.episodes if episode.reward is not None]
    return math.fsum(known) / len(known) if known else -math.inf


def _names(cell: Cell) -> tuple[str, str]:
    return cell.model, f"{cell.environment} / {cell.split}"


def _intervals(cells: Sequence[Cell]) -> str:
    """Return the mean rewards and their intervals as a picture."""
    known = [(cell, cell.mean) for cell in cells if cell.mean is not None]
    if not known:
        return ""
    ends: list[float] = [
        edge for cell, one in known for edge in (one.value, *(one.interval or ()), *(cell.reward_range or ()))
    ]
    low, high = min(ends), max(ends)
    width = (high - low) or 1.0

    def place(value: float) -> float:
        return round(LABEL + (value - low) / width * (WIDTH - LABEL - 50) + 5, 1)

    drawn = []
    for row, (cell, one) in enumerate(known):
        y = row * ROW + ROW // 2
        name = f"{cell.model} · {cell.environment} / {cell.split}"
        shown = name if len(name) <= 48 else f"{name[:47]}…"
        drawn.append(f'<text x="0" y="{y + 4}">{page.escape(shown)}</text>')
        if one.interval is not None:
            start, end = map(place, one.interval)
            drawn.append(f'<line class="s0" x1="{start}" x2="{end}" y1="{y}" y2="{y}" stroke-width="2"/>')
        drawn.append(f'<circle class="f0" cx="{place(one.value)}" cy="{y}" r="4"/>')
    base = len(known) * ROW
    drawn.append(f'<line class="x" x1="{LABEL}" x2="{WIDTH}" y1="{base}" y2="{base}"/>')
    for value in (low, high):
        drawn.append(f'<text x="{place(value)}" y="{base + 14}" text-anchor="middle">{value:z.3g}</text>')
    title = "Mean rewards with intervals"
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {base + 20}" role="img" aria-label="{title}">{"".join(drawn)}</svg>'
