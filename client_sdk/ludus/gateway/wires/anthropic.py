"""Anthropic's Messages API: https://docs.anthropic.com/en/api/messages."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from ludus.gateway.wires.chat import joined
from ludus.gateway.wires.requests import (
    AssistantEntry,
    CallText,
    Entry,
    ModelReply,
    ModelRequest,
    OutputEntry,
    Refusal,
    TextEntry,
    ToolReader,
    count,
    invalid,
    mapping,
    objects,
    text,
    tool_spec,
)
from ludus.gateway.wires.sampling import check_sampling, checked_choice
from ludus.protocol.episodes import ToolSpec

NAME: Final = "anthropic"
_FINISH: Final = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}
_ERRORS: Final = {
    "key": "authentication_error", "ended": "permission_error", "limit": "permission_error", "path": "not_found_error",
    "too_large": "request_too_large", "time": "timeout_error", "engine": "api_error",
}  # fmt: skip


def parse(body: Mapping[str, Any], temperature: float, override: Collection[str]) -> ModelRequest:
    """Return the request in the gateway's form.

    Raises:
        Refusal: the request is not valid, or asks for what cannot be given.
    """
    overridden = list(check_sampling(body, temperature, override))
    may_call = checked_choice(body.get("tool_choice"), ("auto",), override, overridden)
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("disable_parallel_tool_use"):
        overridden.append("tool_choice.disable_parallel_tool_use")
    entries: list[Entry] = []
    if system := joined(body.get("system"), "system", "\n\n"):
        entries.append(TextEntry("system", system))
    for place, message in objects(body.get("messages"), "messages"):
        entries += _entries(message, place)
    if not body["messages"] or not entries:
        raise invalid("messages", "a list with at least one message", [])
    if body.get("max_tokens") is None:
        raise invalid("max_tokens", "a whole number of at least 1", None)
    return ModelRequest(
        entries=tuple(entries),
        tools=_parse_tools(body.get("tools")) if may_call else (),
        max_tokens=count(body["max_tokens"], "max_tokens"),
        model=text(body.get("model") or "", "model"),
        stream=bool(body.get("stream")),
        overridden=tuple(overridden),
        malformed=False,
    )


def _read_tools(definitions: object) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for place, tool in objects(definitions, "tools"):
        if tool.get("type", "custom") != "custom":
            raise Refusal("unsupported", f"{place}: only tools of the type custom can be used", param="tools")
        found.append(tool_spec(tool, "input_schema", place))
    return tuple(found)


_parse_tools: Final = ToolReader(_read_tools)


def _entries(message: Mapping[str, Any], place: str) -> list[Entry]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(f"{place}.role", "user or assistant", role)
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if role == "assistant":
        return [_turn(blocks, f"{place}.content")]
    entries: list[Entry] = []
    said: list[Mapping[str, Any]] = []
    for where, block in objects(blocks, f"{place}.content"):
        if block.get("type") == "tool_result":
            output = joined(block.get("content"), f"{where}.content", "\n")
            call_id = text(block.get("tool_use_id"), f"{where}.tool_use_id")
            entries.append(OutputEntry(call_id, output, bool(block.get("is_error"))))
        else:
            said.append(block)
    if said:
        entries.append(TextEntry("system" if role == "system" else "user", joined(said, f"{place}.content", "\n")))
    return entries


def _turn(blocks: object, place: str) -> AssistantEntry:
    said: list[Mapping[str, Any]] = []
    calls: list[CallText] = []
    for where, block in objects(blocks, place):
        kind = block.get("type")
        if kind == "tool_use":
            arguments = json.dumps(mapping(block.get("input") or {}, f"{where}.input"), ensure_ascii=False)
            name = text(block.get("name"), f"{where}.name")
            calls.append(CallText(text(block.get("id"), f"{where}.id"), name, arguments))
        elif kind not in ("thinking", "redacted_thinking"):
            said.append(block)
    return AssistantEntry(joined(said, place, ""), tuple(calls))


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
    if refusal.kind == "context":
        message = f"prompt is too long: {message}"
    return {"type": "error", "error": {"type": _ERRORS.get(refusal.kind, "invalid_request_error"), "message": message}}


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
