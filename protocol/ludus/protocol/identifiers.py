"""Names that appear on the wire: the extension, its version, its method prefix and the paths of each wire."""

from __future__ import annotations

from typing import Final

EXTENSION_ID: Final = "dev.ludus/episodes"
"""The MCP extension identifier (SEP-2133). A breaking change gets a new identifier, never a new meaning."""

EXTENSION_VERSION: Final = "0.1"
"""The version announced in the extension's settings."""

METHOD_PREFIX: Final = "dev.ludus/"
"""Every extension method begins with it."""

CONTROL_PATH: Final = "/mcp"
"""The control plane over MCP's Streamable HTTP."""

CHANNEL_PATH: Final = "/channel"
"""The control plane over a WebSocket."""

PLAY_PATH: Final = "/play/{capability}/mcp"
"""The play plane of one episode: any MCP client, tools and prompt only."""

CHANNEL_SUBPROTOCOL: Final = "ludus.channel.v0.1"
"""The WebSocket subprotocol that both ends of the channel name."""

MAX_FRAME_HEADER: Final = "Ludus-Max-Frame"
"""The header of the channel's upgrade response that states the largest frame the server accepts, in bytes."""

STEP_META_KEY: Final = "dev.ludus/step"
"""The `_meta` key of an MCP `tools/call` under which a client may number and key its step: `{"step": n, "key": …}`.
(MCP's grammar for `_meta` keys allows one slash, so it cannot begin with the extension's identifier.)"""

ORS_EXTENSION_HEADER: Final = "Ludus-Extension"
"""On the ORS wire: a client that sends it is answered with what ORS has no word for, under `ludus` at the roots."""

SUBMIT_TOOL: Final = "submit_answer"
"""The tool that carries a final answer to `grade` on wires that have no final message (play plane, ORS)."""

RESERVED_TOOL_NAMES: Final = frozenset({SUBMIT_TOOL, "start_episode"})
"""Names an environment's own tools may not take."""
