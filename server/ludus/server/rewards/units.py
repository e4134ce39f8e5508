"""Units of measurement in text, as a factor to SI base units and a dimension."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

__all__ = ["read_quantity"]


Dimension = tuple[int, ...]
"""Exponents of meter, kilogram, second, ampere, kelvin, mole, candela, bit and radian."""

_ZERO: Final[Dimension] = (0,) * 9
_PREFIXES: Final = {
    "Y": 1e24, "Z": 1e21, "E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "h": 1e2, "da": 1e1,
    "d": 1e-1, "c": 1e-2, "m": 1e-3, "µ": 1e-6, "μ": 1e-6, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
_PREFIXED: Final[dict[str, tuple[float, Dimension]]] = {
    "m": (1, (1, 0, 0, 0, 0, 0, 0, 0, 0)),
    "g": (1e-3, (0, 1, 0, 0, 0, 0, 0, 0, 0)),
    "s": (1, (0, 0, 1, 0, 0, 0, 0, 0, 0)),
    "A": (1, (0, 0, 0, 1, 0, 0, 0, 0, 0)),
    "K": (1, (0, 0, 0, 0, 1, 0, 0, 0, 0)),
    "mol": (1, (0, 0, 0, 0, 0, 1, 0, 0, 0)),
    "cd": (1, (0, 0, 0, 0, 0, 0, 1, 0, 0)),
    "bit": (1, (0, 0, 0, 0, 0, 0, 0, 1, 0)),
    "B": (8, (0, 0, 0, 0, 0, 0, 0, 1, 0)),
    "rad": (1, (0, 0, 0, 0, 0, 0, 0, 0, 1)),
    "N": (1, (1, 1, -2, 0, 0, 0, 0, 0, 0)),
    "J": (1, (2, 1, -2, 0, 0, 0, 0, 0, 0)),
    "W": (1, (2, 1, -3, 0, 0, 0, 0, 0, 0)),
    "Wh": (3600, (2, 1, -2, 0, 0, 0, 0, 0, 0)),
    "eV": (1.602176634e-19, (2, 1, -2, 0, 0, 0, 0, 0, 0)),
    "cal": (4.184, (2, 1, -2, 0, 0, 0, 0, 0, 0)),
    "Pa": (1, (-1, 1, -2, 0, 0, 0, 0, 0, 0)),
    "bar": (1e5, (-1, 1, -2, 0, 0, 0, 0, 0, 0)),
    "Hz": (1, (0, 0, -1, 0, 0, 0, 0, 0, 0)),
    "C": (1, (0, 0, 1, 1, 0, 0, 0, 0, 0)),
    "V": (1, (2, 1, -3, -1, 0, 0, 0, 0, 0)),
    "F": (1, (-2, -1, 4, 2, 0, 0, 0, 0, 0)),
    "T": (1, (0, 1, -2, -1, 0, 0, 0, 0, 0)),
    "H": (1, (2, 1, -2, -2, 0, 0, 0, 0, 0)),
    "Ω": (1, (2, 1, -3, -2, 0, 0, 0, 0, 0)),
    "ohm": (1, (2, 1, -3, -2, 0, 0, 0, 0, 0)),
    "L": (1e-3, (3, 0, 0, 0, 0, 0, 0, 0, 0)),
    "l": (1e-3, (3, 0, 0, 0, 0, 0, 0, 0, 0)),
}
_PLAIN: Final[dict[str, tuple[float, Dimension]]] = {
    "%": (0.01, _ZERO),
    "min": (60, _PREFIXED["s"][1]),
    "h": (3600, _PREFIXED["s"][1]),
    "hr": (3600, _PREFIXED["s"][1]),
    "d": (86400, _PREFIXED["s"][1]),
    "day": (86400, _PREFIXED["s"][1]),
    "week": (604800, _PREFIXED["s"][1]),
    "t": (1e3, _PREFIXED["g"][1]),
    "lb": (0.45359237, _PREFIXED["g"][1]),
    "oz": (0.028349523125, _PREFIXED["g"][1]),
    "in": (0.0254, _PREFIXED["m"][1]),
    "ft": (0.3048, _PREFIXED["m"][1]),
    "yd": (0.9144, _PREFIXED["m"][1]),
    "mi": (1609.344, _PREFIXED["m"][1]),
    "ha": (1e4, (2, 0, 0, 0, 0, 0, 0, 0, 0)),
    "°": (math.pi / 180, _PREFIXED["rad"][1]),
    "deg": (math.pi / 180, _PREFIXED["rad"][1]),
    "atm": (101325, _PREFIXED["Pa"][1]),
    "mph": (0.44704, (1, 0, -1, 0, 0, 0, 0, 0, 0)),
}
_WORDS: Final = {
    "meter": "m", "metre": "m", "gram": "g", "second": "s", "sec": "s", "minute": "min", "hour": "h", "kelvin": "K",
    "newton": "N", "joule": "J", "watt": "W", "pascal": "Pa", "hertz": "Hz", "volt": "V", "ampere": "A", "amp": "A",
    "litre": "L", "liter": "L", "byte": "B", "bits": "bit", "percent": "%", "degree": "°", "radian": "rad",
    "inch": "in", "inches": "in", "foot": "ft", "feet": "ft", "mile": "mi", "pound": "lb", "ounce": "oz",
    "tonne": "t", "kilometer": "km", "kilometre": "km", "kilogram": "kg", "centimeter": "cm", "centimetre": "cm",
    "millimeter": "mm", "millimetre": "mm", "millisecond": "ms", "weeks": "week", "days": "day", "mole": "mol",
}  # fmt: skip
_SHIFTED: Final = {"°C": (1.0, 273.15), "℃": (1.0, 273.15), "degC": (1.0, 273.15), "°F": (5 / 9, 459.67 * 5 / 9)}
"""Scales with another zero: factor and offset to kelvin. They cannot be combined with other units."""
_SUPERSCRIPTS: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED: Final = re.compile(r"[⁰¹²³⁴-⁹⁻]+")
_TERM: Final = re.compile(r"([A-Za-zµμΩ°%]+?)(?:\^?\(?(-?\d)\)?)?")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its numbers times `factor`, plus `offset`, are in SI base units."""

    factor: float
    dimension: Dimension
    offset: float = 0.0


