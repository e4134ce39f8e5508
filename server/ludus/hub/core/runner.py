"""The hub as a client of its own endpoints.

Played runs belong to the hub: it starts their episodes and reads their rewards. So it has a principal of its own, whose
credential exists in this process only. What others send to endpoints goes there without the scope `admin`, which would
open the episodes of all principals, and with them the rewards of runs that are being played.
"""

from __future__ import annotations

import dataclasses
import hmac
import secrets
from typing import Final

from starlette.requests import Request

from ludus.protocol.methods import SPLIT_SCOPE_PREFIX, Scope
from ludus.server.auth.principal import Principal

ALL_SPLITS: Final = f"{SPLIT_SCOPE_PREFIX}*"
OPERATOR: Final = frozenset({Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ, ALL_SPLITS})
"""The scopes at an endpoint of a principal that has the scope `admin` on the hub: all, on its own episodes."""


class Runner:
    """The credential of the hub itself.

    Attributes:
        token: the bearer token of its requests.
        principal: its principal at endpoints.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self.principal = Principal(f"hub {secrets.token_hex(8)}", frozenset({*Scope, ALL_SPLITS}))

    def sent(self, request: Request) -> bool:
        """Return whether the hub itself has sent a request."""
        sent = request.headers.get("authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(sent, f"Bearer {self.token}".encode())


def without_admin(sender: Principal) -> Principal:
    """Return the principal that an endpoint gets for a sender: without `admin`, with all rights on its own episodes."""
    if Scope.ADMIN not in sender.scopes:
        return sender
    return dataclasses.replace(sender, scopes=(sender.scopes - {Scope.ADMIN}) | OPERATOR)
