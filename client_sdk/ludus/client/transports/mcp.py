"""The MCP transport: each request of the extension is one `POST /mcp`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from ludus.client.transports._mcp_requests import McpRequests
from ludus.client.transports._reasons import doing
from ludus.client.transports.base import WireCapabilities, error_of
from ludus.protocol import errors
from ludus.protocol.identifiers import CONTROL_PATH, EXTENSION_ID, EXTENSION_VERSION
from ludus.protocol.methods import METHODS, Method
from ludus.protocol.model import WireModel
from ludus.protocol.modules import Module
from ludus.protocol.negotiation import Settings
from ludus.protocol.workers import EPISODE_HEADER, worker_of

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

DISCOVER: Final = "server/discover"
"""MCP's method that answers with what the server can do."""

_ENVELOPE_KEYS: Final = ("resultType", "_meta")
"""Keys that MCP adds to every result."""


class McpWire:
    """The wire of `connect(wire="mcp")`.

    Args:
        url: the server's address, without `/mcp`.
        token: the trainer token.
        timeout: seconds that a request may take if it sets no timeout of its own; None for no limit.
        reconnect_seconds: seconds to retry a request while the server cannot be reached.
        connections: the most connections, and so the most requests, at the same time.
    """

    name = "mcp"
    capabilities = WireCapabilities(methods=frozenset(METHODS))

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float | None = 300.0,
        reconnect_seconds: float = 30.0,
        connections: int = 100,
    ) -> None:
        self._requests = McpRequests(
            url.rstrip("/") + CONTROL_PATH, token=token, extensions={EXTENSION_ID: {"version": EXTENSION_VERSION}},
            timeout=timeout, reconnect_seconds=reconnect_seconds, connections=connections,
        )  # fmt: skip
        self._modules: frozenset[Module] | None = None
        self._discovered = False
        self._discovering = asyncio.Lock()

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`."""
        try:
            fields = params.model_dump(mode="json")
        except ValueError as error:
            raise errors.InvalidParams(
                f"{doing(method.name)}: the request cannot be written as JSON: {error}"
            ) from None
        reply = await self._requests.ask(method.name, fields, headers=_routing(fields), timeout=timeout)
        if "error" in reply:
            raise error_of(reply["error"])
        try:
            fields = {key: value for key, value in reply["result"].items() if key not in _ENVELOPE_KEYS}
            return method.result.model_validate(fields)
        except (ValidationError, AttributeError) as problem:
            raise errors.ProtocolViolation(f"{doing(method.name)}: the answer is malformed: {problem}") from None

    async def modules(self) -> frozenset[Module] | None:
        """Return the modules that the server announces; None if its settings cannot be read. They are read once."""
        async with self._discovering:
            if not self._discovered:
                try:
                    reply = await self._requests.ask(DISCOVER, {})
                    settings = Settings.model_validate(reply["result"]["capabilities"]["extensions"][EXTENSION_ID])
                    self._modules = settings.modules.offered
                except errors.TransportError:
                    return None  # the next request that needs them reads them again
                except (errors.LudusError, KeyError, TypeError, ValidationError):
                    pass
                self._discovered = True
        return self._modules

    async def close(self) -> None:
        """Close all connections. Closing twice is no error."""
        await self._requests.close()


def _routing(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the header by which proxies route a request to the worker of its episode."""
    identifier = fields.get("episode") or fields.get("group")
    if isinstance(identifier, str) and worker_of(identifier) is not None:
        return {EPISODE_HEADER: identifier}
    return {}
