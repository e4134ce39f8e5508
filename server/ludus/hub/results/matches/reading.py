"""Entrants, matches and boards as the API and the pages show them. All functions block, and any thread may call them.

Nothing about an open match is shown except that it exists: neither its sides nor its task, because a player who knows
its opponent could throw the match.
"""

from __future__ import annotations

import json
from typing import Final

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.match_tables import Match, MatchBoardRow, MatchEntrant, MatchLogLine
from ludus.hub.database.times import aware
from ludus.hub.people.personal_data import GONE
from ludus.hub.results.matches.rating import counted_matches, results_of, tallies_of
from ludus.hub.results.matches.store import find, find_board, no_match, state_of
from ludus.registry.types.matches import (
    EntrantInfo,
    MatchBoard,
    MatchBoardKey,
    MatchInfo,
    MatchList,
    MatchLog,
    MatchLogEntry,
    MatchOpening,
    MatchRating,
    MatchSide,
    PairTally,
    Result,
    SeatAdvantage,
)
from ludus.registry.types.results import Declared, Removal

ROWS: Final = 50
"""The number of entrants on one page of a board."""

MATCHES: Final = 50
"""The number of matches on one page of an entrant."""

LOG_LINES: Final = 50
"""The number of lines on one page of the log."""

RESULTS: Final[dict[float, tuple[Result, Result]]] = {1.0: ("win", "loss"), 0.5: ("draw", "draw"), 0.0: ("loss", "win")}
"""The results of both sides by the score of the first one."""


def read_entrant(database: Database, key: str) -> EntrantInfo:
    """Return an entrant.

    Raises:
        NotFound: there is none with this key.
    """
    with database.reading() as session:
        entrant, board = find(session, key)
        info = entrant_info(session, entrant, board)
        if board.rated >= board.changes:
            return info
        counts = results_of(tallies_of(session, counted_matches(board.id))).get(key, (0, 0, 0))
        fields = {"matches": sum(counts), "wins": counts[0], "draws": counts[1], "losses": counts[2]}
        return info.model_copy(update=fields)  # the rating follows soon


def read_match(database: Database, key: str) -> MatchInfo:
    """Return a match, with its sides if it has ended.

    Raises:
        NotFound: there is none with this key.
    """
    with database.reading() as session:
        found = session.scalars(select(Match).where(Match.key == key)).first()
        if found is None:
            raise no_match(key)
        return match_info(session, found, session.get_one(MatchBoardRow, found.board_id))


def read_matches(database: Database, key: str, page: int, size: int = MATCHES) -> MatchList:
    """Return one page of the ended matches of an entrant, the newest one first.

    Raises:
        NotFound: there is no such entrant.
    """
    with database.reading() as session:
        entrant, board = find(session, key)
        mine = (or_(Match.first_id == entrant.id, Match.second_id == entrant.id), Match.state == "ended")
        query = select(Match).where(*mine).order_by(Match.number.desc()).offset((page - 1) * size).limit(size)
        total = session.scalar(select(func.count()).select_from(Match).where(*mine)) or 0
        found = tuple(match_info(session, one, board) for one in session.scalars(query))
        return MatchList(matches=found, total=total, page=page)


def read_all_matches(database: Database, key: str) -> list[MatchInfo]:
    """Return all ended matches of an entrant, the first one first.

    Raises:
        NotFound: there is no such entrant.
    """
    with database.reading() as session:
        entrant, board = find(session, key)
        query = select(Match).where(
            or_(Match.first_id == entrant.id, Match.second_id == entrant.id), Match.state == "ended"
        )
        return [match_info(session, one, board) for one in session.scalars(query.order_by(Match.number))]


def read_board(database: Database, key: MatchBoardKey, page: int = 1, size: int = ROWS) -> MatchBoard | None:
    """Return one page of a board; None if nothing was ever registered on it."""
    with database.reading() as session:
        board = find_board(session, key)
        return _board(session, board, page, size) if board is not None else None


def read_boards(database: Database, package: str, version: str, most: int = 100, rows: int = 0) -> list[MatchBoard]:
    """Return boards of a version, by environment and split, each with its first rows.

    Args:
        database: the hub's database.
        package: the package.
        version: the version.
        most: the most boards.
        rows: how many rows of each.
    """
    with database.reading() as session:
        query = select(MatchBoardRow).where(MatchBoardRow.package == package, MatchBoardRow.version == version)
        found = session.scalars(query.order_by(MatchBoardRow.environment, MatchBoardRow.split).limit(most)).all()
        return [_board(session, one, 1, rows) for one in found]


def read_log(database: Database, page: int, hidden: Select[str]) -> MatchLog:
    """Return one page of the log of removed entrants, the newest line first.

    Args:
        database: the hub's database.
        page: the number of the page, from 1.
        hidden: the query for the packages whose lines are left out.
    """
    with database.reading() as session:
        joined = (
            select(MatchLogLine, MatchEntrant, MatchBoardRow)
            .join(MatchEntrant, MatchEntrant.id == MatchLogLine.entrant_id)
            .join(MatchBoardRow, MatchBoardRow.id == MatchEntrant.board_id)
            .where(MatchBoardRow.package.not_in(hidden))
        )
        lines = joined.with_only_columns(MatchLogLine.id).subquery()
        total = session.scalar(select(func.count()).select_from(lines)) or 0
        query = joined.order_by(MatchLogLine.id.desc()).offset((page - 1) * LOG_LINES).limit(LOG_LINES)
        entries = tuple(
            MatchLogEntry(
                at=aware(line.at), entrant=entrant.key, package=board.package, version=board.version,
                environment=board.environment, split=board.split, by=line.by, reason=line.reason,
                still_counts=entrant.still_counts,
            )
            for line, entrant, board in session.execute(query)
        )  # fmt: skip
        return MatchLog(entries=entries, total=total, page=page)


