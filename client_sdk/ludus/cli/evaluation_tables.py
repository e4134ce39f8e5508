"""Tables of evaluations and comparisons for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from ludus.cli.common import console, shown
from ludus.evaluation.comparison import Comparison
from ludus.protocol.evaluation import Cell, Difference, EvaluationResults
from ludus.viewing.evaluation import estimate_text, p_text

CELL: Final = ("model", "environment / split")
"""The columns that name a cell."""


def show_results(results: EvaluationResults) -> None:
    """Print the cells, and pass@k, pass^k and the contamination checks if there are any."""
    counted = any(cell.tokens is not None for cell in results.cells)
    table = _table("evaluation", (*CELL, "mean reward", "success", "scored", *(("tokens", "cost") if counted else ())))
    for cell in results.cells:
        tokens = "–" if cell.tokens is None else f"{cell.tokens.input:,} / {cell.tokens.output:,}"
        more = (tokens, "–" if cell.cost is None else f"{cell.cost:.4g}") if counted else ()
        success = estimate_text(cell.success, percent=True)
        _row(table, *_names(cell), estimate_text(cell.mean), success, f"{cell.scored} of {cell.planned}", *more)
    console.print(table)
    if results.samples > 1:
        _show_passes(results.cells)
    if any(cell.probes for cell in results.cells):
        _show_probes(results.cells)


def show_comparison(comparison: Comparison) -> None:
    """Print the differences of each cell."""
    table = _table("comparison", ("environment / split", "A", "B", "B − A", "p (adjusted)", "success", "tasks"))
    for cell in comparison.cells:
        reward = cell.reward
        sides = [
            name if mean is None else f"{name} {mean:.3f}"
            for name, mean in ((cell.model_a, cell.mean_a), (cell.model_b, cell.mean_b))
        ]
        p = "–" if reward is None else f"{p_text(reward.p)} ({p_text(cell.p_adjusted)})"
        success = difference_text(cell.success, percent=True)
        tasks = "0" if reward is None else str(reward.tasks)
        _row(table, f"{cell.environment} / {cell.split}", *sides, difference_text(reward), p, success, tasks)
    console.print(table)


def difference_text(one: Difference | None, *, percent: bool = False) -> str:
    """Return a difference with its interval: `+0.10 (+0.02 to +0.18)`; a dash for None."""
    if one is None:
        return "–"
    form = "{:+.1%}" if percent else "{:+.3f}"
    if one.interval is None:
        return form.format(one.value)
    return f"{form.format(one.value)} ({form.format(one.interval[0])} to {form.format(one.interval[1])})"


def _show_passes(cells: Sequence[Cell]) -> None:
    ks = sorted({k for cell in cells for k in cell.pass_at})
    for name, field in (("pass@k", "pass_at"), ("pass^k", "pass_hat")):
        table = _table(name, (*CELL, *(f"k = {k}" for k in ks)))
        for cell in cells:
            _row(table, *_names(cell), *(estimate_text(getattr(cell, field).get(k), percent=True) for k in ks))
        console.print(table)


def _show_probes(cells: Sequence[Cell]) -> None:
    table = _table("contamination", (*CELL, "check", "mean reward", "success", "difference", "p"))
    for cell in cells:
        for probe in cell.probes:
            if not probe.applies:
                _row(table, *_names(cell), probe.probe, "does not apply", "–", "–", "–")
                continue
            found = probe.difference
            success = estimate_text(probe.success, percent=True)
            change, p = ("–", "–") if found is None else (f"{found.value:+.3f}", p_text(found.p))
            _row(table, *_names(cell), probe.probe, estimate_text(probe.mean), success, change, p)
    console.print(table)


def _names(cell: Cell) -> tuple[str, str]:
    return cell.model, f"{cell.environment} / {cell.split}"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title)
    for name in columns:
        table.add_column(shown(name), overflow="fold")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*map(shown, cells))
