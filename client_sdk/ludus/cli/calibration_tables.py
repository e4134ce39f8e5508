"""Tables of a calibration for the terminal."""

from __future__ import annotations

from rich.table import Table

from ludus.cli.common import console, errors, shown
from ludus.evaluation.calibration.measure import Calibration, ExtremeFigures, Interval
from ludus.protocol.text import printable

MOST_TASKS = 40
"""The most tasks in a table; `--json` and the difficulty file have all of them."""


def show(found: Calibration) -> None:
    """Print a calibration."""
    table = Table("measure", "value", title=shown(f"{found.environment} / {found.split} / {found.policy}"))
    for name, value in rows(found):
        table.add_row(shown(name), shown(value))
    console.print(table)
    _show_levels(found)
    if len(found.tasks) <= MOST_TASKS:
        _show_tasks(found)
    else:
        errors.print(shown(f"{len(found.tasks)} tasks: --json and --difficulty list them all"))


def rows(found: Calibration) -> list[tuple[str, str]]:
    """Return the figures of the whole calibration as pairs of name and text."""
    summary = found.summary
    figures = [("tasks, episodes", f"{len(found.tasks)}, {summary.episodes} ({summary.scored} scored)")]
    figures += [(f"failed: {kind}", str(count)) for kind, count in summary.failed.items()]
    if summary.unscored:
        figures.append(("unscored", str(summary.unscored)))
    figures += [(f"steps with noise: {kind}", str(count)) for kind, count in sorted(summary.noise.items())]
    if found.pass_rate is not None:
        figures.append((f"pass rate (reward ≥ {found.success_at:g})", _share(found.pass_rate, found.interval)))
    figures += [(f"pass@{k}", _share(one.value, one.interval)) for k, one in found.pass_at.items() if k > 1]
    if summary.mean is not None:
        figures.append(("mean reward", f"{summary.mean:.4f}"))
    if (band := found.band) is not None:
        inside = f"{band.inside} of {band.tasks}: {_share(band.share, band.interval)}"
        figures.append((f"tasks measured within {band.low:.0%} to {band.high:.0%}", inside))
        figures.append(("truly within, estimated", _share(band.estimate, band.estimate_interval)))
    figures += _extreme("never solved", "at most", found.never) + _extreme("always solved", "at least", found.always)
    for name, spread in [
        ("steps", found.steps), ("turns", found.turns), ("seconds", found.seconds), ("tokens", found.tokens),
    ]:  # fmt: skip
        if spread is not None:
            figures.append((f"{name}: median / 90 %", f"{spread.median:.4g} / {spread.p90:.4g}"))
    if (cost := found.cost) is not None:
        figures.append(("tokens in / out", f"{cost.usage.input_tokens} / {cost.usage.output_tokens}"))
        if cost.total is not None:
            success = "–" if cost.per_success is None else f"{cost.per_success:.6g}"
            figures.append(("cost: all / episode / success", f"{cost.total:.6g} / {cost.per_episode:.6g} / {success}"))
    return figures


def _show_levels(found: Calibration) -> None:
    if not found.levels:
        return
    table = Table(printable(found.by), "tasks", "passed", "pass rate", "unscored", title="by difficulty")
    for level in found.levels:
        rate = "–" if level.pass_rate is None else _share(level.pass_rate, level.interval)
        table.add_row(
            shown(level.level),
            str(level.tasks),
            f"{level.passes}/{level.attempts}",
            shown(rate),
            str(level.unscored or ""),
        )
    console.print(table)
    if found.halved:
        errors.print(shown("tasks were grouped by one half of their episodes; the pass rates are of the other half"))


def _show_tasks(found: Calibration) -> None:
    table = Table("task", "passed", "pass rate", "mean reward", "steps", "not counted", title="by task")
    for task in found.tasks:
        rate = "–" if task.pass_rate is None else _share(task.pass_rate, task.interval)
        left_out = [f"{count} {kind}" for kind, count in task.failed.items()]
        left_out += [f"{task.unscored} unscored"] if task.unscored else []
        table.add_row(
            shown(task.task),
            f"{task.passes}/{task.attempts}",
            shown(rate),
            "–" if task.mean_reward is None else f"{task.mean_reward:.3f}",
            "–" if task.steps is None else f"{task.steps:.1f}",
            shown(", ".join(left_out)),
        )
    console.print(table)


def _extreme(name: str, word: str, found: ExtremeFigures | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    figures = f"{found.tasks}: {_share(found.share, found.interval)}"
    if found.bound is not None:
        figures += f"; true rate {word} {found.bound if word == 'at most' else 1 - found.bound:.1%}"
    return [(name, figures)]


def _share(value: float, interval: Interval | None) -> str:
    return f"{value:.1%}" if interval is None else f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"
