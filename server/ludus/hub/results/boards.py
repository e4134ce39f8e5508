"""Boards, kept up to date by their runs, so that a page reads as many lines as it shows.

One line of a board is all runs of one account with one model and one harness, counted together. So a further run never
replaces a bad one: it only adds episodes to the same mean. The number of all runs of the account stands next to it.
All functions need the board's row to be locked when they write.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from ludus.hub.database.result_tables import ResultBoard, ResultLine, ResultRun
from ludus.hub.database.times import aware
from ludus.hub.results.figures import TaskSums, added, difficulty, statistics_of, sum_if_known
from ludus.protocol.evaluation import Interval
from ludus.registry.types.results import LEVELS, Board, BoardRow, Level, RunFigures

MOST_RUNS: Final = 200
"""The most keys of runs that a line names."""


def level_of(board: ResultBoard) -> Level:
    """Return the level of a board."""
    return next(level for level in LEVELS if level == board.level)


def range_of(run: ResultRun) -> Interval | None:
    """Return the reward range that was declared when the run was registered."""
    return (run.lowest, run.highest) if run.lowest is not None and run.highest is not None else None


def add_ended(session: Session, board: ResultBoard, run: ResultRun) -> None:
    """Count a run that has ended now."""
    together = added([_read(board.tasks), _read(run.per_task or "[]")])
    _write_tasks(board, together)
    _write_line(session, board, run.principal, run.model, run.harness)


def count_again(session: Session, board: ResultBoard, runs: Sequence[ResultRun]) -> None:
    """Count a board again after runs were removed or scored again."""
    left = select(ResultRun.per_task).where(
        ResultRun.board_id == board.id, ResultRun.figures.is_not(None), ResultRun.removed_at.is_(None)
    )
    _write_tasks(board, added(_read(text or "[]") for text in session.scalars(left)))
    for principal, model, harness in {(run.principal, run.model, run.harness) for run in runs}:
        _write_line(session, board, principal, model, harness)


def read_board(session: Session, board: ResultBoard, page: int, size: int) -> Board:
    """Return one page of a board, the line with the highest mean first."""
    of_board = ResultLine.board_id == board.id
    query = select(ResultLine.document).where(of_board).order_by(ResultLine.mean.desc(), ResultLine.id)
    rows = [BoardRow.model_validate_json(one) for one in session.scalars(query.offset((page - 1) * size).limit(size))]
    accounts = select(ResultRun.principal, func.count()).where(
        ResultRun.board_id == board.id, ResultRun.principal.in_({row.by for row in rows})
    )
    counts = {name: count for name, count in session.execute(accounts.group_by(ResultRun.principal))}
    runs = select(func.count()).where(ResultRun.board_id == board.id)
    return Board(
        package=board.package, version=board.version, environment=board.environment, split=board.split,
        level=level_of(board), sha256=board.sha256, page=page,
        rows=tuple(row.model_copy(update={"account_runs": counts[row.by]}) for row in rows),
        lines=session.scalar(select(func.count()).where(of_board)) or 0,
        open_runs=session.scalar(runs.where(ResultRun.state == "open")) or 0,
        removed_runs=session.scalar(runs.where(ResultRun.removed_at.is_not(None))) or 0,
        difficulty=tuple(json.loads(board.difficulty)), reward_range=board_range(board),
    )  # fmt: skip


def board_range(board: ResultBoard) -> Interval | None:
    """Return the reward range of a board's environment."""
    return (board.lowest, board.highest) if board.lowest is not None and board.highest is not None else None


def _write_tasks(board: ResultBoard, sums: Sequence[TaskSums]) -> None:
    board.tasks, board.difficulty = json.dumps(sums), json.dumps(difficulty(sums))


def _write_line(session: Session, board: ResultBoard, principal: str, model: str, harness: str) -> None:
    """Compute the line of an account, a model and a harness again."""
    same = select(ResultRun).where(
        ResultRun.board_id == board.id, ResultRun.principal == principal, ResultRun.model == model,
        ResultRun.harness == harness, ResultRun.figures.is_not(None), ResultRun.removed_at.is_(None),
    )  # fmt: skip
    runs = session.scalars(same.order_by(ResultRun.number)).all()
    line = (ResultLine.board_id == board.id, ResultLine.principal == principal, ResultLine.model == model,
            ResultLine.harness == harness)  # fmt: skip
    session.execute(delete(ResultLine).where(*line))
    if runs:
        row = _row(runs)
        session.add(
            ResultLine(
                board_id=board.id, principal=principal, model=model, harness=harness, mean=row.mean.value,
                document=row.model_dump_json(by_alias=True),
            )
        )  # fmt: skip
    session.flush()


def _row(runs: Sequence[ResultRun]) -> BoardRow:
    together = added(_read(run.per_task or "[]") for run in runs)
    found = statistics_of(together, max(one.episodes for one in together), range_of(runs[0]))
    figures = [RunFigures.model_validate_json(run.figures or "") for run in runs]
    return BoardRow(
        by=runs[0].principal, by_publisher=any(run.by_publisher for run in runs), model=runs[0].model,
        harness=runs[0].harness, runs=tuple(run.key for run in runs[:MOST_RUNS]), account_runs=len(runs),
        tasks=found.tasks, episodes=found.episodes, unscored=sum(run.unscored for run in figures), mean=found.mean,
        median=found.median, success=found.success, pass_at=found.pass_at,
        input_tokens=sum_if_known(run.input_tokens for run in figures),
        output_tokens=sum_if_known(run.output_tokens for run in figures),
        cost=sum_if_known(run.cost for run in figures),
        at=max(aware(run.ended_at) for run in runs if run.ended_at is not None),
    )  # fmt: skip


def _read(text: str) -> list[TaskSums]:
    # A hub before wrote no number of ended episodes, and counted all of them.
    return [TaskSums(*(one if len(one) > 4 else [*one, one[1]])) for one in json.loads(text)]
