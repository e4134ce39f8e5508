"""The entrants of a person: what an export holds of them, and what stays when the account is deleted.

Entrants of a deleted account leave their boards as if they had been taken back, and no longer name the account. Their
matches still count for their opponents. Matches on private packages of the account go with them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.match_tables import Match, MatchBoardRow, MatchEntrant, MatchLogLine
from ludus.hub.database.tables import Package
from ludus.hub.database.times import aware
from ludus.hub.people.personal_data import GONE
from ludus.hub.results.matches.store import take_off
from ludus.hub.results.personal import REASON


class PersonalMatches:
    """Exports and deletes the entrants of a person. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def export(self, owner: str) -> list[dict[str, Any]]:
        """Return the entrants of an owner, as JSON."""
        query = select(MatchEntrant, MatchBoardRow).join(MatchBoardRow, MatchBoardRow.id == MatchEntrant.board_id)
        mine = query.where(MatchEntrant.principal == owner).order_by(MatchEntrant.id)
        with self._database.reading() as session:
            return [
                {
                    "entrant": one.key, "package": board.package, "version": board.version,
                    "environment": board.environment, "split": board.split, "model": one.model,
                    "harness": one.harness, "registered": one.registered,
                    "createdAt": aware(one.created_at).isoformat(),
                }
                for one, board in session.execute(mine)
            ]  # fmt: skip

    def delete(self, owner: str) -> None:
        """Take the entrants of an owner off their boards, without the name; remove the boards of private packages."""
        now = datetime.now(UTC)
        with self._database.writing() as session:
            _remove_private_boards(session, owner)
            mine = select(MatchEntrant.board_id).where(MatchEntrant.principal == owner)
            boards = select(MatchBoardRow).where(MatchBoardRow.id.in_(mine)).order_by(MatchBoardRow.id)
            for board in session.scalars(boards.with_for_update()).all():
                _leave(session, board, owner, now)
            session.execute(update(MatchLogLine).where(MatchLogLine.by == owner).values(by=GONE))
            session.execute(update(MatchEntrant).where(MatchEntrant.removed_by == owner).values(removed_by=GONE))


def _leave(session: Session, board: MatchBoardRow, owner: str, now: datetime) -> None:
    """Take the entrants of an owner off a board. Names of models must differ among deleted accounts, so keys do."""
    query = select(MatchEntrant).where(MatchEntrant.board_id == board.id, MatchEntrant.principal == owner)
    for one in session.scalars(query).all():
        if one.state == "open":
            one.state, one.ended_at = "ended", now
        if one.removed_at is None:
            take_off(session, board, one, GONE, REASON, now, still_counts=True)
        one.principal = f"{GONE} {one.key}"
    session.flush()


def _remove_private_boards(session: Session, owner: str) -> None:
    packages = select(Package.owner + "/" + Package.name).where(Package.owner == owner, Package.private)
    boards = list(session.scalars(select(MatchBoardRow.id).where(MatchBoardRow.package.in_(packages))))
    entrants = list(session.scalars(select(MatchEntrant.id).where(MatchEntrant.board_id.in_(boards))))
    session.execute(delete(MatchLogLine).where(MatchLogLine.entrant_id.in_(entrants)))
    session.execute(delete(Match).where(Match.board_id.in_(boards)))
    session.execute(delete(MatchEntrant).where(MatchEntrant.board_id.in_(boards)))
    session.execute(delete(MatchBoardRow).where(MatchBoardRow.id.in_(boards)))
