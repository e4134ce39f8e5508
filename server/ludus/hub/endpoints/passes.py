"""Passes: an endpoint's process learns from them who sends a request, and gets no credential of the hub.

A client's token is checked by the hub and goes no further. Instead, the request gets a pass: the principal's name and
scopes, authenticated with a secret that the hub shares with this endpoint alone. So the process keeps the episodes of
different principals apart, and a pass that its code keeps opens nothing anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Final

from ludus.protocol.errors import Unauthenticated
from ludus.server.auth import TokenStore
from ludus.server.auth.principal import CREDENTIAL_BYTES, Principal

_KNOWN: Final = 4096


def pass_of(secret: str, principal: Principal) -> str:
    """Return the pass of a principal; always the same one for the same name, scopes and expiry.

    Args:
        secret: the endpoint's secret.
        principal: the sender of a request.
    """
    expires = None if principal.expires_at == float("inf") else principal.expires_at
    claims = json.dumps([principal.name, sorted(map(str, principal.scopes)), expires])
    body = base64.urlsafe_b64encode(claims.encode()).decode()
    return f"{body}.{_mac(secret, body)}"


def capability_key(secret: str) -> bytes:
    """Return the key with which the processes of an endpoint sign the URLs of agents, so that the hub can verify them.

    Args:
        secret: the endpoint's secret.
    """
    return hmac.digest(secret.encode(), b"capabilities", "sha256")


class Passes(TokenStore):
    """Recognizes the passes of one endpoint.

    Args:
        secret: the endpoint's secret.
    """

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._secret = secret
        self._principals: dict[str, Principal] = {}

    def __len__(self) -> int:
        return 1

    def authenticate(self, token: str) -> Principal:
        """Return the principal of a pass.

        Raises:
            Unauthenticated: it is not a pass of this endpoint, or has expired.
        """
        principal = self._principals.get(token)
        if principal is None:
            principal = self._read(token)
            if len(self._principals) >= _KNOWN:
                self._principals.clear()
            self._principals[token] = principal
        if time.time() >= principal.expires_at:
            raise Unauthenticated(f"the token of {principal.name!r} has expired: have a new one made")
        return principal

    def still_may(self, credential: bytes, scope: str) -> bool:
        """Return whether the pass with this credential has not expired and has the scope."""
        for principal in self._principals.values():
            if principal.credential == credential:
                return time.time() < principal.expires_at and principal.may(scope)
        return False

    def _read(self, token: str) -> Principal:
        body, _, mac = token.partition(".")
        if not hmac.compare_digest(mac.encode("utf-8", "replace"), _mac(self._secret, body).encode()):
            raise Unauthenticated("this is no pass of the hub")
        name, scopes, expires = json.loads(base64.urlsafe_b64decode(body))
        credential = hashlib.sha256(token.encode()).digest()[:CREDENTIAL_BYTES]
        return Principal(name, frozenset(scopes), credential, float("inf") if expires is None else expires)


def _mac(secret: str, body: str) -> str:
    return hmac.new(secret.encode(), body.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
