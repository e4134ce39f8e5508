"""Checks of JSON in the answer: against a JSON Schema, and field by field against an expected value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Selector, answer_of, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.schema import BoundedSchema
from ludus.server.rewards.text import TooLong, normalize, short
from ludus.server.rewards.verdict import Verdict

JSON_CHARS: Final = 200_000
DEPTH: Final = 100
_FENCE: Final = re.compile(r"(?P<indent>[ \t]*)```(?P<language>[a-zA-Z0-9_+.-]*)[ \t]*")


class NotJson(ValueError):
    """The text is not JSON; the message says why."""


def read_json(text: str) -> Any:
    """Return the JSON value of a text, or of its only fenced block.

    Raises:
        NotJson: the text is not JSON, is too long or nested too deeply, repeats a key, or holds NaN or an infinity.
    """
    if len(text) > JSON_CHARS:
        raise NotJson(f"it has {len(text)} characters; at most {JSON_CHARS} are read")
    blocks = fenced(text)
    return read_json_value(blocks[0] if len(blocks) == 1 else text)


def read_json_value(text: str) -> Any:
    """Return the JSON value of a text.

    Raises:
        NotJson: the text is not JSON, is nested too deeply, repeats a key, or holds NaN or an infinity.
    """
    try:
        value = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(f"it is no JSON: {error}") from None
    _check_depth(value, DEPTH)
    return value


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A fenced block of a text."""

    language: str
    """The word after the fence, in lower case; empty if there is none."""
    text: str
    """The lines between the fences, without the fence's own indentation; each ends with a line feed."""


def fenced(text: str) -> list[str]:
    """Return the contents of the fenced blocks of a text; see `fenced_blocks`."""
    return [block.text for block in fenced_blocks(text)]


def fenced_blocks(text: str) -> list[FencedBlock]:
    """Return the fenced blocks of a text. A block that is not closed does not count.

    The text is read line by line: a regular expression would scan the rest of it for each fence that is never closed.
    """
    blocks: list[FencedBlock] = []
    opening: re.Match[str] | None = None
    content: list[str] = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if opening is None:
            opening, content = _FENCE.fullmatch(line), []
        elif line.rstrip() == opening["indent"] + "```":
            blocks.append(FencedBlock(opening["language"].lower(), "".join(f"{part}\n" for part in content)))
            opening = None
        else:
            content.append(line.removeprefix(opening["indent"]))
    return blocks


@dataclass(frozen=True)
class JsonSchema(Check):
    """1 when the answer is JSON that a JSON Schema (2020-12) accepts; references to other documents are refused.

    An answer that twice takes longer than `seconds` to validate is not accepted. The evidence names the wrong values
    and the keyword that each fails, but not what the schema requires of them.

    Raises:
        AuthoringError: `schema` is not a JSON Schema, or has both `patternProperties` and `unevaluatedProperties`,
            whose patterns cannot be searched for within a time limit.
    """

    blocking: ClassVar[bool] = True

    schema: Mapping[str, Any]
    seconds: float = 5.0
    """Processor time of each of two tries to validate the answer."""
    of: Selector[str] = answer_of
    _schema: BoundedSchema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            object.__setattr__(self, "_schema", BoundedSchema(self.schema))
        except AuthoringError as error:
            raise AuthoringError(f"{self.label}: {error.message}") from None

    def check(self, attempt: Attempt) -> Verdict:
        """Validate the answer."""
        try:
            value = read_json(resolve(self.of, attempt))
        except NotJson as error:
            return Verdict(0.0, str(error))
        try:
            errors = self._schema.errors(value, self.seconds)
        except TooLong:
            return Verdict(0.0, f"validating it took longer than {self.seconds:g} s of processor time")
        except OverflowError:
            return Verdict(0.0, "a number is too large")
        except RecursionError:
            # This raises too if the schema refers to itself endlessly, which is not the answer's fault.
            self._schema.errors(None, self.seconds)
            return Verdict(0.0, "it is nested too deeply for the schema")
        findings = [
            f"{cut(error.json_path)}: {short(str(error.instance))} fails {error.validator or 'false'}"
            for error in errors
        ]
        return Verdict(float(not errors), "; ".join(findings))


