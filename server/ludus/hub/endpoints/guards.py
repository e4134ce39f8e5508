"""Who may use which endpoint.

A private package's endpoint is absent for all who may not read the package: every request asks here before anything is
looked up. Requests to an agent's endpoint and health checks come without a token. For a private package, the capability
in the URL of an agent's endpoint is then verified here, because the answer of the endpoint would show that it exists.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from ludus.hub.access.viewers import STRANGER, Viewer
from ludus.hub.core.peers import FORWARDED
from ludus.hub.endpoints.passes import capability_key
from ludus.protocol.errors import CapabilityRefused, Forbidden
from ludus.registry.types.errors import PackageNotFound
from ludus.registry.types.people import HubScope
from ludus.server.auth import CapabilitySigner
from ludus.server.workers.routing import Place, place_of

if TYPE_CHECKING:
    from ludus.hub.endpoints.releases import Address
    from ludus.hub.parts.hub import Hub

FRESH_SECONDS: Final = 1.0
"""How long the rights of a viewer at a package are not looked up again."""

OPEN_PAGES: Final = frozenset({"/health", "/ready"})
"""The pages of an endpoint that need no token."""

_KNOWN: Final = 4096


class Guards:
    """Checks the senders of requests to endpoints. All methods block, and any thread may call them.

    Args:
        hub: the hub.

    Attributes:
        runner: the hub's own principal.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.runner = hub.runner
        self._rights: dict[tuple[Viewer, HubScope, str, str], tuple[bool | PackageNotFound, float]] = {}

    def admit(self, request: Request, address: Address, secret: str | None) -> Viewer | None:
        """Return the sender of a request to an endpoint; None for one that needs no token.

        Args:
            request: the request.
            address: the endpoint.
            secret: what the hub shares with the processes of this package; None if there are none yet.

        Raises:
            Unauthenticated: the request needs a token, and has no valid one.
            Forbidden: the token lacks the scope `run`, or is limited to other packages.
            PackageNotFound: the sender sees no such package.
        """
        place, named = place_of(address.rest)
        if place is Place.PLAY or address.rest in OPEN_PAGES:
            try:
                self._check(STRANGER, address)
            except PackageNotFound:
                if not (place is Place.PLAY and _is_valid(named, secret)):
                    self._check(self._hub.authenticator.viewer(request, counted=False), address)
            return None
        viewer = self._hub.authenticator.principal(request, counted=False)
        publishes = self._check(viewer, address)
        viewer.require(HubScope.RUN, f"{address.owner}/{address.name}")
        return viewer.at_endpoint(publishes=publishes)

    def stays(self, request: Request) -> bool:
        """Return whether no other process may answer a request: the hub's own, and one that such a process passed on.

        This does not block.
        """
        sent = request.headers
        return FORWARDED in sent or self.runner.sent(request) or self._hub.authenticator.has_lent(sent)

    def admit_to_logs(self, request: Request, address: Address) -> None:
        """Check that the sender of a request may read the log of an endpoint.

        Raises:
            Unauthenticated: there is no valid token.
            Forbidden: the sender may not publish the package.
            PackageNotFound: the sender sees no such package.
        """
        viewer = self._hub.authenticator.principal(request, counted=False)
        publishes = self._check(viewer, address)
        viewer.require(HubScope.RUN, f"{address.owner}/{address.name}")
        if not (viewer.is_admin or publishes):
            raise Forbidden(f"only the owners of {address.owner}/{address.name} may read its logs")

    def _check(self, viewer: Viewer, address: Address) -> bool:
        """Return whether a viewer may publish a package.

        Raises:
            PackageNotFound: the viewer sees no such package.
        """
        key = viewer, HubScope.RUN, address.owner, address.name
        found, until = self._rights.get(key, (None, 0.0))
        now = time.monotonic()
        if found is None or until <= now:
            try:
                found = self._hub.catalog_of(viewer, HubScope.RUN).publishes(address.owner, address.name)
            except PackageNotFound as error:
                found = error
            if len(self._rights) >= _KNOWN:
                self._rights.clear()
            self._rights[key] = found, now + FRESH_SECONDS
        if isinstance(found, PackageNotFound):
            raise PackageNotFound(found.message)
        return found


def _is_valid(capability: str, secret: str | None) -> bool:
    """Return whether a capability was signed by a process with this secret."""
    if secret is None:
        return False
    try:
        CapabilitySigner(capability_key(secret)).verify(capability)
    except CapabilityRefused:
        return False
    return True
