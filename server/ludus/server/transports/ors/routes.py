"""The paths of ORS and their handlers, as one route of the application."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from starlette.routing import BaseRoute, Match, NoMatchFound

from ludus.common.incidents import new_incident
from ludus.protocol.errors import InternalError, LudusError
from ludus.server.transports.ors import calls, discovery, sessions
from ludus.server.transports.ors.request import Disconnected, HttpError, OrsRequest, Receive, Send, http_error
from ludus.server.transports.ors.server import OrsServer

if TYPE_CHECKING:
    from ludus.server.transports import TransportContext

Handler = Callable[[OrsServer, OrsRequest], Awaitable[None]]
"""Serves one request, and raises `HttpError` or `LudusError` for one that it refuses."""

ROOT_ROUTES: Final[Mapping[str, tuple[str, Handler]]] = MappingProxyType(
    {
        "version": ("GET", discovery.show_version),
        "list_environments": ("GET", discovery.list_environments),
        "create_session": ("POST", sessions.create_session),
        "create": ("POST", sessions.create),
        "ping": ("POST", sessions.ping),
        "delete": ("POST", sessions.delete),
        "delete_session": ("POST", sessions.delete),
    }
)
"""Routes without an environment."""

ENVIRONMENT_ROUTES: Final[Mapping[str, tuple[str, Handler]]] = MappingProxyType(
    {
        "tools": ("GET", discovery.list_tools),
        "splits": ("GET", discovery.list_splits),
        "tasks": ("POST", discovery.list_tasks),
        "num_tasks": ("POST", discovery.num_tasks),
        "task": ("POST", discovery.get_task),
        "get_task": ("POST", discovery.get_task),
        "task_range": ("POST", discovery.get_task_range),
        "get_task_range": ("POST", discovery.get_task_range),
        "prompt": ("GET", sessions.prompt),
        "messages": ("GET", sessions.messages),
        "task_tools": ("GET", sessions.task_tools),
        "call": ("POST", calls.call),
        "score_group": ("POST", calls.score_group),
    }
)
"""Routes of an environment: `/{env}/tools`, or bare, `/tools`."""

logger = logging.getLogger("ludus.server.transports.ors")


class OrsRoute(BaseRoute):
    """All of ORS as one route: two dictionary look-ups instead of a regular expression for each path."""

    direct = True
    """The application passes requests directly to this route, without FastAPI's middleware."""

    def __init__(self, context: TransportContext) -> None:
        self.ors = OrsServer(context)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Go on with the sessions of an earlier process while the application serves."""
        for owner, key, (episode, *_) in self.ors.host.starts:
            self.ors.sessions.restore(owner, key, episode)
        yield

    def matches(self, scope: Any) -> tuple[Match, Any]:
        """Match ORS's paths with any method; `handle` answers a wrong method with 405."""
        if scope["type"] != "http":
            return Match.NONE, {}
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "")
        if root_path and path.startswith(root_path):
            path = path[len(root_path) :]
        head, _, second = path[1:].partition("/")
        if second:
            route = ENVIRONMENT_ROUTES.get(second)
            if route is None:
                return Match.NONE, {}
            # The handler refuses an unknown name after it checks the token, so that names are not revealed without one.
            environment = self.ors.environment(head)
            return Match.FULL, {"ors": (*route, environment) if environment else ("", _refuse_environment, head)}
        route = ENVIRONMENT_ROUTES.get(head) or ROOT_ROUTES.get(head)
        return (Match.FULL, {"ors": (*route, "")}) if route is not None else (Match.NONE, {})

    async def handle(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a matched request, and answer every error in ORS's form."""
        method, handler, environment = scope["ors"]
        request = OrsRequest(scope, receive, send, environment, self.ors.limits.body_bytes)
        try:
            if method and scope["method"] != method:
                raise HttpError(405, "Method Not Allowed", {"Allow": method})
            await handler(self.ors, request)
        except HttpError as error:
            await request.refuse(error)
        except LudusError as error:
            await request.refuse(http_error(error))
        except Disconnected:
            pass
        except Exception:
            incident = new_incident()
            logger.exception(
                "%s %s failed (incident %s)", scope["method"], scope["path"], incident, extra={"incident": incident}
            )
            fault = InternalError(f"the server's log has the cause under incident {incident}", incident=incident)
            await request.refuse(HttpError(500, f"InternalError: {fault.message}", error=fault))

    def url_path_for(self, name: str, /, **path_params: Any) -> NoReturn:
        """Raise `NoMatchFound`, because ORS's paths have no names.

        Raises:
            NoMatchFound: always.
        """
        raise NoMatchFound(name, path_params)


async def _refuse_environment(ors: OrsServer, request: OrsRequest) -> None:
    """Answer a request about an environment that is not served.

    Raises:
        Unauthenticated: the request has no valid token; the answer is the same for an environment that is served.
        HttpError: 404, with the text of the published servers.
    """
    ors.principal(request)
    raise HttpError(404, "Not Found")


def routes(context: TransportContext) -> list[BaseRoute]:
    """Return ORS's routes, which are one `OrsRoute`."""
    return [OrsRoute(context)]
