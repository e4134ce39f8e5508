"""Spaces for Gymnasium: texts of any characters, and the actions that stand for calls of tools.

* `UnicodeText`: texts of any characters, which `gymnasium.spaces.Text` would have to list one by one.
* `AnyCall`: any tool with arguments as JSON text, a `Dict` of `tool` (Discrete) and `arguments` (UnicodeText). If the
  environment grades answers, one more number of `tool` submits `arguments` as the final answer.
* `OneTool`: one tool whose arguments have finitely many values, a `Discrete` or a `MultiDiscrete`.
* `AnswerOnly`: the final answer as text, for environments without tools.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ludus.client import Answer, EnvironmentInfo, ToolSpec
from ludus.client.policies.values import random_value
from ludus.integrations.peers import require
from ludus.protocol.errors import InvalidParams, Unsupported
from ludus.protocol.messages import did_you_mean

require("gymnasium", "1.4.0")

from gymnasium import spaces  # noqa: E402  # pyright: ignore[reportMissingImports]

SAMPLED_CHARS: Final = 100
"""The longest text that a space samples."""

MOST_VALUES: Final = 2**31
"""The most values of an argument of `OneTool`."""

_CODE_POINTS: Final = 0x110000

ToolCall = tuple[str, "Mapping[str, Any] | str"]
"""A tool's name and its arguments, as a mapping or as JSON text."""


class _CodePoints(Sequence[str]):
    """All characters in the order of their numbers."""

    def __len__(self) -> int:
        return _CODE_POINTS

    def __getitem__(self, index: Any) -> Any:
        return chr(index)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and len(value) == 1


class UnicodeText(spaces.Text):  # type: ignore[misc]
    """Texts of any characters, up to a length.

    Args:
        max_length: the most characters.
        seed: as for other spaces.
    """

    def __init__(self, max_length: int, *, seed: Any = None) -> None:
        super().__init__(max_length, min_length=0, charset=string.ascii_letters + string.digits + " ", seed=seed)

    def contains(self, x: Any) -> bool:
        """Return whether this is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short text of letters, digits and spaces.

        Raises:
            ValueError: a mask or a probability is given.
        """
        if mask is not None or probability is not None:
            raise ValueError("UnicodeText cannot be sampled with a mask or with probabilities")
        length = int(self.np_random.integers(0, min(self.max_length, SAMPLED_CHARS) + 1))
        return "".join(self._char_list[int(at)] for at in self.np_random.integers(0, len(self._char_list), length))

    @property
    def character_set(self) -> Any:
        """All characters."""
        return _CodePoints()

    @property
    def character_list(self) -> Any:
        """All characters in the order of their numbers."""
        return _CodePoints()

    def character_index(self, char: str) -> Any:
        """Return a character's number."""
        return ord(char)

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(self.max_length)

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"


class Actions(Protocol):
    """The actions of an environment: a space, and what its values mean."""

    space: Any
    """The space, a `gymnasium.Space`."""
    tools: tuple[str, ...]
    """The names of the tools that can be called."""

    def decode(self, action: Any) -> ToolCall | Answer:
        """Return the call or the answer that an action stands for.

        Raises:
            InvalidParams: the action is not of the space's form.
        """
        ...


def actions_of(info: EnvironmentInfo, declared: str | None, max_length: int) -> Actions:
    """Return the actions of an environment.

    Args:
        info: the environment.
        declared: a declaration as for `OneTool`; None for any call.
        max_length: the most characters of arguments and answers.

    Raises:
        InvalidParams: the declaration names no tool, or values that the tool does not take.
        Unsupported: the environment has neither tools nor graded answers.
    """
    if declared is not None:
        return OneTool(info.tools, declared)
    if info.tools:
        return AnyCall(info.tools, info.gradable, max_length)
    if info.gradable:
        return AnswerOnly(max_length)
    raise Unsupported(
        f"the environment {info.name!r} lists no tools and grades no answers, so there is nothing an action could do; "
        "tools that only its tasks have cannot be put into an action space"
    )


class CallSpace(spaces.Dict):  # type: ignore[misc]
    """The space of `AnyCall`. A sample has arguments that fit the tool."""

    def __init__(self, schemas: Sequence[Mapping[str, Any]], answers: bool, max_length: int) -> None:
        self._schemas = tuple(schemas)
        number = spaces.Discrete(len(self._schemas) + answers)
        super().__init__({"tool": number, "arguments": UnicodeText(max_length)})

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Return a call with arguments that the tool's schema allows, or an answer of random characters."""
        found = super().sample(mask, probability)
        if mask is None and probability is None and found["tool"] < len(self._schemas):
            rng = random.Random(int(self["tool"].np_random.integers(2**31)))
            text = json.dumps(random_value(self._schemas[int(found["tool"])], rng))
            found["arguments"] = text if text in self["arguments"] else "{}"
        return found


