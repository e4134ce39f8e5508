"""Tools with a given JSON Schema, for tools that some other program describes."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ludus.protocol.bounds import short
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import AuthoringError
from ludus.protocol.text import json_problem, replace_surrogates
from ludus.server.authoring.tools import InvalidArguments, StepContext, ToolBase, check_name
from ludus.server.rewards.schema import BoundedSchema
from ludus.server.rewards.text import TooLong

__all__ = ["SchemaTool"]


DESCRIPTION_CHARS: Final = 16_384
SCHEMA_CHARS: Final = 65_536
_SCHEMA_DEPTH: Final = 48
_CHECK_SECONDS: Final = 0.125
"""Processor time of each of two tries to check the arguments of a call; they run on the event loop."""
_PLACE_CHARS: Final = 100
_KEPT_SCHEMAS: Final = 256

Run = Callable[[dict[str, Any], StepContext], Awaitable[Any]]


class SchemaTool(ToolBase):
    """A tool whose arguments are checked with a JSON Schema and passed on as they are.

    Args:
        name: the name under which the agent calls it.
        description: the description for the agent.
        schema: the JSON Schema of the arguments, of type `object`.
        run: the function to call with the arguments and the context of the step.
        concurrent: as in `@tool`.
        checked: whether arguments must fit the schema. Without it, `run` gets whatever JSON object the agent sends,
            and must not trust it.

    Raises:
        AuthoringError: the name cannot be used; or the description or the schema is too long, nested too deeply, or
            not a JSON Schema of an object.
    """

    __slots__ = ("_checked", "_schema")

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        run: Run,
        *,
        concurrent: bool = False,
        checked: bool = True,
    ) -> None:
        check_name(name)
        if len(description) > DESCRIPTION_CHARS:
            raise AuthoringError(
                f"the description of tool {name!r} has {len(description):,} characters; at most {DESCRIPTION_CHARS:,} "
                "are shown to an agent"
            )
        own = _object_schema(name, schema)
        try:
            self._schema = _bounded(json.dumps(own))
        except AuthoringError as error:
            raise AuthoringError(f"the schema of tool {name!r} cannot be used: {error.message}") from None
        except RecursionError:
            raise AuthoringError(f"the schema of tool {name!r} refers to itself endlessly") from None
        self._checked = checked
        self.name = self.attribute = name
        self.function = run
        self.owner = None
        self.ends = False
        self.concurrent = concurrent
        self.offload = False
        self.context = "context"
        self.values = False
        self.output = None
        self.spec = ToolSpec(name=name, description=replace_surrogates(description), input_schema=own)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """See `ToolBase.arguments`."""
        problem = json_problem(given, "arguments")
        if problem is not None:
            raise InvalidArguments(problem.removeprefix("arguments."))
        if not self._checked:
            return {"arguments": dict(given)}
        try:
            errors = self._schema.errors(given, _CHECK_SECONDS)
        except TooLong:
            raise InvalidArguments("checking them against the schema takes too long; pass simpler values") from None
        except (RecursionError, OverflowError):
            raise InvalidArguments("they are nested too deeply, or a number is too large") from None
        except Exception as error:  # a reference of the schema that leads nowhere, for example
            raise InvalidArguments(f"the tool's schema cannot check them ({type(error).__name__})") from None
        if errors:
            raise InvalidArguments("; ".join(map(_explain, errors)))
        return {"arguments": dict(given)}

    def received(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments unchanged."""
        return given


@functools.lru_cache(maxsize=_KEPT_SCHEMAS)
def _bounded(schema: str) -> BoundedSchema:
    """Return a schema that was checked; each episode makes its tools again, usually from the same schemas."""
    return BoundedSchema(json.loads(schema))


def _object_schema(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    if _depth_exceeds(schema, _SCHEMA_DEPTH):
        raise AuthoringError(f"the schema of tool {name!r} is nested more than {_SCHEMA_DEPTH} levels deep")
    if (size := len(json.dumps(schema))) > SCHEMA_CHARS:
        raise AuthoringError(
            f"the schema of tool {name!r} has {size:,} characters; at most {SCHEMA_CHARS:,} are shown to an agent"
        )
    if (problem := json_problem(schema, "schema")) is not None:
        raise AuthoringError(f"the schema of tool {name!r} is not valid JSON: {problem}")
    if schema.get("type", "object") != "object":
        raise AuthoringError(f"the schema of tool {name!r} describes {schema['type']!r}; arguments are an object")
    own: dict[str, Any] = replace_surrogates(dict(schema))
    own.setdefault("type", "object")
    own.setdefault("properties", {})
    return own


def _depth_exceeds(value: object, allowed: int) -> bool:
    level = [value]
    for _ in range(allowed):
        below: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                below += one.values()
            elif isinstance(one, (list, tuple)):
                below += one
        if not below:
            return False
        level = below
    return True


def _explain(error: Any) -> str:
    place = ".".join(str(part) for part in error.absolute_path)[:_PLACE_CHARS] or "arguments"
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"{place}: the argument {short(missing[0])} is required" if missing else f"{place}: an argument misses"
    return f"{place}: {short(error.instance)} does not fit the schema's {short(error.validator or 'false')}"
