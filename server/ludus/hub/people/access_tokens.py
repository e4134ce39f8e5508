"""Tokens of accounts: made and shown once, kept as SHA-256 digests, with scopes and perhaps an end.

A token is 256 random bits and a checksum, so a scanner for secrets can tell it from text that only looks like one. A
slow password hash would add nothing to so many bits.
"""

from __future__ import annotations

import hashlib
import secrets
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import delete, func, select, update

from ludus.hub.access.viewers import PLAY_SCOPES, Viewer
from ludus.hub.database.engine import Database
from ludus.hub.database.tables import AccessToken, Account
from ludus.hub.database.times import aware
from ludus.hub.people.audit import note
from ludus.protocol.errors import Conflict, Forbidden, NotFound, Unauthenticated
from ludus.protocol.methods import Scope
from ludus.registry.types.people import TOKEN_PREFIX, CreatedToken, HubScope, NewToken, TokenInfo
from ludus.server.auth.principal import CREDENTIAL_BYTES
from ludus.server.auth.tokens import UnknownToken

MOST_TOKENS: Final = 100
"""The most tokens of an account."""

FRESH_SECONDS: Final = 1.0
"""How long a token that was found is not looked up again. What this process revokes is forgotten at once."""

USED_SECONDS: Final = 60.0
"""How exactly the time of the last use is kept."""

_KNOWN: Final = 4096


@dataclass(frozen=True)
class _Found:
    viewer: Viewer
    until: float


class AccessTokens:
    """The tokens of all accounts. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        clock: returns seconds that only increase.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._found: dict[str, _Found] = {}

    def create(self, account: int, wanted: NewToken, *, is_admin: bool, address: str = "") -> CreatedToken:
        """Create a token.

        Args:
            account: the id of the account.
            wanted: what it shall be.
            is_admin: whether its person may make tokens of the scope `admin`.
            address: the client's address.

        Raises:
            Forbidden: the scope `admin` is asked for, and the person is not an administrator.
            Conflict: the account has too many tokens.
        """
        if HubScope.ADMIN in wanted.scopes and not is_admin:
            raise Forbidden("only administrators can make a token of the scope 'admin'")
        if wanted.packages and {HubScope.ACCOUNT, HubScope.ADMIN} & set(wanted.scopes):
            raise Conflict("a token that is limited to packages cannot have the scopes 'account' and 'admin'")
        secret, now = new_secret(), datetime.now(UTC)
        with self._database.writing() as session:
            person = session.get_one(Account, account)
            count = select(func.count()).select_from(AccessToken).where(AccessToken.account_id == account)
            if session.execute(count).scalar_one() >= MOST_TOKENS:
                raise Conflict(f"you have {MOST_TOKENS} tokens already; revoke one first")
            row = AccessToken(
                account_id=account, name=wanted.name, digest=digest_of(secret),
                scopes=" ".join(sorted({str(scope) for scope in wanted.scopes})),
                packages=" ".join(dict.fromkeys(wanted.packages)), created_at=now,
                expires_at=now + timedelta(days=wanted.days) if wanted.days is not None else None,
            )  # fmt: skip
            session.add(row)
            session.flush()
            note(
                session, "token created", f"{wanted.name} ({row.scopes})", actor=person.name, account=person.name,
                address=address,
            )  # fmt: skip
            return CreatedToken(token=secret, info=_info(row), account=person.name)

    def all(self, account: int) -> list[TokenInfo]:
        """Return the tokens of an account, the newest first."""
        query = select(AccessToken).where(AccessToken.account_id == account).order_by(AccessToken.id.desc())
        with self._database.reading() as session:
            return [_info(row) for row in session.scalars(query)]

    def revoke(self, account: int, token_id: int, *, actor: str, address: str = "") -> None:
        """Revoke a token, which stops working at once.

        Raises:
            NotFound: the account has no such token.
        """
        gone = delete(AccessToken).where(AccessToken.account_id == account, AccessToken.id == token_id)
        with self._database.writing() as session:
            name = session.execute(gone.returning(AccessToken.name)).scalar()
            if name is None:
                raise NotFound("you have no such token")
            note(session, "token revoked", name, actor=actor, account=actor, address=address)
        self.forget()

    def viewer(self, secret: str) -> Viewer:
        """Return the viewer of a token.

        Raises:
            Unauthenticated: it is unknown (`UnknownToken`), has expired, or its account is disabled.
        """
        digest, now = digest_of(secret), self._clock()
        known = self._found.get(digest)
        if known is None or known.until <= now:
            known = _Found(self._look_up(digest), now + FRESH_SECONDS)
            if len(self._found) >= _KNOWN:
                self._found.clear()
            self._found[digest] = known
        if time.time() >= known.viewer.expires_at:
            raise Unauthenticated("this token has expired; make another one")
        return known.viewer

    def forget(self) -> None:
        """Look all tokens up again."""
        self._found.clear()

    def _look_up(self, digest: str) -> Viewer:
        query = select(AccessToken, Account).join(Account, Account.id == AccessToken.account_id)
        with self._database.reading() as session:
            row = session.execute(query.where(AccessToken.digest == digest)).first()
        if row is None or row[1].disabled_at is not None:
            raise UnknownToken("this token is not known to the hub: it was revoked, or it is of another hub")
        token, account = row
        self._note_use(token)
        return viewer_of_token(token, account)

    def _note_use(self, token: AccessToken) -> None:
        now = datetime.now(UTC)
        if token.used_at is not None and (now - aware(token.used_at)).total_seconds() < USED_SECONDS:
            return
        with self._database.writing() as session:
            session.execute(update(AccessToken).where(AccessToken.id == token.id).values(used_at=now))


def new_secret() -> str:
    """Return a new token."""
    body = secrets.token_hex(32)
    return f"{TOKEN_PREFIX}{body}{checksum(body)}"


def checksum(body: str) -> str:
    """Return the checksum at the end of a token: the CRC-32 of its digits, in hexadecimal."""
    return f"{zlib.crc32(body.encode()):08x}"


def digest_of(secret: str) -> str:
    """Return the SHA-256 digest of a secret, in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def viewer_of_token(token: AccessToken, account: Account) -> Viewer:
    """Return the viewer of a token's row."""
    grants = frozenset(HubScope(scope) for scope in token.scopes.split())
    scopes: frozenset[str] = PLAY_SCOPES if HubScope.RUN in grants else frozenset()
    if HubScope.ADMIN in grants:
        if account.is_admin:
            grants, scopes = frozenset(HubScope), frozenset({Scope.ADMIN})
        else:
            grants -= {HubScope.ADMIN}  # its person is an administrator no more
    return Viewer(
        name=account.name, scopes=scopes, credential=bytes.fromhex(token.digest)[:CREDENTIAL_BYTES],
        expires_at=aware(token.expires_at).timestamp() if token.expires_at is not None else float("inf"),
        grants=grants, packages=frozenset(token.packages.split()) if token.packages else None, account=account.id,
    )  # fmt: skip


def _info(row: AccessToken) -> TokenInfo:
    return TokenInfo(
        id=row.id, name=row.name, scopes=tuple(HubScope(scope) for scope in row.scopes.split()),
        packages=tuple(row.packages.split()), created_at=aware(row.created_at),
        expires_at=aware(row.expires_at) if row.expires_at is not None else None,
        used_at=aware(row.used_at) if row.used_at is not None else None,
    )  # fmt: skip
