"""Requests to an OpenID provider: bounded in time and size, without redirections, and to no place that it chose for us.

A discovery document names the addresses of the other requests. A provider on this machine may name its own address
only. For others, they need https, and a host that is not the issuer's may lead only to the public internet, as that of
a sandbox: otherwise a document could aim the hub's requests, one of which has its secret, at a service that only the
hub can reach.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import socket
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from ludus.registry.types.errors import HubUnavailable
from ludus.sandbox.core.allowlist import is_public
from ludus.sandbox.network.proxy import is_own
from ludus.server.serving.settings import is_loopback

SECONDS: Final = 10.0
"""How long a request may take, with its answer."""

MOST_BYTES: Final = 256 * 1024
"""The largest answer."""


class ProviderFailed(HubUnavailable):
    """The OpenID provider does not answer, or with something that it may not answer."""


class Fetcher:
    """Sends requests to one provider.

    Args:
        issuer: the provider's address.
    """

    def __init__(self, issuer: str) -> None:
        self._issuer = urlsplit(issuer)

    def check_address(self, name: str, value: object) -> str:
        """Return an address of the provider's discovery document.

        Args:
            name: the field.
            value: what it has.

        Raises:
            ProviderFailed: it is no address, or one that the hub does not visit.
        """
        try:
            parts = urlsplit(value) if isinstance(value, str) and len(value) <= 2000 else urlsplit("")
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            parts, host = urlsplit(""), ""
        if not host or parts.username or parts.fragment or not str(value).isprintable() or " " in str(value):
            raise ProviderFailed(f"the OpenID provider's {name} is missing or no address")
        issuer = self._issuer
        if issuer.scheme == "http":
            if (parts.scheme, parts.netloc) != (issuer.scheme, issuer.netloc):
                raise ProviderFailed(f"the OpenID provider's {name} is at another place than the provider")
        elif parts.scheme != "https":
            raise ProviderFailed(f"the OpenID provider's {name} has no https")
        elif host != issuer.hostname and _is_inside(host):
            raise ProviderFailed(f"the OpenID provider's {name} leads into a private network")
        return str(value)

    async def get(self, address: str) -> dict[str, Any]:
        """Return a JSON object.

        Raises:
            ProviderFailed: there is none.
        """
        return (await self._request("GET", address, {}, None))[1]

    async def post(
        self, address: str, form: dict[str, str], headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:  # fmt: skip
        """Send a form, and return the status of the answer and its JSON object. Refusals (400, 401) are answers.

        Raises:
            ProviderFailed: there is no answer that is one.
        """
        return await self._request("POST", address, headers, form)

    async def _request(
        self, method: str, address: str, headers: dict[str, str], form: dict[str, str] | None
    ) -> tuple[int, dict[str, Any]]:
        connector = aiohttp.TCPConnector(resolver=_Resolver(self._issuer.hostname or ""), force_close=True)
        headers = {"accept": "application/json", "accept-encoding": "identity", **headers}
        try:
            async with (
                asyncio.timeout(SECONDS),
                aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
                session.request(method, address, data=form, headers=headers, allow_redirects=False) as answer,
            ):
                body = await _read(answer)
        except TimeoutError:
            raise ProviderFailed(f"the OpenID provider did not answer within {SECONDS:.0f} s; try again") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = str(error).partition("\n")[0][:200]
            raise ProviderFailed(f"the OpenID provider cannot be reached: {cause}; try again") from None
        if answer.status != 200 and not (form is not None and answer.status in (400, 401)):
            raise ProviderFailed(f"the OpenID provider answered with HTTP {answer.status}; try again")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ProviderFailed("the OpenID provider answered with something else than a JSON object")
        return answer.status, found


class _Resolver(AbstractResolver):
    """Finds addresses of hosts, and refuses those of private networks except for the issuer's own host."""

    def __init__(self, issuer_host: str) -> None:
        self._issuer_host = issuer_host
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:  # fmt: skip
        found = await self._inner.resolve(host, port, family)
        if host != self._issuer_host and any(_is_inside(one["host"]) for one in found):
            raise OSError(errno.EPERM, f"{host} leads into a private network")
        return found

    async def close(self) -> None:
        await self._inner.close()


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise ProviderFailed(f"the OpenID provider's answer is larger than {MOST_BYTES:,} bytes")
    return bytes(body)


def _is_inside(host: str) -> bool:
    """Return whether a host is an address that is not on the public internet, or this machine by address or name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return is_loopback(host)
    return not is_public(address) or is_own(address)