@lru_cache(1024)
def read_unit(text: str) -> Unit | None:
    """Return the unit that `text` denotes, as in `km/h`, `kg*m^2/s^2`, `m s⁻¹`, `°C` or `inches`, or None."""
    text = text.strip()
    if len(text) > 40:
        return None
    if text in _SHIFTED:
        factor, offset = _SHIFTED[text]
        return Unit(factor, _PREFIXED["K"][1], offset)
    factor, dimension = 1.0, list(_ZERO)
    sign = 1
    plain = _RAISED.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPTS), text)
    for part in re.split(r"([*·/ ]+)", plain):
        if not part or part.isspace() or part in "*·":
            continue
        if part.strip() == "/":
            sign = -1
            continue
        term = _TERM.fullmatch(part)
        unit = _symbol(term[1]) if term else None
        if term is None or unit is None:
            return None
        power = sign * int(term[2] or 1)
        factor *= unit[0] ** power
        dimension = [have + power * more for have, more in zip(dimension, unit[1], strict=True)]
    return Unit(factor, tuple(dimension)) if text else None


def _symbol(text: str) -> tuple[float, Dimension] | None:
    text = _WORDS.get(text, _WORDS.get(text.lower(), text))
    if text.lower().endswith("s") and text.lower()[:-1] in _WORDS:
        text = _WORDS[text.lower()[:-1]]
    symbol = _PREFIXED.get(text) or _PLAIN.get(text)
    if symbol is not None:
        return symbol
    for length in (2, 1):
        prefix, base = text[:length], text[length:]
        if prefix in _PREFIXES and base in _PREFIXED:
            factor, dimension = _PREFIXED[base]
            return _PREFIXES[prefix] * factor, dimension
    return None


