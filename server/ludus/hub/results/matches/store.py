"""Entrants and matches in the database, and how they change. All methods block, and any thread may call them.

A board's row is locked while its entrants and matches change; only lost matches become void without it. A match is
written twice: before it starts, with its commitment, and when it has ended. Each change that ratings depend on is
counted in the board's row, so that it is known which boards have to be rated again; see
`ludus.hub.results.matches.rating`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.match_tables import Match, MatchBoardRow, MatchEntrant, MatchLogLine
from ludus.hub.database.result_tables import HubProcess
from ludus.hub.database.times import aware
from ludus.hub.peers import PlayedElsewhere
from ludus.hub.results.matches.limits import MatchLimits
from ludus.hub.results.processes import ProcessLease, is_other
from ludus.protocol.errors import CapacityError, Conflict, Forbidden, NotFound
from ludus.registry.types.matches import MatchBoardKey, MatchOpening, MatchState
from ludus.registry.types.results import Declared
from ludus.registry.types.signing import digest_of

SCRIPT: Final = "(script)"
"""The principal of scripted opponents. No account can have this name."""

OPENING_LOCK: Final = 7_359
"""The kind of the lock that an account's registrations hold; see `Database.lock_name`."""

BROKEN: Final = "infrastructure_error"
"""The end of a seat whose player has had too many matches broken."""


@dataclass(frozen=True)
class NewEntrant:
    """An entrant to register."""

    board: MatchBoardKey
    sha256: str
    seats: tuple[str, str]
    opponents: tuple[str, ...]
    """The scripted opponents that matches may be played against; empty if there are none."""
    principal: str
    by_publisher: bool
    declared: Declared
    matches: int
    created_at: datetime
    deadline: datetime


@dataclass(frozen=True)
class Standing:
    """What the hub needs to know of an entrant to find it an opponent.

    Attributes:
        key: the entrant.
        principal: its account.
        model: the name of its model.
        left: how many matches it may still begin.
        open: how many it plays.
        rating: its rating; that of a new entrant without matches.
        balance: its matches at the first seat less those at the second one.
        is_open: whether it may begin matches at all.
    """

    key: str
    principal: str
    model: str
    left: int
    open: int
    rating: float
    balance: int
    is_open: bool


@dataclass(frozen=True)
class SeatOutcome:
    """How a seat's episode ended: its reward, or None, and its end reason."""

    reward: float | None
    end: str


