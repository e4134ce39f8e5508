"""Endpoints at host names of their own: `NAME.OWNER.DOMAIN` and, for one version, `1-2-0.NAME.OWNER.DOMAIN`.

Clients of ORS ask at the root of a host and ignore a path in their base URL, so they cannot use `/e/OWNER/NAME`. A
request for such a host name is served as one for that path. A name that holds a dot has no host name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ludus.common.hub import OWNER_PATTERN

PlayAddress = Callable[[Request, str, str, str], str | None]
"""Returns where a version runs, for requests from the hub itself, given a request, owner, name and version; None if it
runs nowhere."""

_LABELS: Final = re.compile(
    rf"(?:(?P<version>[0-9][0-9a-z-]{{0,59}})\.)?(?P<name>[a-z0-9](?:[a-z0-9_-]{{0,58}}[a-z0-9])?)\.(?P<owner>{OWNER_PATTERN})"
)


def own_endpoint(request: Request, owner: str, name: str, version: str) -> str | None:
    """Return the address of a version's endpoint at this hub; None where the server does not know its own port."""
    server = request.scope.get("server")
    if server is None or server[1] is None:
        return None
    host = f"[{server[0]}]" if ":" in server[0] else server[0]
    return f"http://{host}:{server[1]}/e/{owner}/{name}@{version}"


def path_of_host(host: bytes | None, domain: str) -> str | None:
    """Return the path of the endpoint that a `Host` header names; None if it names none.

    Args:
        host: the header, with or without a port.
        domain: the domain below which endpoints have their names.
    """
    if host is None or domain.encode() not in host.lower():
        return None
    name = host.decode("latin-1").lower().rpartition(":")[0] if b":" in host else host.decode("latin-1").lower()
    found = _LABELS.fullmatch(name.removesuffix(f".{domain}")) if name.endswith(f".{domain}") else None
    if found is None:
        return None
    version = found["version"]
    pin = f"@{version.replace('-', '.')}" if version is not None else ""
    return f"/e/{found['owner']}/{found['name']}{pin}"


def host_address(hub_url: str, domain: str, owner: str, name: str, version: str | None = None) -> str | None:
    """Return the address of an endpoint at its own host name; None if it has none.

    Args:
        hub_url: the address of the hub.
        domain: the domain below which endpoints have their names.
        owner, name: the package.
        version: the version; None for the newest.
    """
    parts = urlsplit(hub_url)
    port = f":{parts.port}" if parts.port is not None else ""
    labels = f"{version.replace('.', '-')}.{name}.{owner}" if version is not None else f"{name}.{owner}"
    pin = f"@{version}" if version is not None else ""
    if path_of_host(f"{labels}.{domain}".encode(), domain) != f"/e/{owner}/{name}{pin}":
        return None
    return f"{parts.scheme}://{labels}.{domain}{port}"


class EndpointHosts:
    """ASGI middleware that serves requests for host names of endpoints as requests for their paths.

    Args:
        app: the hub's application.
        domain: the domain below which endpoints have their names.
    """

    def __init__(self, app: ASGIApp, domain: str) -> None:
        self._app = app
        self._domain = domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            host = next((value for name, value in scope["headers"] if name == b"host"), None)
            prefix = path_of_host(host, self._domain)
            if prefix is not None:
                raw = prefix.encode() + (scope.get("raw_path") or scope["path"].encode())
                scope = {**scope, "path": prefix + scope["path"], "raw_path": raw}
        await self._app(scope, receive, send)
