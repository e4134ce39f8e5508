"""Tables of a run for the terminal: the summary, the results by difficulty, and the worst episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from ludus.cli import playing
from ludus.cli.common import console, shown
from ludus.client import Summary, summarize
from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.evaluation.calibration.levels import USUAL_FIELDS, levels_of
from ludus.protocol.trajectory import Trajectory, latest

WORST: Final = 5
"""The number of episodes in the table of the worst."""


@dataclass(frozen=True, slots=True)
class Level:
    """The results of the tasks of one difficulty."""

    name: str
    tasks: int
    summary: Summary


@dataclass(frozen=True, slots=True)
class Worst:
    """One of the episodes with the lowest rewards."""

    task: str
    sample: int
    reward: float
    end: str
    """The end reason, and why the agent loop stopped the episode, if it did."""
    steps: int
    line: int
    """The line of the trajectory in the file of `--out`, counted from 1."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a run of episodes amounts to.

    Args:
        environment: the name of the environment.
        split: the name of the split.
        summary: the summary of all episodes.
        by: the public task field by which `levels` are grouped; None if the tasks have no such field.
        levels: the results by difficulty, in the order of the field's numbers, or of the tasks for a field of text.
        worst: the scored episodes that did not succeed, those with the lowest rewards first, at most `WORST`.
    """

    environment: str
    split: str
    summary: Summary
    by: str | None
    levels: tuple[Level, ...]
    worst: tuple[Worst, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the summary's fields, and `levels` and `worst`, as JSON values."""
        levels = [
            {
                "level": level.name, "tasks": level.tasks, "episodes": level.summary.episodes,
                "scored": level.summary.scored, "mean": level.summary.mean, "success": level.summary.success,
            }
            for level in self.levels
        ]  # fmt: skip
        difficulty = None if self.by is None else {"field": self.by, "levels": levels}
        return {
            **self.summary.model_dump(mode="json"),
            "difficulty": difficulty,
            "worst": [asdict(one) for one in self.worst],
        }


def results_of(
    environment: str,
    split: str,
    recorded: Sequence[Trajectory],
    success_at: float,
    reward_range: tuple[float, float] | None,
) -> Results:
    """Return the results of trajectories, which are in the order of the lines of their file."""
    lines = {one.key: line for line, one in enumerate(recorded, start=1)}
    everything = latest(recorded)
    summary = summarize(everything, success_at=success_at, reward_range=reward_range)
    by, levels = _levels(everything, success_at, reward_range)
    least = success_at - SUCCESS_TOLERANCE
    failed = [(one.value, one) for one in everything if one.value is not None and one.value < least]
    failed.sort(key=lambda pair: pair[0])
    worst = tuple(
        Worst(one.task.id, one.sample, value, one.outcome, len(one.steps), lines[one.key])
        for value, one in failed[:WORST]
    )
    return Results(environment, split, summary, by, levels, worst)


def _levels(
    everything: Sequence[Trajectory], success_at: float, reward_range: tuple[float, float] | None
) -> tuple[str | None, tuple[Level, ...]]:
    """Return the first of `USUAL_FIELDS` that the tasks have, and the results by its values."""
    by_task: defaultdict[str, list[Trajectory]] = defaultdict(list)
    for one in sorted(everything, key=lambda one: one.task.index):
        by_task[one.task.id].append(one)
    rows = {task: many[0] for task, many in by_task.items()}
    field = next((name for name in USUAL_FIELDS if any(name in row.task.fields for row in rows.values())), None)
    if field is None:
        return None, ()
    groups = levels_of({}, rows, field, lambda _: False).tasks
    return field, tuple(
        Level(
            name,
            len(tasks),
            summarize(
                [one for task in tasks for one in by_task[task]], success_at=success_at, reward_range=reward_range
            ),
        )
        for name, tasks in groups.items()
    )


def show(results: Results, out: Path | None) -> None:
    """Print the results; `out` is the file that has the trajectories."""
    table = Table("measure", "value", title=shown(f"{results.environment} / {results.split}"))
    for name, value in _rows(results.summary):
        table.add_row(shown(name), shown(value))
    console.print(table)
    if results.by is not None and len(results.levels) > 1:
        _show_levels(results.by, results.levels)
    if results.worst:
        _show_worst(results, out)


def _show_levels(by: str, levels: Sequence[Level]) -> None:
    table = Table(title="by difficulty")
    for name in (by, "tasks", "episodes", "scored", "mean reward", "success"):
        table.add_column(shown(name))
    for level in levels:
        one = level.summary
        success = (
            "–"
            if one.success is None
            else f"{one.success:.1%}" + playing.interval_text(one.success_interval, percent=True)
        )
        mean = "–" if one.mean is None else f"{one.mean:.4f}"
        table.add_row(shown(level.name), str(level.tasks), str(one.episodes), str(one.scored), mean, shown(success))
    console.print(table)


def _show_worst(results: Results, out: Path | None) -> None:
    table = Table(title="lowest rewards")
    for name in ("task", "reward", "end", "steps", *([f"line in {out}"] if out else [])):
        table.add_column(shown(name))
    for one in results.worst:
        task = one.task if one.sample == 0 else f"{one.task} (sample {one.sample})"
        line = [str(one.line)] if out else []
        table.add_row(shown(task), f"{one.reward:g}", shown(one.end), str(one.steps), *line)
    console.print(table)
    if out is None:
        console.print("--out FILE keeps the trajectories of all episodes.")


def _rows(summary: Summary) -> list[tuple[str, str]]:
    interval = playing.interval_text
    rows = [("episodes", f"{summary.episodes} ({summary.scored} scored)")]
    if summary.mean is not None:
        rows.append(("mean reward", f"{summary.mean:.4f}" + interval(summary.interval)))
        rows.append(("standard deviation", "–" if summary.std is None else f"{summary.std:.4f}"))
    if summary.success is not None:
        success = f"{summary.success:.1%}" + interval(summary.success_interval, percent=True)
        rows.append((f"success (reward ≥ {summary.success_at:g})", success))
    for name, part in summary.components.items():
        weight = "weights differ" if part.weight is None else f"weight {part.weight:g}"
        rows.append((f"component {name}", f"{part.mean:.4f}  ({weight}; in {part.count} of {summary.scored} episodes)"))
    rows += [(f"ended: {reason}", str(count)) for reason, count in summary.end_reasons.items()]
    rows += [(f"failed: {kind}", str(count)) for kind, count in summary.failed.items()]
    if summary.unscored:
        rows.append(("unscored", str(summary.unscored)))
    if summary.steps is not None:
        rows.append(("steps per episode", f"{summary.steps:.1f}"))
    rows += [(f"steps with noise: {kind}", str(count)) for kind, count in sorted(summary.noise.items())]
    if summary.retried:
        rows.append(("needed more than one attempt", str(summary.retried)))
    if summary.usage is not None:
        rows.append(("tokens in / out", f"{summary.usage.input_tokens} / {summary.usage.output_tokens}"))
    rows.append(("seconds", f"{summary.seconds:.1f}"))
    return rows
