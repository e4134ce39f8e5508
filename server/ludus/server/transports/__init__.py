"""Server transports. Each is a module with `routes(context)`.

A route may have two attributes that the application reads: `direct` is true if requests go to it without FastAPI's
middleware, and `lifespan` returns a context manager that is entered while the application serves. Routes may share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ludus.protocol.errors import Unauthenticated
from ludus.protocol.modules import Module
from ludus.server.auth import CapabilitySigner, TokenStore
from ludus.server.auth.principal import Principal
from ludus.server.runtime.limits import ServerLimits
from ludus.server.web.guard import Origins

if TYPE_CHECKING:
    from ludus.server.runtime.host import EpisodeHost

_EVERYBODY: Final = Principal.open()
_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True, eq=False)
class TransportContext:
    """What the application passes to every transport."""

    host: EpisodeHost
    limits: ServerLimits
    signer: CapabilitySigner
    origins: Origins
    tokens: TokenStore | None = None
    """The trainer tokens; None on a server in open mode."""
    everybody: Principal = _EVERYBODY
    """The sender of every request on a server in open mode."""
    wires: frozenset[Module] = frozenset()
    """The modules that the application serves as transports beside MCP: `channel` and `ors`, or some of them."""

    def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """Return the sender of a request: by `Authorization: Bearer …`, or by `X-API-Key`, which ORS clients send.

        Args:
            headers: a mapping with lower-case names, or a case-insensitive one such as Starlette's.

        Raises:
            Unauthenticated: the server has tokens, and the headers hold no valid one.
        """
        if self.tokens is None:
            return self.everybody
        value = headers.get("authorization", "")
        if value[: len(_BEARER)].lower() == _BEARER:
            return self.tokens.authenticate(value[len(_BEARER) :].strip())
        key = headers.get("x-api-key")
        if key:
            return self.tokens.authenticate(key.strip())
        raise Unauthenticated("this server needs a token: send it as `Authorization: Bearer ludus_…`")

    def identified(self, headers: Mapping[str, str]) -> bool:
        """Return whether the sender may see server details: it has a valid token, or the server has no tokens.

        Raises:
            Unauthenticated: the sender has a credential that is not valid.
        """
        if self.tokens is None:
            return True
        if "authorization" not in headers and "x-api-key" not in headers:
            return False
        self.authenticate(headers)
        return True
