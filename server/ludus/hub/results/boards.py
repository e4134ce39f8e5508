"""Boards, computed from their runs.

One line of a board is all runs of one account with one model and one harness, counted together. So a further run never
replaces a bad one: it only adds episodes to the same mean. The number of all runs of the account stands next to it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from ludus.hub.database.result_tables import ResultBoard, ResultRun
from ludus.hub.registry.catalog import aware
from ludus.hub.results.figures import TaskSums, added, difficulty, statistics_of
from ludus.protocol.evaluation import Interval
from ludus.protocol.results import Board, BoardRow, RunFigures

MOST_RUNS: Final = 200
"""The most keys of runs that a line names."""

SUMMARY_ROWS: Final = 8
"""The number of rows in a board's summary."""


def board_of(row: ResultBoard, runs: Sequence[ResultRun]) -> Board:
    """Return a board.

    Args:
        row: its name.
        runs: all its runs, in order of registration.
    """
    counted = [run for run in runs if run.figures is not None and run.removed_at is None]
    ranges = {range_of(run) for run in counted}
    common = ranges.pop() if len(ranges) == 1 else None
    accounts = Counter(run.principal for run in runs)
    groups: dict[tuple[str, str, str], list[ResultRun]] = {}
    for run in counted:
        groups.setdefault((run.principal, run.model, run.harness), []).append(run)
    sums = {run.id: _sums(run) for run in counted}
    lines = [_line(many, [sums[run.id] for run in many], accounts[many[0].principal]) for many in groups.values()]
    return Board(
        package=row.package, version=row.version, environment=row.environment, split=row.split,
        level="played" if row.level == "played" else "reported",
        sha256=row.sha256, lines=len(lines), rows=tuple(sorted(lines, key=lambda line: -line.mean.value)),
        open_runs=sum(run.state == "open" for run in runs),
        removed_runs=sum(run.removed_at is not None for run in runs), reward_range=common,
        difficulty=difficulty(added(sums.values())),
    )  # fmt: skip


def write_board(row: ResultBoard, runs: Sequence[ResultRun]) -> None:
    """Replace the documents of a board by what its runs lead to."""
    board = board_of(row, runs)
    row.document = board.model_dump_json(by_alias=True)
    row.summary = board.model_copy(update={"rows": board.rows[:SUMMARY_ROWS]}).model_dump_json(by_alias=True)


def range_of(run: ResultRun) -> Interval | None:
    """Return the reward range that was declared when the run was registered."""
    return (run.lowest, run.highest) if run.lowest is not None and run.highest is not None else None


def _line(runs: Sequence[ResultRun], sums: Sequence[list[TaskSums]], account_runs: int) -> BoardRow:
    together = added(sums)
    found = statistics_of(together, max(one.episodes for one in together), range_of(runs[0]))
    figures = [RunFigures.model_validate_json(run.figures or "") for run in runs]
    return BoardRow(
        by=runs[0].principal, by_publisher=any(run.by_publisher for run in runs), model=runs[0].model,
        harness=runs[0].harness, runs=tuple(run.key for run in runs[:MOST_RUNS]), account_runs=account_runs,
        tasks=found.tasks, episodes=found.episodes, unscored=sum(one.unscored for one in figures), mean=found.mean,
        success=found.success, pass_at=found.pass_at, input_tokens=_whole(one.input_tokens for one in figures),
        output_tokens=_whole(one.output_tokens for one in figures), cost=_amount(one.cost for one in figures),
        at=max(aware(run.ended_at) for run in runs if run.ended_at is not None),
    )  # fmt: skip


def _sums(run: ResultRun) -> list[TaskSums]:
    return [TaskSums(*one) for one in json.loads(run.per_task or "[]")]


def _whole(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(one or 0 for one in known)


def _amount(amounts: Iterable[float | None]) -> float | None:
    known = list(amounts)
    return None if None in known else sum(one or 0.0 for one in known)