VULGAR_FRACTIONS: Final = {
    character: str(Fraction(unicodedata.numeric(character)).limit_denominator(10)) for character in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
}
"""Characters such as `½`, and the fractions `1/2` that they are."""
_VULGAR: Final = "".join(VULGAR_FRACTIONS)
_WRITTEN_OTHERWISE: Final = re.compile(rf"[\\${{{_VULGAR}–‑﹣－⋅·]|\*\*")
_REWRITTEN: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (
        re.compile(rf"(\d?)\s?([{_VULGAR}])"),
        lambda match: f"{match[1]}{' ' if match[1] else ''}{VULGAR_FRACTIONS[match[2]]}",
    ),
    (
        re.compile(
            r"(\d)?\s{0,4}\\[dtc]?frac\s{0,4}(?:\{\s{0,4}([-−–]?[\d.,]+)\s{0,4}\}\s{0,4}\{\s{0,4}(\d+)\s{0,4}\}|(\d)\s{0,4}(\d))"
        ),
        lambda match: f"{match[1] + ' ' if match[1] else ' '}{match[2] or match[4]}/{match[3] or match[5]}",
    ),
    (re.compile(r"(?<=\d)(?:\{,\}|\\,|,?\\!,?|\\ )(?=\d{3})"), lambda match: "\u202f"),
    (re.compile(r"\s{0,4}(?:\\times|\\cdot|[⋅·])\s{0,4}(?=10\b)"), lambda match: "×"),
    (re.compile(r"(?<=\d)\*\*(?=[-−\d])"), lambda match: "^"),
    (re.compile(r"\^\s{0,4}\{?\\circ\}?"), lambda match: "°"),
    (re.compile(r"\^\{\s{0,4}([-−]?\d+)\s{0,4}\}"), lambda match: f"^{match[1]}"),
    (re.compile(r"\s{0,4}\\(?:text|mathrm|mbox|rm)\s{0,4}\{~?([^{}]*)\}"), lambda match: f" {match[1].strip()}"),
    (re.compile(r"\\([%$#])"), lambda match: match[1]),
    (re.compile(r"[–‑﹣－](?=\s?[\d.])"), lambda match: "\u2212"),
    (re.compile(r"\$|\\[()\[\]]|\\(?:left|right)(?![a-z])|\*\*"), lambda match: ""),
    (re.compile(r"\\[,;:! ]"), lambda match: " "),
)
"""Other ways to write numbers: vulgar fractions, LaTeX, dashes for a minus, and what each becomes. The repetitions are
bounded, so that no text makes the search slow."""
_DIGITS: Final = re.compile(r"\d+")
_NUMBER: Final = re.compile(
    r"((?:\d{1,3}(?:[,\u202f\u00a0]\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:\s?[eE]([-+\u2212]?\d{1,4})(?!\w)|\s?[×x*]\s?10\s?\^?\s?\{?([-+\u2212]?\d{1,4}|[⁰¹²³⁴-⁹⁻]{1,4})\}?)?"
    r"(?:\^([-\u2212]?\d{1,3})(?!\w)|([⁰¹²³⁴-⁹⁻]{1,3}))?"
    r"(?:(?:[ \u00a0](\d{1,15}))?/(\d{1,15})(?![\d.]))?"
)
_BEFORE_PART: Final = re.compile(
    r"(?:\\(?!boxed|fbox|text)[a-z]+\s*(?:\[\d\])?\s*\{[^{}]{0,20}|\\(?:sqrt|pi|sin|cos|tan|log|ln|exp)(?:[_^]\{?\w+\}?)?\s*|√\s?\(?"
    r"|[\^_]\s?[({]?\s?|\}\s?\{[^{}]{0,20})$"
)
_AFTER_PART: Final = re.compile(r"\s?(?:\\(?:sqrt|pi)|√|π|\^|!(?=[\w\\(]))")
_UNIT_TEXT: Final = re.compile(
    r"\s?([A-Za-zµμΩ°℃%][A-Za-zµμΩ°%0-9^*·/⁰¹²³⁴-⁹⁻-]{0,39}(?: [A-Za-zµμΩ]{1,5}[⁰¹²³⁴-⁹⁻]{1,3}){0,4})"
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number found in text, with the unit that follows it, if any."""

    value: float
    unit: Unit | None
    text: str
    is_part: bool = False
    """Whether it is a part of an expression that is not read, such as the 2 of `\\sqrt{2}` or of `2π`."""


@lru_cache(maxsize=16)
def read_quantities(text: str) -> tuple[Quantity, ...]:
    """Return all finite numbers of a text in order, each with its unit.

    A number is read as a whole: `-1,234.5`, `6.02e23`, `1.2×10^-3`, `2^10`, `3/4`, `1 1/2`, `½`, and in LaTeX
    `\\frac{1}{2}` and `1.5 \\times 10^6`. One that is a part of an expression says so. The last few texts
    are cached, since the checks of one rubric read the same one.
    """
    text = _rewritten(text)
    quantities = []
    at = 0
    # Searching for digits first is several times faster than trying the whole expression at each character.
    while digits := _DIGITS.search(text, at):
        at = digits.end()
        start = digits.start()
        start -= text[start - 1 : start] == "."
        match = _NUMBER.match(text, start) if _begins(text, start) else None
        if match is None:
            continue
        after = _UNIT_TEXT.match(text, match.end())
        unit = read_unit(after[1].rstrip(".-")) if after else None
        at = after.end() if after and unit else match.end()
        sign = _sign(text, start)
        value = _value(match)
        if value is not None:
            original = text[sign if sign is not None else start : at].strip()
            negative = sign is not None and text[sign] != "+"
            begin = start if sign is None else sign
            before = _BEFORE_PART.search(text, max(0, begin - 40), begin)
            is_part = before is not None or _AFTER_PART.match(text, match.end()) is not None
            quantities.append(Quantity(-value if negative else value, unit, original, is_part))
    return tuple(quantities)


def read_quantity(text: str) -> Quantity | None:
    """Return the number, with its unit, that a text is as a whole; None if it is anything else."""
    quantities = read_quantities(text)
    if len(quantities) != 1 or quantities[0].is_part or quantities[0].text != _rewritten(text).strip():
        return None
    return quantities[0]


def _rewritten(text: str) -> str:
    if _WRITTEN_OTHERWISE.search(text):
        for written, rewritten in _REWRITTEN:
            text = written.sub(rewritten, text)
    return text


def _begins(text: str, at: int) -> bool:
    """Return whether a number or its sign may begin at `at`: not inside a word or another number."""
    before = text[at - 1 : at]
    return not (before.isalnum() or before in ("_", "."))


def _sign(text: str, start: int) -> int | None:
    """Return the position of the sign of the number that starts at `start`."""
    for at in (start - 1, start - 2 if text[start - 1 : start].isspace() else -1):
        if at >= 0 and text[at] in "-+\u2212" and _begins(text, at):
            return at
    return None


def _value(match: re.Match[str]) -> float | None:
    digits, exponent, power, raised, superscript, above, divisor = match.groups()
    number = float(re.sub("[,\u202f\u00a0]", "", digits))
    try:
        if ten := exponent or power:
            number *= 10.0 ** _whole(ten)
        if to := raised or superscript:
            number **= _whole(to)
    except (OverflowError, ValueError, ZeroDivisionError):
        return None
    if divisor:
        if int(divisor) == 0:
            return None
        if above:
            number += float(Fraction(int(above), int(divisor)))
        elif math.isfinite(number):
            number = float(Fraction(number) / int(divisor))
    return number if math.isfinite(number) else None


def _whole(text: str) -> int:
    return int(text.translate(_SUPERSCRIPTS).replace("\u2212", "-"))
