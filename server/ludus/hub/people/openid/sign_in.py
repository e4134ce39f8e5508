"""Signing in through an OpenID provider: the authorization code flow, with PKCE, state and nonce.

How this works: the hub sends a browser to the provider with a random `state`, and keeps the rest of the journey in the
database, bound to a random cookie of that browser. The browser comes back with the `state` and a code. The hub takes
the journey out of the database, so it is used once; a browser without the cookie has none. The hub exchanges the code
for an ID token and checks it. What happens then is the journey's purpose:

    sign in    a session begins; an unknown identity may register, which waits for a name
    link       the identity is linked to the account that began
    confirm    the session that began may do one thing for which other accounts give their password

The cookie has SameSite=Lax, because the browser comes from another site. The cookie of sessions is Strict and is not
sent then; so `link` and `confirm` look at the session that is noted in the journey.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from ludus.hub.database.engine import Database
from ludus.hub.database.tables import Account
from ludus.hub.people.access_tokens import AccessTokens
from ludus.hub.people.accounts import Accounts, Person
from ludus.hub.people.audit import Audit
from ludus.hub.people.invitations import use_invitation
from ludus.hub.people.openid.id_tokens import Expected, Identity
from ludus.hub.people.openid.identities import Identities, add_identity
from ludus.hub.people.openid.pending import Journey, Pending, PendingSignIns, Purpose, new_value
from ludus.hub.people.openid.provider import Provider, error_code
from ludus.hub.people.sessions import Sessions
from ludus.hub.settings.openid import OpenIdSettings
from ludus.protocol.errors import Forbidden, LudusError, Unauthenticated

STRAY: Final = (
    "this sign-in did not begin in this browser, was used already, or took too long: begin again on the page to sign in"
)
"""The answer to a browser that comes back with a `state` that is not its own."""

NO_ACCOUNT: Final = (
    "no account that may sign in here is linked with you at the provider; sign in with your password and link it on "
    "the page of your account, or ask the hub's operator"
)
"""The answer to an unknown identity that may not register, and to a disabled account."""


@dataclass(frozen=True)
class Begun:
    """Where a browser goes to sign in, and the cookie that it needs when it comes back."""

    address: str
    cookie: str


@dataclass(frozen=True)
class Arrival:
    """How a journey ended.

    Attributes:
        kind: `signed in`, `named` for an identity that waits for a name, `linked` or `confirmed`.
        following: the path of this hub where the person goes now.
        account: the id of the account of `signed in`.
        cookie: the cookie that the browser needs for `named`.
    """

    kind: Literal["signed in", "named", "linked", "confirmed"]
    following: str
    account: int = 0
    cookie: str = ""


class OpenIdSignIn:
    """Signing in through one OpenID provider. Its methods with `async` do not block; any thread may call the others.

    Args:
        settings: the operator's settings.
        database: the hub's database.
        accounts: the accounts.
        sessions: their sessions.
        tokens: their tokens.
        audit: the log.
        identities: the identities that are linked to accounts.

    Attributes:
        settings: the operator's settings.
        provider: the provider.
        identities: the linked identities.
    """

    def __init__(
        self, settings: OpenIdSettings, database: Database, accounts: Accounts, sessions: Sessions,
        tokens: AccessTokens, audit: Audit, identities: Identities,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.provider = Provider(settings)
        self.identities = identities
        self._pending = PendingSignIns(database)
        self._accounts = accounts
        self._sessions = sessions
        self._tokens = tokens
        self._audit = audit

    async def begin(
        self, purpose: Purpose, redirect_uri: str, *, following: str = "/account", account: int | None = None,
        name: str = "", session: str = "",
    ) -> Begun:  # fmt: skip
        """Begin a journey.

        Args:
            purpose: what for.
            redirect_uri: where the provider sends the browser.
            following: the path of this hub where the person goes afterwards.
            account: the id of the account that begins it; None for a stranger.
            name: its name.
            session: the digest of the session in which it begins.

        Raises:
            ProviderFailed: the provider cannot be used.
            CapacityError: too many have begun.
        """
        state, cookie = new_value(), new_value()
        journey = Journey(
            redirect_uri=redirect_uri, nonce=new_value(), verifier=new_value() + new_value(), following=following,
            begun=time.time(), session=session, account=name,
        )  # fmt: skip
        address = await self.provider.address(
            redirect_uri, state, journey.nonce, journey.verifier, fresh=purpose == "confirm"
        )
        await run_in_threadpool(self._pending.add, state, cookie, Pending(purpose, account, journey))
        return Begun(address, cookie)

    async def finish(self, query: Mapping[str, str], cookie: str, address: str) -> Arrival:
        """Return how a journey ended, from what a browser has brought back.

        Args:
            query: the parameters of the address that the browser was sent to.
            cookie: its cookie.
            address: the client's address.

        Raises:
            Unauthenticated: the browser has not begun it, or the provider or a check refuses it.
            Forbidden: the person may not come in, or not register.
            Conflict: the identity cannot be linked.
            ProviderFailed: the provider cannot be used.
        """
        pending = await run_in_threadpool(self._pending.take, query.get("state", ""), cookie)
        if pending is None or pending.purpose == "register":
            raise Unauthenticated(STRAY)
        try:
            identity = await self._identity(query, pending)
            return await run_in_threadpool(self._arrive, pending, identity, address)
        except LudusError as error:
            await run_in_threadpool(self._note_refusal, pending, error, address)
            raise

    async def _identity(self, query: Mapping[str, str], pending: Pending) -> Identity:
        await self.provider.check_origin(query.get("iss"))
        if "error" in query:
            raise Unauthenticated(f"the OpenID provider refused the sign-in ({error_code(query['error'])})")
        code, journey = query.get("code", ""), pending.journey
        if not 0 < len(code) <= 4096:
            raise Unauthenticated("the OpenID provider sent no code")
        expected = Expected(
            self.settings.issuer, self.settings.client_id, journey.nonce, journey.begun, pending.purpose == "confirm"
        )
        return await self.provider.redeem(code, journey.redirect_uri, journey.verifier, expected)

    def _arrive(self, pending: Pending, identity: Identity, address: str) -> Arrival:
        journey = pending.journey
        self._check_allowed(identity)
        if pending.purpose == "sign in":
            return self._sign_in(journey, identity, address)
        account = pending.account or 0
        if not self._sessions.is_going_on(account, journey.session):
            raise Unauthenticated("you have signed out meanwhile; sign in and begin again")
        if pending.purpose == "link":
            self.identities.link(account, identity, address=address)
            return Arrival("linked", journey.following)
        if not self.identities.belongs_to(identity, account):
            raise Forbidden("you have signed in at the provider as another person than that of your account")
        self._sessions.confirm(account, journey.session)
        return Arrival("confirmed", journey.following)

    def _check_allowed(self, identity: Identity) -> None:
        domains, groups = self.settings.allowed_domains, self.settings.allowed_groups
        if domains and identity.email.rpartition("@")[2].lower() not in domains:
            raise Forbidden("this hub lets in verified e-mail addresses of some domains only, and yours is not of them")
        if groups and not set(groups) & set(identity.groups):
            raise Forbidden("this hub lets in people of some groups only, and the provider names you in none of them")

    def _is_admin(self, identity: Identity) -> bool:
        return self.settings.admin_group is not None and self.settings.admin_group in identity.groups

    def _sign_in(self, journey: Journey, identity: Identity, address: str) -> Arrival:
        is_admin = self._is_admin(identity)
        person = self.identities.sign_in(identity, is_admin=is_admin, address=address)
        if person is not None:
            self._tokens.forget()  # one of them may have lost the rights of an administrator
            return Arrival("signed in", journey.following, account=person.id)
        if self.settings.registration == "closed" or self.identities.is_linked(identity):
            raise Forbidden(NO_ACCOUNT)
        cookie = new_value()
        waiting = Journey(
            following=journey.following, issuer=identity.issuer, subject=identity.subject, email=identity.email,
            username=identity.username, is_admin=is_admin,
        )  # fmt: skip
        self._pending.add(cookie, cookie, Pending("register", None, waiting))
        return Arrival("named", journey.following, cookie=cookie)

    def _note_refusal(self, pending: Pending, error: LudusError, address: str) -> None:
        name = pending.journey.account
        self._audit.note("sign-in refused", error.message, actor=name, account=name, address=address)

    # ── registering ────────────────────────────────────────────────────────────────────────────────────────────────

    def waiting(self, cookie: str) -> Journey | None:
        """Return the identity of a browser that waits for a name; None if there is none."""
        found = self._pending.look(cookie, cookie)
        return found.journey if found is not None and found.purpose == "register" else None

    def register(self, cookie: str, name: str, invitation: str, address: str) -> Person:
        """Create the account of an identity that waits for a name.

        Args:
            cookie: the cookie of the browser.
            name: the name of the account.
            invitation: a code, where registration is by invitation.
            address: the client's address.

        Raises:
            Unauthenticated: no identity waits in this browser.
            Forbidden: there is no registration, or the invitation is not valid.
            NameRefused: the name cannot be one, is taken, or looks like one that is.
            Conflict: the identity was linked meanwhile.
        """
        journey, kind = self.waiting(cookie), self.settings.registration
        if journey is None:
            raise Unauthenticated(STRAY)
        if kind == "closed":
            raise Forbidden(NO_ACCOUNT)
        identity = Identity(journey.issuer, journey.subject, journey.email)

        def use(session: Session) -> None:
            if kind == "invite":
                use_invitation(session, invitation)

        def add(session: Session, account: Account) -> None:
            add_identity(session, account, identity, gave_admin=journey.is_admin, address=address)

        person = self._accounts.create(
            name, None, admin=journey.is_admin, actor=name, address=address, also=use, then=add
        )
        self._pending.take(cookie, cookie)
        return person


def proposed_name(username: str) -> str:
    """Return a name for a new account from the name at the provider, as far as the rules of names allow."""
    plain = "".join(one for one in username.partition("@")[0].lower() if one.isascii() and one.isalnum())
    return plain.lstrip("0123456789")[:39]
