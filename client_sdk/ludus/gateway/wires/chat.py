"""OpenAI's Chat Completions API: https://platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

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

NAME: Final = "chat"
_FINISH: Final = {"stop": "stop", "length": "length", "calls": "tool_calls"}


def parse(body: Mapping[str, Any], temperature: float, override: Collection[str]) -> ModelRequest:
    """Return the request in the gateway's form.

    Raises:
        Refusal: the request is not valid, or asks for what cannot be given.
    """
    overridden = list(check_sampling(body, temperature, override))
    may_call = checked_choice(body.get("tool_choice"), ("auto",), override, overridden)
    entries: list[Entry] = []
    for place, message in objects(body.get("messages"), "messages"):
        entries.append(_entry(message, place))
    if not entries:
        raise invalid("messages", "a list with at least one message", [])
    options = body.get("stream_options")
    return ModelRequest(
        entries=tuple(entries),
        tools=parse_tools(body.get("tools")) if may_call else (),
        max_tokens=count(body.get("max_completion_tokens", body.get("max_tokens")), "max_tokens"),
        model=text(body.get("model") or "", "model"),
        stream=bool(body.get("stream")),
        stream_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
        overridden=tuple(overridden),
    )


def _read_tools(definitions: object) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for place, tool in objects(definitions, "tools"):
        if tool.get("type") != "function":
            raise Refusal("unsupported", f"{place}: only tools of the type function can be used", param="tools")
        function = mapping(tool.get("function", tool), f"{place}.function")
        found.append(tool_spec(function, "parameters", place))
    return tuple(found)


parse_tools: Final = ToolReader(_read_tools)
"""Reads the `tools` of chat completions and of responses."""


def _entry(message: Mapping[str, Any], place: str) -> Entry:
    role = message.get("role")
    if role == "assistant":
        calls = tuple(_call(call, where) for where, call in objects(message.get("tool_calls") or [], f"{place}.calls"))
        said = joined(message.get("content"), f"{place}.content", "") or str(message.get("refusal") or "")
        return AssistantEntry(said, calls)
    content = joined(message.get("content"), f"{place}.content", "\n")
    if role == "tool":
        return OutputEntry(text(message.get("tool_call_id"), f"{place}.tool_call_id"), content)
    if role in ("system", "developer"):
        return TextEntry("system", content)
    if role == "user":
        return TextEntry("user", content)
    raise invalid(f"{place}.role", "system, developer, user, assistant or tool", role)


def _call(call: Mapping[str, Any], place: str) -> CallText:
    function = mapping(call.get("function"), f"{place}.function")
    arguments = function.get("arguments") or ""
    if isinstance(arguments, dict):  # some clients send the object
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = text(function.get("name"), f"{place}.function.name")
    return CallText(text(call.get("id") or "", f"{place}.id"), name, text(arguments, f"{place}.function.arguments"))


def joined(content: object, place: str, separator: str) -> str:
    """Return content as one text.

    Raises:
        Refusal: it holds something else than text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return text(content, place)
    parts: list[str] = []
    for where, part in objects(content, place):
        kind = part.get("type")
        if "text" not in part and kind != "refusal":
            raise Refusal(
                "unsupported", f"{where} is of the type {kind!r}, but this policy reads only text", param=place
            )
        parts.append(text(part.get("text", part.get("refusal", "")), where))
    return separator.join(parts)


def whole(reply: ModelReply, request: ModelRequest) -> dict[str, Any]:
    """Return the reply as JSON."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = [_call_json(call) for call in reply.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply.finish]}
    return {**_common(reply, request, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def events(reply: ModelReply, request: ModelRequest) -> Iterator[str]:
    """Yield the reply as server-sent events."""
    common = _common(reply, request, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": reply.text or None}]
    deltas += [{"tool_calls": [{"index": number, **_call_json(call)}]} for number, call in enumerate(reply.calls)]
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


def _common(reply: ModelReply, request: ModelRequest, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{reply.number}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": request.model or "policy"}


def _usage(reply: ModelReply) -> dict[str, int]:
    total = reply.input_tokens + reply.output_tokens
    return {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens, "total_tokens": total}


def _call_json(call: CallText) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
