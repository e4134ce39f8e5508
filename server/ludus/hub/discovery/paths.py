"""The addresses of discovery, and which of them pages of other sites may read in a browser."""

from __future__ import annotations

from typing import Final

AI_CATALOG: Final = "/.well-known/ai-catalog.json"
"""The AI catalog of a domain; `discovery.md` of the MCP server card extension."""

CARD_ALIAS: Final = "/.well-known/mcp/server-card.json"
"""Where older clients look for a domain's servers; this hub answers with its AI catalog."""

CARD: Final = "/mcp/server-card"
"""The path of a server card below an endpoint."""

REGISTRY: Final = "/v0.1/servers"
"""The read API of the MCP registry."""

_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def any_page_may_read(method: str, path: str) -> bool:
    """Return whether a request only reads discovery documents, which the specification opens to all web pages."""
    if method not in _METHODS:
        return False
    if path in (AI_CATALOG, CARD_ALIAS) or path == REGISTRY or path.startswith(f"{REGISTRY}/"):
        return True
    return path.endswith(CARD) and path.startswith("/e/") and path.count("/") == 5
