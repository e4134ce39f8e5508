"""Sessions: browsers in which people have signed in. The database holds the digest of a random cookie.

Sign-ins with a token of the operator's token file are in the memory of this process, because their token is checked
with each request and is not written down.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import delete, select, update

from ludus.hub.access.viewers import ALL_SCOPES, PLAY_SCOPES, Viewer
from ludus.hub.database.engine import Database
from ludus.hub.database.tables import Account, AccountSession
from ludus.hub.database.times import aware
from ludus.hub.people.access_tokens import digest_of
from ludus.protocol.errors import Unauthenticated
from ludus.protocol.methods import Scope
from ludus.registry.types.people import HubScope

IDLE: Final = timedelta(hours=12)
"""How long a session lasts without a request."""

LONGEST: Final = timedelta(days=30)
"""How long a session lasts at the most."""

USED: Final = timedelta(minutes=5)
"""How exactly the time of the last request is kept."""

MOST_SESSIONS: Final = 50
"""The most sessions of an account; the one that was used least recently ends first."""

CONFIRMED: Final = timedelta(minutes=10)
"""How long a new sign-in at the OpenID provider counts in place of a password, for one change."""

MOST_OPERATORS: Final = 1_000
"""The most sign-ins with tokens of the token file; the one that was used least recently ends first."""


@dataclass(frozen=True)
class SessionInfo:
    """A session, as its person sees it."""

    digest: str
    browser: str
    created_at: datetime
    used_at: datetime
    is_confirmed: bool
    """Whether its person has just signed in again at the OpenID provider, and not used that for anything yet."""


class Sessions:
    """All sessions. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        authenticate: returns the viewer of a token of the token file, or raises `Unauthenticated`.
    """

    def __init__(self, database: Database, authenticate: Callable[[str], Viewer]) -> None:
        self._database = database
        self._authenticate = authenticate
        self._operators: OrderedDict[str, tuple[str, datetime]] = OrderedDict()
        """The token of each sign-in with one, and when it was used last, by the digest of the cookie."""

    def begin_with_token(self, token: str, cookie: str) -> None:
        """Begin a session with a token of the token file in the browser with a new cookie.

        Raises:
            Unauthenticated: the token is not valid.
        """
        self._authenticate(token)
        self._operators[digest_of(cookie)] = token, datetime.now(UTC)
        while len(self._operators) > MOST_OPERATORS:
            self._operators.popitem(last=False)

    def begin(self, account: int, cookie: str, browser: str) -> None:
        """Begin a session of an account in the browser with a new cookie."""
        now = datetime.now(UTC)
        kept = (
            select(AccountSession.digest).where(AccountSession.account_id == account)
            .order_by(AccountSession.used_at.desc()).limit(MOST_SESSIONS - 1)
        )  # fmt: skip
        with self._database.writing() as session:
            known = list(session.scalars(kept))
            others = AccountSession.account_id == account, AccountSession.digest.not_in(known)
            session.execute(delete(AccountSession).where(*others))
            session.add(
                AccountSession(
                    digest=digest_of(cookie), account_id=account, browser=browser[:100], created_at=now, used_at=now
                )
            )

    def viewer(self, cookie: str) -> Viewer | None:
        """Return the person who has signed in with a cookie; None without a session, or after its end."""
        digest = digest_of(cookie)
        if digest in self._operators:
            return self._operator(digest)
        query = select(AccountSession, Account).join(Account, Account.id == AccountSession.account_id)
        with self._database.reading() as session:
            row = session.execute(query.where(AccountSession.digest == digest)).first()
        if row is None or row[1].disabled_at is not None:
            return None
        found, account, now = row[0], row[1], datetime.now(UTC)
        if now - aware(found.used_at) > IDLE or now - aware(found.created_at) > LONGEST:
            self.end(cookie)
            return None
        if now - aware(found.used_at) > USED:
            with self._database.writing() as session:
                session.execute(update(AccountSession).where(AccountSession.digest == found.digest).values(used_at=now))
        return viewer_of_account(account)

    def _operator(self, digest: str) -> Viewer | None:
        token, used = self._operators.get(digest, ("", datetime.min.replace(tzinfo=UTC)))
        now = datetime.now(UTC)
        try:
            if now - used > IDLE:
                raise Unauthenticated("the sign-in has ended")
            viewer = self._authenticate(token)
        except Unauthenticated:
            self._operators.pop(digest, None)
            return None
        self._operators[digest] = token, now
        self._operators.move_to_end(digest)
        return viewer

    def all(self, account: int) -> list[SessionInfo]:
        """Return the sessions of an account, the one that was used last first."""
        query = select(AccountSession).where(AccountSession.account_id == account)
        with self._database.reading() as session:
            rows = session.scalars(query.order_by(AccountSession.used_at.desc())).all()
        return [
            SessionInfo(
                row.digest, row.browser, aware(row.created_at), aware(row.used_at),
                row.confirmed_at is not None and datetime.now(UTC) - aware(row.confirmed_at) < CONFIRMED,
            )
            for row in rows
        ]  # fmt: skip

    def confirm(self, account: int, digest: str) -> None:
        """Note that the person of a session has signed in again, if it has not ended."""
        mine = AccountSession.digest == digest, AccountSession.account_id == account
        with self._database.writing() as session:
            session.execute(update(AccountSession).where(*mine).values(confirmed_at=datetime.now(UTC)))

    def is_going_on(self, account: int, digest: str) -> bool:
        """Return whether an account has a session with a digest."""
        with self._database.reading() as session:
            row = session.get(AccountSession, digest)
        return row is not None and row.account_id == account

    def end(self, cookie: str) -> None:
        """End the session of a cookie, if there is one."""
        self._operators.pop(digest_of(cookie), None)
        with self._database.writing() as session:
            session.execute(delete(AccountSession).where(AccountSession.digest == digest_of(cookie)))

    def end_all(self, account: int) -> None:
        """End all sessions of an account."""
        with self._database.writing() as session:
            session.execute(delete(AccountSession).where(AccountSession.account_id == account))


def viewer_of_account(account: Account) -> Viewer:
    """Return the viewer of a person who has signed in."""
    if account.is_admin:
        scopes: frozenset[str] = frozenset({Scope.ADMIN})
        return Viewer(account.name, scopes, grants=frozenset(HubScope), account=account.id)
    return Viewer(account.name, PLAY_SCOPES, grants=ALL_SCOPES, account=account.id)
