"""Checks of the answer as text: exact, normalized, as a number with its unit, or by a pattern."""

from __future__ import annotations

import asyncio
import math
import re
import time
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import regex

from ludus.protocol.errors import AuthoringError
from ludus.protocol.text import truncate
from ludus.server.rewards.attempt import Attempt, Selector, answer_of, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.units import Quantity, Unit, read_quantities, read_unit
from ludus.server.rewards.verdict import Verdict

__all__ = ["TEXT_CHARS", "normalize"]


TEXT_CHARS: Final = 100_000
"""The limit for answers; longer ones are not searched and earn 0."""

_LOOP_SECONDS: Final = 0.005
"""How long a pattern is searched for on the event loop before the search moves to a thread."""

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_SEPARATORS: Final = regex.compile(
    r"(?:(?!(?<!\w)-(?=\d)|(?<=\d)[.,/:](?=\d)|(?<=\d)%|(?<=\p{L})\#)[\p{P}\p{C}\p{Z}])+"
)
"""Punctuation, control characters and white space, except a sign, marks between digits, and those of 5% and C#."""
_MARKS: Final = regex.compile(r"(\p{M}{30})\p{M}+")
"""More marks on one letter than any language has (UAX #15, stream-safe text): sorting them takes quadratic time."""


@dataclass(frozen=True)
class Exact(Check):
    """1 when the answer is the expected text, or one of several, except for white space around it."""

    expected: Selector[str | Sequence[str]]
    of: Selector[str] = answer_of

    def check(self, attempt: Attempt) -> Verdict:
        """Compare the answer with what is expected."""
        answer = resolve(self.of, attempt).strip()
        accepted = _several(resolve(self.expected, attempt))
        return _same(answer, answer in [text.strip() for text in accepted])


@dataclass(frozen=True)
class NormalizedMatch(Check):
    """1 when the answer is the expected text except for case, punctuation, articles, white space and Unicode forms.

    A sign and the marks between digits do not count as punctuation: -5 is not 5, and 1/2 is not 1.2.
    """

    expected: Selector[str | Sequence[str]]
    of: Selector[str] = answer_of

    def check(self, attempt: Attempt) -> Verdict:
        """Compare the answer with what is expected."""
        answer = resolve(self.of, attempt)
        if len(answer) > TEXT_CHARS:
            return Verdict(0.0, f"the answer has {len(answer)} characters")
        accepted = _several(resolve(self.expected, attempt))
        return _same(answer, normalize(answer) in [normalize(text) for text in accepted])


@dataclass(frozen=True)
class Pattern(Check):
    """1 when a regular expression is found in the answer (or, with `present=False`, when it is not).

    A policy may choose an answer on which the search for some patterns never ends. A search that takes longer than
    `seconds` earns 0, whatever `present` is.
    """

    pattern: str
    present: bool = True
    whole: bool = False
    """Whether the whole answer has to match, except for white space around it."""
    ignore_case: bool = False
    seconds: float = 1.0
    """Processor time for the search."""
    of: Selector[str] = answer_of
    _compiled: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            compiled = regex.compile(self.pattern, regex.IGNORECASE if self.ignore_case else 0)
        except regex.error as error:
            raise AuthoringError(f"{self.pattern!r} is no regular expression: {error}") from None
        object.__setattr__(self, "_compiled", compiled)

    def check(self, attempt: Attempt) -> Verdict | Awaitable[Verdict]:
        """Search the answer."""
        answer = resolve(self.of, attempt)
        if len(answer) > TEXT_CHARS:
            return Verdict(0.0, f"the answer has {len(answer)} characters")
        try:
            return self._verdict(self._search(answer, timeout=min(_LOOP_SECONDS, self.seconds), concurrent=True))
        except TimeoutError:
            return self._search_long(answer)

    def _search(self, text: str, **limit: Any) -> Any:
        search = self._compiled.fullmatch if self.whole else self._compiled.search
        return search(text.strip() if self.whole else text, **limit)

    def _verdict(self, match: Any) -> Verdict:
        return Verdict(float((match is not None) == self.present), f"found {short(match[0])}" if match else "not found")

    async def _search_long(self, text: str) -> Verdict:
        def search() -> Verdict:
            until = time.thread_time() + self.seconds
            return self._verdict(search_within(partial(self._search, text), lambda: until - time.thread_time()))

        try:
            return await asyncio.to_thread(search)
        except TooLong:
            return Verdict(0.0, f"the search took longer than {self.seconds:g} s of processor time")