class MatchStore:
    """The matches of a hub.

    Args:
        database: the hub's database.
        limits: the limits on matches.
        lease: this process among those of the hub.
    """

    def __init__(self, database: Database, limits: MatchLimits, lease: ProcessLease) -> None:
        self.database = database
        self._limits = limits
        self._lease = lease

    @property
    def process(self) -> str:
        """The id of this process."""
        return self._lease.id

    def check_here(self, key: str, *, take: bool = False) -> None:
        """Check that no other process of the hub plays the matches of an entrant's board.

        Args:
            key: the entrant.
            take: whether this process plays them from now on, if none does.

        Raises:
            NotFound: there is no such entrant.
            RunElsewhere: one does.
        """
        with self.database.reading() as session:
            process = find(session, key)[1].process
            if is_other(session, process, self.process):
                raise PlayedElsewhere(f"the matches of the entrant {key} are played", str(process))
        if process == self.process or not take:
            return
        with self.database.writing() as session:
            _, board = _locked(session, key)
            if is_other(session, board.process, self.process):
                raise PlayedElsewhere(f"the matches of the entrant {key} are played", str(board.process))
            board.process = self.process

    # ── entrants ───────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, new: NewEntrant) -> str:
        """Add an entrant, or give a registered one more matches, and return its key.

        Raises:
            CapacityError: the account or the board has too many entrants.
            Conflict: the entrant was removed, or was registered with other options.
        """
        self._ensure_board(new)
        with self.database.writing() as session:
            self.database.lock_name(session, OPENING_LOCK, new.principal)
            board = session.scalars(_board_query(new.board).with_for_update()).one()
            same = select(MatchEntrant).where(
                MatchEntrant.board_id == board.id, MatchEntrant.principal == new.principal,
                MatchEntrant.model == new.declared.model, MatchEntrant.harness == new.declared.harness,
            )  # fmt: skip
            found = session.scalars(same).first()
            if found is not None:
                _check_same(found, new.declared)
            if found is None or found.state != "open":
                self._check_room(session, board, new.principal, is_new=found is None)
            if found is None:
                found = _row_of(new, board.id)
                session.add(found)
                return found.key
            found.registered += new.matches
            found.state, found.ended_at, found.deadline = "open", None, new.deadline
            return found.key

    def _check_room(self, session: Session, board: MatchBoardRow, principal: str, *, is_new: bool) -> None:
        counted = select(func.count()).select_from(MatchEntrant)
        mine = counted.where(MatchEntrant.principal == principal)
        of_board = counted.where(MatchEntrant.board_id == board.id)
        limits = self._limits
        if (session.scalar(mine.where(MatchEntrant.state == "open")) or 0) >= limits.open_entrants:
            raise CapacityError(
                f"{principal} has {limits.open_entrants} open entrants: finish or withdraw one first",
                limit="open_entrants",
            )  # fmt: skip
        if not is_new:
            return
        if (session.scalar(mine.where(MatchEntrant.board_id == board.id)) or 0) >= limits.entrants_of_account:
            raise CapacityError(
                f"{principal} has {limits.entrants_of_account} entrants on this board, the most of an account",
                limit="entrants_of_account",
            )
        if (session.scalar(of_board) or 0) >= limits.entrants_of_board:
            raise CapacityError(
                f"this board has {limits.entrants_of_board} entrants, which is the most", limit="entrants_of_board"
            )

    def withdraw(self, key: str, now: datetime) -> None:
        """End an entrant. Its open matches are for the caller to forfeit."""
        with self.database.writing() as session:
            entrant, _ = _locked(session, key)
            _end(entrant, now)

    def remove(self, key: str, by: str, reason: str, now: datetime, *, is_moderator: bool) -> None:
        """Take an entrant off its board. It stays known, with the reason.

        If the account takes it back, its matches still count for its opponents. If the operator removes the entrant of
        another one, they count no more.

        Raises:
            Forbidden: the entrant is another account's.
            Conflict: it is open, or was removed before.
        """
        with self.database.writing() as session:
            entrant, board = _locked(session, key)
            if entrant.principal != by and not is_moderator:
                raise Forbidden(
                    f"the entrant {key} is of {entrant.principal!r}; only they or the hub's operator may remove it"
                )
            if entrant.removed_at is not None:
                raise Conflict(f"the entrant {key} was removed by {entrant.removed_by!r}: {entrant.removed_reason}")
            if entrant.state == "open" or _count(session, _of(entrant.id), Match.state == "open"):
                raise Conflict(f"the entrant {key} is open: withdraw it first")
            take_off(session, board, entrant, by, reason, now, still_counts=entrant.principal == by)

    def overdue(self, now: datetime) -> list[str]:
        """Return the open entrants whose deadline has passed. Their open matches go on to their ends."""
        with self.database.reading() as session:
            query = select(MatchEntrant.key).where(MatchEntrant.state == "open", MatchEntrant.deadline <= now)
            return list(session.scalars(query))

    # ── pairing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def standing(self, key: str, now: datetime) -> Standing:
        """Return what is known of an entrant to find it an opponent.

        Raises:
            NotFound: there is no such entrant.
        """
        with self.database.reading() as session:
            entrant, _ = find(session, key)
            return self._standing(session, entrant, now)

    def _standing(self, session: Session, entrant: MatchEntrant, now: datetime) -> Standing:
        is_open = _count(session, _of(entrant.id), Match.state == "open")
        ended = _count(session, _of(entrant.id), Match.state == "ended")
        first = _count(session, Match.first_id == entrant.id, Match.state != "void")
        lost = max(0, entrant.voided - self._limits.allowed_voids(entrant.registered))
        return Standing(
            key=entrant.key, principal=entrant.principal, model=entrant.model,
            left=max(0, entrant.registered - is_open - ended - lost), open=is_open,
            rating=entrant.rating if entrant.rating is not None else 1500.0,
            balance=2 * first - is_open - ended,
            is_open=entrant.state == "open" and aware(entrant.deadline) > now,
        )  # fmt: skip

    def standings(self, keys: Sequence[str], now: datetime) -> list[Standing]:
        """Return what is known of entrants to pair them."""
        with self.database.reading() as session:
            found = session.scalars(select(MatchEntrant).where(MatchEntrant.key.in_(keys))).all()
            return [self._standing(session, one, now) for one in found]

    def meetings(self, keys: Sequence[str]) -> dict[frozenset[str], int]:
        """Return how many matches each two accounts of some entrants of one board have, open ones included."""
        with self.database.reading() as session:
            some = session.scalars(select(MatchEntrant).where(MatchEntrant.key.in_(keys))).all()
            if not some:
                return {}
            names = select(MatchEntrant.id, MatchEntrant.principal).where(
                MatchEntrant.board_id == some[0].board_id, MatchEntrant.principal.in_({one.principal for one in some})
            )
            principals = {number: name for number, name in session.execute(names)}
            counted = select(Match.first_id, Match.second_id, func.count()).where(
                Match.state != "void", Match.first_id.in_(principals), Match.second_id.in_(principals)
            )
            found: dict[frozenset[str], int] = {}
            for first, second, count in session.execute(counted.group_by(Match.first_id, Match.second_id)):
                pair = frozenset((principals[first], principals[second]))
                found[pair] = found.get(pair, 0) + count
            return found

    def script_for(self, key: str, now: datetime) -> Standing | None:
        """Return the scripted opponent of an entrant: the one that it has met least, and then the nearest in rating.

        None if the environment has none, and if half of the entrant's matches were against scripts.
        """
        with self.database.reading() as session:
            entrant, board = find(session, key)
            of_board = select(MatchEntrant).where(MatchEntrant.board_id == board.id, MatchEntrant.is_script)
            scripts = session.scalars(of_board.order_by(MatchEntrant.id)).all()
            met = {one.id: _count(session, _of(entrant.id), _of(one.id), Match.state != "void") for one in scripts}
            if not scripts or 2 * (sum(met.values()) + 1) > entrant.registered:
                return None
            standings = {one.id: self._standing(session, one, now) for one in scripts}
            mine = self._standing(session, entrant, now).rating
            chosen = min(scripts, key=lambda one: (met[one.id], abs(standings[one.id].rating - mine)))
            return standings[chosen.id]

    # ── matches ────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_match(self, opening: MatchOpening, now: datetime) -> str:
        """Write a match before it starts, and return its key.

        Raises:
            Conflict: an entrant has ended meanwhile or has no match left, or both are of one account.
            CapacityError: too many matches are open on this hub.
        """
        with self.database.writing() as session:
            first, board = _locked(session, opening.entrants[0])
            second, other = find(session, opening.entrants[1])
            if board.id != other.id or first.principal == second.principal:
                raise Conflict("entrants of one account, or of two boards, do not meet")
            for entrant in (first, second):
                standing = self._standing(session, entrant, now)
                if not entrant.is_script and not (standing.is_open and standing.left):
                    raise Conflict(f"the entrant {entrant.key} plays no more matches")
            if _count(session, Match.state == "open") >= self._limits.open_matches_of_hub:
                raise CapacityError(
                    f"{self._limits.open_matches_of_hub} matches are open on this hub; try again later",
                    limit="open_matches_of_hub", retryAfter=30.0,
                )  # fmt: skip
            board.numbers += 1
            match = Match(
                key=secrets.token_urlsafe(16), board_id=board.id, number=board.numbers, first_id=first.id,
                second_id=second.id, state="open", process=self._lease.id,
                commitment=digest_of(opening), created_at=now, opening=opening.model_dump_json(by_alias=True),
            )  # fmt: skip
            session.add(match)
            return match.key

    def is_side(self, key: str, entrant: str) -> bool:
        """Return whether a match is one of an entrant's."""
        with self.database.reading() as session:
            mine = select(MatchEntrant.id).where(MatchEntrant.key == entrant)
            query = select(Match.id).where(Match.key == key, or_(Match.first_id.in_(mine), Match.second_id.in_(mine)))
            return session.scalar(query) is not None

    def settle(self, key: str, score: float, first: SeatOutcome, second: SeatOutcome, now: datetime) -> None:
        """Write how an open match ended. One that has ended before stays as it is."""
        with self.database.writing() as session:
            match, board = _locked_match(session, key)
            if match.state == "open":
                _settle(session, match, board, score, (first, second), now)
                for one in (match.first_id, match.second_id):
                    self._end_if_done(session, session.get_one(MatchEntrant, one), now)

    def void(self, key: str, now: datetime, *, is_charged: bool) -> MatchState:
        """Void an open match, because the infrastructure broke, and return its state.

        Args:
            key: the match.
            now: the time.
            is_charged: whether it counts among the bounded number of matches that each entrant gets again. If one of
                them has none left, it loses the match. If neither has, the match is void and not given again.
        """
        with self.database.writing() as session:
            match, board = _locked_match(session, key)
            if match.state != "open":
                return state_of(match)
            sides = [session.get_one(MatchEntrant, one) for one in (match.first_id, match.second_id)]
            if is_charged:
                spent = [
                    not one.is_script and one.voided >= self._limits.allowed_voids(one.registered) for one in sides
                ]
                if spent[0] != spent[1]:
                    ends = [SeatOutcome(None, BROKEN if one else "void") for one in spent]
                    _settle(session, match, board, float(spent[1]), (ends[0], ends[1]), now)
                    for one in sides:
                        self._end_if_done(session, one, now)
                    return "ended"
                for one in sides:
                    one.voided += 1
            match.state, match.ended_at = "void", now
            for one in sides:
                self._end_if_done(session, one, now)
            return "void"

    def end_if_done(self, key: str, now: datetime) -> None:
        """End an entrant whose matches have all ended."""
        with self.database.writing() as session:
            entrant, _ = _locked(session, key)
            self._end_if_done(session, entrant, now)

    def _end_if_done(self, session: Session, entrant: MatchEntrant, now: datetime) -> None:
        session.flush()
        standing = self._standing(session, entrant, now)
        if not standing.open and not (standing.left and standing.is_open):
            _end(entrant, now)

    def void_lost(self, now: datetime) -> None:
        """Void the open matches that nothing plays any more.

        These are those of processes that have ended, and those that are open for twice as long as a match may take,
        because the hub failed between writing and starting them.
        """
        old = now - timedelta(seconds=2 * self._limits.match_seconds)
        with self.database.writing() as session:
            ended = Match.process.is_(None) | Match.process.not_in(select(HubProcess.id))
            lost = ended | (Match.created_at < old)
            session.execute(update(Match).where(Match.state == "open", lost).values(state="void", ended_at=now))

    def _ensure_board(self, new: NewEntrant) -> None:
        key = new.board
        with self.database.reading() as session:
            if find_board(session, key) is not None:
                return
        try:
            with self.database.writing() as session:
                board = MatchBoardRow(
                    package=key.package, version=key.version, sha256=new.sha256, environment=key.environment,
                    split=key.split, seats=json.dumps(new.seats), numbers=0, changes=0, rated=0,
                )  # fmt: skip
                session.add(board)
                session.flush()
                session.add_all(_script(board.id, name, new.created_at) for name in new.opponents)
        except IntegrityError:
            return  # another request has made it meanwhile


