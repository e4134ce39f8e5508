"""Ludus's values as ORS's JSON and server-sent events, and candidates of `/score_group` as Ludus's values.

Events are framed by hand, because this is the transport's hot path. A result is cut into pieces of at most
`CHUNK_CHARS` characters. The last piece is sent as an `end` event, the others as `chunk` events. Both published clients
strip whitespace, including Unicode whitespace, from the beginning of every `data` value, and so lose text if a cut
falls before a space. Results are compact JSON, in which a raw space appears only inside a string, so a space at a cut
is written as its JSON escape: the text is the same, and nothing is stripped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import to_json

from ludus.protocol.content import Content, ImageBlock, Message, TextBlock
from ludus.protocol.episodes import Candidate, StepResult, TaskRow, ToolSpec
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.server.transports.ors.request import BlockBody, CandidateBody

MESSAGE_BLOCK_TYPES: Final = ("text", "image", "reasoning", "tool_call", "tool_result")
"""The blocks that `/score_group` reads. Prompts hold text and images."""

VALIDATION_PREFIX: Final = "Tool input validation error: "
"""The prefix by which old clients recognize invalid input."""

CHUNK_CHARS: Final = 4096
"""The most characters in one event, as in both published servers."""

_LINE_BREAKS: Final = ("\r\n", "\r", "\n")

_quote = json.encoder.encode_basestring


def task_json(row: TaskRow) -> dict[str, Any]:
    """Return a task as `task_spec`: its public fields, and the id and split by which `/create` finds it again."""
    return {**row.fields, "id": row.id, "split": row.split}


def tools_json(specs: Iterable[ToolSpec], *, gradable: bool, group_scoring: bool) -> bytes:
    """Return the answer of `/tools` and `/task_tools`. Specs hold exactly the three keys that clients allow."""
    tools = list(specs)
    submit = next((spec for spec in tools if spec.name == SUBMIT_TOOL), None) if gradable else None
    return to_json(
        {
            "tools": [
                {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
                for spec in tools
            ],
            "terminal_tool": None
            if submit is None
            else {"name": submit.name, "arg": "answer", "description": submit.description},
            "supports_score_group": group_scoring,
            "message_block_types": MESSAGE_BLOCK_TYPES,
        }
    )


def prompt_json(prompt: Sequence[Message]) -> bytes:
    """Return the answer of `/prompt`: the blocks of all messages in order."""
    return f"[{_blocks([block for message in prompt for block in message.content])}]".encode()


def messages_json(prompt: Sequence[Message]) -> bytes:
    """Return the answer of `/messages`."""
    messages = (
        f'{{"role":"{message.role}","blocks":[{_blocks(message.content)}],"detail":null}}' for message in prompt
    )
    return f"[{','.join(messages)}]".encode()


def extend(answer: bytes, extension: str) -> bytes:
    """Return a JSON object with the extension's JSON added under `ludus` at its root."""
    return b'%b,"ludus":%b}' % (answer[:-1], extension.encode())


def step_json(tool: str, result: StepResult, *, extended: bool = False) -> str:
    """Return the result of a call as JSON.

    `reward` holds the value of the step's reward, as ORS defines it. Facts that ORS has no field for (reward
    components, why a reward is unscored, why an episode was truncated, a tool's error, noise) appear in `metadata`, or
    under `ludus` at the root for clients that know the extension.
    """
    if extended:
        remaining = result.model_dump_json(exclude={"content", "metadata"})
        return f'{_step(tool, result, result.metadata)[:-1]},"ludus":{remaining}}}'
    metadata: Mapping[str, Any] = result.metadata
    reward, error = result.reward, result.error
    if reward is not None and (reward.components or reward.reason is not None):
        metadata = {"reward": reward.model_dump(mode="json"), **metadata}
    if error is not None:
        metadata = {"error": error.model_dump(mode="json"), **metadata}
    if result.noise is not None:
        metadata = {"noise": result.noise, **metadata}
    if result.truncated:
        metadata = {"end_reason": str(result.end_reason), **metadata}
    return _step(tool, result, metadata)


