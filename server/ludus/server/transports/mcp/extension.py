"""The extension's methods on an MCP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ludus.protocol.errors import LudusError
from ludus.protocol.identifiers import EXTENSION_ID, EXTENSION_VERSION
from ludus.protocol.methods import METHODS
from ludus.protocol.modules import Module
from ludus.protocol.negotiation import Settings
from ludus.server.hosting.dispatch import dispatch
from ludus.server.transports.mcp.encoding import mcp_error
from ludus.server.transports.mcp.server import Context, McpServer
from ludus.server.web.proxies import with_urls

if TYPE_CHECKING:
    from ludus.server.auth.principal import Principal
    from ludus.server.hosting.host import EpisodeHost
    from ludus.server.transports import TransportContext

OFFERED_EVERYWHERE: Final = frozenset(
    {
        Module.INITIALIZE, Module.START_TOOL, Module.LIMITS, Module.SAMPLING, Module.FORK, Module.GROUP_SCORING,
        Module.TURNS, Module.NOISE, Module.SECRETS, Module.SEATS, Module.WORLDS,
    }
)  # fmt: skip
"""The modules that the server offers over HTTP and over stdio."""


def modules_of(context: TransportContext) -> frozenset[Module]:
    """Return the modules that the server offers over HTTP."""
    return OFFERED_EVERYWHERE.union(
        context.wires,
        [Module.PLAY] if context.host.signer is not None else [],
        [Module.TOKENS] if context.tokens is not None else [],
    )


def add_extension(
    server: McpServer, host: EpisodeHost, principal_of: Callable[[Context], Principal], offered: frozenset[Module]
) -> None:
    """Serve every method of the extension, and announce it with the modules that the server offers."""
    server.extensions[EXTENSION_ID] = Settings.of(offered).to_wire()
    for name in METHODS:
        server.add_request_handler(name, types.RequestParams, _method(name, host, principal_of))


def declares_extension(ctx: Context) -> bool:
    """Return whether the client declared the extension, in this request or its handshake."""
    return _declared(ctx) is not None


def _declared(ctx: Context) -> Mapping[str, Any] | None:
    """Return the settings with which the client declared the extension; None if it did not."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None:
        return None
    for declared in (capabilities.extensions, capabilities.experimental):
        if declared and EXTENSION_ID in declared:
            return declared[EXTENSION_ID] or {}
    return None


_REQUIRED: Final = {"requiredCapabilities": {"extensions": {EXTENSION_ID: {"version": EXTENSION_VERSION}}}}
"""The data of a refusal: what the request lacks."""


def _method(
    name: str, host: EpisodeHost, principal_of: Callable[[Context], Principal]
) -> Callable[[Context, types.RequestParams], Awaitable[dict[str, Any]]]:
    async def handle(ctx: Context, params: types.RequestParams) -> dict[str, Any]:
        # A stateless handshake-era request does not declare capabilities, so only the credential is checked there.
        declared = _declared(ctx)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and declared is None:
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"{name} belongs to the extension {EXTENSION_ID!r}, which this request does not declare",
                _REQUIRED,
            )
        if declared is not None and (version := declared.get("version", EXTENSION_VERSION)) != EXTENSION_VERSION:
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"this server speaks version {EXTENSION_VERSION} of the extension {EXTENSION_ID!r}, and this request "
                f"declares {str(version)[:40]!r}",
                _REQUIRED,
            )
        arguments = {key: value for key, value in (ctx.params or {}).items() if key != "_meta"}
        try:
            result = await dispatch(host, name, arguments, principal_of(ctx))
        except LudusError as error:
            raise mcp_error(error) from None
        result = with_urls(result, ctx.request.scope if ctx.request is not None else None)
        return result.model_dump(mode="json")

    return handle
