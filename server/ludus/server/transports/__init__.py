"""The ways in. Each wire is a module with `routes(context)` and, where it holds something open, `lifespan(context)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ludus.protocol.errors import Unauthenticated
from ludus.server.auth import CapabilitySigner, TokenStore
from ludus.server.auth.principal import Principal
from ludus.server.runtime.limits import ServerLimits
from ludus.server.web.guard import Origins

if TYPE_CHECKING:
    from ludus.server.runtime.host import EpisodeHost

_EVERYBODY: Final = Principal.open()
_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class WireContext:
    """What every wire is given."""

    host: EpisodeHost
    limits: ServerLimits
    signer: CapabilitySigner
    origins: Origins
    tokens: TokenStore | None = None
    """None on a server in open mode."""

    def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """Who sends a request with these headers: `Authorization: Bearer …`, or `X-API-Key` as ORS clients send it.

        Args:
            headers: with lower-case names, or matched without regard to case as Starlette's are.

        Raises:
            Unauthenticated: the server has tokens, and none of them is there.
        """
        if self.tokens is None:
            return _EVERYBODY
        value = headers.get("authorization", "")
        if value[: len(_BEARER)].lower() == _BEARER:
            return self.tokens.authenticate(value[len(_BEARER) :].strip())
        key = headers.get("x-api-key")
        if key:
            return self.tokens.authenticate(key.strip())
        raise Unauthenticated("this server needs a token: send it as `Authorization: Bearer ludus_…`")

    def identified(self, headers: Mapping[str, str]) -> bool:
        """Return whether the sender may see what this server holds: a valid token, or a server without tokens.

        Raises:
            Unauthenticated: a credential was sent, and it is not valid.
        """
        if self.tokens is None:
            return True
        if "authorization" not in headers and "x-api-key" not in headers:
            return False
        self.authenticate(headers)
        return True
