"""Conversion of Ludus's results and errors into MCP's forms: content blocks, tool errors and JSON-RPC errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp import MCPError

from ludus.protocol.content import Content, Message, TextBlock
from ludus.protocol.episodes import StepResult, ToolSpec
from ludus.protocol.errors import EpisodeEnded, EpisodeFailed, EpisodeNotFound, LudusError, to_wire
from ludus.protocol.notices import NOT_CALLED, end_notice, failure_notice

if TYPE_CHECKING:
    from ludus.server.authoring.output_schema import OutputSchema

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


def observation(result: StepResult, tool: str, output: OutputSchema | None = None) -> dict[str, Any]:
    """Return a step's outcome as the agent may see it: the observation, and whether the episode has ended.

    Rewards, components, metadata and step numbers are left out. The structured content of a tool with an output schema
    is read from its text, so that it shows nothing more. A text that is no such JSON, because it was cut for example,
    is marked as an error: clients refuse any other result without structured content.

    Args:
        result: the step's result.
        tool: the name that the agent called.
        output: the tool's output schema, if it was listed with one.

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
    if output is None or error is not None:
        return tool_result(content, is_error=error is not None)
    structured = None
    if len(result.content) == 1 and isinstance(only := result.content[0], TextBlock):
        structured = output.structured(only.text)
    if structured is None:
        return tool_result(content, is_error=True)
    return {**tool_result(content), "structuredContent": structured}


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


def tool_list(tools: Sequence[ToolSpec], output_of: Callable[[str], OutputSchema | None]) -> list[types.Tool]:
    """Return tools as MCP lists them.

    Args:
        tools: the tools.
        output_of: returns the output schema of a tool by its name.
    """
    return [_listed(tool, output_of(tool.name)) for tool in tools]


def _listed(tool: ToolSpec, output: OutputSchema | None) -> types.Tool:
    listed = types.Tool(name=tool.name, description=tool.description, input_schema=tool.input_schema)
    if output is not None:
        listed.output_schema = dict(output.schema)
    return listed


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
