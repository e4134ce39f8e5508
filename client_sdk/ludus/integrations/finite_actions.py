"""Calls of one tool whose arguments have finitely many values, as a declaration names them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ludus.client import ToolSpec
from ludus.protocol.errors import InvalidParams
from ludus.protocol.messages import did_you_mean

MOST_VALUES: Final = 2**31
"""The most values of an argument."""

_DECLARED: Final = re.compile(r"(?P<tool>[^:]+)(?::(?P<ranges>.*))?", re.DOTALL)
_RANGE: Final = re.compile(r"\s*(?P<name>[^=]+?)\s*=\s*(?P<low>-?\d+)\s*\.\.\s*(?P<high>-?\d+)\s*")


def finite_arguments(tools: Sequence[ToolSpec], declared: str) -> tuple[str, dict[str, Sequence[Any]]]:
    """Return the tool that a declaration names, and the values of its arguments in the order of its schema.

    An argument with a constant, an enumeration, a boolean or an integer between two bounds needs no declaration.
    Optional arguments without one are left out.

    Args:
        tools: the tools of the environment.
        declared: the tool's name, and the least and the greatest value of integers that the schema does not bound, such
            as `guess:number=1..100`.

    Raises:
        InvalidParams: there is no such tool or argument, or an argument has no finite set of values.
    """
    name, ranges = _declared(declared)
    found = {tool.name: tool for tool in tools}
    if name not in found:
        names, near = ", ".join(found) or "none", did_you_mean(name, list(found))
        raise InvalidParams(f"the action {declared!r}: there is no tool {name!r}; there are: {names}{near}")
    schema = found[name].input_schema
    properties = schema.get("properties", {})
    if unknown := sorted(ranges.keys() - properties.keys()):
        raise InvalidParams(f"the action {declared!r}: {name} has no argument {', '.join(unknown)}")
    chosen: dict[str, Sequence[Any]] = {}
    for argument, property_ in properties.items():
        values = ranges.get(argument) or _values(property_)
        if values is not None:
            chosen[argument] = values
        elif argument in schema.get("required", ()):
            raise InvalidParams(
                f"the action {declared!r}: the argument {argument!r} of {name} has no finite set of values; if it is "
                f"an integer, say {name}:{argument}=LOW..HIGH, and otherwise use the general action space"
            )
    if not chosen:
        raise InvalidParams(f"the action {declared!r}: {name} has no argument to choose; use the general action space")
    return name, chosen


def _declared(text: str) -> tuple[str, dict[str, range]]:
    """Return the tool and the ranges of `TOOL` or `TOOL:ARGUMENT=LOW..HIGH,…`."""
    match = _DECLARED.fullmatch(text)
    form = f"the action {text!r} must be TOOL or TOOL:ARGUMENT=LOW..HIGH,…"
    if match is None:
        raise InvalidParams(form)
    ranges = {}
    for part in match["ranges"].split(",") if match["ranges"] is not None else ():
        found = _RANGE.fullmatch(part)
        if found is None:
            raise InvalidParams(f"{form}; {part!r} is no range")
        low, high = int(found["low"]), int(found["high"])
        if not 0 <= high - low < MOST_VALUES or min(low, -high) < -(2**62):
            raise InvalidParams(f"{form}; {part!r} is empty or has more than {MOST_VALUES} values")
        ranges[found["name"]] = range(low, high + 1)
    return match["tool"], ranges


def _values(schema: Any) -> Sequence[Any] | None:
    """Return the values that a schema allows, if they are finitely many; None otherwise."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    if schema.get("enum"):
        return list(schema["enum"])
    if schema.get("type") == "boolean":
        return [False, True]
    if schema.get("type") != "integer":
        return None
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and isinstance(schema.get("exclusiveMinimum"), int):
        low = schema["exclusiveMinimum"] + 1
    if high is None and isinstance(schema.get("exclusiveMaximum"), int):
        high = schema["exclusiveMaximum"] - 1
    if not isinstance(low, int) or not isinstance(high, int) or not 0 <= high - low < MOST_VALUES:
        return None
    return range(low, high + 1)
