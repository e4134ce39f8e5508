"""Signing in on a device that has no browser, as in RFC 8628: a person confirms it on a page of the hub.

1. The device begins, and gets a secret of its own and a short code for the person.
2. The person, who has signed in on the site, enters the code and sees what the device asks for, and from where. From
   then on the code is theirs: no other account sees it or can confirm it.
3. The person confirms or refuses.
4. The device, which asks again and again with its secret, gets a new token once, and the sign-in is gone.

The database has the digests of the secret and of the code, and never the token. A code has 34 random bits and lasts for
10 minutes, and wrong codes are counted, so guessing one is hopeless. A guesser who hits one would sign a stranger's
device in to an account of their own, which the device prints.

What no check can stop is a person who is talked into entering the code of a stranger. Nothing fills the code in: a link
alone does nothing. The page says whose device gets the rights, and warns if it is at another address.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from ludus.hub.access.viewers import Viewer
from ludus.hub.database.engine import Database
from ludus.hub.database.sign_in_tables import DeviceSignIn
from ludus.hub.database.tables import Account
from ludus.hub.database.times import aware
from ludus.hub.people.access_tokens import AccessTokens, digest_of
from ludus.hub.people.audit import note
from ludus.protocol.errors import CapacityError, Forbidden, NotFound, Unauthenticated
from ludus.registry.types.people import DeviceAnswer, DeviceLogin, HubScope, NewToken

LASTS: Final = timedelta(minutes=10)
"""How long a sign-in may take."""

INTERVAL: Final = 2
"""The fewest seconds between two requests for the token."""

MOST: Final = 10_000
"""The most sign-ins that have begun at one time."""

LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""The letters of a code, as RFC 8628 proposes: they make no words and are hard to confuse."""

CODE_LENGTH: Final = 8

UNKNOWN_CODE: Final = "no device waits for this code: check it, or begin again, since a code ends after 10 minutes"
"""The answer to a code that is wrong, expired, used, refused, or entered by another account."""


@dataclass(frozen=True)
class Asked:
    """A sign-in as the page shows it.

    Attributes:
        code: the code, as the device shows it.
        wanted: the token to make.
        address: the address of the device.
        created_at: when it began.
    """

    code: str
    wanted: DeviceLogin
    address: str
    created_at: datetime


