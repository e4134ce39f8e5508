"""Who asks: a name and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from ludus.protocol.errors import Forbidden
from ludus.protocol.methods import SPLIT_SCOPE_PREFIX, Scope

CREDENTIAL_BYTES: Final = 8
"""The length of `Principal.credential`."""

OPEN_CREDENTIAL: Final = bytes(CREDENTIAL_BYTES)
"""The credential of a principal without a token, on a server that has none."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a trainer token."""

    name: str
    """Episodes belong to it: another principal cannot see them."""
    scopes: frozenset[str]
    credential: bytes = OPEN_CREDENTIAL
    """Identifies its token, without revealing it: the first bytes of the token's hash."""
    expires_at: float = float("inf")
    """The Unix time at which its token expires."""

    def may(self, scope: str) -> bool:
        """Whether it has the scope; `admin` has all of them."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def may_open_split(self, name: str) -> bool:
        """Whether it may use the test split of that name."""
        return self.may(SPLIT_SCOPE_PREFIX + name) or self.may(SPLIT_SCOPE_PREFIX + "*")

    def require(self, scope: str) -> None:
        """Insist on a scope.

        Raises:
            Forbidden: it does not have it.
        """
        if not self.may(scope):
            raise Forbidden(
                f"the token {self.name!r} lacks the scope {scope!r}; ask whoever runs this server for one that has it",
                scope=str(scope),
            )

    @classmethod
    def open(cls) -> Self:
        """Everything is allowed: a server on loopback without tokens."""
        return cls("open", frozenset({*Scope, SPLIT_SCOPE_PREFIX + "*"}))