class AnyCall:
    """Any tool with any arguments: `{"tool": 0, "arguments": '{"number": 5}'}`.

    Args:
        tools: the tools, in the order of their numbers.
        answers: whether the number after the last tool submits `arguments` as the final answer.
        max_length: the most characters of the arguments.
    """

    def __init__(self, tools: Sequence[ToolSpec], answers: bool, max_length: int) -> None:
        self.tools: Final = tuple(tool.name for tool in tools)
        self.space: Final = CallSpace([tool.input_schema for tool in tools], answers, max_length)

    def decode(self, action: Any) -> ToolCall | Answer:
        """See `Actions`."""
        if not isinstance(action, Mapping) or action not in self.space:
            raise InvalidParams(f"the action {action!r:.200} is not in {self.space}")
        number = int(action["tool"])
        return (self.tools[number], action["arguments"]) if number < len(self.tools) else Answer(action["arguments"])


class AnswerOnly:
    """The final answer as text. `max_length` is the most characters."""

    def __init__(self, max_length: int) -> None:
        self.tools: Final[tuple[str, ...]] = ()
        self.space: Final = UnicodeText(max_length)

    def decode(self, action: Any) -> ToolCall | Answer:
        """See `Actions`."""
        if action not in self.space:
            raise InvalidParams(f"the action {action!r:.200} is not in {self.space}")
        return Answer(action)


_DECLARED: Final = re.compile(r"(?P<tool>[^:]+)(?::(?P<ranges>.*))?", re.DOTALL)
_RANGE: Final = re.compile(r"\s*(?P<name>[^=]+?)\s*=\s*(?P<low>-?\d+)\s*\.\.\s*(?P<high>-?\d+)\s*")


class OneTool:
    """One tool whose arguments have finitely many values: Discrete for one argument, MultiDiscrete for several.

    The arguments keep the order of the tool's schema. One with a constant, an enumeration, a boolean or an integer
    between two bounds needs no declaration. Optional arguments without one are left out.

    Args:
        tools: the tools of the environment.
        declared: the tool's name, and the least and the greatest value of integers that the schema does not bound, such
            as `guess:number=1..100`.

    Raises:
        InvalidParams: there is no such tool or argument, or an argument has no finite set of values.
    """

    def __init__(self, tools: Sequence[ToolSpec], declared: str) -> None:
        name, ranges = _declared(declared)
        found = {tool.name: tool for tool in tools}
        if name not in found:
            near = did_you_mean(name, list(found))
            raise InvalidParams(
                f"the action {declared!r}: there is no tool {name!r}; there are: {', '.join(found) or 'none'}{near}"
            )
        schema = found[name].input_schema
        properties = schema.get("properties", {})
        if unknown := sorted(ranges.keys() - properties.keys()):
            raise InvalidParams(f"the action {declared!r}: {name} has no argument {', '.join(unknown)}")
        self.tools: Final = (name,)
        self.values: Final[dict[str, Sequence[Any]]] = {}
        for argument, own in properties.items():
            values = ranges.get(argument) or _values(own)
            if values is not None:
                self.values[argument] = values
            elif argument in schema.get("required", ()):
                raise InvalidParams(
                    f"the action {declared!r}: the argument {argument!r} of {name} has no finite set of values; if it "
                    f"is an integer, say {name}:{argument}=LOW..HIGH, and otherwise use the general action space"
                )
        if not self.values:
            raise InvalidParams(f"the action {declared!r}: {name} has no argument to choose; use the general space")
        counts, starts = zip(*(_numbers(values) for values in self.values.values()), strict=True)
        self._starts: Final = starts
        self.space: Final = (
            spaces.Discrete(counts[0], start=starts[0])
            if len(counts) == 1
            else spaces.MultiDiscrete(list(counts), start=list(starts))
        )

    def decode(self, action: Any) -> ToolCall | Answer:
        """See `Actions`."""
        if action not in self.space:
            raise InvalidParams(f"the action {action!r:.200} is not in {self.space}")
        numbers = [int(action)] if len(self.values) == 1 else [int(number) for number in action]
        chosen = zip(numbers, self._starts, self.values.items(), strict=True)
        return self.tools[0], {name: values[number - start] for number, start, (name, values) in chosen}


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


def _numbers(values: Sequence[Any]) -> tuple[int, int]:
    """Return how many values there are, and the number of the first: itself for a range of integers."""
    return len(values), values.start if isinstance(values, range) else 0
