"""Accepts values of plain JSON Schemas (2020-12) quickly: types, properties, items, bounds, and lists of texts.

Most tools have such a schema. `jsonschema` needs about 100 µs for it at each call, which is more than many tools need.
The function that `acceptor` returns only accepts: a value that it does not accept goes to `jsonschema`, which finds the
errors, so that there is one source of messages. There are no references, patterns and nested alternatives, so the time
is proportional to the size of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Accepts = Callable[[Any], bool]

_REMARKS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
)

_TYPES: Final[Mapping[str, Accepts]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}

_BOUNDS: Final[Mapping[str, Callable[[Any], Accepts]]] = {
    "minimum": lambda least: lambda value: not _is_number(value) or value >= least,
    "maximum": lambda most: lambda value: not _is_number(value) or value <= most,
    "exclusiveMinimum": lambda least: lambda value: not _is_number(value) or value > least,
    "exclusiveMaximum": lambda most: lambda value: not _is_number(value) or value < most,
    "minLength": lambda least: lambda value: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda most: lambda value: not isinstance(value, str) or len(value) <= most,
    "minItems": lambda least: lambda value: not isinstance(value, list) or len(value) >= least,
    "maxItems": lambda most: lambda value: not isinstance(value, list) or len(value) <= most,
}


def acceptor(schema: object) -> Accepts | None:
    """Return a function that accepts the JSON values that fit a schema; None if the schema is not a plain one.

    Args:
        schema: a JSON Schema that was checked before.
    """
    if isinstance(schema, bool):
        return _anything if schema else _nothing
    if not isinstance(schema, Mapping):
        return None
    checks: list[Accepts] = []
    for keyword, parameter in schema.items():
        if keyword in _REMARKS or keyword in ("properties", "additionalProperties"):
            continue
        check = _check_of(keyword, parameter)
        if check is None:
            return None
        checks.append(check)
    if "properties" in schema or "additionalProperties" in schema:
        check = _properties(schema.get("properties", {}), schema.get("additionalProperties", True))
        if check is None:
            return None
        checks.append(check)
    return _all_of(checks)


def _check_of(keyword: str, parameter: Any) -> Accepts | None:
    if keyword == "type":
        return _typed([parameter] if isinstance(parameter, str) else parameter)
    if keyword in _BOUNDS:
        return _BOUNDS[keyword](parameter)
    if keyword == "required":
        return lambda value: not isinstance(value, dict) or all(name in value for name in parameter)
    if keyword == "items":
        return _items(parameter)
    if keyword in ("enum", "const"):
        return _texts(parameter if keyword == "enum" else [parameter])
    if keyword == "anyOf":
        return _any_of(parameter)
    return None


def _all_of(checks: list[Accepts]) -> Accepts:
    if not checks:
        return _anything
    if len(checks) == 1:
        return checks[0]

    def accepts(value: Any) -> bool:
        for check in checks:
            if not check(value):
                return False
        return True

    return accepts


def _typed(names: list[str]) -> Accepts:
    if len(names) == 1:
        return _TYPES[names[0]]
    checks = [_TYPES[name] for name in names]
    return lambda value: any(check(value) for check in checks)


def _texts(values: list[Any]) -> Accepts | None:
    if not all(isinstance(text, str) for text in values):
        return None
    texts = frozenset(values)
    return lambda value: isinstance(value, str) and value in texts


def _items(schema: object) -> Accepts | None:
    check = acceptor(schema)
    if check is None:
        return None
    return lambda value: not isinstance(value, list) or all(map(check, value))


def _any_of(schemas: list[Any]) -> Accepts | None:
    """Return the check of alternatives without a structure of their own, as of `str | None`."""
    checks = []
    for schema in schemas:
        if isinstance(schema, Mapping) and not {"properties", "additionalProperties", "items", "anyOf"} & set(schema):
            check = acceptor(schema)
            if check is not None:
                checks.append(check)
                continue
        return None
    return lambda value: any(check(value) for check in checks)


def _properties(properties: Mapping[str, object], additional: object) -> Accepts | None:
    checks: dict[str, Accepts] = {}
    for name, schema in properties.items():
        check = acceptor(schema)
        if check is None:
            return None
        checks[name] = check
    accepts_additional = acceptor(additional)
    if accepts_additional is None:
        return None

    def accepts(value: Any) -> bool:
        if isinstance(value, dict):
            for name, item in value.items():
                if not checks.get(name, accepts_additional)(item):
                    return False
        return True

    return accepts


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _anything(value: Any) -> bool:
    return True


def _nothing(value: Any) -> bool:
    return False
