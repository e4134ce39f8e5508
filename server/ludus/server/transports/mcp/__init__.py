"""The MCP transports: the control endpoint at `/mcp`, an agent endpoint for each episode, and stdio."""

from ludus.server.transports.mcp.routes import routes

__all__ = ["routes"]
