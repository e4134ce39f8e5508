"""Anthropic's Messages API: https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ludus.gateway.wires.content import joined
from ludus.gateway.wires.requests import (
    AssistantEntry,
    CallText,
    ContextFull,
    Entry,
    ModelReply,
    ModelRequest,
    OutputEntry,
    Refusal,
    RequestContext,
    TextEntry,
    count,
    invalid,
    mapping,
    objects,
    text,
)
from ludus.gateway.wires.sampling import check_fields, checked_choice, refuse_or_ignore
from ludus.gateway.wires.tools import ToolList, ToolReader, tool_spec

NAME: Final = "anthropic"
ALIVE: Final = b'event: ping\ndata: {"type": "ping"}\n\n'
"""A sign of life in a stream."""
_FINISH: Final = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}
_ERRORS: Final = {
    "key": "authentication_error", "ended": "permission_error", "limit": "permission_error", "path": "not_found_error",
    "too_large": "request_too_large", "time": "timeout_error", "engine": "api_error",
}  # fmt: skip


def parse(body: Mapping[str, Any], context: RequestContext) -> ModelRequest:
    """Return the request in the gateway's form.

    Raises:
        Refusal: the request is not valid, or asks for what cannot be given.
    """
    check_fields(body, context)
    may_call = checked_choice(body.get("tool_choice"), ("auto",), context)
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("disable_parallel_tool_use"):
        context.overridden.append("tool_choice.disable_parallel_tool_use")
    for name, value in mapping(body.get("output_config") or {}, "output_config").items():
        if name == "format" and value is not None:
            refuse_or_ignore("output_config", value, context)
        else:
            context.leave_out("output_config", name)
    entries: list[Entry] = []
    if system := joined(body.get("system"), "system", "\n\n", context):
        entries.append(TextEntry("system", system))
    for place, message in objects(body.get("messages"), "messages"):
        entries += _entries(message, place, context)
    if not body["messages"] or not entries:
        raise invalid("messages", "a list with at least one message", [])
    if body.get("max_tokens") is None:
        raise invalid("max_tokens", "a whole number of at least 1", None)
    tools = _parse_tools(body.get("tools") if may_call else None, context)
    return ModelRequest(
        entries=tuple(entries),
        tools=tools.specs,
        max_tokens=count(body["max_tokens"], "max_tokens"),
        model=text(body.get("model") or "", "model"),
        stream=bool(body.get("stream")),
        overridden=tuple(context.overridden),
        malformed=False,
    )


_BASH: Final = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The bash command to run."},
        "restart": {"type": "boolean", "description": "Whether to restart the shell instead."},
    },
}
_EDITOR: Final = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
        "path": {"type": "string"},
        "file_text": {"type": "string", "description": "For create: the text of the file."},
        "old_str": {"type": "string", "description": "For str_replace: the text to replace."},
        "new_str": {"type": "string", "description": "For str_replace: the text in its place."},
        "insert_line": {"type": "integer", "description": "For insert: the line after which to insert."},
        "insert_text": {"type": "string", "description": "For insert: the text to insert."},
        "view_range": {"type": "array", "items": {"type": "integer"}, "description": "For view: first and last line."},
    },
    "required": ["command", "path"],
}
_TYPED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "bash": ("Run a command in a bash shell that keeps its state.", _BASH),
    "text_editor": ("View, create and edit text files.", _EDITOR),
}
"""Tools that the agent program runs, whose schema Anthropic publishes instead of the request having it, by the
beginning of their type: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use."""


def _read_tools(tools: ToolList, definitions: object) -> None:
    for place, tool in objects(definitions, "tools"):
        kind = str(tool.get("type") or "custom")
        if kind == "custom":
            tools.add(tool_spec(tool, "input_schema", place))
        elif (typed := _TYPED.get(kind.rpartition("_")[0])) is not None:
            description, schema = typed
            spec = {"name": tool.get("name"), "description": description, "input_schema": schema}
            tools.add(tool_spec(spec, "input_schema", place))
        else:
            tools.left_out.append(kind)


_parse_tools: Final = ToolReader(_read_tools)


def _entries(message: Mapping[str, Any], place: str, context: RequestContext) -> list[Entry]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(f"{place}.role", "user or assistant", role)
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if role == "assistant":
        return [_turn(blocks, f"{place}.content", context)]
    entries: list[Entry] = []
    spoken: list[Mapping[str, Any]] = []
    for where, block in objects(blocks, f"{place}.content"):
        if block.get("type") == "tool_result":
            output = joined(block.get("content"), f"{where}.content", "\n", context)
            call_id = text(block.get("tool_use_id"), f"{where}.tool_use_id")
            entries.append(OutputEntry(call_id, output, bool(block.get("is_error"))))
        else:
            spoken.append(block)
    if spoken:
        content = joined(spoken, f"{place}.content", "\n", context)
        entries.append(TextEntry("system" if role == "system" else "user", content))
    return entries


def _turn(blocks: object, place: str, context: RequestContext) -> AssistantEntry:
    spoken: list[Mapping[str, Any]] = []
    calls: list[CallText] = []
    for where, block in objects(blocks, place):
        if block.get("type") == "tool_use":
            arguments = json.dumps(mapping(block.get("input") or {}, f"{where}.input"), ensure_ascii=False)
            name = text(block.get("name"), f"{where}.name")
            calls.append(CallText(text(block.get("id"), f"{where}.id"), name, arguments))
        elif block.get("type") in ("server_tool_use", "compaction") or "_tool_result" in str(block.get("type")):
            context.leave_out("messages", block["type"])  # of tools that the provider runs
        else:
            spoken.append(block)
    return AssistantEntry(joined(spoken, place, "", context), tuple(calls))


def whole(reply: ModelReply, request: ModelRequest) -> dict[str, Any]:
    """Return the reply as JSON."""
    return {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": request.model or "policy",
        "content": _blocks(reply),
        "stop_reason": _FINISH[reply.finish],
        "stop_sequence": None,
        "usage": {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens},
    }


def events(reply: ModelReply, request: ModelRequest) -> Iterator[str]:
    """Yield the reply as server-sent events."""
    for event in _events(reply, request):
        yield f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"


def error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as JSON."""
    message = refusal.message
    if isinstance(refusal, ContextFull):  # in the provider's words, which programs look for before they compact
        message = f"prompt is too long: {refusal.tokens} tokens > {refusal.maximum} maximum"
    return {"type": "error", "error": {"type": _ERRORS.get(refusal.kind, "invalid_request_error"), "message": message}}


def error_events(refusal: Refusal, request: ModelRequest) -> Iterator[str]:
    """Yield a refusal as server-sent events, for a stream that has begun."""
    yield f"event: error\ndata: {json.dumps(error(refusal), ensure_ascii=False)}\n\n"


def _events(reply: ModelReply, request: ModelRequest) -> Iterator[dict[str, Any]]:
    final = whole(reply, request)
    begun = {**final, "content": [], "stop_reason": None, "usage": {**final["usage"], "output_tokens": 0}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(final["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            arguments = json.dumps(block["input"], ensure_ascii=False)
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": arguments}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": final["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": final["usage"]}
    yield {"type": "message_stop"}


def _blocks(reply: ModelReply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text or not reply.calls else []
    for call in reply.calls:
        blocks.append({"type": "tool_use", "id": call.call_id, "name": call.tool, "input": json.loads(call.arguments)})
    return blocks
