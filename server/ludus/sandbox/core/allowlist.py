"""The allowlist of a sandbox's network: its entries, and which addresses count as the public internet.

An entry is a host name (`pypi.org`), all names below one (`*.example.org`, which does not include `example.org`), an
address (`192.0.2.7`, `[2001:db8::7]`) or a network (`10.1.0.0/16`), each followed by a colon and a port, or else for
ports 80 and 443.

A name gives access only to public addresses among those it resolves to, unless the list contains the other address
too. Otherwise the owner of a domain could point it at this machine's own services or its network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["is_public"]


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT_PORTS: Final = frozenset({80, 443})

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_WORLD: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocols; one cloud has its metadata service there
        "192.31.196.0/24", "192.175.48.0/24", "2620:4f:8000::/48",  # AS112, which answers for private addresses
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4, withdrawn
        "2001::/23",  # protocols: Teredo, benchmarks, ORCHID, drones
        "3fff::/20",  # documentation
    )
)  # fmt: skip
"""Networks of the registries of special addresses (RFC 6890) that a version of Python considers public."""
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 addresses translated for hosts that have only IPv6 (RFC 6052)."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The host and port of a requested connection."""

    host: str
    """A name in lower case, or an address in its canonical form."""
    port: int
    address: Address | None = None
    """The parsed address, if the host is an address."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(text: str, default_port: int | None = None) -> Destination:
    """Parse `host:port`; the port is optional if there is a default.

    Raises:
        ValueError: the text is not a destination. Numbers that only some programs accept as an address (`0x7f.1`,
            `2130706433`) are refused.
    """
    host, port = _split_port(text)
    number = default_port if port is None else _port(port)
    if number is None:
        raise ValueError("it has no port")
    if host.startswith("["):
        ipv6 = _plain(ipaddress.IPv6Address(host[1:-1]))
        return Destination(str(ipv6), number, ipv6)
    name = _name(host)
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        address = ipaddress.IPv4Address(name)
        return Destination(str(address), number, address)
    return Destination(name, number)


def _split_port(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, bracket, suffix = text.partition("]")
        if not bracket or (suffix and not suffix.startswith(":")) or "%" in host:
            raise ValueError("it is not an address in brackets")
        return f"{host}]", suffix[1:] if suffix else None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise ValueError("its port is not a number from 1 to 65535")
    return int(text)


def _name(text: str) -> str:
    name = text.lower().removesuffix(".")
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ValueError("it is not a host name (names beyond ASCII are written in their xn-- form)")
    return name


def _plain(address: Address) -> Address:
    """Return an IPv4-mapped IPv6 address as IPv4, and any other address unchanged."""
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if inner is None else inner


@dataclass(frozen=True, slots=True)
class _Rule:
    ports: frozenset[int]
    name: str = ""
    below: bool = False
    """Whether the rule allows the names below `name` instead of `name` itself."""
    network: Network | None = None

    def covers(self, host: str, port: int) -> bool:
        if not self.name or port not in self.ports:
            return False
        return host.endswith(f".{self.name}") if self.below else host == self.name

    def holds(self, address: Address, port: int) -> bool:
        # An address of one IP version is never in a network of the other; the test is False and raises nothing.
        return self.network is not None and port in self.ports and address in self.network


class Allowlist:
    """The hosts that a sandbox may reach; the module's docstring describes the entries.

    Raises:
        ValueError: an entry is invalid; the message quotes it.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._rules = tuple(map(_rule, entries))

    def names(self, destination: Destination) -> bool:
        """Return whether the list contains this destination."""
        if destination.address is not None:
            return self.holds(destination.address, destination.port)
        return any(rule.covers(destination.host, destination.port) for rule in self._rules)

    def holds(self, address: Address, port: int) -> bool:
        """Return whether the list contains this address, or a network that includes it."""
        return any(rule.holds(_plain(address), port) for rule in self._rules)

    def mentions(self, host: str) -> bool:
        """Return whether the list contains this name or address, at any port."""
        destination = parse_destination(host, 1)
        return any(
            rule.name == host or (destination.address is not None and rule.holds(destination.address, min(rule.ports)))
            for rule in self._rules
        )


def _rule(entry: str) -> _Rule:
    try:
        host, port = _split_port(entry)
        if "/" in entry:  # an IPv6 network has brackets around both address and prefix length, or no brackets
            host, port = _split_network(entry)
        ports = DEFAULT_PORTS if port is None else frozenset({_port(port)})
        if "/" in host:
            return _Rule(ports, network=ipaddress.ip_network(host))
        if host.startswith("*."):
            return _Rule(ports, _name(host[2:]), below=True)
        destination = parse_destination(host, 1)
        if destination.address is not None:
            return _Rule(ports, network=ipaddress.ip_network(destination.address))
        return _Rule(ports, destination.host)
    except ValueError as error:
        raise ValueError(
            f"{entry!r} is not an entry of an allowlist: {error}; entries are like pypi.org, *.example.org:8443, "
            "192.0.2.7:8080, 10.1.0.0/16 or [2001:db8::/32]:443"
        ) from None


def _split_network(entry: str) -> tuple[str, str | None]:
    if entry.startswith("["):
        host, port = _split_port(entry)
        return host[1:-1], port
    if entry.count(":") > 1:
        return entry, None
    host, colon, port = entry.partition(":")
    return host, port if colon else None


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet: not loopback, link-local, private, multicast or reserved."""
    address = _plain(address)
    if isinstance(address, ipaddress.IPv6Address):
        if address in _TRANSLATED:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour is not None:
            return is_public(address.sixtofour)
    elif address.is_multicast or address.is_reserved:
        return False
    special = any(address.version == network.version and address in network for network in _SPECIAL)
    return address.is_global and not special and (address.version == 4 or address in _WORLD)


def proxy_variables(address: str, allowed: Allowlist) -> dict[str, str]:
    """Return the environment variables that make programs use a proxy, except for the sandbox's own loopback.

    Args:
        address: `host:port` of the proxy.
        allowed: loopback hosts on this list are reached through the proxy, too.
    """
    variables: dict[str, str] = {}
    local_hosts = [host for host in ("localhost", "127.0.0.1", "[::1]") if not allowed.mentions(host)]
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        variables[name] = variables[name.upper()] = f"http://{address}"
    variables["no_proxy"] = variables["NO_PROXY"] = ",".join(local_hosts).replace("[::1]", "::1")
    return variables
