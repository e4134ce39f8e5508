"""Checks of JSON in the answer: against a JSON Schema, and field by field against what is expected."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Final

import regex

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Of, answer_of, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.text import normalise, short
from ludus.server.rewards.verdict import Verdict

JSON_CHARS: Final = 200_000
DEPTH: Final = 100
PATTERN_SECONDS: Final = 1.0
_FENCE: Final = re.compile(r"```[a-zA-Z0-9_+.-]*[ \t]*")


class NotJson(ValueError):
    """The text is no JSON; the message says why."""


def read_json(text: str) -> Any:
    """The JSON value that a text is, or that its only fenced block holds.

    Raises:
        NotJson: it is none, it is larger or deeper than it may be, it repeats a key, or it holds NaN or an infinity.
    """
    if len(text) > JSON_CHARS:
        raise NotJson(f"it has {len(text)} characters; at most {JSON_CHARS} are read")
    blocks = fenced(text)
    try:
        value = json.loads(
            blocks[0] if len(blocks) == 1 else text,
            object_pairs_hook=_no_repeats, parse_constant=_no_constant, parse_float=_finite,
        )  # fmt: skip
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(f"it is no JSON: {error}") from None
    _check_depth(value, DEPTH)
    return value


def fenced(text: str) -> list[str]:
    """The contents of the fenced blocks of a text. One that is not closed is none.

    Line by line: a regular expression would go through the rest of the text for each fence that is never closed.
    """
    blocks: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if inside is None:
            inside = [] if _FENCE.fullmatch(line) else None
        elif line.rstrip() == "```":
            blocks.append("".join(f"{one}\n" for one in inside))
            inside = None
        else:
            inside.append(line)
    return blocks


@dataclass(frozen=True)
class JsonSchema(Check):
    """1 when the answer is JSON that a JSON Schema (2020-12) accepts; references to other documents are refused.

    A text in which a `pattern` of the schema is searched for longer than a second is not accepted.
    """

    blocking: ClassVar[bool] = True

    schema: Mapping[str, Any]
    of: Of[str] = answer_of
    _validator: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        from jsonschema import Draft202012Validator, validators
        from jsonschema.exceptions import SchemaError
        from referencing import Registry

        try:
            Draft202012Validator.check_schema(self.schema)
        except SchemaError as error:
            raise AuthoringError(f"not a JSON Schema: {error.message} at {error.json_path}") from None
        registry: Any = Registry()
        extend: Any = validators.extend
        bounded = extend(Draft202012Validator, {"pattern": _pattern})
        object.__setattr__(self, "_validator", bounded(self.schema, registry=registry))

    def check(self, attempt: Attempt) -> Verdict:
        """Validate."""
        try:
            value = read_json(resolve(self.of, attempt))
        except NotJson as error:
            return Verdict(0.0, str(error))
        errors = [
            f"{error.json_path}: {short(error.message)}" for error in islice(self._validator.iter_errors(value), 5)
        ]
        return Verdict(float(not errors), "; ".join(errors))


def _pattern(validator: Any, pattern: str, instance: object, schema: object) -> Iterator[Any]:
    """The keyword `pattern`, whose search in an adversary's text must not hold up the server, as `re` would."""
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, str):
        return
    try:
        found = regex.search(pattern, instance, timeout=PATTERN_SECONDS, concurrent=True)
    except TimeoutError:
        yield ValidationError(f"searching for {pattern!r} took longer than {PATTERN_SECONDS:g} s")
    else:
        if found is None:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")


@dataclass(frozen=True)
class Fields(Check):
    """The share of the expected JSON's values that the answer has in the same places.

    Numbers are compared within `relative`, true is not 1, and whatever the answer has beyond is one more place that
    is wrong, unless `extra_allowed`.
    """

    expected: Of[Any]
    relative: float = 1e-6
    ignore: Collection[str] = ()
    """JSON pointers of places that do not count, with all below them, such as `/created_at`."""
    extra_allowed: bool = False
    normalised: bool = False
    """Whether texts are compared as `Normalised` does."""
    of: Of[str] = answer_of

    def check(self, attempt: Attempt) -> Verdict:
        """Compare place by place."""
        try:
            found = dict(self._places(read_json(resolve(self.of, attempt))))
        except NotJson as error:
            return Verdict(0.0, str(error))
        wanted = dict(self._places(resolve(self.expected, attempt)))
        wrong = [place for place, value in wanted.items() if place not in found or not self._same(found[place], value)]
        extra = [] if self.extra_allowed else [place for place in found if place not in wanted]
        count = len(wanted) + len(extra)
        if not count:
            return Verdict(1.0, "nothing was expected")
        said = [f"{place or 'the whole'} is {short(str(found.get(place, 'missing')))}" for place in wrong[:5]]
        said += [f"{place or 'the whole'} was not asked for" for place in extra[:5]]
        right = len(wanted) - len(wrong)
        return Verdict(right / count, "; ".join([f"{right}/{count} places are right", *said]))

    def _places(self, value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
        if at in self.ignore:
            return
        children: list[tuple[Any, Any]] = []
        if isinstance(value, Mapping):
            children = list(value.items())
        elif isinstance(value, list | tuple):
            children = list(enumerate(value))
        if not children:
            yield at, [] if isinstance(value, tuple) else value
        for key, child in children:
            yield from self._places(child, f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}")

    def _same(self, found: Any, wanted: Any) -> bool:
        if isinstance(found, bool) or isinstance(wanted, bool) or found is None or wanted is None:
            return found is wanted
        if isinstance(found, int | float) and isinstance(wanted, int | float):
            return found == wanted or math.isclose(found, wanted, rel_tol=self.relative)
        if self.normalised and isinstance(found, str) and isinstance(wanted, str):
            return normalise(found) == normalise(wanted)
        return type(found) is type(wanted) and bool(found == wanted)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise NotJson("an object has the same key twice")
    return made


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson(f"{digits[:40]} is no finite number")
    return number


def _no_constant(name: str) -> Any:
    raise NotJson(f"{name} is no JSON number")


def _check_depth(value: Any, left: int) -> None:
    if left == 0:
        raise NotJson(f"it is nested more than {DEPTH} deep")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        if isinstance(child, dict | list):
            _check_depth(child, left - 1)
        elif isinstance(child, float) and not math.isfinite(child):
            raise NotJson("a number is too large")
