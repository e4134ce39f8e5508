"""Server transports. Each is a module with `routes(context)`.

A route may have two attributes that the application reads: `direct` is true if requests go to it without FastAPI's
middleware, and `lifespan` returns a context manager that is entered while the application serves. Routes may share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ludus.protocol.errors import CapabilityRefused, CapacityError, Unauthenticated
from ludus.protocol.methods import Scope as TokenScope
from ludus.protocol.modules import Module
from ludus.server.auth import CapabilitySigner, TokenStore
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import Quotas
from ludus.server.runtime.limits import ServerLimits
from ludus.server.web.guard import Origins, note_known

if TYPE_CHECKING:
    from ludus.server.hosting.host import EpisodeHost

_EVERYBODY: Final = Principal.open()
_BEARER: Final = "bearer "
_PLAY_PREFIX: Final = "/play/"
_CREDENTIALS: Final = (b"authorization", b"x-api-key")


@dataclass(frozen=True, slots=True, eq=False)
class TransportContext:
    """What the application passes to every transport."""

    host: EpisodeHost
    limits: ServerLimits
    signer: CapabilitySigner
    origins: Origins
    quotas: Quotas
    """What principals and client addresses may use."""
    tokens: TokenStore | None = None
    """The trainer tokens; None on a server in open mode."""
    everybody: Principal = _EVERYBODY
    """The sender of every request on a server in open mode."""
    wires: frozenset[Module] = frozenset()
    """The modules that the application serves as transports besides MCP: `channel` and `ors`, or some of them."""

    def authenticate(self, headers: Mapping[str, str], scope: Mapping[str, Any]) -> Principal:
        """Return the sender of a request, and count the request. The arguments are those of `identify`.

        Raises:
            Unauthenticated: the server has tokens, and the headers hold no valid one.
            CapacityError: the sender makes too many requests, or its address sent too many wrong tokens.
        """
        principal = self.everybody if self.tokens is None else self.identify(headers, scope)
        if self.quotas.counts_requests or principal.limits is not None:
            requests = self.quotas.account(principal).requests
            if requests is not None:
                requests.take()
        return principal

    def identify(self, headers: Mapping[str, str], scope: Mapping[str, Any]) -> Principal:
        """Return the sender of a request: by `Authorization: Bearer …`, or by `X-API-Key`, which ORS clients send.

        Args:
            headers: a mapping with lower-case names, or a case-insensitive one such as Starlette's.
            scope: the ASGI scope, which holds the address of the client.

        Raises:
            Unauthenticated: the server has tokens, and the headers hold no valid one.
            CapacityError: too many wrong tokens came from the address.
        """
        if self.tokens is None:
            return self.everybody
        address = (scope.get("client") or ("",))[0]
        principal = self.quotas.guesses.recognize(_token_of(headers), address, self.tokens.authenticate)
        note_known(scope)
        return principal

    def knows(self, path: str, headers: Mapping[bytes, bytes], address: str | None) -> bool:
        """Return whether a request has a valid token or play capability; see `IsKnown`."""
        tokens = self.tokens
        if tokens is None:
            return True
        if path.startswith(_PLAY_PREFIX):
            try:
                claims = self.signer.verify(path[len(_PLAY_PREFIX) :].partition("/")[0])
            except CapabilityRefused:
                return False
            return tokens.still_may(claims.credential, TokenScope.EPISODES_RUN)
        text = {name.decode(): headers[name].decode("latin-1") for name in _CREDENTIALS if name in headers}
        try:
            if address is not None:
                self.identify(text, {"client": (address, 0)})
            else:
                tokens.authenticate(_token_of(text))
        except (Unauthenticated, CapacityError):
            return False
        return True

    def identified(self, headers: Mapping[str, str], scope: Mapping[str, Any]) -> bool:
        """Return whether the sender may see server details: it has a valid token, or the server has no tokens.

        Raises:
            Unauthenticated: the sender has a credential that is not valid.
            CapacityError: too many wrong tokens came from its address.
        """
        if self.tokens is None:
            return True
        if "authorization" not in headers and "x-api-key" not in headers:
            return False
        self.identify(headers, scope)
        return True


def _token_of(headers: Mapping[str, str]) -> str:
    """Return the token of a request.

    Raises:
        Unauthenticated: there is none.
    """
    value = headers.get("authorization", "")
    if value[: len(_BEARER)].lower() == _BEARER:
        return value[len(_BEARER) :].strip()
    if token := headers.get("x-api-key", ""):
        return token.strip()
    raise Unauthenticated("this server needs a token: send it as `Authorization: Bearer ludus_…`")
