"""The parts from which forms of tool calls are made: calls between marks, JSON, lists in Python, and typed values.

A form reads the text of a turn without its thoughts, and writes calls. What it cannot read becomes a `MalformedCall`;
no text makes it raise. `ludus.protocol.tool_calls` has the registry.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ludus.protocol.actions import Call
from ludus.protocol.items import MalformedCall, arguments_text, parse_arguments

AnyCall = Call | MalformedCall
"""A call in a turn of the model, or text that was meant as one and cannot be parsed."""

Schemas = Mapping[str, Mapping[str, Any]]
"""The JSON schemas of tools' arguments, by the tools' names: forms that write values without quotes need the types."""

NO_SCHEMAS: Final[Schemas] = {}

Read = Callable[[str, Schemas], tuple[str, list[AnyCall]]]
"""The text of a turn without thoughts → the text outside the calls, and the calls."""
Write = Callable[[Sequence[AnyCall]], str]
"""Calls → text that is read as the same calls."""
Body = Callable[[str, int, Schemas], tuple[AnyCall, int]]
"""A text, the position after a call's opening mark, and the tools' schemas → the call, and the position of its end.
Raises ValueError if no call is there."""

_JSON: Final = json.JSONDecoder()
_NAMES: Final = (
    re.compile(r'"(?:tool_)?name"\s*:\s*"([^"\\]*)"'),
    re.compile(r"([A-Za-z_][\w.]*)\s*\("),
    re.compile(r"\W*(?:function|functions|call|name)\W+([A-Za-z_][\w-]*)"),
    re.compile(r"\s*([A-Za-z_][\w-]*)"),
)
"""Where the name of a tool may be in a call that cannot be read; the first that occurs counts."""
_WORDS: Final[Mapping[str, Any]] = {"True": True, "False": False, "None": None}
_KINDS: Final[Mapping[type, str]] = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null",
}  # fmt: skip


# ── calls between marks ─────────────────────────────────────────────────────────────────────────────────────────────


def tagged(body: Body, opening: str, closing: str, *, around: Sequence[str] = (), what: str) -> Read:
    """Return the reader of calls between marks.

    Args:
        body: reads one call.
        opening: the pattern of the mark before a call.
        closing: the mark after a call; "" if there is none.
        around: marks around all calls, which are left out of the text.
        what: the problem of a call that has no such body or no closing mark.
    """
    marks = re.compile(f"(?P<opening>{opening})" + (f"|{re.escape(closing)}" if closing else ""))
    close = re.compile(rf"\s*{re.escape(closing)}") if closing else re.compile("")
    outer = re.compile("|".join(map(re.escape, around)) or "(?!)")
    plain = opening.replace("\\", "").partition("(?")[0]

    def one_call(text: str, opened: re.Match[str], schemas: Schemas) -> tuple[AnyCall, int]:
        start = opened.end()
        problem, end = what, start
        try:
            # The body is decoded, not cut at the next mark, because an argument may contain a mark.
            call, end = body(text, start, schemas)
            if (closed := close.match(text, end)) is not None:
                return call, closed.end()
        except (ValueError, RecursionError) as error:
            problem = str(error)
        mark = marks.search(text, end)
        stop = mark.start() if mark else len(text)
        closes = mark is not None and not mark["opening"]
        return malformed(
            text[opened.start() : stop], problem, start - opened.start()
        ), mark.end() if closes and mark else stop

    def read(text: str, schemas: Schemas) -> tuple[str, list[AnyCall]]:
        parts: list[str] = []
        calls: list[AnyCall] = []
        at = 0
        while (mark := marks.search(text, at)) is not None:
            parts.append(text[at : mark.start()])
            if mark["opening"]:
                call, at = one_call(text, mark, schemas)
            else:
                call, at = malformed(text[at : mark.end()], f"{closing} without {plain}"), mark.end()
            calls.append(call)
        parts.append(text[at:])
        return outer.sub("", "".join(parts)).strip(), calls

    return read


def malformed(text: str, problem: str, mark: int = 0) -> MalformedCall:
    """Return a call that cannot be read, with the name that its text seems to have after `mark` characters."""
    text = text[mark:]
    names = (pattern.search(text) if number < 2 else pattern.match(text) for number, pattern in enumerate(_NAMES))
    name = next(filter(None, names), None)
    return MalformedCall(name[1] if name else "", text, problem)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def decode(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a position, after white space, and the position of its end.

    Raises:
        ValueError, RecursionError: there is none.
    """
    return _JSON.raw_decode(text, len(text) - len(text[start:].lstrip()))


def call_of(
    value: object, text: str, name: str = "name", arguments: Sequence[str] = ("arguments", "parameters")
) -> AnyCall:
    """Return the call that a JSON object is; `text` is what the model wrote."""
    if not isinstance(value, dict) or not isinstance(value.get(name), str):
        return malformed(text, f'a call must be a JSON object with "{name}" and "{arguments[0]}"')
    given = next((value[key] for key in arguments if key in value), None)
    return parse_arguments(value[name], given)


def object_text(call: AnyCall, arguments: str, name: str = "name") -> str:
    """Return a call as a JSON object, with its arguments under the key `arguments`."""
    return f'{{"{name}": {json.dumps(call.tool, ensure_ascii=False)}, "{arguments}": {arguments_text(call)}}}'