# ── what the other modules read and change, too ───────────────────────────────────────────────────────────────────────


def no_entrant(key: str) -> NotFound:
    """Return the error for an entrant that does not exist, or that its reader may not see."""
    return NotFound(f"this hub has no entrant {key[:40]!r}")


def no_match(key: str) -> NotFound:
    """Return the error for a match that does not exist, or that its reader may not see."""
    return NotFound(f"this hub has no match {key[:40]!r}")


def find(session: Session, key: str) -> tuple[MatchEntrant, MatchBoardRow]:
    """Return an entrant and its board.

    Raises:
        NotFound: there is no such entrant.
    """
    entrant = session.scalars(select(MatchEntrant).where(MatchEntrant.key == key)).first()
    if entrant is None:
        raise no_entrant(key)
    return entrant, session.get_one(MatchBoardRow, entrant.board_id)


def find_board(session: Session, key: MatchBoardKey) -> MatchBoardRow | None:
    """Return a board; None if nothing was ever registered on it."""
    return session.scalars(_board_query(key)).first()


def state_of(match: Match) -> MatchState:
    """Return the state of a match."""
    return "open" if match.state == "open" else "void" if match.state == "void" else "ended"


def take_off(
    session: Session, board: MatchBoardRow, entrant: MatchEntrant, by: str, reason: str, now: datetime, *,
    still_counts: bool,
) -> None:  # fmt: skip
    """Take an entrant off its board, and log it. The board must be locked."""
    entrant.removed_at, entrant.removed_by, entrant.removed_reason = now, by, reason
    entrant.still_counts = still_counts
    board.changes += 1
    session.add(MatchLogLine(at=now, entrant_id=entrant.id, by=by, reason=reason))


