"""Random values of JSON schemas: small, varied, and valid as far as that is possible without a solver."""

from __future__ import annotations

import math
import random
import re
import string
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from ludus.client.formats._schema import Schema, UnsupportedSchema, resolve

__all__ = ["random_value"]


_DEPTH: Final = 6
"""Optional parts below this depth are left out, so that recursive schemas terminate."""

_WORDS: Final = ("a", "b", "foo", "bar", "hello", "ludus", "0", "42", "x + 1", "Lorem ipsum")

_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "player@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def random_value(schema: Mapping[str, Any] | bool, rng: random.Random) -> Any:
    """Return a random value that `schema` allows.

    The members of `allOf` are merged; `not`, `if` and similar keywords are ignored. The value may be invalid if a
    reference has no target, or if no try produced a match for a pattern.
    """
    root = dict(schema) if isinstance(schema, Mapping) else {}
    return _Sampler(root, rng).value(schema, 0)


class _Sampler:
    def __init__(self, root: Schema, rng: random.Random) -> None:
        self.root = root
        self.rng = rng

    def value(self, schema: Mapping[str, Any] | bool, depth: int) -> Any:
        if isinstance(schema, bool):
            return self.anything()
        schema = self.flatten(dict(schema), 0)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.rng.choice(schema["enum"])
        examples = schema.get("examples")
        if isinstance(examples, list) and examples and self.rng.random() < 0.5:
            return self.rng.choice(examples)
        match self.kind(schema, depth):
            case "object":
                return self.object(schema, depth)
            case "array":
                return self.array(schema, depth)
            case "string":
                return self.string(schema)
            case "integer":
                return self.integer(schema)
            case "number":
                return self.number(schema)
            case "boolean":
                return self.rng.random() < 0.5
            case "null":
                return None
            case _:
                return self.anything()

    def flatten(self, schema: Schema, hops: int) -> Schema:
        """Return the schema with references followed, `allOf` merged and one alternative chosen."""
        if hops > 32:
            return schema
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                members = schema.pop(keyword)
                return self.flatten(_merge(schema, self.rng.choice(members)), hops + 1)
        if "$ref" in schema:
            try:
                target = resolve(self.root, schema.pop("$ref"))
            except UnsupportedSchema:
                return schema
            return self.flatten(_merge(target, schema), hops + 1)
        if schema.get("allOf"):
            merged = schema
            for member in schema.pop("allOf"):
                merged = _merge(merged, self.flatten(dict(member) if isinstance(member, dict) else {}, hops + 1))
            return merged
        return schema

    def kind(self, schema: Schema, depth: int) -> str | None:
        types = schema.get("type")
        if isinstance(types, list):
            return "null" if "null" in types and depth > _DEPTH else str(self.rng.choice(types))
        if isinstance(types, str):
            return types
        implied = {"properties": "object", "items": "array", "pattern": "string", "minimum": "number"}
        return next((kind for keyword, kind in implied.items() if keyword in schema), None)

    def anything(self) -> Any:
        return self.rng.choice([None, True, False, 0, 1, -1, 0.5, "", "text", [], {}])

    def object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = set(schema.get("required", ()))
        least = schema.get("minProperties", 0)
        result: dict[str, Any] = {}
        for name, sub in properties.items():
            if name in required or (depth < _DEPTH and self.rng.random() < 0.5):
                result[name] = self.value(sub, depth + 1)
        for name in sorted(required - result.keys()):
            result[name] = self.anything()
        extra = schema.get("additionalProperties", True)
        for name in properties:
            if len(result) < least and name not in result:
                result[name] = self.value(properties[name], depth + 1)
        open_ended = extra is not False and (extra is not True or not properties) and "additionalProperties" in schema
        count = max(least, len(result) + (self.rng.randrange(3) if open_ended and depth < _DEPTH else 0))
        while extra is not False and len(result) < min(count, schema.get("maxProperties", count)):
            result[f"key{len(result)}"] = self.value(extra, depth + 1)
        return result

    def array(self, schema: Schema, depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        greatest = max(least, min(schema.get("maxItems", least + 4), least + 4))
        size = self.rng.randint(least, greatest) if depth < _DEPTH else least
        prefix: Sequence[Any] = schema.get("prefixItems", ())
        items = schema.get("items", True)
        result: list[Any] = []
        for _ in range(size * 10):
            if len(result) == size or (items is False and len(result) == len(prefix)):
                break
            value = self.value(prefix[len(result)] if len(result) < len(prefix) else items, depth + 1)
            if not schema.get("uniqueItems") or value not in result:
                result.append(value)
        return result

    def integer(self, schema: Schema) -> int:
        low, high = _bounds(schema)
        step = schema.get("multipleOf")
        if step and float(step).is_integer():
            multiple = int(step)
            lower = -(-math.ceil(low) // multiple) if low > -math.inf else -5
            upper = math.floor(high) // multiple if high < math.inf else lower + 10
            return multiple * self.rng.randint(min(lower, upper), upper)
        least, greatest = _window(low, high, 100)
        bottom = math.ceil(least) + (1 if least == schema.get("exclusiveMinimum") else 0)
        top = math.floor(greatest) - (1 if greatest == schema.get("exclusiveMaximum") else 0)
        return self.rng.randint(min(bottom, top), max(bottom, top))

    def number(self, schema: Schema) -> float:
        low, high = _bounds(schema)
        step = schema.get("multipleOf")
        if step:
            lower = math.ceil(low / step) if low > -math.inf else -5
            upper = math.floor(high / step) if high < math.inf else lower + 10
            return float(step * self.rng.randint(min(lower, upper), upper))
        least, greatest = _window(low, high, 100)
        value = round(self.rng.uniform(least, greatest), 3)
        inside = least < value < greatest or (value == least != schema.get("exclusiveMinimum"))
        return value if inside else (least + greatest) / 2

    def string(self, schema: Schema) -> str:
        least, longest = schema.get("minLength", 0), schema.get("maxLength")
        if "pattern" in schema:
            text = matching(schema["pattern"], self.rng, least, longest)
            if text is not None:
                return text
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        fitting = [word for word in _WORDS if len(word) >= least and (longest is None or len(word) <= longest)]
        if fitting:
            return self.rng.choice(fitting)
        size = least if longest is None else self.rng.randint(least, max(least, longest))
        return "".join(self.rng.choices(string.ascii_lowercase, k=size))


def _merge(base: Schema, second: object) -> Schema:
    """Return a schema that combines both; properties and requirements of both apply."""
    if not isinstance(second, dict):
        return base
    merged = {**base, **second}
    for keyword in ("properties", "$defs"):
        if keyword in base and keyword in second:
            merged[keyword] = {**base[keyword], **second[keyword]}
    if "required" in base and "required" in second:
        merged["required"] = [*base["required"], *second["required"]]
    return merged


def _bounds(schema: Schema) -> tuple[float, float]:
    low = max((schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema), default=-math.inf)
    high = min((schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema), default=math.inf)
    return low, high


def _window(low: float, high: float, width: float) -> tuple[float, float]:
    """Replace infinite bounds: by one `width` away from the other bound, or by -width and width if both are."""
    if low == -math.inf and high == math.inf:
        return -width, width
    if low == -math.inf:
        return high - width, high
    return low, low + width if high == math.inf else high


# ── strings for patterns ───────────────────────────────────────────────────────────────────────────────────────────


def matching(pattern: str, rng: random.Random, least: int = 0, most: int | None = None, tries: int = 50) -> str | None:
    """Return a text of an allowed length in which `pattern` finds a match; None if all tries fail."""
    try:
        compiled = re.compile(pattern)
        tree = import_module("re._parser").parse(pattern)
    except (re.error, OverflowError, RecursionError):
        return None
    for _ in range(tries):
        text = _generate(tree, rng, {})
        if len(text) < least and not pattern.endswith("$"):
            text += "".join(rng.choices(string.ascii_lowercase, k=least - len(text)))
        if len(text) >= least and (most is None or len(text) <= most) and compiled.search(text):
            return text
    return None


def _generate(tree: Any, rng: random.Random, groups: dict[int, str]) -> str:
    return "".join(_piece(str(code), value, rng, groups) for code, value in tree)


def _piece(code: str, value: Any, rng: random.Random, groups: dict[int, str]) -> str:
    match code:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL":
            return _other_than({value}, rng)
        case "ANY":
            return rng.choice(string.ascii_lowercase + string.digits)
        case "IN":
            return _member(value, rng)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, greatest, inner = value
            count = rng.randint(least, min(int(greatest), least + 5))
            return "".join(_generate(inner, rng, groups) for _ in range(count))
        case "SUBPATTERN":
            text = _generate(value[-1], rng, groups)
            if value[0] is not None:
                groups[value[0]] = text
            return text
        case "ATOMIC_GROUP":
            return _generate(value, rng, groups)
        case "BRANCH":
            return _generate(rng.choice(value[1]), rng, groups)
        case "GROUPREF":
            return groups.get(value, "")
        case _:  # anchors and look-arounds consume no text; the final search checks them
            return ""


_CATEGORIES: Final[Mapping[str, str]] = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": string.ascii_letters + string.digits + "_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": string.ascii_letters,
    "CATEGORY_NOT_WORD": " .,-",
    "CATEGORY_NOT_SPACE": string.ascii_letters,
}


def _member(parts: Sequence[tuple[Any, Any]], rng: random.Random) -> str:
    negated = str(parts[0][0]) == "NEGATE"
    choices: list[range | str] = []
    for code, value in parts[1:] if negated else parts:
        match str(code):
            case "LITERAL":
                choices.append(chr(value))
            case "RANGE":
                choices.append(range(value[0], value[1] + 1))
            case "CATEGORY":
                choices.append(_CATEGORIES.get(str(value), string.ascii_letters))
    if negated:
        return _other_than({ord(c) if isinstance(c, str) else c for group in choices for c in group}, rng)
    weights = [len(choice) for choice in choices]
    group = rng.choices(choices, weights=weights)[0]
    return rng.choice(group) if isinstance(group, str) else chr(rng.choice(group))


def _other_than(excluded: set[int], rng: random.Random) -> str:
    allowed = [char for char in string.ascii_letters + string.digits + " _-.,:;!?" if ord(char) not in excluded]
    return rng.choice(allowed) if allowed else "\u00e9"
