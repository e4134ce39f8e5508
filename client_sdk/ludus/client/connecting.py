"""`connect`: make a client for the address of a server."""

from __future__ import annotations

import importlib
import os
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from ludus.client.client import Client
from ludus.client.transports.base import Wire
from ludus.telemetry.tracing import Tracing, from_environment

__all__ = ["TOKEN_VARIABLE"]


WireName = Literal["auto", "channel", "mcp", "ors"]
"""The wires that `connect` knows by name."""

TOKEN_VARIABLE: Final = "LUDUS_TOKEN"
"""The environment variable that holds the default token."""

_WIRES: Final = {
    "auto": ("ludus.client.transports.negotiated", "NegotiatedWire"),
    "channel": ("ludus.client.transports.channel", "ChannelWire"),
    "mcp": ("ludus.client.transports.mcp", "McpWire"),
    "ors": ("ludus.client.transports.ors", "OrsWire"),
}


def connect(
    url: str,
    *,
    token: str | None = None,
    wire: WireName | Wire = "auto",
    timeout: float | None = 300.0,
    reconnect_seconds: float = 30.0,
    patience_seconds: float = 30.0,
) -> Client:
    """Return a client of the server at `url`. It connects at its first request.

    Args:
        url: `http://host:port` or `https://…`, with the path under which the server is mounted, if any; or
            `ludus+ray://CLUSTER/NAME`, the name of a server in a Ray cluster (`auto` or `host:port`), which is looked
            up once, before this function returns.
        token: the trainer token; `LUDUS_TOKEN` of the process environment when None.
        wire: how to talk to the server. `auto` is the channel where the server has one, and else `mcp`; `channel` is
            the fastest; `mcp` is the extension over plain HTTP; `ors` also works with servers that speak only ORS.
        timeout: seconds that one request may take, including reconnecting; None for no limit.
        reconnect_seconds: seconds to try to reconnect after a lost connection.
        patience_seconds: seconds that a request waits while the server refuses it for one of its limits and says when
            to come back; 0 to raise `CapacityError` at the first refusal.

    Raises:
        ValueError: `url` is not such an address, or there is no such wire.
        ConnectionFailed: the Ray cluster has no server with this name.
    """
    address = _address(url)
    tracing = from_environment("ludus-client")
    if not isinstance(wire, str):
        return Client(_traced(wire, tracing), address)
    if wire not in _WIRES:
        raise ValueError(f"there is no wire {wire!r}; choose one of {', '.join(map(repr, _WIRES))}")
    module, name = _WIRES[wire]
    make = getattr(importlib.import_module(module), name)
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE)
    options = {"timeout": timeout, "reconnect_seconds": reconnect_seconds}
    if wire == "ors":
        return Client(_traced(make(address, token, patience_seconds=patience_seconds, **options), tracing), address)
    from ludus.client.transports.modules import ModuleWire
    from ludus.client.transports.patience import PatientWire

    patient = PatientWire(make(address, token, **options), patience_seconds)
    return Client(_traced(ModuleWire(patient), tracing), address)


def _traced(wire: Wire, tracing: Tracing | None) -> Wire:
    """Return the wire with spans, if tracing is on."""
    if tracing is None:
        return wire
    from ludus.client.transports.traced import TracedWire

    return TracedWire(wire, tracing)


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "ludus+ray":
        from ludus.client._ray_lookup import find_server

        if not parts.netloc or not parts.path.strip("/"):
            raise ValueError(f"{url!r} is not ludus+ray://CLUSTER/NAME, such as ludus+ray://auto/guess_number")
        parts = urlsplit(find_server(parts.netloc, unquote(parts.path.strip("/"))))
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname:
        guess = f"; did you mean http://{url}?" if url.strip() and "://" not in url else ""
        raise ValueError(f"{url!r} is not the address of a server, such as http://localhost:8000{guess}")
    return parts._replace(scheme=scheme, query="", fragment="").geturl().rstrip("/")
