"""The slots where a policy can put its answer: the final message, and text arguments of tools."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.client.formats._schema import UnsupportedSchema, resolve
from ludus.protocol.actions import Answer, Call
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.policies import empty_arguments
from ludus.validation.core.transcripts import script_of

_COMMAND: Final = re.compile(r"^(?:cmd|command|commands|shell|bash|script|code|source|program|python)$", re.IGNORECASE)
_PATH: Final = re.compile(r"path|file|name|target|dest|where|location", re.IGNORECASE)
_CONTENT: Final = re.compile(r"(?:content|text|data|body|str|string|code|value)s?$", re.IGNORECASE)

DEEPEST: Final = 4
"""The levels of lists and objects below an argument that are searched for texts."""

Make = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A place for a text."""

    tool: str | None
    """The tool's name; None for the final message."""
    argument: str = ""
    others: Mapping[str, Any] = field(default_factory=dict)
    """The other arguments of the call."""
    submits: bool = False
    """True if the oracle ended its episodes with this slot."""
    make: Make = field(default=lambda texts: texts[0])
    """Returns the argument's value for some texts: a text, or a list or an object around it."""
    takes: int = 1
    """The most texts that it holds; more than one for lists."""

    def fill(self, *texts: str) -> Call | Answer:
        """Return the action with a text in this slot, or with several texts if the slot takes them."""
        if self.tool is None:
            return Answer(texts[0])
        return Call(self.tool, {**self.others, self.argument: self.make(texts)})


@dataclass(frozen=True, slots=True, eq=False)
class Numeric:
    """A place for a number."""

    tool: str
    argument: str
    others: Mapping[str, Any] = field(default_factory=dict)

    def fill(self, number: Any) -> Call:
        """Return the call with a number in this slot."""
        return Call(self.tool, {**self.others, self.argument: number})


def text_slots(tools: Iterable[ToolSpec], gradable: bool, oracle: Iterable[Trajectory]) -> list[Slot]:
    """Return the slots for texts; those with which the oracle ends its episodes come first."""
    last_calls = _last_calls(oracle)
    slots: list[Slot] = []
    for tool in tools:
        template = {**empty_arguments(tool.input_schema), **last_calls.get(tool.name, {})}
        for name, schema in _properties(tool.input_schema).items():
            arguments = {key: value for key, value in template.items() if key != name}
            for make, takes in _shapes(schema, tool.input_schema):
                slots.append(Slot(tool.name, name, arguments, tool.name in last_calls, make, takes))
    if gradable:
        slots.append(Slot(None, submits=True))
    return sorted(slots, key=lambda slot: not slot.submits)


def _shapes(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[Make, int]]:
    """Yield the ways in which values of a schema can hold texts, each with the most texts that it holds."""
    if not isinstance(schema, dict) or depth > DEEPEST or "enum" in schema or "const" in schema:
        return
    if "$ref" in schema:
        try:
            schema = resolve(dict(root), schema["$ref"])
        except UnsupportedSchema:
            return
    for keyword in ("anyOf", "oneOf"):
        for alternative in schema.get(keyword, ()):
            yield from _shapes(alternative, root, depth + 1)
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    if "string" in types:
        yield (lambda texts: texts[0]), 1
    if "array" in types:
        least, greatest = schema.get("minItems", 0), schema.get("maxItems", sys.maxsize)
        for make, _ in _shapes(schema.get("items"), root, depth + 1):
            yield _in_list(make, least), greatest
    if "object" in types:
        for name, inner in _properties(schema).items():
            for make, takes in _shapes(inner, root, depth + 1):
                yield _in_object(empty_arguments(schema, root), name, make), takes


def _in_list(make: Make, least: int) -> Make:
    return lambda texts: [make([text]) for text in [*texts, *[texts[-1]] * (least - len(texts))]]


def _in_object(arguments: Mapping[str, Any], name: str, make: Make) -> Make:
    return lambda texts: {**arguments, name: make(texts)}


