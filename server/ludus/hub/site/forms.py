"""Forms made of the JSON Schemas of tools, and the arguments that a person has entered in one.

Strings, numbers, integers, booleans and enums have fields of their own, also where they may be null or are defined
elsewhere in the schema. Everything else (arrays, objects, unions) is entered as JSON, with an example of its shape. The
environment's server checks the arguments against the whole schema, as it does for every agent; a form only turns text
into JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ludus.protocol.episodes import ToolSpec

MOST_FIELDS: Final = 40
"""The most arguments with fields of their own; a tool with more takes all of them as one JSON object."""

MOST_CHOICES: Final = 100
"""The most values of an enum that is shown as a list; a longer one is entered as JSON."""

MOST_REFERENCES: Final = 20
"""How many references to definitions are followed for one argument."""

EXAMPLE_DEPTH: Final = 4
"""How deep an example of a JSON value is; what is deeper is null."""

EXAMPLE_FIELDS: Final = 8
"""The most fields of one object in an example."""

LONGEST_EXAMPLE: Final = 300
"""The most characters of an example; a longer one is not shown."""

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
        example: a JSON value of the shape that the tool takes; empty for entries that are not JSON.
        is_nullable: whether null is a value of it, which a required argument gets from an empty entry.
        value: what was entered, or the default.
        problem: why the entry was not taken; empty if it was.
    """

    name: str
    kind: Kind
    is_required: bool
    help: str
    choices: tuple[str, ...] = ()
    example: str = ""
    is_nullable: bool = False
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
        fields.append(replace(field, value=value, problem=problems.get(field.name, "")))
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
            if field.is_required and field.is_nullable:
                arguments[field.name] = None
            elif field.is_required:
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
    root = tool.input_schema
    return [_field(str(name), schema, str(name) in needed, root) for name, schema in _properties(tool).items()]


def _field(name: str, schema: Any, is_required: bool, root: Mapping[str, Any]) -> FormField:
    facts, is_nullable = _resolved(schema, root)
    about = str(facts.get("description", ""))[:500]
    default = facts.get("default")
    if default is None and is_nullable:  # an empty entry
        facts.pop("default", None)
    values = facts.get("enum")
    if isinstance(values, list) and 0 < len(values) <= MOST_CHOICES:
        choices = tuple(json.dumps(value, ensure_ascii=False) for value in values)
        chosen = json.dumps(default, ensure_ascii=False) if "default" in facts else ""
        return FormField(
            name, "choice", is_required, about, choices, is_nullable=is_nullable,
            value=chosen if chosen in choices else "",
        )  # fmt: skip
    kinds: dict[Any, Kind] = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
    declared = facts.get("type")
    kind = kinds.get(declared, "json") if isinstance(declared, str) else "json"
    shown = (
        default if isinstance(default, str) and kind == "text" else json.dumps(default) if "default" in facts else ""
    )
    example = json.dumps(_example(facts, root, EXAMPLE_DEPTH), ensure_ascii=False) if kind == "json" else ""
    example = example if 0 < len(example) <= LONGEST_EXAMPLE and example != "null" else ""
    return FormField(name, kind, is_required, about, example=example, is_nullable=is_nullable, value=shown)


def _resolved(schema: Any, root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the schema of a value without references and without the choice of null, and whether null is one."""
    facts = dict(schema) if isinstance(schema, dict) else {}
    is_nullable = False
    for _ in range(MOST_REFERENCES):
        target = facts.get("$ref")
        options = facts.get("anyOf", facts.get("oneOf", facts.get("allOf")))
        if isinstance(target, str) and target.startswith("#/$defs/"):
            definitions = root.get("$defs")
            found = definitions.get(target.removeprefix("#/$defs/")) if isinstance(definitions, dict) else None
            inner = found if isinstance(found, dict) else {}
        elif isinstance(options, list) and options:
            others = [option for option in options if option != {"type": "null"}]
            is_nullable = is_nullable or ("allOf" not in facts and len(others) < len(options))
            if len(others) != 1 or not isinstance(others[0], dict):
                break
            inner = others[0]
        else:
            break
        outer = {key: value for key, value in facts.items() if key not in ("$ref", "anyOf", "oneOf", "allOf")}
        facts = {**inner, **outer}
    if "const" in facts:
        facts = {"enum": [facts["const"]], **facts}
    declared = facts.get("type")
    if isinstance(declared, list) and len(declared) == 2 and "null" in declared:
        facts["type"], is_nullable = next((one for one in declared if one != "null"), "null"), True
    if isinstance(facts.get("enum"), list) and None in facts["enum"] and is_nullable:
        facts["enum"] = [one for one in facts["enum"] if one is not None]
    return facts, is_nullable


def _example(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """Return a value of the shape of a schema, for a person to change."""
    facts, _ = _resolved(schema, root)
    values, declared = facts.get("enum"), facts.get("type")
    if isinstance(values, list) and values:
        return values[0]
    if depth and declared == "array":
        return [_example(facts.get("items"), root, depth - 1)]
    properties = facts.get("properties")
    if depth and isinstance(properties, dict):
        shown = list(properties.items())[:EXAMPLE_FIELDS]
        return {str(name): _example(one, root, depth - 1) for name, one in shown}
    if depth and declared == "object":
        return {"name": _example(facts.get("additionalProperties"), root, depth - 1)}
    plain = {"string": "text", "integer": 1, "number": 1.5, "boolean": True}
    return plain.get(declared) if isinstance(declared, str) else None


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
