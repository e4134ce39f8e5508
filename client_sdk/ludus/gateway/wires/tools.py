"""Tool definitions of the wires, and the forms in which their calls are written.

The policy knows functions only. Other kinds of tools become functions where the agent program runs them itself:

    namespace        a group of tools: each is a function `NAMESPACE__NAME`, and its calls name both parts again
    custom           a tool whose input is a text: a function with the one argument `input`
    typed tools      those whose schema the provider publishes, such as Anthropic's `bash_20250124`

What the provider would run (a web search, say) is left out, as is every kind that is not known here: the policy does
not see such a tool, and the header `x-ludus-overridden` names it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ludus.gateway.wires.requests import RequestContext, ToolForm, mapping, objects, text
from ludus.protocol.episodes import ToolSpec

SEPARATOR: Final = "__"
"""What separates a namespace from the name of a tool in it."""


class ToolSet(NamedTuple):
    """The tools of a request."""

    specs: tuple[ToolSpec, ...] = ()
    forms: Mapping[str, ToolForm] = {}
    left_out: tuple[str, ...] = ()
    """The kinds of tools that were left out."""


class ToolReader:
    """Reads tool definitions. Equal definitions give the same object, and most requests repeat those of another.

    Args:
        read: adds the tools of a list of definitions to a `ToolList`.
    """

    def __init__(self, read: Callable[[ToolList, object], None]) -> None:
        self._read = read
        self._recent: deque[tuple[object, ToolSet]] = deque(maxlen=16)

    def __call__(self, definitions: object, context: RequestContext) -> ToolSet:
        """Return the tools.

        Raises:
            Refusal: they are not valid.
        """
        if not definitions:
            return ToolSet()
        tools = next((tools for earlier, tools in self._recent if earlier == definitions), None)
        if tools is None:
            reading = ToolList()
            self._read(reading, definitions)
            tools = ToolSet(tuple(reading.specs), reading.forms, tuple(reading.left_out))
            self._recent.appendleft((definitions, tools))
        for kind in tools.left_out:
            context.leave_out("tools", kind)
        return tools


class ToolList:
    """The tools of a list while it is read."""

    def __init__(self) -> None:
        self.specs: Final[list[ToolSpec]] = []
        self.forms: Final[dict[str, ToolForm]] = {}
        self.left_out: Final[list[str]] = []

    def add(self, spec: ToolSpec, form: ToolForm | None = None) -> None:
        """Add a tool. One whose name another has already is left out, because its calls could not be distinguished."""
        if any(spec.name == other.name for other in self.specs):
            self.left_out.append(spec.name)
            return
        self.specs.append(spec)
        if form is not None:
            self.forms[spec.name] = form

    def add_openai(self, tool: Mapping[str, Any], param: str, namespace: str | None = None) -> None:
        """Add a tool of OpenAI's wires.

        Args:
            tool: its definition.
            param: its place, for messages.
            namespace: the namespace around it.

        Raises:
            Refusal: it is not valid.
        """
        kind = tool.get("type", "function" if "function" in tool or "name" in tool else None)
        if kind == "namespace" and namespace is None:
            name = text(tool.get("name"), f"{param}.name")
            for where, inner in objects(tool.get("tools") or [], f"{param}.tools"):
                self.add_openai(inner, where, name)
        elif kind == "function":
            spec = tool_spec(mapping(tool.get("function", tool), f"{param}.function"), "parameters", param)
            self._add_named(spec, namespace)
        elif kind == "custom":
            self._add_named(_custom_spec(mapping(tool.get("custom", tool), f"{param}.custom"), param), namespace, True)
        else:
            self.left_out.append(str(kind))

    def _add_named(self, spec: ToolSpec, namespace: str | None, custom: bool = False) -> None:
        if namespace is None:
            self.add(spec, ToolForm(spec.name, custom=True) if custom else None)
        else:
            name = joined_name(namespace, spec.name)
            self.add(spec.model_copy(update={"name": name}), ToolForm(spec.name, namespace, custom))


def joined_name(namespace: object, name: str) -> str:
    """Return the name under which the policy knows a tool of a namespace."""
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def tool_spec(function: Mapping[str, Any], schema: str, param: str) -> ToolSpec:
    """Return a tool definition.

    Args:
        function: the definition.
        schema: the name of its field with the JSON Schema.
        param: its place, for messages.

    Raises:
        Refusal: it is none.
    """
    return ToolSpec(
        name=text(function.get("name"), f"{param}.name"),
        description=text(function.get("description") or "", f"{param}.description"),
        input_schema=dict(mapping(function.get(schema) or {}, f"{param}.{schema}")),
    )


def _custom_spec(custom: Mapping[str, Any], param: str) -> ToolSpec:
    form = custom.get("format")
    grammar = form.get("grammar", form) if isinstance(form, Mapping) else None  # chat nests it, responses does not
    about = "The input of the tool, as text."
    if isinstance(grammar, Mapping) and isinstance(definition := grammar.get("definition"), str):
        about = f"The input of the tool, as text in this {grammar.get('syntax', '')} grammar:\n{definition}"
    schema = {
        "type": "object", "properties": {"input": {"type": "string", "description": about}}, "required": ["input"],
    }  # fmt: skip
    return tool_spec({**custom, "schema": schema}, "schema", param)
