"""Conversion of Ludus's results and errors into MCP's forms: content blocks, tool errors and JSON-RPC errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import mcp_types as types
from mcp import MCPError

from ludus.protocol.content import Content, Message, TextBlock
from ludus.protocol.episodes import StepResult, ToolSpec
from ludus.protocol.errors import EpisodeEnded, EpisodeFailed, EpisodeNotFound, LudusError, to_wire
from ludus.protocol.notices import NOT_CALLED, end_notice, failure_notice

UNKNOWN_EPISODE: Final = (
    "This server does not know this episode: it was started on another server, or this one has been restarted or has "
    "discarded it since. Behind a load balancer, requests must reach the server that started the episode."
)
"""The answer to a call on an episode that the server does not know."""

DISCARDED_EPISODE: Final = "This episode has ended, and the server has discarded it."
"""The answer to a call on an episode that this server once ran and no longer holds."""


def unknown_episode(ran_here: bool) -> str:
    """Return the message about an episode that the server does not hold.

    Args:
        ran_here: whether it is certain that this server started it.
    """
    return DISCARDED_EPISODE if ran_here else UNKNOWN_EPISODE


def mcp_error(error: LudusError) -> MCPError:
    """Return the JSON-RPC error for a Ludus error, with its own code and data."""
    wire = to_wire(error)
    return MCPError(wire.code, wire.message, wire.data)


def blocks(content: Sequence[Content]) -> list[dict[str, Any]]:
    """Return content blocks in MCP's form."""
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image", "data": block.data, "mimeType": block.mime_type}
        for block in content
    ]


def tool_result(content: list[dict[str, Any]], *, is_error: bool = False) -> dict[str, Any]:
    """Return a tool result for either era: the SDK drops `resultType` in the handshake era, whose schema lacks it."""
    return {"content": content, "isError": is_error, "resultType": "complete"}


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return a tool result that consists of one text."""
    return tool_result([{"type": "text", "text": text}], is_error=is_error)


def observation(result: StepResult, tool: str) -> dict[str, Any]:
    """Return a step's outcome as the agent may see it: the observation, and whether the episode has ended.

    Rewards, components, metadata and step numbers are left out.

    Raises:
        MCPError: -32602, there is no such tool (MCP's own form for that).
    """
    error = result.error
    if error is not None and error.code == "unknown_tool":
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {tool[:200]}")
    content = blocks(result.content)
    if not content and error is not None:
        content.append({"type": "text", "text": error.message})
    if result.end_reason is not None:
        content.append({"type": "text", "text": end_notice(result.end_reason)})
    return tool_result(content, is_error=error is not None)


def refused(error: LudusError, *, ran_here: bool = False) -> dict[str, Any]:
    """Return a tool result that says why a call was not made, or could not be finished.

    The text is chosen here because the messages of the runtime are written for trainers.

    Args:
        error: the error of the runtime.
        ran_here: whether it is certain that this server started the episode in question.

    Raises:
        MCPError: the error does not concern the state of the episode.
    """
    if isinstance(error, EpisodeEnded):
        return text_result(end_notice(error.data.get("endReason"), called=False), is_error=True)
    if isinstance(error, EpisodeNotFound):
        return text_result(f"{unknown_episode(ran_here)} {NOT_CALLED}", is_error=True)
    if isinstance(error, EpisodeFailed):
        return text_result(failure_notice(error.incident), is_error=True)
    raise mcp_error(error) from None


def tool_list(tools: Sequence[ToolSpec]) -> list[types.Tool]:
    """Return tools as MCP lists them."""
    return [types.Tool(name=tool.name, description=tool.description, input_schema=tool.input_schema) for tool in tools]


def prompt_messages(prompt: Sequence[Message]) -> list[types.PromptMessage]:
    """Return a prompt in MCP's form: one message per block; MCP has no system role, so `system` becomes `user`."""
    return [
        types.PromptMessage.model_validate(
            {"role": "assistant" if message.role == "assistant" else "user", "content": block}, by_name=False
        )
        for message in prompt
        for block in blocks(message.content)
    ]


def prompt_text(prompt: Sequence[Message]) -> str:
    """Return a prompt as plain text."""
    return "\n\n".join(
        block.text if isinstance(block, TextBlock) else f"[image: {block.mime_type}]"
        for message in prompt
        for block in message.content
    )
