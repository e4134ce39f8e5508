"""Forms made of the JSON Schemas of tools, and the arguments that a person has entered in one.

Strings, numbers, integers, booleans and enums have fields of their own. Everything else (arrays, objects, unions) is
entered as JSON. The environment's server checks the arguments against the whole schema, as it does for every agent; a
form only turns text into JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ludus.protocol.episodes import ToolSpec

MOST_FIELDS: Final = 40
"""The most arguments with fields of their own; a tool with more takes all of them as one JSON object."""

MOST_CHOICES: Final = 100
"""The most values of an enum that is shown as a list; a longer one is entered as JSON."""

LONGEST_ENTRY: Final = 64 * 1024
"""The most characters of one entry."""

Kind = Literal["text", "integer", "number", "boolean", "choice", "json"]

WHOLE: Final = "arguments"
"""The name of the field that takes all arguments as one JSON object."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One entry of a form.

    Attributes:
        name: the argument's name.
        kind: how it is entered.
        is_required: whether the tool needs it.
        help: what it means.
        choices: the values of an enum, as JSON.
        value: what was entered, or the default.
        problem: why the entry was not taken; empty if it was.
    """

    name: str
    kind: Kind
    is_required: bool
    help: str
    choices: tuple[str, ...] = ()
    value: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ToolForm:
    """The form of one tool."""

    tool: str
    description: str
    fields: tuple[FormField, ...]


def tool_form(tool: ToolSpec, entries: Mapping[str, str] | None = None) -> ToolForm:
    """Return the form of a tool, filled in with entries and their problems if there are any."""
    problems = read_arguments(tool, entries)[1] if entries is not None else {}
    fields = []
    for field in _fields(tool):
        value = entries.get(f"a.{field.name}", "") if entries is not None else field.value
        fields.append(
            FormField(
                field.name, field.kind, field.is_required, field.help, field.choices, value,
                problems.get(field.name, ""),
            )
        )  # fmt: skip
    return ToolForm(tool.name, tool.description, tuple(fields))


def read_arguments(tool: ToolSpec, entries: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments that were entered, and what is wrong with entries, by the argument's name.

    An empty entry of an optional argument leaves the argument out.
    """
    arguments: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for field in _fields(tool):
        entry = entries.get(f"a.{field.name}", "")
        if not entry.strip() and not (field.kind == "text" and field.is_required):
            if field.is_required:
                problems[field.name] = "This is needed."
            continue
        try:
            value = _value(field, entry)
        except ValueError as error:
            problems[field.name] = str(error)
            continue
        if field.name == WHOLE and field.kind == "json" and _is_whole(tool):
            arguments = value if isinstance(value, dict) else {}
            if not isinstance(value, dict):
                problems[field.name] = 'Enter a JSON object, such as {"name": "value"}.'
        else:
            arguments[field.name] = value
    return arguments, problems


def _properties(tool: ToolSpec) -> dict[str, Any]:
    found = tool.input_schema.get("properties")
    return found if isinstance(found, dict) else {}


def _is_whole(tool: ToolSpec) -> bool:
    """Return whether a tool takes its arguments as one JSON object: it has too many, or names none but allows some."""
    properties = _properties(tool)
    is_closed = tool.input_schema.get("additionalProperties") is False
    simple = {"type", "properties", "title", "description", "$schema"}
    is_open = not properties and not is_closed and not set(tool.input_schema) <= simple
    return len(properties) > MOST_FIELDS or is_open


def _fields(tool: ToolSpec) -> list[FormField]:
    if _is_whole(tool):
        return [FormField(WHOLE, "json", False, "All arguments, as a JSON object.", value="{}")]
    required = tool.input_schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set[str]()
    return [_field(str(name), schema, str(name) in needed) for name, schema in _properties(tool).items()]


def _field(name: str, schema: Any, is_required: bool) -> FormField:
    facts = schema if isinstance(schema, dict) else {}
    about = str(facts.get("description", ""))[:500]
    default = facts.get("default")
    values = facts.get("enum")
    if isinstance(values, list) and 0 < len(values) <= MOST_CHOICES:
        choices = tuple(json.dumps(value, ensure_ascii=False) for value in values)
        chosen = json.dumps(default, ensure_ascii=False) if "default" in facts else ""
        return FormField(name, "choice", is_required, about, choices, chosen if chosen in choices else "")
    kinds: dict[Any, Kind] = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
    declared = facts.get("type")
    kind = kinds.get(declared, "json") if isinstance(declared, str) else "json"
    shown = (
        default if isinstance(default, str) and kind == "text" else json.dumps(default) if "default" in facts else ""
    )
    return FormField(name, kind, is_required, about, value=shown)


def _value(field: FormField, entry: str) -> Any:
    """Return an entry as a JSON value.

    Raises:
        ValueError: it is none of the kind; the message is for the person.
    """
    if len(entry) > LONGEST_ENTRY:
        raise ValueError(f"This is longer than {LONGEST_ENTRY:,} characters.")
    if field.kind == "text":
        return entry.replace("\r\n", "\n")
    if field.kind == "choice":
        if entry not in field.choices:
            raise ValueError("Choose one of the values.")
        return json.loads(entry)
    if field.kind == "boolean":
        if entry not in ("true", "false"):
            raise ValueError("Choose yes or no.")
        return entry == "true"
    if field.kind == "integer":
        text = entry.strip()
        if not (text.isascii() and text.lstrip("+-").isdigit() and len(text) <= 20):
            raise ValueError(f"Enter a whole number, not “{text[:40]}”.")
        return int(text)
    return _number(entry) if field.kind == "number" else _json(entry)


def _number(entry: str) -> float | int:
    value = _json(entry)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Enter a number, not “{entry.strip()[:40]}”.")
    return value


def _json(entry: str) -> Any:
    try:
        return json.loads(entry, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"This is not JSON: {str(error)[:120]}. Texts need quotation marks.") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")
