"""Which model endpoints a hub calls, so that a run cannot make it reach what it reaches itself.

A name is looked up for each connection, and the connection goes to an address that was checked, so an answer of the
name server that changes in between has no effect. Redirects are not followed.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

from ludus.hub.verified.settings import ANY
from ludus.protocol.errors import InvalidParams
from ludus.sandbox.core.allowlist import Allowlist, Destination, is_public, parse_destination
from ludus.sandbox.network.proxy import is_own, look_up

if TYPE_CHECKING:
    from ludus.hub.verified.settings import VerifiedSettings

HTTPS: Final = 443


class ModelHosts:
    """The hosts that the operator allows.

    Args:
        settings: the settings.
        own_url: the hub's public address, which is no model endpoint; None if it has none.
    """

    def __init__(self, settings: VerifiedSettings, own_url: str | None) -> None:
        self._any = ANY in settings.hosts
        self._public = Allowlist([host for host in settings.hosts if host != ANY])
        self._private = Allowlist([host for host in settings.private_hosts if host != ANY])
        self._own = (urlsplit(own_url).hostname or "").lower() if own_url else ""

    def check_url(self, base_url: str) -> str:
        """Check the base URL of a model endpoint, and return its host with the port, if that is not the usual one.

        Raises:
            InvalidParams: it is no address of http, or its host is not allowed.
        """
        try:
            parts = urlsplit(base_url)
            port = parts.port or (HTTPS if parts.scheme == "https" else 80)
            host = parts.hostname or ""
            wanted = parse_destination(f"[{host}]" if ":" in host else host, port)
        except ValueError:
            raise InvalidParams("base_url is not the address of a model endpoint, such as https://host/v1") from None
        clean = not (parts.username or parts.password or parts.query or parts.fragment) and base_url.isascii()
        if parts.scheme not in ("http", "https") or not clean or any(letter <= " " for letter in base_url):
            raise InvalidParams("base_url is not an address such as https://host/v1, without a user, query or fragment")
        shown = wanted.host if port == HTTPS else f"{wanted.host}:{port}"
        if self._private.names(wanted):
            return shown
        if parts.scheme != "https":
            raise InvalidParams(f"this hub calls {shown} by https only")
        if not self._is_named(wanted) or wanted.host == self._own:
            raise InvalidParams(f"this hub does not call {shown}; its operator chooses the hosts of model endpoints")
        if wanted.address is not None and not self._may_call(wanted, wanted.address):
            raise InvalidParams(f"this hub does not call {shown}, which is not on the public internet")
        return shown

    def resolver(self) -> AbstractResolver:
        """Return the resolver for connections to model endpoints, which finds allowed addresses only."""
        return _Resolver(self)

    async def addresses(self, host: str, port: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        """Return the addresses of a host that may be called.

        Raises:
            OSError: the name is not known, or it has no such address.
        """
        wanted = parse_destination(host, port)
        found = [one for one in await look_up(host) if self._may_call(wanted, one)]
        if not found:
            raise OSError(f"{host} has no address that this hub calls")
        return found

    def _is_named(self, wanted: Destination) -> bool:
        return (self._any and wanted.port == HTTPS) or self._public.names(wanted)

    def _may_call(self, wanted: Destination, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        if self._private.names(wanted) or self._private.holds(address, wanted.port):
            return True
        return self._is_named(wanted) and is_public(address) and not is_own(address)


class _Resolver(AbstractResolver):
    def __init__(self, hosts: ModelHosts) -> None:
        self._hosts = hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=str(one), port=port, proto=0, flags=socket.AI_NUMERICHOST,
                family=socket.AF_INET6 if one.version == 6 else socket.AF_INET,
            )
            for one in await self._hosts.addresses(host, port)
        ]  # fmt: skip

    async def close(self) -> None:
        return None
