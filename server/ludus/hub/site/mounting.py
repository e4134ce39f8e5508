"""Adds the site to the hub's application: its routes, and error pages in place of JSON for browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ludus.hub.api.device_sign_ins import PAGE
from ludus.hub.site.account_pages import AccountPages
from ludus.hub.site.badges import Badges
from ludus.hub.site.board_pages import BoardPages
from ludus.hub.site.catalog_pages import CatalogPages
from ludus.hub.site.code_pages import CodePages
from ludus.hub.site.device_pages import DevicePages
from ludus.hub.site.environment_pages import EnvironmentPages
from ludus.hub.site.openid_pages import CALLBACK, OpenIdPages
from ludus.hub.site.organization_pages import OWN, OrganizationPages
from ludus.hub.site.play_pages import PlayPages
from ludus.hub.site.plays import Plays
from ludus.hub.site.rendering import Renderer
from ludus.hub.site.rollout_pages import RolloutPages
from ludus.hub.site.rollouts import Rollouts
from ludus.hub.site.sign_in_pages import LONGEST_NEXT, SignInPages
from ludus.hub.site.site import Site, see
from ludus.protocol.errors import EpisodeFailed, LudusError, MethodNotFound, NotFound, Unauthenticated

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.endpoints.hosts import PlayAddress
    from ludus.hub.parts.hub import Hub
    from ludus.hub.results.mounting import ResultParts

ROLLOUTS: Final = "rollouts"
"""The folder in the hub's data folder in which older versions have kept rollouts."""

PACKAGE: Final = "/{owner}/{name}"
"""The path of a package."""

Handler = Callable[[Request, Any], Awaitable[Response]]

ABSENT: Final = "There is nothing at this address, or it is not yours to see. Check the spelling, or search for it."
"""The message for what is absent and for what is private, so that a stranger cannot tell which of the two it is."""

FAULT: Final = "The hub failed. Its log has the cause; try again in a while."
"""The message for a fault of the hub."""

_MACHINES: Final = ("/api/", "/index/", "/files/", "/e/", "/v0.1/", "/.well-known/", "/health", "/metrics")
"""Paths whose errors are always JSON."""


def mount_site(app: FastAPI, hub: Hub, results: ResultParts, play_address: PlayAddress) -> None:
    """Add the site. Its routes come after all others, because `/{owner}/{name}` matches many paths.

    Args:
        app: the application.
        hub: the hub.
        results: the results that boards and pages of environments show.
        play_address: where versions run.
    """
    renderer = Renderer()
    site = Site(hub, renderer, play_address)
    catalog, environments, sign_in = CatalogPages(site), EnvironmentPages(site, results.store), SignInPages(site)

    def static_file(request: Request) -> Response:
        found = renderer.file(request)
        if found is None:
            raise NotFound("there is no such file")
        return found

    version = f"{PACKAGE}/versions/{{version}}"
    app.router.routes += [
        Route("/static/{digest}/{name}", static_file),
        Route("/", catalog.catalog),
        Route("/docs", catalog.docs),
        Route("/login", sign_in.form),
        Route("/login", sign_in.sign_in, methods=["POST"]),
        Route("/logout", sign_in.sign_out, methods=["POST"]),
        Route("/register", sign_in.registration),
        Route("/register", sign_in.register, methods=["POST"]),
        *_openid_routes(OpenIdPages(site)),
        *_account_routes(AccountPages(site)),
        *_device_routes(DevicePages(site)),
        *_organization_routes(OrganizationPages(site)),
        Route(PACKAGE, environments.environment),
        Route(version, environments.environment),
        Route(f"{version}/card", environments.card),
        Route(f"{version}/trainers", environments.trainers),
        *_code_routes(version, CodePages(site), Badges(site)),
    ]
    _add_play_and_rollouts(app, site, results)
    _add_results(app, site, results)
    _add_error_pages(app, site)


def _code_routes(version: str, pages: CodePages, badges: Badges) -> list[Route]:
    return [
        Route(f"{PACKAGE}/badge.svg", badges.badge),
        Route(f"{version}/badge.svg", badges.badge),
        Route(f"{version}/diff", pages.difference),
        Route(f"{version}/diff/card", pages.card),
        Route(f"{version}/diff/file", pages.file),
        Route(f"{version}/files", pages.files),
        Route(f"{version}/files/text", pages.text),
    ]


def _openid_routes(pages: OpenIdPages) -> list[Route]:
    return [
        Route("/login/openid", pages.sign_in, methods=["POST"]),
        Route(CALLBACK, pages.callback),
        Route("/register/openid", pages.naming),
        Route("/register/openid", pages.register, methods=["POST"]),
        Route("/account/confirm", pages.confirm, methods=["POST"]),
        Route("/account/identities", pages.link, methods=["POST"]),
        Route("/account/identities/{identity:int}/unlink", pages.unlink, methods=["POST"]),
    ]


def _account_routes(pages: AccountPages) -> list[Route]:
    access = f"{PACKAGE}/access"
    return [
        Route("/account", pages.account),
        Route("/account/password", pages.change_password, methods=["POST"]),
        Route("/account/sessions/end", pages.sign_out_everywhere, methods=["POST"]),
        Route("/account/export", pages.export),
        Route("/account/delete", pages.delete, methods=["POST"]),
        Route("/account/tokens", pages.tokens),
        Route("/account/tokens", pages.create_token, methods=["POST"]),
        Route("/account/tokens/{token:int}/revoke", pages.revoke_token, methods=["POST"]),
        Route("/account/audit", pages.audit),
        Route("/account/audit/all", pages.audit_of_all),
        Route(access, pages.access),
        Route(access, pages.change_access, methods=["POST"]),
    ]


