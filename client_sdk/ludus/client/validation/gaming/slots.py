"""Where a policy can put its answer: the final message, and the texts among the arguments of tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.client.trajectory import Trajectory
from ludus.client.validation.policies import empty_arguments
from ludus.client.validation.transcripts import script_of
from ludus.protocol.actions import Answer, Call
from ludus.protocol.episodes import ToolSpec

_COMMAND: Final = re.compile(r"^(?:cmd|command|commands|shell|bash|script|code|source|program|python)$", re.IGNORECASE)
_PATH: Final = re.compile(r"^(?:path|file|filename|file_path|filepath|name|target)$", re.IGNORECASE)
_CONTENT: Final = re.compile(r"^(?:content|contents|text|data|body|new_str|code)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A place for a text."""

    tool: str | None
    """None for the final message."""
    argument: str = ""
    others: Mapping[str, Any] = field(default_factory=dict)
    """The other arguments of the call."""
    submits: bool = False
    """Whether the oracle ended its episodes by it."""

    def fill(self, text: str) -> Call | Answer:
        """The action with a text in its place."""
        if self.tool is None:
            return Answer(text)
        return Call(self.tool, {**self.others, self.argument: text})


@dataclass(frozen=True, slots=True, eq=False)
class Numeric:
    """A place for a number."""

    tool: str
    argument: str
    others: Mapping[str, Any] = field(default_factory=dict)

    def fill(self, number: Any) -> Call:
        """The call with a number in its place."""
        return Call(self.tool, {**self.others, self.argument: number})


def text_slots(tools: Iterable[ToolSpec], gradable: bool, oracle: Iterable[Trajectory]) -> list[Slot]:
    """The places for texts, those first by which the oracle ends its episodes."""
    last = _last_calls(oracle)
    found: list[Slot] = []
    for tool in tools:
        template = {**empty_arguments(tool.input_schema), **last.get(tool.name, {})}
        for name, schema in _properties(tool).items():
            if _is(schema, "string"):
                others = {key: value for key, value in template.items() if key != name}
                found.append(Slot(tool.name, name, others, tool.name in last))
    if gradable:
        found.append(Slot(None, submits=True))
    return sorted(found, key=lambda slot: not slot.submits)


def number_slots(tools: Iterable[ToolSpec], oracle: Iterable[Trajectory]) -> list[Numeric]:
    """The places for numbers."""
    last = _last_calls(oracle)
    return [
        Numeric(tool.name, name, {key: value for key, value in template.items() if key != name})
        for tool in tools
        for template in ({**empty_arguments(tool.input_schema), **last.get(tool.name, {})},)
        for name, schema in _properties(tool).items()
        if _is(schema, "number") or _is(schema, "integer")
    ]


def command_slots(slots: Iterable[Slot]) -> list[Slot]:
    """Those among the places for texts whose text is run: commands and code."""
    return [slot for slot in slots if slot.tool is not None and _COMMAND.match(slot.argument)]


def file_tools(tools: Iterable[ToolSpec]) -> list[tuple[str, str, str]]:
    """Tools that write a file: their names, and the arguments for the path and the content."""
    found = []
    for tool in tools:
        names = [name for name, schema in _properties(tool).items() if _is(schema, "string")]
        path = next((name for name in names if _PATH.match(name)), None)
        content = next((name for name in names if name != path and _CONTENT.match(name)), None)
        if path and content:
            found.append((tool.name, path, content))
    return found


def finishing(tools: Iterable[ToolSpec], gradable: bool, oracle: Iterable[Trajectory]) -> list[Call | Answer]:
    """How an episode is handed in without an answer: the oracle's last calls, with the emptiest arguments."""
    last = _last_calls(oracle)
    found: list[Call | Answer] = [
        Call(tool.name, {**empty_arguments(tool.input_schema), **last[tool.name]})
        for tool in tools
        if tool.name in last
    ]
    return found or ([Answer("")] if gradable else [])


def answers(oracle: Iterable[Trajectory], slot: Slot) -> list[str]:
    """What the oracle put into a place, on all tasks it has played."""
    found: list[str] = []
    for play in oracle:
        for action in reversed(script_of(play).actions):
            if isinstance(action, Answer) and slot.tool is None:
                found.append(action.text)
                break
            if isinstance(action, Call) and action.tool == slot.tool:
                value = action.arguments.get(slot.argument)
                if isinstance(value, str):
                    found.append(value)
                break
    return list(dict.fromkeys(found))


def _last_calls(oracle: Iterable[Trajectory]) -> dict[str, dict[str, Any]]:
    """The tools by which the oracle's episodes ended, with those arguments that were the same for every task."""
    found: dict[str, list[dict[str, Any]]] = {}
    for play in oracle:
        actions = script_of(play).actions
        if actions and isinstance(actions[-1], Call):
            found.setdefault(actions[-1].tool, []).append(dict(actions[-1].arguments))
    return {
        tool: {
            name: value
            for name, value in calls[0].items()
            if len(calls) > 1 and all(name in call and call[name] == value for call in calls)
        }
        for tool, calls in found.items()
    }


def _properties(tool: ToolSpec) -> dict[str, Any]:
    found = tool.input_schema.get("properties", {})
    return found if isinstance(found, dict) else {}


def _is(schema: Any, kind: str) -> bool:
    if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
        return False
    kinds = schema.get("type")
    if kinds == kind or (isinstance(kinds, list) and kind in kinds):
        return True
    return any(_is(one, kind) for keyword in ("anyOf", "oneOf") for one in schema.get(keyword, ()))
