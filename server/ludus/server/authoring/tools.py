"""`@tool`: publishes a method as a tool of the agent, with a schema from its type hints and docstring."""

from __future__ import annotations

import copy
import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeVar, get_type_hints, overload
from weakref import WeakKeyDictionary

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from ludus.protocol.bounds import first_errors, short
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import AuthoringError
from ludus.protocol.identifiers import RESERVED_TOOL_NAMES
from ludus.protocol.text import json_problem, replace_surrogates
from ludus.server.authoring.finite import allows_non_finite, find_non_finite, may_hold_floats
from ludus.server.authoring.output_schema import OutputSchema, PlainSchema, finite_schema
from ludus.server.authoring.returns import output_of, returns_values

F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "__ludus_tool__"
_PLAIN: Final = frozenset({int, bool, type(None)})
_FEW: Final = 16
_NAME_LIMIT: Final = 64
"""The limit of OpenAI and Anthropic for the length of tool names."""
_MESSAGE_LIMIT: Final = 500


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options that the author gave in `@tool(…)`."""

    name: str | None = None
    ends: bool = False
    concurrent: bool = False
    inline: bool | None = None
    move: bool = False
    seats: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StepContext:
    """The context of a call, passed to a parameter annotated with this class; it is not in the schema."""

    step: int
    """The number of this step, from 1."""
    deadline: float
    """When this call must have finished, in seconds of the event loop's clock."""
    rng: random.Random
    """The episode's random generator."""


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    ends: bool = False,
    concurrent: bool = False,
    inline: bool | None = None,
    move: bool = False,
    seats: Sequence[str] | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    ends: bool = False,
    concurrent: bool = False,
    inline: bool | None = None,
    move: bool = False,
    seats: Sequence[str] | None = None,
) -> F | Callable[[F], F]:
    """Publish a method as a tool.

    The schema comes from the parameters' type hints, and the descriptions from the docstring (Google, NumPy or reST
    style; text after a form feed is for humans only). A single parameter with a pydantic model is the whole schema.

    Args:
        function: the method, if the decorator is used without parentheses.
        name: the tool's name; the method's name by default.
        ends: whether every successful call completes the episode.
        concurrent: whether calls may overlap with other concurrent calls of the same episode.
        inline: whether to run a plain `def` on the event loop instead of in a thread, for code that never blocks. The
            default follows the environment's `blocking`.
        move: whether it is a move of a match, which is refused out of turn; for `SeatedEnvironment` only.
        seats: the seats that have the tool, all by default; for `SeatedEnvironment` only.
    """
    only = None if seats is None else tuple(seats)

    def mark(target: F) -> F:
        setattr(target, _MARK, ToolOptions(name, ends, concurrent, inline, move, only))
        return target

    return mark if function is None else mark(function)


def options_of(target: object) -> ToolOptions | None:
    """Return the `@tool` options of a function or bound method; None if it is not a tool."""
    options = getattr(target, _MARK, None)
    return options if isinstance(options, ToolOptions) else None


class InvalidArguments(Exception):
    """The arguments do not fit the schema; the message is for the agent."""


class ToolBase(ABC):
    """A tool that can be called: its specification, its argument validator and how to run it.

    Attributes:
        name: the name under which the agent calls it.
        attribute: the method's name on its owner, if there is no `function`.
        function: the function to call; None for a method, which is looked up by `attribute` on its owner.
        owner: the position of the toolset that the tool belongs to; None for a tool of the environment itself.
        ends: whether every successful call completes the episode.
        concurrent: whether calls may overlap with other concurrent calls of the same episode.
        offload: whether it runs in a thread.
        context: the parameter that takes the `StepContext`; None if there is none.
        values: whether it may return ordinary values, which the agent sees as JSON.
        output: the schema of these values for MCP clients; None if its results may be anything else.
        spec: the tool as an agent sees it.
    """

    __slots__ = (
        "attribute", "concurrent", "context", "ends", "function", "name", "offload", "output", "owner", "spec",
        "values",
    )  # fmt: skip

    name: str
    attribute: str
    function: Callable[..., Any] | None
    owner: int | None
    ends: bool
    concurrent: bool
    offload: bool
    context: str | None
    values: bool
    output: OutputSchema | None
    spec: ToolSpec

    @abstractmethod
    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return validated keyword arguments for the function, without its `context`.

        Raises:
            InvalidArguments: the arguments do not fit the schema.
        """

    @abstractmethod
    def received(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments as the function received them, as JSON values."""


