"""OpenAI's Chat Completions API: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ludus.gateway.wires.content import joined
from ludus.gateway.wires.requests import (
    AssistantEntry,
    CallText,
    Entry,
    ModelReply,
    ModelRequest,
    OutputEntry,
    Refusal,
    RequestContext,
    TextEntry,
    count,
    custom_arguments,
    custom_input,
    invalid,
    mapping,
    objects,
    text,
)
from ludus.gateway.wires.sampling import check_fields, checked_choice
from ludus.gateway.wires.tools import ToolList, ToolReader

NAME: Final = "chat"
ALIVE: Final = b": keep-alive\n\n"
"""A sign of life in a stream."""
_FINISH: Final = {"stop": "stop", "length": "length", "calls": "tool_calls"}


def parse(body: Mapping[str, Any], context: RequestContext) -> ModelRequest:
    """Return the request in the gateway's form.

    Raises:
        Refusal: the request is not valid, or asks for what cannot be given.
    """
    check_fields(body, context)
    may_call = checked_choice(body.get("tool_choice"), ("auto",), context)
    entries: list[Entry] = []
    for place, message in objects(body.get("messages"), "messages"):
        entries.append(_entry(message, place, context))
    if not entries:
        raise invalid("messages", "a list with at least one message", [])
    options = body.get("stream_options")
    tools = parse_tools(body.get("tools") if may_call else None, context)
    limit = body.get("max_completion_tokens")
    return ModelRequest(
        entries=tuple(entries),
        tools=tools.specs,
        forms=tools.forms,
        max_tokens=count(body.get("max_tokens") if limit is None else limit, "max_tokens"),
        model=text(body.get("model") or "", "model"),
        stream=bool(body.get("stream")),
        stream_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
        overridden=tuple(context.overridden),
    )


def _read_tools(tools: ToolList, definitions: object) -> None:
    for place, tool in objects(definitions, "tools"):
        tools.add_openai(tool, place)


parse_tools: Final = ToolReader(_read_tools)
"""Reads the `tools` of chat completions and of responses."""


def _entry(message: Mapping[str, Any], place: str, context: RequestContext) -> Entry:
    role = message.get("role")
    if role == "assistant":
        calls = [_call(call, where) for where, call in objects(message.get("tool_calls") or [], f"{place}.calls")]
        if not calls and message.get("function_call") is not None:
            legacy = mapping(message["function_call"], f"{place}.function_call")
            calls = [_call({"id": _legacy_id(legacy.get("name")), "function": legacy}, f"{place}.function_call")]
        content = joined(message.get("content"), f"{place}.content", "", context)
        return AssistantEntry(content or str(message.get("refusal") or ""), tuple(calls))
    content = joined(message.get("content"), f"{place}.content", "\n", context)
    if role == "tool":
        return OutputEntry(text(message.get("tool_call_id"), f"{place}.tool_call_id"), content)
    if role == "function":
        return OutputEntry(_legacy_id(message.get("name")), content)
    if role in ("system", "developer"):
        return TextEntry("system", content)
    if role == "user":
        return TextEntry("user", content)
    raise invalid(f"{place}.role", "system, developer, user, assistant or tool", role)


def _legacy_id(name: object) -> str:
    """Return an id for a call in the form before there were tools, whose output names the function only."""
    return f"function_{name}"


def _call(call: Mapping[str, Any], place: str) -> CallText:
    call_id = text(call.get("id") or "", f"{place}.id")
    if call.get("type") == "custom":
        custom = mapping(call.get("custom"), f"{place}.custom")
        return CallText(call_id, text(custom.get("name"), f"{place}.custom.name"), custom_arguments(custom, place))
    function = mapping(call.get("function"), f"{place}.function")
    arguments = function.get("arguments") or ""
    if isinstance(arguments, dict):  # some clients send the object
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = text(function.get("name"), f"{place}.function.name")
    return CallText(call_id, name, text(arguments, f"{place}.function.arguments"))


def whole(reply: ModelReply, request: ModelRequest) -> dict[str, Any]:
    """Return the reply as JSON."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = [_call_json(call, request) for call in reply.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply.finish]}
    return {**_common(reply, request, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def events(reply: ModelReply, request: ModelRequest) -> Iterator[str]:
    """Yield the reply as server-sent events."""
    common = _common(reply, request, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": reply.text or None}]
    deltas += [
        {"tool_calls": [{"index": number, **_call_json(call, request)}]} for number, call in enumerate(reply.calls)
    ]
    for delta in deltas:
        yield _event({**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]})
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _FINISH[reply.finish]}
    yield _event({**common, "choices": [last]})
    if request.stream_usage:
        yield _event({**common, "choices": [], "usage": _usage(reply)})
    yield "data: [DONE]\n\n"


def error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as JSON."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    code = refusal.code or {"ended": "episode_ended", "limit": "call_limit", "key": "invalid_api_key"}.get(refusal.kind)
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": code}}


def error_events(refusal: Refusal, request: ModelRequest) -> Iterator[str]:
    """Yield a refusal as server-sent events, for a stream that has begun."""
    yield _event(error(refusal))


def _common(reply: ModelReply, request: ModelRequest, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{reply.number}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": request.model or "policy"}


def _usage(reply: ModelReply) -> dict[str, int]:
    total = reply.input_tokens + reply.output_tokens
    return {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens, "total_tokens": total}


def _call_json(call: CallText, request: ModelRequest) -> dict[str, Any]:
    form = request.forms.get(call.tool)
    if form is not None and form.custom:
        return {"id": call.call_id, "type": "custom", "custom": {"name": form.name, "input": custom_input(call)}}
    function = {"name": call.tool, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
