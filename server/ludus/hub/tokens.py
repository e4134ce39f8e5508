"""Who sends a request: tokens of a token file (`ludus token create`), whose names are owners.

A hub on loopback without tokens is open: every request comes from the owner `local`, who may do everything.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from ludus.hub.settings import HubSettings
from ludus.protocol.errors import AuthoringError, Unauthenticated
from ludus.protocol.methods import Scope
from ludus.server.auth import TokenStore
from ludus.server.auth.principal import Principal

LOCAL: Final = "local"
"""The owner whose requests an open hub serves."""

BASIC_USER: Final = "__token__"
"""The user name with which twine sends a token as a password."""


class Authenticator:
    """Finds the principal of a request.

    Args:
        tokens: the tokens; None for an open hub.
    """

    def __init__(self, tokens: TokenStore | None) -> None:
        self._tokens = tokens

    @property
    def is_open(self) -> bool:
        """Whether the hub has no tokens."""
        return self._tokens is None

    def principal(self, request: Request) -> Principal:
        """Return the principal of a request that changes something.

        Raises:
            Unauthenticated: there is no valid token.
        """
        if self._tokens is None:
            return Principal(LOCAL, frozenset({Scope.ADMIN}))
        token = _token_of(request.headers.get("authorization", ""))
        if token is None:
            raise Unauthenticated(
                "this needs a token: give it with --token or LUDUS_HUB_TOKEN, as 'Authorization: Bearer TOKEN', or to "
                f"twine as the password of the user {BASIC_USER}"
            )
        return self._tokens.authenticate(token)


def _token_of(header: str) -> str | None:
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return value
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return password if user == BASIC_USER and password else None


def read_tokens(settings: HubSettings, variables: Mapping[str, str] = os.environ) -> TokenStore | None:
    """Return the tokens of a hub; None for one without, which only this machine may reach.

    Raises:
        AuthoringError: the token file cannot be used, or others can reach the hub and it has no tokens.
    """
    try:
        tokens = TokenStore.from_environment(settings.token_file, variables)
    except ValueError as error:
        raise AuthoringError(str(error)) from None
    if not tokens and not (settings.on_loopback and settings.public_url is None):
        where = f"listen on {settings.host}" if not settings.on_loopback else f"be published at {settings.public_url}"
        file = settings.token_file or "hub-tokens.json"
        raise AuthoringError(
            f"refusing to {where}: others can reach that address, and this hub has no tokens. Create one with "
            f"`ludus token create --name OWNER --file {file}` and start with `--token-file {file}`, or listen on "
            "127.0.0.1"
        )
    return tokens