def _check_same(found: MatchEntrant, declared: Declared) -> None:
    """Check that an entrant may be registered again.

    Raises:
        Conflict: it was removed, or was registered with other options.
    """
    if found.removed_at is not None:
        raise Conflict(
            f"the entrant {found.key} with this model and harness was removed: {found.removed_reason}; register with "
            "another name of the model"
        )
    if Declared.model_validate_json(found.declared) != declared:
        raise Conflict(
            f"the entrant {found.key} with this model and harness has other options or prices; register with another "
            "name of the model, because different options do not share a rating"
        )


def _row_of(new: NewEntrant, board_id: int) -> MatchEntrant:
    return MatchEntrant(
        key=secrets.token_urlsafe(16), board_id=board_id, principal=new.principal, by_publisher=new.by_publisher,
        is_script=False, model=new.declared.model, harness=new.declared.harness,
        declared=new.declared.model_dump_json(by_alias=True), registered=new.matches, state="open", voided=0,
        created_at=new.created_at, deadline=new.deadline, wins=0, draws=0, losses=0, still_counts=True,
    )  # fmt: skip


def _script(board_id: int, name: str, now: datetime) -> MatchEntrant:
    declared = Declared(model=name[:200], harness="environment")
    return MatchEntrant(
        key=secrets.token_urlsafe(16), board_id=board_id, principal=SCRIPT, by_publisher=False, is_script=True,
        model=declared.model, harness=declared.harness, declared=declared.model_dump_json(by_alias=True), registered=0,
        state="ended", voided=0, created_at=now, deadline=now, wins=0, draws=0, losses=0, still_counts=True,
    )  # fmt: skip


