"""The common parts of all ORS routes: the principal, the environment of a request, and errors in ORS's form."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ludus.protocol.episodes import EnvironmentInfo
from ludus.protocol.errors import (
    CapacityError,
    EnvironmentNotFound,
    EpisodeFailed,
    EpisodeNotFound,
    InvalidParams,
    LudusError,
    ShuttingDown,
    SplitNotFound,
    TaskNotFound,
    Unauthenticated,
    Unsupported,
)
from ludus.protocol.incidents import new_incident
from ludus.protocol.methods import Scope
from ludus.server.auth.principal import Principal
from ludus.server.transports.ors.request import Disconnected, HttpError, OrsRequest
from ludus.server.transports.ors.sessions import NOT_FOUND, Sessions

if TYPE_CHECKING:
    from ludus.server.tasks.catalog import Published
    from ludus.server.transports import WireContext

logger = logging.getLogger("ludus.server.transports.ors")

SESSION_SCOPES: Final = (Scope.EPISODES_RUN, Scope.REWARDS_READ)
"""The scopes that a session needs: in this standard every reply holds rewards."""

Handler = Callable[["Ors", OrsRequest, str], Awaitable[None]]
"""Serves one request. The last argument is the published name of the environment in its path, or empty if none is."""


class Ors:
    """The state of the ORS transport."""

    def __init__(self, context: WireContext) -> None:
        self.host = context.host
        self.limits = context.limits
        self.sessions = Sessions(context.host, context.limits.idle_seconds)
        self.tools: dict[str, bytes] = {}
        """The answers of `/tools` by environment, made at first use."""
        self._authenticate = context.authenticate
        self._names = {name.lower(): name for name in context.host.catalog}
        self._first = next(iter(context.host.catalog))

    def environment(self, name: str) -> str | None:
        """Return the published name of an environment that is given in any case; None if there is none."""
        return self._names.get(name) or self._names.get(name.lower())

    def named(self, x: OrsRequest, path: str) -> str:
        """Return the environment that a request names, in its path or as the client's deployment; empty if in neither.

        A server with one environment always returns that one for bare paths. `openreward` sends `X-Deployment:
        owner/name` with its requests; the published servers do not use it.

        Raises:
            HttpError: 404, the server has several environments, and the deployment is none of them.
        """
        if path:
            return path
        deployment = x.header(b"x-deployment").rpartition("/")[2]
        found = self.environment(deployment) if deployment else None
        if found is None and deployment and len(self._names) > 1:
            raise self.unknown(deployment)
        return found or ("" if len(self._names) > 1 else self._first)

    def meant(self, x: OrsRequest, path: str) -> str:
        """Return the environment of a request: the one it names, or else the first one, as in the published servers.

        Raises:
            HttpError: see `named`.
        """
        return self.named(x, path) or self._first

    def unknown(self, name: str) -> HttpError:
        """Return the refusal of a request for an environment that this server does not have."""
        return HttpError(404, f"unknown environment {name[:80]!r}; this server has {', '.join(self.host.catalog)}")

    def published(self, name: str) -> Published:
        """Return an environment by its published name."""
        return self.host.catalog[name]

    def info(self, name: str) -> EnvironmentInfo:
        """Return the published description of an environment."""
        return self.host.catalog[name].info

    def principal(self, x: OrsRequest, *scopes: str) -> Principal:
        """Return the sender of a request: by `Authorization: Bearer`, or by `X-API-Key`, which ORS clients send.

        Raises:
            Unauthenticated: the request has no valid token.
            Forbidden: a scope is missing.
        """
        authorization = x.header(b"authorization")
        if not authorization:
            key = x.header(b"x-api-key")
            authorization = f"Bearer {key}" if key else ""
        principal = self._authenticate({"authorization": authorization} if authorization else {})
        for scope in scopes:
            principal.require(scope)
        return principal

    async def serve(self, handler: Handler, x: OrsRequest, environment: str) -> None:
        """Run a handler, and answer every error in ORS's form."""
        try:
            await handler(self, x, environment)
        except HttpError as refusal:
            await x.refuse(refusal)
        except LudusError as error:
            await x.refuse(refusal_of(error))
        except Disconnected:
            pass
        except Exception:
            incident = new_incident()
            logger.exception("%s %s failed (incident %s)", x.scope["method"], x.scope["path"], incident)
            await x.refuse(HttpError(500, f"InternalError: the server's log has the cause under incident {incident}"))


def refusal_of(error: LudusError) -> HttpError:
    """Return an error of the runtime in ORS's form."""
    status, detail, headers = _in_ors_words(error)
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    return HttpError(status, detail, headers, error)


def _in_ors_words(error: LudusError) -> tuple[int, str, dict[str, str]]:
    match error:
        case SplitNotFound():
            return 400, "Invalid split", {}
        case TaskNotFound():
            return 400, "Invalid index" if "index" in error.data else f"Unknown task: {error.message}", {}
        case EnvironmentNotFound():
            return 404, f"unknown environment {error.data.get('environment', '')!r}", {}
        case EpisodeNotFound():
            return 404, NOT_FOUND, {}
        case Unauthenticated():
            return 401, error.message, {"WWW-Authenticate": "Bearer"}
        case EpisodeFailed():
            return 500, f"{type(error).__name__}: {error.message}", {}
        case CapacityError():
            return 429, error.message, {"Retry-After": "1"}
        case ShuttingDown():
            return 503, error.message, {"Retry-After": "2"}
        case InvalidParams() | Unsupported():
            return 400, error.message, {}
        case _:
            return error.http_status, error.message, {}
