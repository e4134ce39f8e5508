"""Adds the endpoints to the hub's application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Mount

from ludus.hub.endpoints.hosts import EndpointHosts
from ludus.hub.endpoints.pool import Endpoints
from ludus.hub.endpoints.proxy import EndpointRoutes, may_read_logs
from ludus.hub.endpoints.releases import Release, release_of

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub

FOLDER: Final = "environments"
"""The folder of virtual environments in the hub's data folder."""


def mount_endpoints(app: FastAPI, hub: Hub) -> None:
    """Add the routes, and stop all endpoints when the application ends.

    The state of the application gets `endpoints`, and `channels`: the function that finds the gateway of an upgrade.
    """

    def find(owner: str, name: str, version: str | None) -> Release:
        return release_of(hub.registry.version(owner, name, version))

    endpoints = Endpoints(find, hub.settings.data / FOLDER, hub.settings.endpoints, hub.blobs.local)
    domain = hub.settings.endpoints.domain
    routes = EndpointRoutes(
        endpoints,
        hub.authenticator.principal,
        may_read_logs(hub.registry.owners),
        hub.settings.origins,
        domain,
        hub.runner,
    )
    app.state.endpoints, app.state.channels = endpoints, routes.find_channel
    app.router.routes.append(Mount("/e", app=routes))
    app.add_middleware(EndpointHosts, domain=domain)
    hub.at_end(endpoints.close)
