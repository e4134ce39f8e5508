"""Forms of tool calls that write arguments without JSON around them, or that divide a turn into channels.

markup      <function=add>\n<parameter=a>\n1\n</parameter>\n</function>       Qwen3-Coder, Qwen3.5, Nemotron 3
            <invoke name="add">\n<parameter name="a">1</parameter>\n</invoke>  MiniMax, Muse
pairs       add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>                GLM
gemma       call:add{a:1,text:<|"|>x<|"|>}                                     Gemma 4
harmony     <|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}      gpt-oss
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ludus.forms.text import (
    AnyCall,
    Body,
    Schemas,
    argument_schema,
    decode,
    plain_value,
    typed_value,
)
from ludus.protocol.items import MalformedCall, arguments_text, parse_arguments

_QUOTE: Final = '<|"|>'


def _arguments(call: AnyCall) -> Mapping[str, Any]:
    return {} if isinstance(call, MalformedCall) else call.arguments


# ── markup ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def markup_body(name: str, parameter: str, parameter_end: str, end: str, *, lines: bool) -> Body:
    r"""Return the reader of a call with one element for each argument.

    Args:
        name: the pattern of the rest of the opening mark, with the tool's name as its group.
        parameter: the pattern of the mark before a value, with the argument's name as its group.
        parameter_end: the mark after a value.
        end: the mark after the last argument.
        lines: whether a value stands between two line breaks that are not part of it.
    """
    opened, before = re.compile(name), re.compile(rf"\s*(?:{parameter})")
    # A value may contain the mark that ends it: only one that another argument or the call's end follows counts.
    after = re.compile(rf"{re.escape(parameter_end)}(?=\s*(?:{parameter}|{re.escape(end)}))")
    closed = re.compile(rf"\s*{re.escape(end)}")

    def body(text: str, start: int, schemas: Schemas) -> tuple[AnyCall, int]:
        head = opened.match(text, start)
        if head is None:
            raise ValueError("the call does not begin with the name of a tool")
        tool, at = head[1].strip(), head.end()
        arguments: dict[str, Any] = {}
        while (mark := before.match(text, at)) is not None:
            stop = after.search(text, mark.end())
            if stop is None:
                raise ValueError(f"the argument {mark[1]} has no {parameter_end}")
            value = text[mark.end() : stop.start()]
            if lines:
                value = value.removeprefix("\n").removesuffix("\n")
            arguments[mark[1].strip()] = typed_value(value, argument_schema(schemas, tool, mark[1].strip()))
            at = stop.end()
        last = closed.match(text, at)
        if last is None:
            raise ValueError(f"the call has no {end} after its arguments")
        return parse_arguments(tool, arguments), last.end()

    return body


def write_markup(call: AnyCall, opening: str, parameter: str, closing: str) -> str:
    """Write one call, with formats of its opening, of one argument, and with its closing."""
    values = "".join(parameter.format(name, plain_value(value)) for name, value in _arguments(call).items())
    return opening.format(call.tool) + values + closing


# ── pairs ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_PAIR: Final = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>", re.DOTALL)
_PAIR_END: Final = re.compile(r"</arg_value>(?=\s*(?:<arg_key>|</tool_call>))")
_PAIRED_NAME: Final = re.compile(r"\s*([^\s<]+)\s*")


def pairs_body(text: str, start: int, schemas: Schemas) -> tuple[AnyCall, int]:
    """Read a call as its tool's name and pairs of keys and values; see `Body`."""
    head = _PAIRED_NAME.match(text, start)
    if head is None:
        raise ValueError("the call does not begin with the name of a tool")
    tool, at = head[1], head.end()
    arguments: dict[str, Any] = {}
    while (pair := _PAIR.match(text, at)) is not None:
        stop = _PAIR_END.search(text, pair.end())
        if stop is None:
            raise ValueError(f"the argument {pair[1]} has no </arg_value>")
        name = pair[1].strip()
        arguments[name] = typed_value(text[pair.end() : stop.start()], argument_schema(schemas, tool, name))
        at = stop.end()
    return parse_arguments(tool, arguments), at


def write_pairs(call: AnyCall) -> str:
    """Write a call as its tool's name and pairs of keys and values."""
    pairs = [
        f"<arg_key>{name}</arg_key>\n<arg_value>{plain_value(value)}</arg_value>\n"
        for name, value in _arguments(call).items()
    ]
    return f"{call.tool}\n{''.join(pairs)}"


# ── Gemma ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_GEMMA_NAME: Final = re.compile(r"\s*call:([^\s{]+)\s*(?=\{)")
_GEMMA_WORD: Final = re.compile(r"[^,}\]\[{\s]+")
_GEMMA_KEY: Final = re.compile(r'\s*(?:<\|"\|>(.*?)<\|"\|>|([^:,}]+?))\s*:', re.DOTALL)


def gemma_body(text: str, start: int, schemas: Schemas) -> tuple[AnyCall, int]:
    """Read a call in the notation of Gemma 4; see `Body`."""
    head = _GEMMA_NAME.match(text, start)
    if head is None:
        raise ValueError("the call does not begin with call:NAME{")
    value, end = _gemma_value(text, head.end())
    return parse_arguments(head[1], value), end


