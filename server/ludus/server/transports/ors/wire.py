"""What all ORS routes share: who asks, which environment is meant, and errors in ORS's own form."""

from __future__ import annotations

import logging
import math
import secrets
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
from ludus.protocol.methods import Scope
from ludus.server.auth.principal import Principal
from ludus.server.transports.ors.request import Disconnected, HttpError, OrsRequest
from ludus.server.transports.ors.sessions import NOT_FOUND, Sessions

if TYPE_CHECKING:
    from ludus.server.tasks.catalog import Published
    from ludus.server.transports import WireContext

logger = logging.getLogger("ludus.server.transports.ors")

SESSION_SCOPES: Final = (Scope.EPISODES_RUN, Scope.REWARDS_READ)
"""What a session needs: rewards are part of every reply by this standard."""

Handler = Callable[["Ors", OrsRequest, str], Awaitable[None]]
"""Serves one request; the last argument is the published name of the environment in its path, empty for bare paths."""


class Ors:
    """The state of the wire."""

    def __init__(self, context: WireContext) -> None:
        self.host = context.host
        self.limits = context.limits
        self.sessions = Sessions(context.host, context.limits.idle_seconds)
        self.tools: dict[str, bytes] = {}
        """The answers of `/tools`, made at first use."""
        self._authenticate = context.authenticate
        self._names = {name.lower(): name for name in context.host.catalog}
        self._first = next(iter(context.host.catalog))

    def environment(self, name: str) -> str | None:
        """The published name that is meant, whatever its case; None when there is none."""
        return self._names.get(name) or self._names.get(name.lower())

    def named(self, x: OrsRequest, path: str) -> str:
        """The environment that a request names: in its path, or as the client's deployment; empty where in neither.

        `openreward` sends `X-Deployment: owner/name` with its requests; the published servers have no use for it.

        Raises:
            Refusal: 404, the deployment is none of several environments: which one is meant cannot be known.
        """
        if path:
            return path
        deployment = x.header(b"x-deployment").rpartition("/")[2]
        found = self.environment(deployment) if deployment else None
        if found is None and deployment and len(self._names) > 1:
            raise self.unknown(deployment)
        return found or ("" if len(self._names) > 1 else self._first)

    def meant(self, x: OrsRequest, path: str) -> str:
        """The environment that a request is about: the one it names, or as in the published servers the first.

        Raises:
            Refusal: see `named`.
        """
        return self.named(x, path) or self._first

    def unknown(self, name: str) -> HttpError:
        """Return the refusal of a request for an environment that this server does not have."""
        return HttpError(404, f"unknown environment {name[:80]!r}; this server has {', '.join(self.host.catalog)}")

    def published(self, name: str) -> Published:
        """An environment by its published name."""
        return self.host.catalog[name]

    def info(self, name: str) -> EnvironmentInfo:
        """What an environment publishes of itself."""
        return self.host.catalog[name].info

    def principal(self, x: OrsRequest, *scopes: str) -> Principal:
        """Who asks: `Authorization: Bearer`, or `X-API-Key` as ORS's clients have it.

        Raises:
            Unauthenticated: nobody this server knows.
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
        """Run a handler; whatever goes wrong is answered in ORS's form."""
        try:
            await handler(self, x, environment)
        except HttpError as refusal:
            await x.refuse(refusal)
        except LudusError as error:
            await x.refuse(refusal_of(error))
        except Disconnected:
            pass
        except Exception:
            incident = secrets.token_hex(6)
            logger.exception("%s %s failed (incident %s)", x.scope["method"], x.scope["path"], incident)
            await x.refuse(HttpError(500, f"InternalError: the server's log has the cause under incident {incident}"))


def refusal_of(error: LudusError) -> HttpError:
    """An error of the runtime, as ORS says it."""
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