class Tool(ToolBase):
    """A tool made of a function, whose parameters are the schema.

    Attributes:
        move: whether it is a move of a match.
        seats: the seats that have it; None for all.
    """

    __slots__ = ("_model", "_names", "_searched", "_takes_any_number", "_whole", "move", "seats")

    def __init__(
        self, function: Callable[..., Any], options: ToolOptions, *, owner: int | None, bound: bool, blocking: bool
    ) -> None:
        self.name = options.name or function.__name__
        self.attribute = function.__name__
        self.function = None if bound else function
        self.owner = owner
        self.ends = options.ends
        self.concurrent = options.concurrent
        self.move, self.seats = options.move, options.seats
        inline = not blocking if options.inline is None else options.inline
        self.offload = not inline and not inspect.iscoroutinefunction(function)
        check_name(self.name)
        description, parameter_docs = _read_docstring(function)
        parameters = _parameters(function, bound=bound)
        hints = _hints(function)
        self.values = returns_values(hints)
        self.output = output_of(hints) if self.values else None
        self.context = next((name for name in parameters if hints.get(name) is StepContext), None)
        visible = {name: p for name, p in parameters.items() if name != self.context}
        self._whole: str | None = None
        self._names: dict[str, str] = {}
        only = next(iter(visible)) if len(visible) == 1 else None
        if only is not None and isinstance(hint := hints.get(only), type) and issubclass(hint, BaseModel):
            self._whole, self._model = only, hint
        else:
            self._names = {f"a{number}": name for number, name in enumerate(visible)}
            self._model = _arguments_model(self.name, visible, self._names, hints, parameter_docs)
        self._searched = tuple(
            name for name in visible if may_hold_floats(hints[name]) and not allows_non_finite(hints[name])
        )
        """Parameters whose values may contain floats, which must be finite."""
        self._takes_any_number = len(self._searched) < sum(may_hold_floats(hints[name]) for name in visible)
        schema = replace_surrogates(finite_schema(schema_of(self._model, self.name)))
        self.spec = ToolSpec(name=self.name, description=replace_surrogates(description), input_schema=schema)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return validated keyword arguments for the method, without its `context`.

        Raises:
            InvalidArguments: the arguments do not fit the schema.
        """
        if not _are_plain(given):
            problem = json_problem(given, "arguments", finite=not self._takes_any_number)
            if problem is not None:
                raise InvalidArguments(problem.removeprefix("arguments."))
        validate = self._model.__pydantic_validator__.validate_python
        try:
            value = validate(given)
        except ValidationError as error:
            raise InvalidArguments(explain(error, validate, given)) from None
        if self._whole is not None:
            arguments = {self._whole: value}
        else:
            fields = value.__dict__
            arguments = {name: fields[field] for field, name in self._names.items()}
        for name in self._searched:
            if name not in given and self._whole is None:
                continue  # skip the author's default, which may be infinite
            found = arguments[name]
            if type(found) is float and isfinite(found):
                continue
            if (where := find_non_finite(found, name)) is not None:
                raise InvalidArguments(f"{where}: a number must be finite, not NaN or an infinity")
        return arguments

    def received(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments as the method received them, as JSON values: converted (`"7"` may be 7), with defaults.

        Arguments that do not fit the schema are returned unchanged.
        """
        try:
            value = self._model.__pydantic_validator__.validate_python(given)
            arguments: dict[str, Any] = value.model_dump(mode="json", by_alias=True, warnings=False)
        except (ValidationError, PydanticSerializationError):
            return given
        return arguments


