"""The ratings of a board, computed from all its matches and written into its rows.

A board is rated again when something that its ratings depend on has changed; see `MatchBoardRow.changes`. The matches
are added up by the database, so the work depends on the number of entrants, which is bounded, and not on that of
matches. The ratings are written if no other process has meanwhile written newer ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, case, func, select
from sqlalchemy.orm import Session, aliased

from ludus.evaluation.bradley_terry import ELO, MEAN, Ratings, Tally, rate
from ludus.hub.database.engine import Database
from ludus.hub.database.match_tables import Match, MatchBoardRow, MatchEntrant


class Tallied(NamedTuple):
    """The matches of a board as its ratings need them."""

    changes: int
    """The number of changes that they include."""
    tallies: dict[tuple[str, str], Tally]
    """By the keys of the entrants at the first and the second seat."""
    before: Ratings
    """The last ratings, from which the next ones start."""


def stale_boards(database: Database) -> list[int]:
    """Return the boards whose ratings do not include all changes."""
    with database.reading() as session:
        return list(session.scalars(select(MatchBoardRow.id).where(MatchBoardRow.rated < MatchBoardRow.changes)))


def rate_board(database: Database, board_id: int) -> bool:
    """Compute the ratings of a board, and return whether they were written."""
    with database.reading() as session:
        board = session.get(MatchBoardRow, board_id)
        if board is None or board.rated >= board.changes:
            return False
        found = _tallied(session, board)
    players = {name for pair in found.tallies for name in pair}
    ratings = rate(players, found.tallies, start=found.before)
    with database.writing() as session:
        lock = select(MatchBoardRow).where(MatchBoardRow.id == board_id).with_for_update()
        board = session.scalars(lock).first()
        if board is None or board.rated >= found.changes:
            return False
        _write(session, board, found, ratings)
        return True


def counted_matches(board_id: int) -> ColumnElement[bool]:
    """Return the condition on the matches of a board that count.

    They have ended, are between entrants of different accounts, and neither was removed by the operator.
    """
    counting = select(MatchEntrant.id).where(MatchEntrant.board_id == board_id, MatchEntrant.still_counts)
    return and_(
        Match.board_id == board_id, Match.state == "ended", Match.first_id.in_(counting), Match.second_id.in_(counting)
    )


def tallies_of(session: Session, condition: ColumnElement[bool]) -> dict[tuple[str, str], Tally]:
    """Return matches added up by the keys of the entrants at the first and the second seat."""
    first, second = aliased(MatchEntrant), aliased(MatchEntrant)

    def total(score: float) -> ColumnElement[int]:
        return func.sum(case((Match.score == score, 1), else_=0))

    query = (
        select(first.key, second.key, total(1.0), total(0.5), total(0.0))
        .select_from(Match)
        .join(first, first.id == Match.first_id)
        .join(second, second.id == Match.second_id)
        .where(condition, first.principal != second.principal)
        .group_by(first.key, second.key)
    )
    return {(one, other): Tally(int(w), int(d), int(n)) for one, other, w, d, n in session.execute(query)}


def results_of(tallies: Mapping[tuple[str, str], Tally]) -> dict[str, tuple[int, int, int]]:
    """Return the wins, draws and losses of each entrant."""
    found: dict[str, tuple[int, int, int]] = {}
    for (first, second), (wins, draws, losses) in tallies.items():
        for key, more in ((first, (wins, draws, losses)), (second, (losses, draws, wins))):
            before = found.get(key, (0, 0, 0))
            found[key] = (before[0] + more[0], before[1] + more[1], before[2] + more[2])
    return found


def _tallied(session: Session, board: MatchBoardRow) -> Tallied:
    entrants = select(MatchEntrant.key, MatchEntrant.rating).where(
        MatchEntrant.board_id == board.id, MatchEntrant.rating.is_not(None)
    )
    strengths = {key: (rating - MEAN) / ELO for key, rating in session.execute(entrants) if rating is not None}
    others: tuple[float, ...] = ()
    if board.seat_advantage is not None:
        others = (board.seat_advantage / ELO,)
        if board.draw_share:
            others += (math.log(2 * board.draw_share / (1 - board.draw_share)),)
    before = Ratings({}, (0.0, 0.0, 0.0), 0.0, strengths, others)
    return Tallied(board.changes, tallies_of(session, counted_matches(board.id)), before)


def _write(session: Session, board: MatchBoardRow, found: Tallied, ratings: Ratings) -> None:
    board.rated = found.changes
    board.seat_advantage = board.seat_low = board.seat_high = board.draw_share = None
    if found.tallies:
        board.seat_advantage, board.seat_low, board.seat_high = ratings.seat_advantage
        board.draw_share = ratings.draw_share
    results = results_of(found.tallies)
    for entrant in session.scalars(select(MatchEntrant).where(MatchEntrant.board_id == board.id)):
        one = ratings.players.get(entrant.key)
        entrant.wins, entrant.draws, entrant.losses = results.get(entrant.key, (0, 0, 0))
        entrant.rating, entrant.rating_low, entrant.rating_high, entrant.component = (
            one if one is not None else (None, None, None, None)
        )