class DeviceSignIns:
    """All sign-ins that have begun on devices. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        tokens: makes tokens.
    """

    def __init__(self, database: Database, tokens: AccessTokens) -> None:
        self._database = database
        self._tokens = tokens

    def begin(self, wanted: DeviceLogin, address: str) -> tuple[str, str]:
        """Begin a sign-in, and return the secret of the device and the code for the person.

        Raises:
            CapacityError: too many have begun.
        """
        secret, code, now = secrets.token_urlsafe(32), new_code(), datetime.now(UTC)
        with self._database.writing() as session:
            session.execute(delete(DeviceSignIn).where(DeviceSignIn.expires_at < now))
            if session.execute(select(func.count()).select_from(DeviceSignIn)).scalar_one() >= MOST:
                raise CapacityError(
                    "too many devices are signing in; try again in some minutes", limit="pending", retryAfter=60.0
                )
            session.add(
                DeviceSignIn(
                    digest=digest_of(secret), code_digest=digest_of(code), state="pending",
                    document=wanted.model_dump_json(), address=address[:64], created_at=now, expires_at=now + LASTS,
                )
            )  # fmt: skip
        return secret, code

    def enter(self, code: str, account: int) -> Asked:
        """Return the sign-in of a code, which is the account's from now on.

        Raises:
            NotFound: there is none, or another account has entered the code.
        """
        free = or_(DeviceSignIn.account_id.is_(None), DeviceSignIn.account_id == account)
        with self._database.writing() as session:
            claim = update(DeviceSignIn).where(*_waiting(code), free).values(account_id=account)
            row = session.execute(claim.returning(DeviceSignIn)).scalar_one_or_none()
            if row is None:
                raise NotFound(UNKNOWN_CODE)
            return _asked(code, row)

    def decide(self, code: str, viewer: Viewer, account: int, *, confirmed: bool, address: str) -> Asked:
        """Confirm or refuse a sign-in whose code the account has entered before, and return it.

        Raises:
            NotFound: there is none, or it was decided, or another account has entered the code.
            Forbidden: it asks for the scope `admin`, and the person is not an administrator.
        """
        state = "confirmed" if confirmed else "denied"
        with self._database.writing() as session:
            decided = update(DeviceSignIn).where(*_waiting(code), DeviceSignIn.account_id == account)
            row = session.execute(decided.values(state=state).returning(DeviceSignIn)).scalar_one_or_none()
            if row is None:
                raise NotFound(UNKNOWN_CODE)
            asked = _asked(code, row)
            if confirmed and HubScope.ADMIN in asked.wanted.scopes and not viewer.is_admin:
                raise Forbidden("the device asks for the scope 'admin', which only administrators can give")
            action = "sign-in on a device confirmed" if confirmed else "sign-in on a device refused"
            subject = f"{asked.wanted.name} at {row.address}"
            note(session, action, subject, actor=viewer.name, account=viewer.name, address=address)
            return asked

    def redeem(self, secret: str, address: str) -> DeviceAnswer:
        """Return what has come of a sign-in; the token of a confirmed one is made and returned once.

        Args:
            secret: the secret of the device.
            address: the address of the device.

        Raises:
            Unauthenticated: there is no such sign-in: it has ended, or its token was taken. `data.error` is
                `expired_token`.
            Forbidden: the person has refused, or their account was disabled. `data.error` is `access_denied`.
            Conflict: the account has too many tokens.
        """
        now = datetime.now(UTC)
        with self._database.writing() as session:
            row = session.scalars(
                select(DeviceSignIn).where(DeviceSignIn.digest == digest_of(secret)).with_for_update()
            ).first()
            if row is None or aware(row.expires_at) < now:
                raise Unauthenticated(
                    "this sign-in has ended: it took too long, or its token was taken; begin again",
                    error="expired_token",
                )
            if row.state == "pending":
                return self._wait(row, now)
            account = self._take(session, row)
            wanted = DeviceLogin.model_validate_json(row.document)
        if account is None:
            raise Forbidden("the sign-in was refused on the hub's page", error="access_denied")
        token = NewToken(name=wanted.name, scopes=wanted.scopes, days=wanted.days)
        created = self._tokens.create(account[0], token, is_admin=account[1], address=address)
        return DeviceAnswer(status="complete", created=created)

    @staticmethod
    def _wait(row: DeviceSignIn, now: datetime) -> DeviceAnswer:
        asked, row.asked_at = row.asked_at, now
        early = asked is not None and (now - aware(asked)).total_seconds() < INTERVAL / 2
        return DeviceAnswer(status="slow_down" if early else "authorization_pending")

    @staticmethod
    def _take(session: Session, row: DeviceSignIn) -> tuple[int, bool] | None:
        """Forget a decided sign-in, and return the account that gets its token and whether it is an administrator."""
        session.execute(delete(DeviceSignIn).where(DeviceSignIn.digest == row.digest))
        account = session.get(Account, row.account_id) if row.account_id is not None else None
        if row.state != "confirmed" or account is None or account.disabled_at is not None:
            return None
        return account.id, account.is_admin

    def export(self, name: str) -> list[dict[str, Any]]:
        """Return the sign-ins whose code an account has entered, without secrets, as JSON."""
        query = select(DeviceSignIn).join(Account, Account.id == DeviceSignIn.account_id).where(Account.name == name)
        with self._database.reading() as session:
            return [
                {
                    "device": DeviceLogin.model_validate_json(row.document).model_dump(mode="json"),
                    "address": row.address, "state": row.state, "createdAt": aware(row.created_at).isoformat(),
                    "expiresAt": aware(row.expires_at).isoformat(),
                }
                for row in session.scalars(query)
            ]  # fmt: skip


def new_code() -> str:
    """Return a new code, such as `WDJB-MJHT`."""
    letters = "".join(secrets.choice(LETTERS) for _ in range(CODE_LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


def normal_code(text: str) -> str:
    """Return a code as the device shows it, from what a person has entered; the text itself if it is none."""
    letters = "".join(letter for letter in text[:100].upper() if letter.isalnum())
    if len(letters) != CODE_LENGTH or not set(letters) <= set(LETTERS):
        return text[:100]
    return f"{letters[:4]}-{letters[4:]}"


def _waiting(code: str) -> tuple[Any, ...]:
    return (
        DeviceSignIn.code_digest == digest_of(code), DeviceSignIn.state == "pending",
        DeviceSignIn.expires_at > datetime.now(UTC),
    )  # fmt: skip


def _asked(code: str, row: DeviceSignIn) -> Asked:
    return Asked(code, DeviceLogin.model_validate_json(row.document), row.address, aware(row.created_at))