class EndedTool(ToolBase):
    """What is left of a task's tool when its episode has ended: nothing that its author made for the episode."""

    __slots__ = ()

    def __init__(self, tool: ToolBase) -> None:
        self.name, self.spec, self.output = tool.name, tool.spec, tool.output
        self.ends, self.concurrent, self.values = tool.ends, tool.concurrent, tool.values
        self.attribute, self.function, self.owner, self.context, self.offload = "", None, None, None, False

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse all arguments: nothing can be called any more."""
        raise InvalidArguments("the episode has ended")

    def received(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments unchanged."""
        return given


_SHARED: Final[WeakKeyDictionary[type, dict[tuple[int, bool], list[Tool]]]] = WeakKeyDictionary()


def collect_shared(source: type, owner: int, blocking: bool) -> list[Tool]:
    """Return the tools of a toolset as `collect` does; the variants of an environment share them."""
    known = _SHARED.setdefault(source, {})
    if (owner, blocking) not in known:
        known[owner, blocking] = collect(source, owner=owner, blocking=blocking)
    return known[owner, blocking]


_METHODS: Final[WeakKeyDictionary[Callable[..., Any], dict[bool, Tool]]] = WeakKeyDictionary()


def task_tool(function: Callable[..., Any], options: ToolOptions, *, blocking: bool) -> Tool:
    """Return the tool of a function or bound method that `task_tools` returned.

    The schema of a method is made once, whatever it is bound to: making it takes longer than the start of an episode.
    """
    if not inspect.ismethod(function):
        return Tool(function, options, owner=None, bound=False, blocking=blocking)
    known = _METHODS.setdefault(function.__func__, {})
    if blocking not in known:
        known[blocking] = Tool(function, options, owner=None, bound=False, blocking=blocking)
        known[blocking].function = None  # a bound method would keep its episode, and the key, alive
    tool = copy.copy(known[blocking])
    tool.function = function
    return tool


def collect(source: type, *, owner: int | None, blocking: bool) -> list[Tool]:
    """Return the tools that a class declares, in the order of their definition, those of base classes first."""
    names: dict[str, None] = {}
    for base in reversed(source.__mro__):
        names.update(dict.fromkeys(base.__dict__))
    found = []
    for name in names:
        attribute = inspect.getattr_static(source, name)
        options = options_of(attribute)
        if options is None:
            continue
        bases = (base for base in source.__mro__ if base.__module__.startswith("ludus.server.authoring."))
        if any(name in vars(base) and options_of(vars(base)[name]) is None for base in bases):
            raise AuthoringError(
                f"{source.__name__}.{name} is a tool and would replace the {name} of {source.__name__}'s base class, "
                f'which the server uses; give the method another name, and write @tool(name="{name}")'
            )
        try:
            found.append(Tool(attribute, options, owner=owner, bound=True, blocking=blocking))
        except AuthoringError as error:
            raise AuthoringError(f"{source.__name__}.{name}: {error.message}") from None
    return found


def explain(error: ValidationError, validate: Callable[[Any], object], given: Any) -> str:
    """Describe the first errors of a validation so that an agent can act on them, without repeating large inputs.

    Args:
        error: the error that the validation raised.
        validate: the validation, to repeat it on a part of the input.
        given: the input.
    """
    lines = []
    for item in first_errors(error, validate, given):
        where = ".".join(str(part)[:_NAME_LIMIT] for part in item["loc"]) or "arguments"
        if item["type"] == "missing":
            lines.append(f"{where}: this argument is required")
        elif item["type"] == "extra_forbidden":
            lines.append(f"{where}: there is no such argument")
        elif "secrets" in item["loc"]:  # secrets of a start must not appear in a message
            lines.append(f"{where}: {item['msg']}")
        else:
            lines.append(f"{where}: {item['msg'][:_MESSAGE_LIMIT]}, not {short(item['input'])}")
    if (more := error.error_count() - len(lines)) > 0:
        lines.append(f"and {more} more errors")
    return "; ".join(lines)


