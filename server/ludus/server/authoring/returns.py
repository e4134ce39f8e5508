"""What the annotation of a tool says about its return value: an observation, or an ordinary value shown as JSON."""

from __future__ import annotations

import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import PydanticUserError, TypeAdapter
from pydantic_core import SchemaError

from ludus.protocol.content import ImageBlock, TextBlock
from ludus.protocol.errors import AuthoringError
from ludus.protocol.rewards import Reward
from ludus.server.authoring.output_schema import OutputSchema, output_schema
from ludus.server.authoring.results import Result

_OBSERVATIONS: Final = (str, TextBlock, ImageBlock, Result)
_LISTS: Final = (list, tuple, Sequence)
_UNREADABLE: Final = (Callable, Iterator, Generator, AsyncIterator, AsyncGenerator, bytes, bytearray, memoryview)


def returns_values(hints: Mapping[str, Any]) -> bool:
    """Return whether a tool may return ordinary values: numbers, objects, dataclasses, models, None.

    Only an annotation allows it: otherwise a mistake, such as returning the task, would show what is private.

    Args:
        hints: the annotations of its function.

    Raises:
        AuthoringError: the annotation names something that no agent can be shown.
    """
    hint = _awaited(hints.get("return", Any))
    if hint is Any or hint is object or _is_observation(hint):
        return False
    for part in _alternatives(hint):
        if part is Reward:
            raise AuthoringError(
                "it returns a bare Reward; return Result(observation, reward=…) so that the agent sees something"
            )
        if (get_origin(part) or part) in _UNREADABLE or not _has_json(part):
            raise AuthoringError(
                f"it returns {getattr(part, '__name__', part)}, which cannot be shown to an agent; return text, "
                "TextBlock, ImageBlock, a list of these, Result, or a value that JSON can represent: a number, a "
                "list, a dict, a dataclass, a pydantic model, None"
            )
    return True


def output_of(hints: Mapping[str, Any]) -> OutputSchema | None:
    """Return the output schema of a tool that `returns_values`; None if some of its results are observations.

    Args:
        hints: the annotations of its function.
    """
    hint = _awaited(hints.get("return", Any))
    return None if _may_observe(hint) else output_schema(hint)


def _may_observe(hint: Any) -> bool:
    """Return whether an annotation allows text or a block, or a list of them, as a value or as one alternative."""
    if hasattr(hint, "__value__") or hasattr(hint, "__supertype__"):  # an alias or a new type, of whatever kind
        return True
    if get_origin(hint) is Annotated:
        return _may_observe(get_args(hint)[0])
    inner = get_args(hint) if get_origin(hint) in (Union, types.UnionType, *_LISTS) else ()
    if get_origin(hint) in _LISTS:  # a list within a list is shown as JSON
        inner = tuple(part for part in inner if part is not Ellipsis and get_origin(part) not in _LISTS)
    return _is_observation(hint) or any(map(_may_observe, inner))


def _awaited(hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Awaitable, Coroutine):
        return get_args(hint)[-1]
    return _awaited(get_args(hint)[0]) if origin is Annotated else hint


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_observation(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_observation(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return all(isinstance(value, str) for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return all(map(_is_observation, get_args(hint)))
    if get_origin(hint) in _LISTS:  # a nested list is no observation
        parts = [part for part in get_args(hint) if part is not Ellipsis]
        return all(get_origin(part) not in _LISTS and _is_observation(part) for part in parts)
    return isinstance(hint, type) and issubclass(hint, _OBSERVATIONS)


def _has_json(hint: Any) -> bool:
    try:
        TypeAdapter(hint)
    except PydanticUserError as error:
        return error.code == "typed-dict-version"  # pydantic wants another TypedDict; its values are objects, too
    except (SchemaError, TypeError, NameError):
        return False
    return True
