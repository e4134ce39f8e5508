"""The names of a hub's environments in MCP's formats.

A hub at `https://hub.example.org` is the domain `hub.example.org`. Its package `alice/my-env` is the server
`org.example.hub/alice.my-env` (reverse-DNS with one slash, as `server.json` demands) and the catalog entry
`urn:air:hub.example.org:mcp:alice.my-env`. An owner's name has no dot, so the first dot after the slash ends it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from ludus.protocol.errors import InvalidRequest

NAMESPACE_LENGTH: Final = 99
"""The most characters of the part before the slash; a package's name has up to 100, and the whole up to 200."""

_DOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")


@dataclass(frozen=True)
class HubNames:
    """Makes and reads names.

    Attributes:
        domain: the hub's domain; `localhost` for a loopback address, and the domain of reverse DNS for another address.
    """

    domain: str

    @property
    def namespace(self) -> str:
        """The domain with its labels in reverse order."""
        return ".".join(reversed(self.domain.split(".")))

    def server(self, package_id: str) -> str:
        """Return the name of a package's server."""
        return f"{self.namespace}/{package_id.replace('/', '.', 1)}"

    def urn(self, package_id: str) -> str:
        """Return the identifier of a package in the AI catalog."""
        return f"urn:air:{self.domain}:mcp:{package_id.replace('/', '.', 1)}"

    def package(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Return owner and name of the package of a server; None if it is not one of this hub's."""
        owner, dot, rest = name.partition(".")
        return (owner, rest) if namespace == self.namespace and dot and rest else None

    def needle(self, text: str) -> Needle | None:
        """Return what to look for in `owner.name` to find servers with `text` in their names; None if none can match.

        Case does not matter.
        """
        wanted = text.lower()
        before, slash, after = wanted.partition("/")
        if slash:
            return Needle(after, at_start=True) if self.namespace.endswith(before) and "/" not in after else None
        return Needle("") if wanted in self.namespace else Needle(wanted)


@dataclass(frozen=True)
class Needle:
    """A text to look for in names.

    Attributes:
        text: the text, in lower case.
        at_start: whether names must begin with it, rather than hold it anywhere.
    """

    text: str
    at_start: bool = False


def names_of(base_url: str) -> HubNames:
    """Return the names of a hub with this address.

    Raises:
        InvalidRequest: the address has no host name, or too long a one, so it gives no names.
    """
    host = (urlsplit(base_url).hostname or "").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        domain = host
    else:
        domain = "localhost" if address.is_loopback else address.reverse_pointer
    if not _DOMAIN.fullmatch(domain) or len(domain) > NAMESPACE_LENGTH:
        raise InvalidRequest(
            f"the host {host[:120]!r} gives environments no names: it takes a domain of at most {NAMESPACE_LENGTH} "
            "characters; start the hub with --public-url"
        )
    return HubNames(domain)