def schema_of(model: type[BaseModel], name: str) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments.

    Raises:
        AuthoringError: JSON Schema cannot express a parameter's type.
    """
    try:
        schema = model.model_json_schema(by_alias=True, schema_generator=PlainSchema)
    except PydanticUserError as error:
        raise AuthoringError(f"tool {name!r}: a parameter's type has no JSON Schema ({error.message})") from None
    schema.pop("title", None)
    for definition in schema.get("$defs", {}).values():
        definition.pop("title", None)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    schema["additionalProperties"] = (
        False if model.model_config.get("extra") == "forbid" else schema.get("additionalProperties", True)
    )
    return schema


def _are_plain(given: Mapping[str, Any]) -> bool:
    """Return whether arguments are certain to be valid JSON after a quick check, which nearly all pass."""
    for name, value in given.items():
        kind = type(value)
        if kind is str:
            if not value.isascii():
                return False
        elif kind is float:
            if not isfinite(value):
                return False
        elif kind is list:
            if len(value) > _FEW or not all(type(item) is str and item.isascii() for item in value):
                return False
        elif kind not in _PLAIN:
            return False
        if not name.isascii():
            return False
    return True


def check_name(name: str) -> None:
    """Raise `AuthoringError` if a tool cannot have this name."""
    if name in RESERVED_TOOL_NAMES:
        raise AuthoringError(f"the tool name {name!r} is taken by Ludus itself; choose another with @tool(name=…)")
    if not name.replace("_", "a").replace("-", "a").isalnum() or not name.isascii() or len(name) > _NAME_LIMIT:
        raise AuthoringError(
            f"the tool name {name!r} is not usable: model providers accept 1 to {_NAME_LIMIT} letters, digits, '_', '-'"
        )


def _parameters(function: Callable[..., Any], *, bound: bool) -> dict[str, inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    if bound and not isinstance(function, staticmethod):
        if not parameters:
            raise AuthoringError("a tool method needs `self` as its first parameter")
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise AuthoringError(f"*{parameter.name} has no schema; name each parameter and annotate it")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise AuthoringError(
                f"{parameter.name!r} is positional-only; agents name their arguments, so remove the '/'"
            )
        if parameter.annotation is parameter.empty:
            raise AuthoringError(
                f"parameter {parameter.name!r} has no annotation; write its type, as in `{parameter.name}: int`"
            )
    return {parameter.name: parameter for parameter in parameters}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise AuthoringError(
            f"an annotation cannot be resolved ({error}); import that name at module level, not inside a function"
        ) from None


def _arguments_model(
    name: str,
    visible: Mapping[str, inspect.Parameter],
    names: Mapping[str, str],
    hints: Mapping[str, Any],
    docs: Mapping[str, str],
) -> type[BaseModel]:
    # Fields get neutral names with the parameter as alias, as `copy`, `schema` or `_x` would clash with BaseModel.
    fields: dict[str, Any] = {}
    for field, parameter_name in names.items():
        parameter = visible[parameter_name]
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[field] = (
            hints[parameter_name],
            Field(default, alias=parameter_name, description=docs.get(parameter_name)),
        )
    try:
        return create_model(name, __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)
    except (PydanticUserError, TypeError) as error:
        raise AuthoringError(f"its parameters cannot be read as JSON: {str(error).splitlines()[0]}") from None


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    text = inspect.getdoc(function)
    if not text:
        return "", {}
    parsed = docstring_parser.parse(text.split("\f", 1)[0])
    parts: Sequence[str | None] = (parsed.short_description, parsed.long_description)
    description = "\n\n".join(part.strip() for part in parts if part)
    return description, {p.arg_name: p.description for p in parsed.params if p.description}
