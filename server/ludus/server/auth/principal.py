"""The principal of a request: its name and its scopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from ludus.protocol.errors import Forbidden
from ludus.protocol.methods import SPLIT_SCOPE_PREFIX, Scope
from ludus.server.auth.limits import TokenLimits

__all__ = ["CREDENTIAL_BYTES", "Principal"]


CREDENTIAL_BYTES: Final = 8
"""The length of `Principal.credential`, in bytes."""

OPEN_CREDENTIAL: Final = bytes(CREDENTIAL_BYTES)
"""The credential of a principal without a token, on a server without tokens."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a trainer token."""

    name: str
    """The owner of episodes: principals with another name cannot see them."""
    scopes: frozenset[str]
    credential: bytes = OPEN_CREDENTIAL
    """The first bytes of the token's hash, which identify the token without revealing it."""
    expires_at: float = float("inf")
    """The Unix time at which its token expires, in seconds."""
    limits: TokenLimits | None = None
    """The limits of its token, which take the place of the server's own; None if it has none."""

    def may(self, scope: str) -> bool:
        """Return whether the principal has a scope; `admin` includes all scopes."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def may_open_split(self, name: str) -> bool:
        """Return whether the principal may use the test split with this name."""
        return self.may(SPLIT_SCOPE_PREFIX + name) or self.may(SPLIT_SCOPE_PREFIX + "*")

    def require(self, scope: str) -> None:
        """Check that the principal has a scope.

        Raises:
            Forbidden: the principal lacks the scope.
        """
        if not self.may(scope):
            raise Forbidden(
                f"the token {self.name!r} lacks the scope '{scope!s}'; the server's operator can create one that has "
                "it",
                scope=str(scope),
            )

    @classmethod
    def open(cls) -> Self:
        """Return a principal that may do everything, for a server on loopback without tokens."""
        return cls("open", frozenset({*Scope, SPLIT_SCOPE_PREFIX + "*"}))
