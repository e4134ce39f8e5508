"""JSON Schemas (2020-12) whose validation is limited in processor time, for schemas and values that are not trusted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final

import regex

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.plain_schema import acceptor
from ludus.server.rewards.text import TooLong, search_within

_until: Final[ContextVar[float]] = ContextVar("_until")
"""The time at which validation has to end, in seconds of the thread's processor time."""


_TRIES: Final = 2
"""How often a validation that takes too long is begun. A virtual machine that was paused counts the pause as processor
time, and a valid value must not be refused for that."""


class BoundedSchema:
    """A JSON Schema that validates within a limit of processor time; references to other documents are refused.

    Raises:
        AuthoringError: `schema` is not a JSON Schema, or has both `patternProperties` and `unevaluatedProperties`,
            whose patterns cannot be searched for within a time limit.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator, validators
        from jsonschema.exceptions import SchemaError
        from referencing import Registry

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise AuthoringError(f"not a JSON Schema: {error.message} at {error.json_path}") from None
        schema = _without_dialects(schema)
        text = json.dumps(schema)
        if '"patternProperties"' in text and '"unevaluatedProperties"' in text:
            raise AuthoringError(
                "the schema has both patternProperties and unevaluatedProperties; "
                "close its objects with additionalProperties instead"
            )
        registry: Any = Registry()
        extend: Any = validators.extend
        own_keywords = {
            "pattern": _pattern, "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties, "uniqueItems": _unique_items,
        }  # fmt: skip
        keywords = {
            name: _within_time(keyword) for name, keyword in {**Draft202012Validator.VALIDATORS, **own_keywords}.items()
        }
        self._validator: Any = extend(Draft202012Validator, keywords)(schema, registry=registry)
        self._accepts = acceptor(schema)

    def errors(self, value: object, seconds: float) -> list[Any]:
        """Return the first errors of a value, at most five, as jsonschema's `ValidationError`.

        Raises:
            TooLong: validating took longer than `seconds` of processor time, twice in a row.
            RecursionError: the value is nested too deeply, or the schema refers to itself endlessly.
            OverflowError: a number is too large.
        """
        if self._accepts is not None and self._accepts(value):
            return []
        for _ in range(_TRIES - 1):
            with suppress(TooLong):
                return self._errors(value, seconds)
        return self._errors(value, seconds)

    def _errors(self, value: object, seconds: float) -> list[Any]:
        _until.set(time.thread_time() + seconds)
        return list(islice(self._validator.iter_errors(value), 5))


def _without_dialects(schema: Any) -> Any:
    """Return the schema without `$schema`, which would make jsonschema continue with its own unbounded validator."""
    if isinstance(schema, Mapping):
        return {
            key: value if key in ("const", "enum") else _without_dialects(value)
            for key, value in schema.items()
            if key != "$schema" or not isinstance(value, str)
        }
    return [_without_dialects(element) for element in schema] if isinstance(schema, (list, tuple)) else schema


Keyword = Callable[[Any, Any, Any, Any], Any]


def _within_time(keyword: Keyword) -> Keyword:
    def bounded(validator: Any, keyword_value: Any, instance: Any, schema: Any) -> Any:
        _seconds_left()
        return keyword(validator, keyword_value, instance, schema)

    return bounded


def _seconds_left() -> float:
    seconds = _until.get() - time.thread_time()
    if seconds <= 0:
        raise TooLong
    return seconds


def _found(pattern: str, text: str) -> bool:
    """Return whether a pattern is found. The search is limited in time, since a policy may have chosen the text."""
    return search_within(lambda **limit: regex.search(pattern, text, **limit), _seconds_left) is not None


def _pattern(validator: Any, pattern: str, instance: object, schema: object) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, patterns: Any, instance: object, schema: object) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, below in patterns.items():
            for key, value in instance.items():
                if _found(pattern, key):
                    yield from validator.descend(value, below, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: object, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    for key, value in instance.items():
        if key in named or any(_found(pattern, key) for pattern in patterns):
            continue
        if allowed is False:
            yield ValidationError("is not allowed", path=[key], instance=value)
        else:
            yield from validator.descend(value, allowed, path=key)


def _unique_items(validator: Any, is_required: bool, instance: object, schema: object) -> Iterator[Any]:
    """Compare the items by their JSON texts: jsonschema compares all pairs if items cannot be sorted."""
    from jsonschema.exceptions import ValidationError

    if is_required and isinstance(instance, list):
        texts = {json.dumps(_whole(element), sort_keys=True) for element in instance}
        if len(texts) < len(instance):
            yield ValidationError("has non-unique elements")


def _whole(value: Any) -> Any:
    """Return the same JSON with 1.0 written as 1, which it equals."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(element) for key, element in value.items()}
    return [_whole(element) for element in value] if isinstance(value, list) else value