def _step(tool: str, result: StepResult, metadata: Mapping[str, Any]) -> str:
    error, reward = result.error, result.reward
    if error is not None and error.code == "unknown_tool":
        return _failed(f"{tool!r} is not a valid tool", "not_found")
    if error is not None and error.code == "invalid_arguments":
        return _failed(VALIDATION_PREFIX + error.message, "input_validation")
    blocks = _blocks(result.content)
    meta = to_json(metadata).decode() if metadata else "null"
    value = "null" if reward is None or reward.value is None else to_json(float(reward.value)).decode()
    finished = "false" if result.end_reason is None else "true"
    return f'{{"ok":true,"output":{{"blocks":[{blocks}],"metadata":{meta},"reward":{value},"finished":{finished}}}}}'


def finished_json(tool: str) -> str:
    """Return the refusal of a call after the episode has ended."""
    return _failed(
        f"{tool!r} was not run: the episode has finished, so no further tool calls are accepted.", "episode_finished"
    )


def candidate(body: CandidateBody) -> Candidate:
    """Return a candidate of `/score_group`. Blocks that Ludus has no type for become text.

    Raises:
        ValueError: an image is not base64.
    """
    messages = tuple(
        Message(role=message.role, content=tuple(_content(block) for block in message.blocks))
        for message in body.messages
    )
    return Candidate(messages=messages, metadata=body.metadata or {})


def _content(block: BlockBody) -> Content:
    if block.type == "image":
        return ImageBlock(data=block.data, mime_type=block.mimeType)
    if block.type == "tool_call":
        return TextBlock(text=f"{block.name}({json.dumps(block.input, ensure_ascii=False)})")
    if block.type == "tool_result":
        parts = map(_content, block.blocks)
        inner = "\n".join(part.text if isinstance(part, TextBlock) else f"[image: {part.mime_type}]" for part in parts)
        return TextBlock(text=f"Error: {inner}" if block.is_error else inner)
    return TextBlock(text=block.text)


def _failed(message: str, reason: str) -> str:
    return f'{{"ok":false,"error":{_quote(message)},"reason":"{reason}"}}'


def _blocks(content: Sequence[Content]) -> str:
    if len(content) == 1 and type(content[0]) is TextBlock:
        return f'{{"text":{_quote(content[0].text)},"detail":null,"type":"text"}}'
    return ",".join(
        f'{{"text":{_quote(block.text)},"detail":null,"type":"text"}}'
        if isinstance(block, TextBlock)
        else f'{{"data":"{block.data}","mimeType":{_quote(block.mime_type)},"detail":null,"type":"image"}}'
        for block in content
    )


def task_id_event(task_id: str) -> bytes:
    """Return the first event of a call, which holds the id under which the call can be resumed."""
    return b"event: task_id\r\ndata: %b\r\n\r\n" % task_id.encode("ascii")


def result_events(json_text: str) -> bytes:
    """Return the events of a finished result: `chunk` events as needed, then `end`.

    Args:
        json_text: compact JSON.
    """
    if len(json_text) <= CHUNK_CHARS:
        return b"event: end\r\ndata: %b\r\n\r\n" % json_text.encode()
    pieces = split(json_text)
    last_piece = pieces.pop()
    events = [b"event: chunk\r\ndata: %b\r\n\r\n" % piece.encode() for piece in pieces]
    events.append(b"event: end\r\ndata: %b\r\n\r\n" % last_piece.encode())
    return b"".join(events)


def error_event(message: str) -> bytes:
    """Return the last event of a call without a result. Each line of the message becomes a `data` line."""
    for line_break in _LINE_BREAKS:
        message = message.replace(line_break, "\n")
    lines = "".join(f"data: {line}\r\n" for line in message.split("\n"))
    return f"event: error\r\n{lines}\r\n".encode(errors="backslashreplace")


def ludus_event(json_text: str) -> bytes:
    """Return an event of the Ludus extension. Clients that do not know it ignore it, as SSE requires."""
    return b"event: ludus\r\ndata: %b\r\n\r\n" % json_text.encode()


def ping_comment() -> bytes:
    """Return a comment that keeps the client from reaching its read timeout."""
    return f": ping - {datetime.now(UTC)}\r\n\r\n".encode()


def split(json_text: str) -> list[str]:
    """Cut compact JSON into pieces of at most `CHUNK_CHARS` characters, none of which begins with whitespace."""
    pieces = []
    position = 0
    lead = ""
    while position < len(json_text):
        end = position + CHUNK_CHARS - len(lead)
        pieces.append(lead + json_text[position:end])
        lead = ""
        if end < len(json_text) and json_text[end].isspace():
            lead = f"\\u{ord(json_text[end]):04x}"
            end += 1
        position = end
    if lead:
        pieces.append(lead)
    return pieces
