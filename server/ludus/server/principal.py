"""Who asks: a name and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ludus.protocol.errors import Forbidden
from ludus.protocol.methods import SPLIT_SCOPE_PREFIX, Scope


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a trainer token."""

    name: str
    """Episodes belong to it: another principal cannot see them."""
    scopes: frozenset[str]

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
