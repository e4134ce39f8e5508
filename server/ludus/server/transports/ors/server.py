"""The state of the ORS transport: its sessions, and the names of its environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ludus.protocol.methods import Scope
from ludus.server.auth.principal import Principal
from ludus.server.transports.ors.request import HttpError, OrsRequest
from ludus.server.transports.ors.session_store import SessionStore

if TYPE_CHECKING:
    from ludus.server.transports import TransportContext

SESSION_SCOPES: Final = (Scope.EPISODES_RUN, Scope.REWARDS_READ)
"""The scopes that a session needs: in this standard every reply holds rewards."""


class OrsServer:
    """What the handlers of all ORS routes share."""

    def __init__(self, context: TransportContext) -> None:
        self.host = context.host
        self.limits = context.limits
        self.sessions = SessionStore(context.host, context.limits.idle_seconds)
        self.tools: dict[str, bytes] = {}
        """The answers of `/tools` by environment, made at first use."""
        self._context = context
        self._names = {name.lower(): name for name in context.host.catalog}
        self._first = next(iter(context.host.catalog))

    def environment(self, name: str) -> str | None:
        """Return the published name of an environment that is given in any case; None if there is none."""
        return self._names.get(name) or self._names.get(name.lower())

    def named_environment(self, request: OrsRequest) -> str:
        """Return the environment that a request names, in its path or as the client's deployment; empty if in neither.

        A server with one environment always returns that one for bare paths. `openreward` sends `X-Deployment:
        owner/name` with its requests; the published servers do not use it.

        Raises:
            HttpError: 404, the server has several environments, and the deployment is none of them.
        """
        if request.environment:
            return request.environment
        deployment = request.header(b"x-deployment").rpartition("/")[2]
        environment = self.environment(deployment) if deployment else None
        if environment is None and deployment and len(self._names) > 1:
            raise self.unknown_environment(deployment)
        return environment or ("" if len(self._names) > 1 else self._first)

    def default_environment(self, request: OrsRequest) -> str:
        """Return the environment of a request: the one it names, or else the first one, as in the published servers.

        Raises:
            HttpError: see `named_environment`.
        """
        return self.named_environment(request) or self._first

    def unknown_environment(self, name: str) -> HttpError:
        """Return the error for a request about an environment that this server does not have."""
        return HttpError(404, f"unknown environment {name[:80]!r}; this server has {', '.join(self.host.catalog)}")

    def principal(self, request: OrsRequest, *scopes: str) -> Principal:
        """Return the sender of a request: by `Authorization: Bearer`, or by `X-API-Key`, which ORS clients send.

        Raises:
            Unauthenticated: the request has no valid token.
            Forbidden: a scope is missing.
            CapacityError: the sender makes too many requests, or its address sent too many wrong tokens.
        """
        if self._context.tokens is None and not self._context.quotas.counts_requests:
            return self._context.everybody
        authorization = request.header(b"authorization")
        if not authorization:
            key = request.header(b"x-api-key")
            authorization = f"Bearer {key}" if key else ""
        headers = {"authorization": authorization} if authorization else {}
        principal = self._context.authenticate(headers, request.scope)
        for scope in scopes:
            principal.require(scope)
        return principal