def number_slots(tools: Iterable[ToolSpec], oracle: Iterable[Trajectory]) -> list[Numeric]:
    """Return the slots for numbers."""
    last_calls = _last_calls(oracle)
    return [
        Numeric(tool.name, name, {key: value for key, value in template.items() if key != name})
        for tool in tools
        for template in ({**empty_arguments(tool.input_schema), **last_calls.get(tool.name, {})},)
        for name, schema in _properties(tool.input_schema).items()
        if _is(schema, "number") or _is(schema, "integer")
    ]


def command_slots(slots: Iterable[Slot]) -> list[Slot]:
    """Return the text slots whose text is executed, such as commands and code."""
    return [slot for slot in slots if slot.tool is not None and _COMMAND.match(slot.argument)]


def file_tools(tools: Iterable[ToolSpec]) -> list[tuple[str, str, str]]:
    """Return the tools that may write a file: their names, and the arguments for the path and the content.

    Any tool with two text arguments may write a file. If their names do not say which one is the path, it is the first;
    tools whose names say it come first.
    """
    candidates: list[tuple[bool, tuple[str, str, str]]] = []
    for tool in tools:
        names = [name for name, schema in _properties(tool.input_schema).items() if _is(schema, "string")]
        if len(names) < 2:
            continue
        content = next((name for name in names if _CONTENT.search(name)), None)
        path = next((name for name in names if name != content and _PATH.search(name)), None)
        unclear = content is None or path is None
        path = path or next(name for name in names if name != content)
        candidates.append((unclear, (tool.name, path, content or next(name for name in names if name != path))))
    return [entry for _, entry in sorted(candidates, key=lambda pair: pair[0])]


def finishing(tools: Iterable[ToolSpec], gradable: bool, oracle: Iterable[Trajectory]) -> list[Call | Answer]:
    """Return the actions that submit an episode without an answer: the oracle's last calls, with empty arguments."""
    last_calls = _last_calls(oracle)
    actions: list[Call | Answer] = [
        Call(tool.name, {**empty_arguments(tool.input_schema), **last_calls[tool.name]})
        for tool in tools
        if tool.name in last_calls
    ]
    return actions or ([Answer("")] if gradable else [])


def answers(oracle: Iterable[Trajectory], slot: Slot) -> list[str]:
    """Return the distinct texts that the oracle put into a slot, on all tasks that it has played."""
    texts: list[str] = []
    for play in oracle:
        for action in reversed(script_of(play).actions):
            if isinstance(action, Answer) and slot.tool is None:
                texts.append(action.text)
                break
            if isinstance(action, Call) and action.tool == slot.tool:
                texts += texts_in(action.arguments.get(slot.argument))
                break
    return list(dict.fromkeys(texts))


def texts_in(value: Any) -> list[str]:
    """Return the texts in a value, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [text for part in value for text in texts_in(part)] if isinstance(value, (list, tuple)) else []


def texts_of(action: Call | Answer) -> list[tuple[str | None, str]]:
    """Return the texts of an action, each with the name of its argument, or None for a final message."""
    if isinstance(action, Answer):
        return [(None, action.text)]
    return [(name, value) for name, value in action.arguments.items() if isinstance(value, str)]


def with_text(action: Call | Answer, name: str | None, text: str) -> Call | Answer:
    """Return the same action with another text."""
    if isinstance(action, Answer) or name is None:
        return Answer(text)
    return Call(action.tool, {**action.arguments, name: text})


def _last_calls(oracle: Iterable[Trajectory]) -> dict[str, dict[str, Any]]:
    """Return the tools with which the oracle's episodes ended, with the arguments that were the same for every task."""
    calls_by_tool: dict[str, list[dict[str, Any]]] = {}
    for play in oracle:
        actions = script_of(play).actions
        if actions and isinstance(actions[-1], Call):
            calls_by_tool.setdefault(actions[-1].tool, []).append(dict(actions[-1].arguments))
    return {
        tool: {
            name: value
            for name, value in calls[0].items()
            if len(calls) > 1 and all(name in call and call[name] == value for call in calls)
        }
        for tool, calls in calls_by_tool.items()
    }


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else {}


def _is(schema: Any, kind: str) -> bool:
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return False
    types = schema.get("type")
    if types == kind or (isinstance(types, list) and kind in types):
        return True
    return any(_is(alternative, kind) for keyword in ("anyOf", "oneOf") for alternative in schema.get(keyword, ()))