def _locked(session: Session, key: str) -> tuple[MatchEntrant, MatchBoardRow]:
    """Return an entrant and its board, which is locked, as all changes of its entrants and matches need."""
    board_id = find(session, key)[1].id
    lock = select(MatchBoardRow).where(MatchBoardRow.id == board_id).with_for_update()
    board = session.scalars(lock.execution_options(populate_existing=True)).one()
    query = select(MatchEntrant).where(MatchEntrant.key == key)
    return session.scalars(query.execution_options(populate_existing=True)).one(), board


def _locked_match(session: Session, key: str) -> tuple[Match, MatchBoardRow]:
    """Return a match and its board, which is locked.

    Raises:
        NotFound: there is no such match.
    """
    query = select(Match).where(Match.key == key)
    found = session.scalars(query).first()
    if found is None:
        raise no_match(key)
    lock = select(MatchBoardRow).where(MatchBoardRow.id == found.board_id).with_for_update()
    board = session.scalars(lock.execution_options(populate_existing=True)).one()
    return session.scalars(query.execution_options(populate_existing=True)).one(), board


def _settle(
    session: Session, match: Match, board: MatchBoardRow, score: float, ends: tuple[SeatOutcome, SeatOutcome],
    now: datetime,
) -> None:  # fmt: skip
    first, second = ends
    match.state, match.score, match.ended_at = "ended", score, now
    match.first_reward, match.first_end = first.reward, first.end
    match.second_reward, match.second_end = second.reward, second.end
    board.changes += 1
    session.flush()


def _end(entrant: MatchEntrant, now: datetime) -> None:
    if entrant.state == "open":
        entrant.state, entrant.ended_at = "ended", now


def _of(entrant: int) -> ColumnElement[bool]:
    return or_(Match.first_id == entrant, Match.second_id == entrant)


def _count(session: Session, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).select_from(Match).where(*conditions)) or 0


def _board_query(key: MatchBoardKey) -> Select[MatchBoardRow]:
    return select(MatchBoardRow).where(
        MatchBoardRow.package == key.package, MatchBoardRow.version == key.version,
        MatchBoardRow.environment == key.environment, MatchBoardRow.split == key.split,
    )  # fmt: skip
