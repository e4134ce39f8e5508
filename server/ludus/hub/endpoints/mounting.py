"""Adds the endpoints to the hub's application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.routing import Mount

from ludus.hub.access.viewers import Viewer
from ludus.hub.endpoints.guards import Guards
from ludus.hub.endpoints.hosts import EndpointHosts
from ludus.hub.endpoints.pool import Endpoints
from ludus.hub.endpoints.proxy import EndpointRoutes
from ludus.hub.endpoints.releases import Release, release_of
from ludus.hub.endpoints.upgrades import FindGateway

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ludus.hub.parts.hub import Hub

FOLDER: Final = "environments"
"""The folder of virtual environments in the hub's data folder."""


@dataclass(frozen=True, slots=True)
class EndpointParts:
    """The endpoints of a hub, as its other parts use them."""

    pool: Endpoints
    channels: FindGateway
    """Finds the gateway of an upgrade to a channel."""


def mount_endpoints(app: FastAPI, hub: Hub) -> EndpointParts:
    """Add the routes, and stop all endpoints when the application ends."""
    everything = hub.catalog_of(Viewer.of_administrator("hub"))

    def find(owner: str, name: str, version: str | None) -> Release:
        return release_of(everything.version(owner, name, version))

    endpoints = Endpoints(
        find, hub.settings.data / FOLDER, hub.settings.endpoints, hub.blobs.local, hub.peers, hub.block_watch
    )
    domain = hub.settings.endpoints.domain
    routes = EndpointRoutes(endpoints, Guards(hub), hub.settings.origins, domain)
    app.router.routes.append(Mount("/e", app=routes))
    app.add_middleware(EndpointHosts, domain=domain)
    hub.block_watch.on_change.append(endpoints.apply_blocks)
    hub.at_end(endpoints.close)
    return EndpointParts(endpoints, routes.find_channel)
