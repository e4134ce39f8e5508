"""Who sends a request: the holder of a token, or a stranger.

A hub on loopback without tokens, accounts and an OpenID provider is open: every request comes from the owner `local`,
who may do everything. Otherwise a token is one of an account (`ludus.hub.people`), or one of the operator's token file
(`ludus token create`), whose name is an owner.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from ludus.hub.access.viewers import LOCAL, STRANGER, Viewer
from ludus.hub.core.rates import Rates
from ludus.hub.people.access_tokens import AccessTokens
from ludus.hub.people.accounts import Accounts
from ludus.hub.settings.hub import HubSettings
from ludus.protocol.errors import AuthoringError, Unauthenticated
from ludus.registry.types.people import TOKEN_PREFIX
from ludus.server.auth import TokenStore

BASIC_USER: Final = "__token__"
"""The user name with which pip, uv and twine send a token as a password."""

LENT_PREFIX: Final = "lent_"
_MOST_LENT: Final = 10_000


class Authenticator:
    """Finds the viewer of a request. All methods block, and any thread may call them.

    Args:
        settings: the hub's settings.
        operator: the tokens of the token file; None if there is none.
        accounts: the accounts.
        tokens: their tokens.
        rates: how many requests may come.
    """

    def __init__(
        self, settings: HubSettings, operator: TokenStore | None, accounts: Accounts, tokens: AccessTokens, rates: Rates
    ) -> None:
        self._behind_proxy = settings.on_loopback and settings.public_url is not None
        self._has_provider = settings.openid is not None
        self._operator = operator
        self._accounts = accounts
        self._tokens = tokens
        self._rates = rates
        self._has_accounts = False
        self._lent: OrderedDict[str, tuple[Viewer, float]] = OrderedDict()

    @property
    def is_open(self) -> bool:
        """Whether the hub has no tokens, no accounts and no OpenID provider. Once it has, it is never open again."""
        if self._operator is not None or self._has_provider:
            return False
        self._has_accounts = self._has_accounts or self._accounts.exist()
        return not self._has_accounts

    @property
    def has_operator_tokens(self) -> bool:
        """Whether there is a token file."""
        return self._operator is not None

    def viewer(self, request: Request, *, counted: bool = True) -> Viewer:
        """Return the viewer of a request by its `Authorization` header; a stranger if it has none.

        Args:
            request: the request.
            counted: whether it counts against the rates of its address or its token.

        Raises:
            Unauthenticated: the token is not valid.
            CapacityError: there are too many requests.
        """
        if self.is_open:
            return Viewer.of_administrator(LOCAL)
        header, address = request.headers.get("authorization", ""), self.address(request)
        if not header:
            if counted:
                self._rates.hit("address", address)
            return STRANGER
        try:
            token = token_of(header)
            if token is None:
                raise missing()
            viewer = self.of_token(token)
        except Unauthenticated:
            if address:
                self._rates.hit("wrong", address)
            raise
        if counted:
            self._rates.hit("token", viewer.credential.hex())
        return viewer

    def principal(self, request: Request, *, counted: bool = True) -> Viewer:
        """Return the viewer of a request that strangers may not send.

        Raises:
            Unauthenticated: there is no valid token.
            CapacityError: there are too many requests.
        """
        viewer = self.viewer(request, counted=counted)
        if viewer.is_stranger:
            raise missing()
        return viewer

    def of_token(self, token: str) -> Viewer:
        """Return the viewer of a token.

        Raises:
            Unauthenticated: it is not valid.
        """
        if token.startswith(LENT_PREFIX):
            viewer, until = self._lent.get(token, (None, 0.0))
            if viewer is None or time.monotonic() >= until or not self._is_enabled(viewer):
                raise Unauthenticated("this play has ended")
            return viewer
        if token.startswith(TOKEN_PREFIX):
            return self._tokens.viewer(token)
        return self.of_operator_token(token)

    def of_operator_token(self, token: str) -> Viewer:
        """Return the viewer of a token of the token file.

        Raises:
            Unauthenticated: it is not valid.
        """
        if self._operator is None:
            raise Unauthenticated("this token is not known to the hub: check it, or make another one")
        return Viewer.of_operator(self._operator.authenticate(token))

    def lend(self, viewer: Viewer, seconds: float) -> str:
        """Return a token of this process for a while, with which the hub plays for a person who has signed in."""
        token = LENT_PREFIX + secrets.token_urlsafe(32)
        self._lent[token] = (viewer, time.monotonic() + seconds)
        while len(self._lent) > _MOST_LENT:
            self._lent.popitem(last=False)
        return token

    def has_lent(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has a token that this process lent: whether the hub sends it to itself."""
        return (token_of(headers.get("authorization", "")) or "") in self._lent

    def _is_enabled(self, viewer: Viewer) -> bool:
        return viewer.account is None or self._accounts.is_enabled(viewer.account)

    def address(self, request: Request) -> str:
        """Return the address of a client: the one that a proxy on this machine names, if the hub is behind one."""
        if self._behind_proxy and (forwarded := request.headers.get("x-forwarded-for")):
            return forwarded.rpartition(",")[2].strip()[:64]
        return request.client.host if request.client is not None else ""


def missing() -> Unauthenticated:
    """Return the error for a request without a token."""
    return Unauthenticated(
        "this needs a token: give it with --token or LUDUS_HUB_TOKEN, as 'Authorization: Bearer TOKEN', or to pip, uv "
        f"and twine as the password of the user {BASIC_USER}; `ludus account login` makes one"
    )


def token_of(header: str) -> str | None:
    """Return the token of an `Authorization` header; None if it has none."""
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return value
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return password if user == BASIC_USER and password else None


def read_tokens(settings: HubSettings, variables: Mapping[str, str] = os.environ) -> TokenStore | None:
    """Return the tokens of the token file; None for a hub without one.

    Raises:
        AuthoringError: the token file cannot be used.
    """
    try:
        return TokenStore.from_environment(settings.token_file, variables)
    except ValueError as error:
        raise AuthoringError(str(error)) from None


def check_reach(settings: HubSettings, authenticator: Authenticator) -> None:
    """Check that a hub that others can reach has tokens or accounts.

    Raises:
        AuthoringError: it has neither; the message says how to make the first account.
    """
    if not authenticator.is_open or (settings.on_loopback and settings.public_url is None):
        return
    where = f"listen on {settings.host}" if not settings.on_loopback else f"be published at {settings.public_url}"
    database = " --database URL" if settings.database_url else ""
    raise AuthoringError(
        f"refusing to {where}: others can reach that address, and this hub has no accounts and no tokens. Create the "
        f"first administrator with `ludus hub accounts create NAME --admin --data {settings.data}{database}` and start "
        "again, or listen on 127.0.0.1"
    )
