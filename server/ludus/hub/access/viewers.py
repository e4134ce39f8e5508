"""Who sends a request, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from ludus.protocol.errors import Forbidden, Unauthenticated
from ludus.protocol.methods import SPLIT_SCOPE_PREFIX, Scope
from ludus.registry.types.people import HubScope
from ludus.server.auth.principal import Principal

LOCAL: Final = "local"
"""The owner whose requests an open hub serves."""

BUILT_IN: Final = "ludus"
"""The owner of the built-in library."""

ALL_SCOPES: Final = frozenset(set(HubScope) - {HubScope.ADMIN})
"""The scopes of a person in a browser, and of an operator's token."""

PLAY_SCOPES: Final = frozenset({Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ})
"""What `run` allows at an endpoint. Test splits need more: see `Viewer.at_endpoint`."""


@dataclass(frozen=True, slots=True)
class Viewer(Principal):
    """The sender of a request: a person with their scopes, or a stranger, whose name is empty.

    `scopes` are those of the servers of environments; `grants` are those of the hub.
    """

    grants: frozenset[HubScope] = frozenset()
    packages: frozenset[str] | None = None
    """The packages to which the token is limited, as `owner/name`; None for no limit."""
    account: int | None = None
    """The id of the account; None for a stranger, an open hub and a token of the token file."""

    @classmethod
    def of_operator(cls, principal: Principal) -> Self:
        """Return the viewer for a token of the token file, which may do everything for its own name."""
        return cls(
            principal.name, principal.scopes, principal.credential, principal.expires_at, principal.limits, ALL_SCOPES
        )

    @classmethod
    def of_administrator(cls, name: str) -> Self:
        """Return a viewer that may do everything: the only person of an open hub, or the hub itself."""
        return cls(name, frozenset({Scope.ADMIN}), grants=frozenset(HubScope))

    @property
    def is_stranger(self) -> bool:
        """Whether nothing is known about the sender."""
        return not self.name

    @property
    def is_admin(self) -> bool:
        """Whether the sender may do everything on the hub."""
        return self.may(Scope.ADMIN)

    def covers(self, scope: HubScope, package: str | None = None) -> bool:
        """Return whether the token has a scope, for a package if one is given. What the person may do is not asked."""
        if scope not in self.grants:
            return False
        if self.packages is None:
            return True
        return package in self.packages if package is not None else scope not in (HubScope.ACCOUNT, HubScope.ADMIN)

    def require(self, scope: str, package: str | None = None) -> None:
        """Check that the sender is known, and that the token has a scope, for a package if one is given.

        Raises:
            Unauthenticated: nothing is known about the sender.
            Forbidden: the token lacks the scope, or is limited to other packages.
        """
        if self.is_stranger:
            raise Unauthenticated("this needs a token: give it with --token or LUDUS_HUB_TOKEN")
        wanted = HubScope(scope)
        if wanted not in self.grants:
            raise Forbidden(f"this token lacks the scope '{wanted}'; make one that has it", scope=str(wanted))
        if not self.covers(wanted, package):
            raise Forbidden(
                f"this token is limited to {', '.join(sorted(self.packages or ()))}; make one for what you want to do"
            )

    def at_endpoint(self, *, publishes: bool) -> Viewer:
        """Return the viewer with the rights that the endpoint of a package gives.

        Test splits are open only to those who may publish the package and so know its tasks, and to tokens of the token
        file that name them.

        Args:
            publishes: whether the viewer may publish the package.
        """
        if self.account is not None and not self.is_admin and publishes:
            return replace(self, scopes=self.scopes | {SPLIT_SCOPE_PREFIX + "*"})
        return self


STRANGER: Final = Viewer("", frozenset())
"""The sender of a request without a token."""
