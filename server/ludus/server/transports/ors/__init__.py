"""The Open Reward Standard over HTTP and server-sent events, as `ors-sdk` and `openreward` speak it.

Where the published text and the two SDKs disagree, the server accepts all forms: both spellings of task routes, bare
paths, secrets in body and header, events or JSON from `/create_session`. Extensions are optional and at the root of
messages: `X-Seed` (or `seed` in the body) of `/create` seeds the episode.

In this standard every reply holds rewards, so a token needs the scopes `episodes:run` and `rewards:read`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from starlette.routing import BaseRoute, Match, NoMatchFound

from ludus.server.transports.ors import calls, discovery, lifecycle
from ludus.server.transports.ors.request import HttpError, OrsRequest, Receive, Send
from ludus.server.transports.ors.wire import Handler, Ors

if TYPE_CHECKING:
    from ludus.server.transports import WireContext

ROOT_ROUTES: Final[Mapping[str, tuple[str, Handler]]] = MappingProxyType(
    {
        "version": ("GET", discovery.show_version),
        "list_environments": ("GET", discovery.list_environments),
        "create_session": ("POST", lifecycle.create_session),
        "create": ("POST", lifecycle.create),
        "ping": ("POST", lifecycle.ping),
        "delete": ("POST", lifecycle.delete),
        "delete_session": ("POST", lifecycle.delete),
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
        "prompt": ("GET", lifecycle.prompt),
        "messages": ("GET", lifecycle.messages),
        "task_tools": ("GET", lifecycle.task_tools),
        "call": ("POST", calls.call),
        "score_group": ("POST", calls.score_group),
    }
)
"""Routes of an environment: `/{env}/tools`, or bare, `/tools`."""


async def _refuse_environment(ors: Ors, x: OrsRequest, environment: str) -> None:
    """Answer a request about an environment that is not served.

    Raises:
        Unauthenticated: the request has no valid token; the answer is the same for an environment that is served.
        HttpError: 404, with the text of the published servers.
    """
    ors.principal(x)
    raise HttpError(404, "Not Found")


class OrsRoute(BaseRoute):
    """All of ORS as one route: two dictionary look-ups instead of a regular expression for each path."""

    answers_faults = True
    """Handlers answer all their errors themselves, so the application may skip FastAPI's middleware."""

    def __init__(self, ors: Ors) -> None:
        self.ors = ors

    def matches(self, scope: Any) -> tuple[Match, Any]:
        """Match ORS's paths with any method; `handle` answers a wrong method with 405."""
        if scope["type"] != "http":
            return Match.NONE, {}
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "")
        if root_path and path.startswith(root_path):
            path = path[len(root_path) :]
        first, _, second = path[1:].partition("/")
        if second:
            found = ENVIRONMENT_ROUTES.get(second)
            if found is None:
                return Match.NONE, {}
            # The handler refuses an unknown name after it checks the token, so that names are not revealed without one.
            environment = self.ors.environment(first)
            return Match.FULL, {"ors": (*found, environment) if environment else ("", _refuse_environment, first)}
        found = ENVIRONMENT_ROUTES.get(first) or ROOT_ROUTES.get(first)
        return (Match.FULL, {"ors": (*found, "")}) if found is not None else (Match.NONE, {})

    async def handle(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a matched request."""
        method, handler, environment = scope["ors"]
        x = OrsRequest(scope, receive, send)
        if scope["method"] != method and method:
            await x.refuse(HttpError(405, "Method Not Allowed", {"Allow": method}))
            return
        await self.ors.serve(handler, x, environment)

    def url_path_for(self, name: str, /, **path_params: Any) -> NoReturn:
        """Raise `NoMatchFound`, because ORS's paths have no names.

        Raises:
            NoMatchFound: always.
        """
        raise NoMatchFound(name, path_params)


def routes(context: WireContext) -> list[BaseRoute]:
    """Return ORS's routes, which are one `OrsRoute`."""
    return [OrsRoute(Ors(context))]
