"""The base of Ludus's MCP servers."""

from __future__ import annotations

import logging
from typing import Any, Final

from mcp import MCPError
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from pydantic import ValidationError

from ludus.protocol.identifiers import EXTENSION_ID, EXTENSION_VERSION
from ludus.protocol.negotiation import Settings
from ludus.server.hosting.dispatch import unexpected_error
from ludus.server.transports.mcp.encoding import mcp_error
from ludus.server.web.proxies import path_prefix
from ludus.telemetry.tracing import TRACE_FIELDS, Tracing, from_environment

_logger = logging.getLogger("ludus.server.transports.mcp")

Context = ServerRequestContext[Any, Any]
"""One request, as the SDK passes it to handlers."""

_CACHE: Final = CacheHint(ttl_ms=60_000, scope="private")
"""Lists do not change while a server runs. The minute lets clients notice a new server or a discarded episode."""

_CACHED: Final[dict[CacheableMethod, CacheHint]] = {
    "server/discover": _CACHE,
    "tools/list": _CACHE,
    "prompts/list": _CACHE,
}


_OPENINGS: Final = frozenset({"initialize", "server/discover"})


class McpServer(Server[Any]):
    """An MCP server that announces its extensions in the handshake era too.

    `InitializeResult` has no `extensions` before 2026-07-28, and the SDK leaves them out. It keeps `experimental`, so
    the extensions are repeated there.
    """

    def __init__(self, instructions: str | None = None) -> None:
        super().__init__(
            "ludus",
            version=EXTENSION_VERSION,
            instructions=instructions,
            cache_hints=_CACHED,
            get_tool_input_schema=_no_header_parameters,
        )
        # This removes the SDK's span for each message: the application's own span, which knows the route, is enough.
        self.middleware[:] = [self._serve]
        self._tracing = from_environment()

    async def instructions_for(self, ctx: Context) -> str | None:
        """Return the instructions for the model in the answers to `initialize` and `server/discover`."""
        return self.instructions

    async def _serve(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Handle one message. An unexpected error is reported by its incident; the SDK would show its text."""
        try:
            result = await (call_next(ctx) if self._tracing is None else self._traced(self._tracing, ctx, call_next))
            if ctx.method in _OPENINGS and isinstance(result, dict):
                if prefix := path_prefix(ctx.request.scope) if ctx.request is not None else "":
                    result = _with_prefix(result, prefix)
                instructions = await self.instructions_for(ctx)
                return result if instructions is None else {**result, "instructions": instructions}
            return result
        except (MCPError, ValidationError):
            raise
        except Exception as error:
            raise mcp_error(unexpected_error(ctx.method, _logger)) from error

    async def _traced(self, tracing: Tracing, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Handle one message in a span. Its parent is the span that `_meta` names, or that of the HTTP request."""
        meta = ctx.params.get("_meta") if ctx.params else None
        parent = tracing.context_of(meta) if meta and TRACE_FIELDS[0] in meta else None
        with tracing.span(ctx.method, parent=parent):
            return await call_next(ctx)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the SDK's options, with the extensions repeated as experimental capabilities."""
        experimental = {**self.extensions, **(experimental_capabilities or {})}
        return super().create_initialization_options(notification_options, experimental or None, extensions)


def _with_prefix(result: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return an answer to an opening request with the prefix added to every path in the extension's settings."""
    capabilities = dict(result.get("capabilities") or {})
    for era in ("extensions", "experimental"):
        settings = (capabilities.get(era) or {}).get(EXTENSION_ID)
        if settings:
            moved = Settings.model_validate(settings).under(prefix).to_wire()
            capabilities[era] = {**capabilities[era], EXTENSION_ID: moved}
    return {**result, "capabilities": capabilities}


def _no_header_parameters(name: str) -> None:
    """Return None: no Ludus tool uses `x-mcp-header`. This spares the SDK a `tools/list` before each call."""