def json_body(text: str, start: int, schemas: Schemas) -> tuple[AnyCall, int]:
    """Read a call as one JSON object; see `Body`."""
    try:
        value, end = decode(text, start)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the call is not valid JSON: {error}") from None
    return call_of(value, text[start:end]), end


def json_list(opening: str, closing: str, name: str = "name", arguments: str = "arguments") -> Read:
    """Return the reader of one JSON list of calls after a mark, and before another one if `closing` is not empty."""

    def read(text: str, schemas: Schemas) -> tuple[str, list[AnyCall]]:
        before, mark, rest = text.partition(opening)
        if not mark:
            return text.strip(), []
        try:
            value, end = decode(rest, 0)
            after = rest[end:].lstrip()
            if not isinstance(value, list) or not after.startswith(closing):
                raise ValueError(f"calls must be one JSON list{f' and then {closing}' if closing else ''}")
            after = after[len(closing) :]
            if opening in after:
                raise ValueError("calls must be one JSON list")
        except (ValueError, RecursionError) as error:
            return before.strip(), [malformed(rest, f"the calls are not a valid JSON list: {error}")]
        calls = [call_of(entry, json.dumps(entry), name, (arguments, "arguments", "parameters")) for entry in value]
        return (before + after).strip(), calls

    return read


# ── lists in Python ─────────────────────────────────────────────────────────────────────────────────────────────────


def python_calls(source: str) -> list[AnyCall]:
    """Return the calls of a list in Python, such as `[add(a=1), add(a=2)]`."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warns of invalid escapes in the model's strings
            tree = ast.parse(source.strip(), mode="eval").body
        if not isinstance(tree, ast.List):
            raise ValueError("not a list")
        return [_python_call(node, source) for node in tree.elts]
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError) as error:
        return [malformed(source, f"not a list of Python calls with named literals: {error}")]


def _python_call(node: ast.expr, source: str) -> AnyCall:
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError(f"{ast.get_source_segment(source.strip(), node)} is not a call with named arguments")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("** is not allowed")
        arguments[keyword.arg] = ast.literal_eval(_JsonNames().visit(keyword.value))
    return parse_arguments(ast.unparse(node.func), arguments)


class _JsonNames(ast.NodeTransformer):
    """Takes `true`, `false` and `null` for constants: some templates write objects within Python as JSON."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(json.loads(node.id)) if node.id in ("true", "false", "null") else node


def python_list(calls: Sequence[AnyCall]) -> str:
    """Write calls as a list in Python."""
    return f"[{', '.join(f'{call.tool}({_keywords(call)})' for call in calls)}]"


def _keywords(call: AnyCall) -> str:
    if isinstance(call, MalformedCall):
        return call.text
    return ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())


# ── values without quotes ───────────────────────────────────────────────────────────────────────────────────────────


def plain_value(value: Any) -> str:
    """Write a value as templates of markup do: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def typed_value(text: str, schema: Mapping[str, Any] | None) -> Any:
    """Return the value that a text without quotes is.

    The schema of the argument decides: where it allows texts alone, the text is the value. Otherwise it is read as
    JSON, or as the words of Python for true, false and null. What is neither stays a text, which the server checks.
    """
    kinds = kinds_of(schema)
    if kinds == {"string"}:
        return text
    try:
        value = _WORDS[text] if text in _WORDS else json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    kind = _KINDS[type(value)]
    allowed = not kinds or kind in kinds or (kind == "integer" and "number" in kinds)
    return text if isinstance(value, str) or ("string" in kinds and not allowed) else value


def schemas_of(calls: Sequence[AnyCall]) -> Schemas:
    """Return schemas that allow the types of the values in these calls, and no others."""
    schemas: dict[str, dict[str, Any]] = {}
    for call in calls:
        if isinstance(call, Call):
            properties = schemas.setdefault(call.tool, {"properties": {}})["properties"]
            for name, value in call.arguments.items():
                properties.setdefault(name, {"type": []})["type"].append(_KINDS.get(type(value), "object"))
    return schemas


def argument_schema(schemas: Schemas, tool: str, argument: str) -> Mapping[str, Any] | None:
    """Return the schema of one argument; None if there is none."""
    properties = schemas.get(tool, {}).get("properties")
    schema = properties.get(argument) if isinstance(properties, Mapping) else None
    return schema if isinstance(schema, Mapping) else None


def kinds_of(schema: Mapping[str, Any] | None) -> set[str]:
    """Return the JSON types that a schema names; none if it does not say."""
    if schema is None:
        return set()
    stated = schema.get("type")
    kinds = {stated} if isinstance(stated, str) else set(stated) if isinstance(stated, list) else set[str]()
    for key in ("enum", "const"):
        values = schema[key] if key == "enum" and key in schema else [schema[key]] if key in schema else []
        if not kinds and isinstance(values, list):
            kinds = {_KINDS.get(type(value), "object") for value in values}
    for key in ("anyOf", "oneOf"):
        for option in schema.get(key) or ():
            if not isinstance(option, Mapping) or not (more := kinds_of(option)):
                return set()
            kinds |= more
    return kinds


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
