"""Tables of evaluations and comparisons for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ludus.cli._common import console, shown
from ludus.protocol.evaluation import Cell, Estimate, EvaluationResults


def show_results(results: EvaluationResults) -> None:
    """Print the cells, and pass@k, pass^k and the contamination checks if there are any."""
    table = _table("evaluation", ("model", "environment / split", "mean reward", "success", "scored", "tokens", "cost"))
    for cell in results.cells:
        tokens = "–" if cell.tokens is None else f"{cell.tokens.input:,} / {cell.tokens.output:,}"
        scored = f"{cell.scored} of {cell.planned}"
        _row(table, *_names(cell), estimate_text(cell.mean), estimate_text(cell.success, percent=True), scored,
             tokens, "–" if cell.cost is None else f"{cell.cost:.4g}")  # fmt: skip
    console.print(table)
    if results.samples > 1:
        _show_passes(results.cells)
    if any(cell.probes for cell in results.cells):
        _show_probes(results.cells)


def estimate_text(one: Estimate | None, *, percent: bool = False) -> str:
    """Return an estimate with its interval: `0.51 (0.43 to 0.59)`; a dash for None."""
    if one is None:
        return "–"
    form = "{:.1%}" if percent else "{:.3f}"
    if one.interval is None:
        return form.format(one.value)
    return f"{form.format(one.value)} ({form.format(one.interval[0])} to {form.format(one.interval[1])})"


def p_text(p: float | None) -> str:
    """Return a p-value in three digits; a dash for None."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _show_passes(cells: Sequence[Cell]) -> None:
    ks = sorted({k for cell in cells for k in cell.pass_at})
    for name, field in (("pass@k", "pass_at"), ("pass^k", "pass_hat")):
        table = _table(name, ("model", "environment / split", *(f"k = {k}" for k in ks)))
        for cell in cells:
            _row(table, *_names(cell), *(estimate_text(getattr(cell, field).get(k), percent=True) for k in ks))
        console.print(table)


def _show_probes(cells: Sequence[Cell]) -> None:
    table = _table(
        "contamination", ("model", "environment / split", "check", "mean reward", "success", "difference", "p")
    )
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
