"""Tools as Python functions, for trainers that describe tools to the model by signature and docstring.

TRL and transformers read a function's type hints and the `Args` of its docstring. `python_function` makes such a
function of a tool's JSON Schema. What a type hint cannot say, such as a range, stays in the schema only; the
environment checks the arguments of a call in any case.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from ludus.client.formats import _schema
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import Unsupported

__all__ = ["python_function"]


R = TypeVar("R")

_TYPES: Final[Mapping[str, Any]] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "null": None,
}  # fmt: skip

DEEPEST: Final = 16
"""How many levels of a schema become type hints; deeper ones are `Any`."""


def python_function(spec: ToolSpec, call: Callable[[str, dict[str, Any]], R]) -> Callable[..., R]:
    """Return a function with the name, the parameters and the description of a tool.

    Args:
        spec: the tool.
        call: is called with the tool's name and the arguments that were given.

    Raises:
        Unsupported: the tool or a parameter has a name that Python does not allow.
    """
    root = _schema.parameters(spec.input_schema)
    required = set(root.get("required", ()))
    for name in (spec.name, *root["properties"]):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Unsupported(f"the tool {spec.name!r} cannot be a Python function: {name!r} is no name in Python")

    def function(**arguments: Any) -> R:
        bound = signature.bind(**arguments)
        return call(spec.name, dict(bound.arguments))

    signature = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if name in required else schema.get("default"),
                annotation=_hint(schema, root, DEEPEST),
            )
            for name, schema in root["properties"].items()
        ]
    )
    function.__name__ = function.__qualname__ = spec.name
    function.__doc__ = _docstring(spec, root["properties"])
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return function


def _docstring(spec: ToolSpec, properties: Mapping[str, Any]) -> str:
    lines = [" ".join(spec.description.split()) or f"The tool {spec.name}."]
    if properties:
        lines += ["", "Args:"]
        lines += [f"    {name}: {_described(name, schema)}" for name, schema in properties.items()]
    return "\n".join(lines)


def _described(name: str, schema: Any) -> str:
    described = schema.get("description") if isinstance(schema, Mapping) else None
    return " ".join(str(described).split()) if described else f"the {name}"


def _hint(schema: Any, root: _schema.Schema, depth: int) -> Any:
    """Return the type hint of a schema; `Any` for what a hint cannot say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return Any
    if isinstance(reference := schema.get("$ref"), str):
        try:
            return _hint(_schema.resolve(root, reference), root, depth - 1)
        except _schema.UnsupportedSchema:
            return Any
    if values := schema.get("enum"):
        if not all(isinstance(value, str | int | bool) for value in values):
            return Any
        return Literal[tuple(values)]  # pyrefly: ignore[invalid-literal] (known at run time only)
    types = [{"type": kind} for kind in schema["type"]] if isinstance(schema.get("type"), list) else None
    if members := types or schema.get("anyOf") or schema.get("oneOf"):
        hints = [_hint({**schema, **member, "anyOf": None, "oneOf": None}, root, depth - 1) for member in members]
        union = hints[0]
        for hint in hints[1:]:
            union = Any if Any in (union, hint) else union | hint
        return union
    if schema.get("type") == "array":
        return list[_hint(schema.get("items", True), root, depth - 1)]  # type: ignore[misc]
    return _TYPES.get(str(schema.get("type")), Any)
