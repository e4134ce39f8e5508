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
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ludus.client import Answer, EnvironmentInfo, ToolSpec
from ludus.client.policies.values import random_value
from ludus.integrations.finite_actions import finite_arguments
from ludus.integrations.peers import require
from ludus.protocol.errors import InvalidParams, Unsupported

require("gymnasium", "1.4.0")

from gymnasium import spaces  # noqa: E402  # pyright: ignore[reportMissingImports]
from gymnasium.vector.utils import create_shared_memory  # noqa: E402  # pyright: ignore[reportMissingImports]

SAMPLED_CHARS: Final = 100
"""The longest text that a space samples."""

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


@create_shared_memory.register(UnicodeText)  # type: ignore[untyped-decorator]
def _no_shared_memory(space: UnicodeText, n: int = 1, ctx: Any = None) -> Any:
    """Refuse shared memory, from which Gymnasium 1.4 never reads a text again after the first time."""
    raise TypeError(
        "AsyncVectorEnv cannot share texts between processes; say vector_kwargs={'shared_memory': False} to make_vec, "
        "or shared_memory=False to AsyncVectorEnv"
    )


class Actions(Protocol):
    """The actions of an environment: a space, and what its values mean."""

    @property
    def space(self) -> Any:
        """The space, a `gymnasium.Space`."""
        ...

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that can be called."""
        ...

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
        declared: a declaration of a finite space, see `finite_arguments`; None for any call.
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


class OneTool:
    """One tool whose arguments have finitely many values: Discrete for one argument, MultiDiscrete for several.

    Args:
        tools: the tools of the environment.
        declared: which tool, and the bounds of its integers; see `finite_arguments`.

    Raises:
        InvalidParams: there is no such tool or argument, or an argument has no finite set of values.
    """

    def __init__(self, tools: Sequence[ToolSpec], declared: str) -> None:
        name, self._values = finite_arguments(tools, declared)
        self.tools: Final = (name,)
        counts = [len(values) for values in self._values.values()]
        self._starts: Final = [values.start if isinstance(values, range) else 0 for values in self._values.values()]
        self.space: Final = (
            spaces.Discrete(counts[0], start=self._starts[0])
            if len(counts) == 1
            else spaces.MultiDiscrete(counts, start=self._starts)
        )

    def decode(self, action: Any) -> ToolCall | Answer:
        """See `Actions`."""
        if action not in self.space:
            raise InvalidParams(f"the action {action!r:.200} is not in {self.space}")
        numbers = [int(action)] if len(self._values) == 1 else [int(number) for number in action]
        chosen = zip(numbers, self._starts, self._values.items(), strict=True)
        return self.tools[0], {name: values[number - start] for number, start, (name, values) in chosen}