def _device_routes(pages: DevicePages) -> list[Route]:
    return [Route(PAGE, pages.form), Route(PAGE, pages.enter, methods=["POST"])]


def _organization_routes(pages: OrganizationPages) -> list[Route]:
    one = "/orgs/{organization}"
    return [
        Route(OWN, pages.own),
        Route(OWN, pages.change_own, methods=["POST"]),
        Route(one, pages.organization),
        Route(one, pages.change, methods=["POST"]),
        Route(f"{one}/audit", pages.audit),
    ]


def _add_play_and_rollouts(app: FastAPI, site: Site, results: ResultParts) -> None:
    """Add the pages to play and to look at rollouts, and stop all plays when the application ends."""
    plays, rollouts = Plays(process=site.hub.peers.own), Rollouts(site.hub.database)
    play, viewer = PlayPages(site, plays, rollouts), RolloutPages(site, rollouts, results.rollouts)
    start, one = "/{owner}/{name}/play", "/{owner}/{name}/play/{play}"
    file, line = "/rollouts/{file}", "/rollouts/{file}/{line:int}"
    of_run, line_of_run = "/runs/{run}/rollouts", "/runs/{run}/rollouts/{line:int}"
    routes = [
        Route("/rollouts", viewer.overview),
        Route("/rollouts", viewer.upload, methods=["POST"]),
        Route("/rollouts/compare", viewer.compare),
        Route(file, viewer.file),
        Route(f"{file}/remove", viewer.remove, methods=["POST"]),
        Route(f"{file}/download", viewer.download),
        Route(line, viewer.episode),
        Route(f"{line}/images/{{image:int}}", viewer.image),
        Route(of_run, viewer.file),
        Route(line_of_run, viewer.episode),
        Route(f"{line_of_run}/images/{{image:int}}", viewer.image),
        Route(start, play.choose),
        Route(start, play.start, methods=["POST"]),
        Route(one, play.here(play.play)),
        Route(one, play.here(play.act), methods=["POST"]),
        Route(f"{one}/images/{{image:int}}", play.here(play.image)),
        Route(f"{one}/demonstration", play.here(play.demonstration)),
        Route(f"{one}/keep", play.here(play.keep), methods=["POST"]),
    ]
    before = next(index for index, route in enumerate(app.router.routes) if getattr(route, "path", "") == PACKAGE)
    app.router.routes[before:before] = routes

    async def take_over() -> None:
        await asyncio.to_thread(rollouts.take_over, site.hub.settings.data / ROLLOUTS)

    site.hub.at_start(take_over)
    site.hub.at_end(plays.close)
    site.hub.people.data.add("rollouts", rollouts.export, rollouts.delete)


def _add_results(app: FastAPI, site: Site, results: ResultParts) -> None:
    """Add the pages of boards and runs."""
    boards = BoardPages(site, results.store, results.rollouts)
    app.router.routes.append(Route(f"{PACKAGE}/versions/{{version}}/board", boards.board))
    before = next(index for index, route in enumerate(app.router.routes) if getattr(route, "path", "") == PACKAGE)
    app.router.routes[before:before] = [
        Route("/runs/{run}", boards.run),
        Route("/results/log", boards.log),
    ]


def _add_error_pages(app: FastAPI, site: Site) -> None:
    """Answer browsers with pages where the API answers with JSON."""
    for kind in (LudusError, RequestValidationError, HTTPException, Exception):
        handler: Any = app.exception_handlers[kind]
        app.add_exception_handler(kind, _for_browsers(handler, site))


def _for_browsers(handler: Handler, site: Site) -> Handler:
    async def answer(request: Request, error: Any) -> Response:
        response = await handler(request, error)
        if not wants_page(request):
            return response
        if isinstance(error, Unauthenticated) and request.method == "GET":
            query = f"?{request.url.query}" if request.url.query else ""
            wanted = (f"{request.url.path}{query}", request.url.path, "/")
            following = next(address for address in wanted if len(address) <= LONGEST_NEXT)
            return see("/login?" + urlencode({"next": following}))
        page = error_page(site, request, response.status_code, error)
        if (moment := response.headers.get("retry-after")) is not None:
            page.headers["retry-after"] = moment
        return page

    return answer


def wants_page(request: Request) -> bool:
    """Return whether a request is a browser's, for a page."""
    is_machine = request.url.path.startswith(_MACHINES)
    return not is_machine and "text/html" in request.headers.get("accept", "")


def error_page(site: Site, request: Request, status: int, error: Exception) -> Response:
    """Return the page of an error, which says no more than a stranger may know."""
    if isinstance(error, EpisodeFailed):
        title, message = "This episode is lost", error.message
    elif isinstance(error, MethodNotFound) or status == 405:
        title, message = "This is not possible here", "The page does not take this kind of request. Go back to it."
    elif status == 404:
        title, message = "Nothing here", ABSENT
    elif status >= 500 and not isinstance(error, LudusError):
        title, message = "Something broke", FAULT
    elif isinstance(error, LudusError):
        title, message = ("Not now" if status >= 500 else "This did not work"), error.message
    else:
        title, message = "This did not work", "The request is not one that this page takes."
    return site.page(request, "error.html", status=status, title=title, message=message)