def _gemma_value(text: str, at: int) -> tuple[Any, int]:
    at = _skip(text, at)
    if text.startswith(_QUOTE, at):
        end = text.find(_QUOTE, at + len(_QUOTE))
        if end < 0:
            raise ValueError(f"a text has no {_QUOTE} at its end")
        return text[at + len(_QUOTE) : end], end + len(_QUOTE)
    if text.startswith("{", at):
        fields: dict[str, Any] = {}
        at = _skip(text, at + 1)
        while not text.startswith("}", at):
            key = _GEMMA_KEY.match(text, at)
            if key is None:
                raise ValueError(f"an argument has no name, or the call no end: {text[at : at + 40]!r}")
            fields[key[1] if key[1] is not None else key[2].strip()], at = _gemma_value(text, key.end())
            at = _next(text, at, "}")
        return fields, at + 1
    if text.startswith("[", at):
        entries: list[Any] = []
        at = _skip(text, at + 1)
        while not text.startswith("]", at):
            entry, at = _gemma_value(text, at)
            entries.append(entry)
            at = _next(text, at, "]")
        return entries, at + 1
    word = _GEMMA_WORD.match(text, at)
    if word is None:
        raise ValueError(f"a value is missing: {text[at : at + 40]!r}")
    return typed_value(word[0], None), word.end()


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _next(text: str, at: int, end: str) -> int:
    at = _skip(text, at)
    if text.startswith(",", at):
        return _skip(text, at + 1)
    if not text.startswith(end, at):
        raise ValueError(f"a comma or {end} is missing: {text[at : at + 40]!r}")
    return at


def write_gemma(call: AnyCall) -> str:
    """Write a call in the notation of Gemma 4."""
    return f"call:{call.tool}{_gemma_text(_arguments(call))}"


def _gemma_key(name: str) -> str:
    return name if name.isidentifier() else f"{_QUOTE}{name}{_QUOTE}"


def _gemma_text(value: Any) -> str:
    if isinstance(value, str):
        return f"{_QUOTE}{value}{_QUOTE}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_gemma_key(name)}:{_gemma_text(entry)}" for name, entry in sorted(value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_gemma_text, value)) + "]"
    return json.dumps(value)


# ── names before JSON ───────────────────────────────────────────────────────────────────────────────────────────────


def named_body(pattern: str, after: str = "") -> Body:
    """Return the reader of a call as its tool's name and then a JSON object.

    Args:
        pattern: the pattern of what is before the object, with the tool's name as its first group.
        after: the pattern of what may follow the object.
    """
    head, tail = re.compile(pattern), re.compile(after)

    def body(text: str, start: int, schemas: Schemas) -> tuple[AnyCall, int]:
        name = head.match(text, start)
        if name is None:
            raise ValueError("the call does not begin with the name of a tool")
        try:
            value, end = decode(text, name.end())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the arguments are not valid JSON: {error}") from None
        last = tail.match(text, end)
        if not isinstance(value, dict):
            return MalformedCall(name[1], text[name.end() : end], "the arguments must be a JSON object"), end
        return parse_arguments(name[1], value), last.end() if last else end

    return body


# ── channels ────────────────────────────────────────────────────────────────────────────────────────────────────────

_START: Final = "<|start|>"
_MESSAGE: Final = "<|message|>"
_HARMONY_END: Final = re.compile(r"<\|(?:end|return|call|start)\|>")
_RECIPIENT: Final = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)")


def harmony_parts(text: str) -> list[tuple[str | None, str | None, str]]:
    """Return the messages of a turn of gpt-oss: the channel, the recipient and the text of each."""
    parts: list[tuple[str | None, str | None, str]] = []
    for piece in text.split(_START):
        header, mark, rest = piece.partition(_MESSAGE)
        if not mark:
            if not parts and not _CHANNEL.search(header) and piece.strip():
                parts.append((None, None, _HARMONY_END.split(piece)[0]))
            continue
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        parts.append((channel and channel[1], recipient and recipient[1], _HARMONY_END.split(rest)[0]))
    return parts


def split_harmony(text: str) -> tuple[str, str]:
    """Return the thoughts of a turn, and the turn itself, whose thoughts `read_harmony` leaves out."""
    return "\n".join(body for channel, to, body in harmony_parts(text) if channel == "analysis" and to is None), text


def read_harmony(text: str, schemas: Schemas) -> tuple[str, list[AnyCall]]:
    """Read messages to tools as calls, and all others but thoughts as the message."""
    messages: list[str] = []
    calls: list[AnyCall] = []
    for channel, recipient, body in harmony_parts(text):
        if recipient is not None and recipient != "user":
            calls.append(parse_arguments(recipient, body.strip()))
        elif channel != "analysis":
            messages.append(body)
    return "\n".join(messages).strip(), calls


def write_harmony(calls: Sequence[AnyCall]) -> str:
    """Write calls as messages to tools."""
    return "<|call|><|start|>assistant".join(
        f"<|channel|>commentary to=functions.{call.tool} <|constrain|>json{_MESSAGE}{arguments_text(call)}"
        for call in calls
    )


_MUSE_START: Final = re.compile(r"<\|start\|>assistant")
_MUSE_END: Final = re.compile(r"<\|e(?:om|ot)\|>")


def split_muse(text: str) -> tuple[str, str]:
    """Return the thoughts of a turn of Muse, which it sends to itself, and the texts of its other messages."""
    thoughts: list[str] = []
    spoken: list[str] = []
    for piece in _MUSE_START.split(text):
        header, mark, rest = piece.partition(_MESSAGE)
        body = _MUSE_END.split(rest if mark else piece)[0]
        (thoughts if mark and header.strip() == "to=self" else spoken).append(body)
    return "\n".join(thoughts).strip(), "\n".join(filter(None, spoken))


def write_muse(calls: Sequence[AnyCall]) -> str:
    """Write calls as messages to tools."""
    invoke = '<atem:function_calls>\n<atem:invoke name="{}">\n'
    parameter, end = '<atem:parameter name="{}">{}</atem:parameter>\n', "</atem:invoke>\n</atem:function_calls>"
    return "<|eom|><|start|>assistant".join(
        f" to={call.tool}{_MESSAGE}{write_markup(call, invoke, parameter, end)}" for call in calls
    )