Place = tuple[str | int, ...]
"""The path of a value: keys of objects are strings and indexes of lists are integers, so that "0" is not 0."""


@dataclass(frozen=True)
class Fields(Check):
    """The share of the expected JSON's values that the answer has in the same places.

    Numbers are compared within `relative`, and true is not 1. Each additional value in the answer counts as one more
    wrong place, unless `extra_allowed`.
    """

    expected: Selector[Any]
    relative: float = 1e-6
    ignore: Collection[str] = ()
    """JSON pointers of places that do not count, including everything below them, such as `/created_at`."""
    extra_allowed: bool = False
    normalized: bool = False
    """Whether texts are compared as `NormalizedMatch` does."""
    of: Selector[str] = answer_of

    def check(self, attempt: Attempt) -> Verdict:
        """Compare place by place."""
        try:
            actual = dict(self._places(read_json(resolve(self.of, attempt))))
        except NotJson as error:
            return Verdict(0.0, str(error))
        expected = dict(self._places(resolve(self.expected, attempt)))
        wrong = [path for path, value in expected.items() if path not in actual or not self._same(actual[path], value)]
        extra = [] if self.extra_allowed else [path for path in actual if path not in expected]
        count = len(expected) + len(extra)
        if not count:
            return Verdict(1.0, "nothing was expected")
        differences = [f"{_named(path)} is {short(str(actual.get(path, 'missing')))}" for path in wrong[:5]]
        differences += [f"{_named(path)} was not asked for" for path in extra[:5]]
        right = len(expected) - len(wrong)
        return Verdict(right / count, "; ".join([f"{right}/{count} places are right", *differences]))

    def _places(self, value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
        if self.ignore and _pointer(at) in self.ignore:
            return
        children: list[tuple[str | int, Any]] = []
        if isinstance(value, Mapping):
            children = [(str(key), child) for key, child in value.items()]
        elif isinstance(value, (list, tuple)):
            children = list(enumerate(value))
        if not children:
            yield at, [] if isinstance(value, tuple) else value
        for key, child in children:
            yield from self._places(child, (*at, key))

    def _same(self, actual: Any, expected: Any) -> bool:
        if isinstance(actual, bool) or isinstance(expected, bool) or actual is None or expected is None:
            return actual is expected
        if isinstance(actual, int | float) and isinstance(expected, int | float):
            return close(actual, expected, self.relative)
        if self.normalized and isinstance(actual, str) and isinstance(expected, str):
            return normalize(actual) == normalize(expected)
        return type(actual) is type(expected) and bool(actual == expected)


def close(found: float, wanted: float, relative: float) -> bool:
    """Return whether two numbers are equal within a relative tolerance; integers may be larger than any float."""
    try:
        return found == wanted or math.isclose(found, wanted, rel_tol=relative)
    except OverflowError:
        return False


def cut(text: str) -> str:
    """Return text for evidence, shortened and with unprintable characters escaped."""
    return short(text)[1:-1]


def _pointer(path: Place) -> str:
    return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)


def _named(path: Place) -> str:
    return cut(_pointer(path)) or "the whole"


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise NotJson("an object has the same key twice")
    return fields


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson(f"{digits[:40]} is no finite number")
    return number


def _no_constant(name: str) -> Any:
    raise NotJson(f"{name} is no JSON number")


def _check_depth(value: Any, levels: int) -> None:
    if levels == 0:
        raise NotJson(f"it is nested more than {DEPTH} deep")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        if isinstance(child, (dict, list)):
            _check_depth(child, levels - 1)
        elif isinstance(child, float) and not math.isfinite(child):
            raise NotJson("a number is too large")