# ── from rows to what is shown ────────────────────────────────────────────────────────────────────────────────────────


def entrant_info(session: Session, entrant: MatchEntrant, board: MatchBoardRow, of: int | None = None) -> EntrantInfo:
    """Return an entrant as all may see it.

    Args:
        session: the session.
        entrant: the entrant.
        board: its board.
        of: the number of its account's entrants on the board, if it is known.
    """
    if of is None:
        of = _account_entrants(session, board.id, [entrant.principal])[entrant.principal]
    removal = rating = None
    if entrant.removed_at is not None:
        removal = Removal(
            at=aware(entrant.removed_at), by=entrant.removed_by or "", reason=entrant.removed_reason or ""
        )
    elif entrant.rating is not None and entrant.rating_low is not None and entrant.rating_high is not None:
        rating = MatchRating(
            value=entrant.rating, low=entrant.rating_low, high=entrant.rating_high, group=entrant.component or 0
        )
    return EntrantInfo(
        key=entrant.key, package=board.package, version=board.version, sha256=board.sha256,
        environment=board.environment, split=board.split, by=shown_name(entrant.principal),
        by_publisher=entrant.by_publisher, is_script=entrant.is_script, account_entrants=of,
        declared=Declared.model_validate_json(entrant.declared),
        state="open" if entrant.state == "open" else "ended", registered=entrant.registered,
        matches=entrant.wins + entrant.draws + entrant.losses, wins=entrant.wins, draws=entrant.draws,
        losses=entrant.losses, voided=entrant.voided, created_at=aware(entrant.created_at),
        deadline=aware(entrant.deadline), ended_at=aware(entrant.ended_at) if entrant.ended_at is not None else None,
        rating=rating, removal=removal,
    )  # fmt: skip


def shown_name(principal: str) -> str:
    """Return the name of an account as all may see it; entrants of deleted ones have lost it."""
    return GONE if principal.startswith(GONE) else principal


def match_info(session: Session, match: Match, board: MatchBoardRow) -> MatchInfo:
    """Return a match as all may see it."""
    sides: tuple[MatchSide, ...] = ()
    if match.state == "ended" and match.score is not None:
        results, names = RESULTS[match.score], json.loads(board.seats)
        ends = ((match.first_reward, match.first_end), (match.second_reward, match.second_end))
        entrants = [session.get_one(MatchEntrant, one) for one in (match.first_id, match.second_id)]
        sides = tuple(
            MatchSide(
                seat=names[place], entrant=one.key, by=shown_name(one.principal), model=one.model, harness=one.harness,
                reward=ends[place][0], end=ends[place][1] or "", result=results[place],
            )
            for place, one in enumerate(entrants)
        )  # fmt: skip
    opening = MatchOpening.model_validate_json(match.opening) if sides else None
    return MatchInfo(
        key=match.key, package=board.package, version=board.version, environment=board.environment, split=board.split,
        number=match.number, state=state_of(match), created_at=aware(match.created_at),
        ended_at=aware(match.ended_at) if match.ended_at is not None else None, commitment=match.commitment,
        sides=sides, opening=opening,
    )  # fmt: skip


def _board(session: Session, board: MatchBoardRow, page: int, size: int) -> MatchBoard:
    shown = (MatchEntrant.board_id == board.id, MatchEntrant.removed_at.is_(None), MatchEntrant.rating.is_not(None))
    order = (MatchEntrant.component, MatchEntrant.rating.desc(), MatchEntrant.id)
    rows = session.scalars(
        select(MatchEntrant).where(*shown).order_by(*order).offset((page - 1) * size).limit(size)
    ).all()
    accounts = _account_entrants(session, board.id, [one.principal for one in rows])
    ids = [one.id for one in rows]
    between = counted_matches(board.id) & Match.first_id.in_(ids) & Match.second_id.in_(ids)
    seat = None
    if board.seat_advantage is not None and board.seat_low is not None and board.seat_high is not None:
        seat = SeatAdvantage(value=board.seat_advantage, low=board.seat_low, high=board.seat_high)
    return MatchBoard(
        package=board.package, version=board.version, environment=board.environment, split=board.split,
        sha256=board.sha256, seats=tuple(json.loads(board.seats)), page=page,
        rows=tuple(entrant_info(session, one, board, accounts[one.principal]) for one in rows),
        lines=_count(session, *shown), matches=_matches(session, board.id),
        open_entrants=_count(session, MatchEntrant.board_id == board.id, MatchEntrant.state == "open"),
        removed_entrants=_count(session, MatchEntrant.board_id == board.id, MatchEntrant.removed_at.is_not(None)),
        seat_advantage=seat, draw_share=board.draw_share or 0.0,
        pairs=tuple(
            PairTally(first=first, second=second, wins=one.wins, draws=one.draws, losses=one.losses)
            for (first, second), one in sorted(tallies_of(session, between).items())
        ) if ids else (),
    )  # fmt: skip


def _account_entrants(session: Session, board_id: int, principals: list[str]) -> dict[str, int]:
    query = select(MatchEntrant.principal, func.count()).where(
        MatchEntrant.board_id == board_id, MatchEntrant.principal.in_(set(principals))
    )
    return {name: count for name, count in session.execute(query.group_by(MatchEntrant.principal))}


def _matches(session: Session, board_id: int) -> int:
    query = select(func.count()).select_from(Match).where(counted_matches(board_id))
    return session.scalar(query) or 0


def _count(session: Session, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).select_from(MatchEntrant).where(*conditions)) or 0
