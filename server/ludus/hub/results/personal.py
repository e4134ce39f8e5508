"""The results of a person: what an export holds of them, and what stays when the account is deleted.

Runs of a deleted account leave their boards as if they had been taken back, and no longer name the account; so their
receipts, which do, go. So do the results on its private packages, which are deleted with it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from ludus.hub.core.blobs import BlobStore
from ludus.hub.database.engine import Database
from ludus.hub.database.result_tables import ResultBoard, ResultEpisode, ResultLine, ResultLogLine, ResultRun
from ludus.hub.database.tables import Package
from ludus.hub.database.times import aware
from ludus.hub.people.personal_data import GONE
from ludus.hub.results.boards import count_again
from ludus.hub.results.rollouts import RunRollouts

REASON: Final = "the account was deleted"


class PersonalResults:
    """Exports and deletes the results of a person. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        blobs: where uploaded trajectories lie.
        rollouts: what knows their indexes.
    """

    def __init__(self, database: Database, blobs: BlobStore, rollouts: RunRollouts) -> None:
        self._database = database
        self._blobs = blobs
        self._rollouts = rollouts

    def export(self, owner: str) -> list[dict[str, Any]]:
        """Return the runs of an owner, as JSON."""
        query = select(ResultRun, ResultBoard).join(ResultBoard, ResultBoard.id == ResultRun.board_id)
        with self._database.reading() as session:
            return [
                {
                    "run": run.key, "package": board.package, "version": board.version,
                    "environment": board.environment, "split": board.split, "level": board.level,
                    "model": run.model, "harness": run.harness,
                    "createdAt": aware(run.created_at).isoformat(), "trajectories": run.rollouts,
                }
                for run, board in session.execute(query.where(ResultRun.principal == owner).order_by(ResultRun.id))
            ]  # fmt: skip

    def delete(self, owner: str) -> None:
        """Take the runs of an owner off their boards, without the name; remove the boards of private packages."""
        now = datetime.now(UTC)
        with self._database.writing() as session:
            digests = _remove_private_boards(session, owner)
            mine = select(ResultRun.board_id).where(ResultRun.principal == owner)
            boards = session.scalars(select(ResultBoard).where(ResultBoard.id.in_(mine)).with_for_update())
            for board in boards.all():
                digests |= _take_off(session, board, owner, now)
            session.execute(update(ResultLogLine).where(ResultLogLine.by == owner).values(by=GONE))
            session.execute(update(ResultRun).where(ResultRun.removed_by == owner).values(removed_by=GONE))
            kept = set(session.scalars(select(ResultRun.rollouts).where(ResultRun.rollouts.in_(digests))))
        for digest in digests - kept:
            self._blobs.remove(digest)
            self._rollouts.remove_index(digest)


def _take_off(session: Session, board: ResultBoard, owner: str, now: datetime) -> set[str]:
    """Remove the runs of an owner from a board, and return the digests of their trajectories."""
    runs = session.scalars(
        select(ResultRun).where(ResultRun.board_id == board.id, ResultRun.principal == owner).order_by(ResultRun.id)
    ).all()
    counted = [run for run in runs if run.state != "open" and run.removed_at is None]
    for run in counted:
        run.removed_at, run.removed_by, run.removed_reason = now, GONE, REASON
        session.add(ResultLogLine(at=now, kind="removed", run_id=run.id, by=GONE, reason=REASON))
    session.flush()
    count_again(session, board, counted)
    open_runs = [run.id for run in runs if run.state == "open"]
    _remove_runs(session, open_runs)
    of_gone = select(func.max(ResultRun.number)).where(ResultRun.board_id == board.id, ResultRun.principal == GONE)
    last = session.scalar(of_gone) or 0
    digests = {run.rollouts for run in runs if run.rollouts is not None}
    for index, run in enumerate((run for run in runs if run.id not in open_runs), start=1):
        run.principal, run.number, run.rollouts, run.receipt = GONE, last + index, None, None
    return digests


def _remove_private_boards(session: Session, owner: str) -> set[str]:
    """Remove all results on the private packages of an owner, and return the digests of trajectories."""
    packages = select(Package.owner + "/" + Package.name).where(Package.owner == owner, Package.private)
    boards = list(session.scalars(select(ResultBoard.id).where(ResultBoard.package.in_(packages))))
    runs = session.execute(select(ResultRun.id, ResultRun.rollouts).where(ResultRun.board_id.in_(boards))).all()
    _remove_runs(session, [run.id for run in runs])
    session.execute(delete(ResultLine).where(ResultLine.board_id.in_(boards)))
    session.execute(delete(ResultBoard).where(ResultBoard.id.in_(boards)))
    return {run.rollouts for run in runs if run.rollouts is not None}


def _remove_runs(session: Session, ids: list[int]) -> None:
    session.execute(delete(ResultLogLine).where(ResultLogLine.run_id.in_(ids)))
    session.execute(delete(ResultEpisode).where(ResultEpisode.run_id.in_(ids)))
    session.execute(delete(ResultRun).where(ResultRun.id.in_(ids)))
