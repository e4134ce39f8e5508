"""Names that appear on the wire: the extension, its version, its method prefix and the paths of each wire."""

from __future__ import annotations

from typing import Final

__all__ = ["CHANNEL_PATH", "CONTROL_PATH", "EXTENSION_ID", "RESERVED_TOOL_NAMES"]


EXTENSION_ID: Final = "dev.ludus/episodes"
"""The MCP extension identifier (SEP-2133). A breaking change gets a new identifier, never a new meaning."""

EXTENSION_VERSION: Final = "0.2"
"""The version announced in the extension's settings."""

METHOD_PREFIX: Final = "dev.ludus/"
"""Every extension method begins with it."""

CONTROL_PATH: Final = "/mcp"
"""The path of the control endpoint, over MCP's Streamable HTTP."""

CHANNEL_PATH: Final = "/channel"
"""The path of the channel, a WebSocket."""

PLAY_PATH: Final = "/play/{capability}/mcp"
"""The path of the agent endpoint of one episode: tools and prompt only, for any MCP client."""

CHANNEL_SUBPROTOCOL: Final = "ludus.channel.v0.2"
"""The WebSocket subprotocol that both ends of the channel name."""

MAX_FRAME_HEADER: Final = "Ludus-Max-Frame"
"""The header of the channel's upgrade response that states the largest frame the server accepts, in bytes."""

REFUSAL_HEADER: Final = "Ludus-Refusal"
"""The header in which a gateway says why it refuses the upgrade to a channel, percent-encoded: clients of WebSockets
read no body of such an answer."""

STEP_META_KEY: Final = "dev.ludus/step"
"""The `_meta` key of an MCP `tools/call` under which a client may number and key its step: `{"step": n, "key": …}`.
(MCP's grammar for `_meta` keys allows one slash, so it cannot begin with the extension's identifier.)"""

ORS_EXTENSION_HEADER: Final = "Ludus-Extension"
"""The header by which an ORS client requests what ORS lacks; the answers then hold it under the key `ludus`."""

SUBMIT_TOOL: Final = "submit_answer"
"""The tool that submits a final answer on wires without a final message (agent endpoint, ORS)."""

RESERVED_TOOL_NAMES: Final = frozenset({SUBMIT_TOOL, "start_episode"})
"""Names that an environment's own tools may not have."""