@dataclass(frozen=True)
class Numeric(Check):
    """1 when the answer's number is the expected one within a tolerance, after conversion of units.

    The last number counts, so that naming several gains nothing. Thousands separators, exponents, powers, fractions and
    mixed numbers are read, in plain text and in LaTeX; a number in another expression (`\\sqrt{2}`) is none. See
    `ludus.server.rewards.units` for the units.
    """

    expected: Selector[float]
    unit: str | None = None
    """The unit of `expected`; None for a bare number, after which any text is ignored."""
    relative: float = 1e-6
    absolute: float = 1e-9
    """The greater of the two tolerances applies; the absolute one is in `unit`."""
    unit_required: bool = True
    """Whether an answer without a unit is wrong; otherwise it is assumed to be in `unit`."""
    of: Selector[str] = answer_of
    _unit: Unit | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit is not None:
            unit = read_unit(self.unit)
            if unit is None:
                raise AuthoringError(f"{self.unit!r} is no unit known here; write it as km/h, kg*m^2/s^2 or °C")
            object.__setattr__(self, "_unit", unit)

    def check(self, attempt: Attempt) -> Verdict:
        """Compare the answer with what is expected."""
        answer = resolve(self.of, attempt)
        if len(answer) > TEXT_CHARS:
            return Verdict(0.0, f"the answer has {len(answer)} characters")
        quantities = read_quantities(answer)
        if not quantities:
            return Verdict(0.0, "there is no number in the answer")
        quantity = quantities[-1]
        if quantity.is_part:
            return Verdict(0.0, f"{short(quantity.text)} is a part of an expression, which only MathEqual reads")
        value = self._convert(quantity)
        if value is None:
            return Verdict(0.0, f"{short(quantity.text)} is not in a unit of the kind {self.unit}")
        expected = float(resolve(self.expected, attempt))
        right = math.isclose(value, expected, rel_tol=self.relative, abs_tol=self.absolute)
        reading = f"{short(quantity.text)} is {value:g}{f' {self.unit}' if self.unit else ''}"
        return Verdict(float(right), reading if right else f"{reading}, which is not within the tolerance")

    def _convert(self, quantity: Quantity) -> float | None:
        if self._unit is None:
            return quantity.value
        if quantity.unit is None:
            return None if self.unit_required else quantity.value
        if quantity.unit.dimension != self._unit.dimension:
            return None
        return (quantity.value * quantity.unit.factor + quantity.unit.offset - self._unit.offset) / self._unit.factor


class TooLong(Exception):
    """The check of the answer exceeds its time limit."""


def search_within(search: Callable[..., Any], left: Callable[[], float]) -> Any:
    """Return what a search of `regex` finds within a limit on this thread's processor time.

    The timeout of `regex` counts the processor time of the whole process: if other threads work too, it comes too soon,
    and a slow answer of one episode would use up the time of another's. So a search that times out while this thread
    has time left is started again with a longer timeout.

    Args:
        search: takes the arguments `timeout` and `concurrent` of `regex`.
        left: the processor time that this thread has left, in seconds; it may raise `TooLong`.

    Raises:
        TooLong: no time was left.
    """
    share = 1.0
    while (seconds := left()) > 0:
        try:
            return search(timeout=seconds * share, concurrent=True)
        except TimeoutError:
            share = min(2 * share, 64.0)
    raise TooLong


def normalize(text: str) -> str:
    """Return text in a normal form of case, punctuation, English articles, white space and Unicode.

    If nothing else is left, the articles are kept (`A` of a multiple choice), or else the punctuation.
    """
    text = unicodedata.normalize("NFKC", _MARKS.sub(r"\1", text)).casefold().replace("\N{MINUS SIGN}", "-")
    words = _SEPARATORS.sub(" ", text).strip()
    return " ".join(_ARTICLES.sub(" ", words).split()) or words or text.strip()


def short(text: str) -> str:
    """Return text for evidence, quoted and shortened."""
    return repr(truncate(text, 120))


def _several(expected: str | Sequence[str]) -> Sequence[str]:
    return [expected] if isinstance(expected, str) else expected


def _same(answer: str, right: bool) -> Verdict:
    # The expected text is private, so it must not appear in evidence, which leaves the server.
    return Verdict(float(right), "" if right else f"{short(answer)} is something else")
