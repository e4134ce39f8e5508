"""Adds the endpoints to the hub's application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Mount

from ludus.hub.endpoints.guards import Guards
from ludus.hub.endpoints.hosts import EndpointHosts
from ludus.hub.endpoints.pool import Endpoints
from ludus.hub.endpoints.proxy import EndpointRoutes
from ludus.hub.endpoints.releases import Release, release_of
from ludus.hub.people.viewers import Viewer

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.hub import Hub

FOLDER: Final = "environments"
"""The folder of virtual environments in the hub's data folder."""


def mount_endpoints(app: FastAPI, hub: Hub) -> None:
    """Add the routes, and stop all endpoints when the application ends.

    The state of the application gets `endpoints`, and `channels`: the function that finds the gateway of an upgrade.
    """

    everything = hub.catalog_of(Viewer.of_administrator("hub"))

    def find(owner: str, name: str, version: str | None) -> Release:
        return release_of(everything.version(owner, name, version))

    endpoints = Endpoints(
        find, hub.settings.data / FOLDER, hub.settings.endpoints, hub.blobs.local, hub.peers, hub.block_watch
    )
    domain = hub.settings.endpoints.domain
    routes = EndpointRoutes(endpoints, Guards(hub), hub.settings.origins, domain)
    app.state.endpoints, app.state.channels = endpoints, routes.find_channel
    app.router.routes.append(Mount("/e", app=routes))
    app.add_middleware(EndpointHosts, domain=domain)
    hub.block_watch.on_change.append(endpoints.apply_blocks)
    hub.at_end(endpoints.close)
