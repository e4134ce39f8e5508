r"""Expressions and units of measurement in mathematical text, and whether two expressions are equal.

How this works. latex2sympy parses expressions and refuses what it cannot parse to the end. Before that, `expression`
makes its input exact and unambiguous: decimals become fractions, so a rounded answer is not equal; upper-case letters,
which the library makes lower-case, become names of their own; neighbors such as `2(3)`, which it adds, become factors.

Two expressions are equal if they have the same values: exactly for fractions, with 30 digits for other numbers, and at
several points if there are variables. That is quick, and finds identities that simplification does not. Only what has
no number (an unknown function, a derivative) is simplified.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import sympy
from latex2sympy2_extended.latex2sympy2 import latex2sympy
from sympy.core.function import AppliedUndef

from ludus.server.rewards.math_text import FUNCTIONS, normalize
from ludus.server.rewards.units import read_unit


class Unreadable(Exception):
    """The text is no mathematics that is read here."""


# ── units ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_SAME_UNITS: Final = {
    **dict.fromkeys(("$", "dollar", "dollars", "usd"), "$"), **dict.fromkeys(("cent", "cents", "¢"), "cent"),
    **dict.fromkeys(("€", "euro", "euros", "eur"), "€"), "£": "£", "am": "am", "pm": "pm",
    **dict.fromkeys(("degree", "degrees", "°"), "deg"), **dict.fromkeys(("radian", "radians"), "rad"),
    **dict.fromkeys(("percent", "percents", "percentage"), "%"),
    **dict.fromkeys(("unit", "units", "square unit", "square units", "cubic units", "sq units"), ""),
}  # fmt: skip
_POWERS: Final = (("square ", "^2"), ("sq ", "^2"), ("cubic ", "^3"))
_MONEY: Final = re.compile(r"(-?)\s*(\\?\$|€|£)\s*(.+)", re.DOTALL)
_PERCENT: Final = re.compile(r"(.*?\S)\s*\\?([%$])", re.DOTALL)
_MINUTES: Final = re.compile(r"(\d+)\s*\^\\circ\s*(\d+)\s*'(?:\s*(\d+)\s*'')?")
_DEGREES: Final = re.compile(r"(.*\S)\s*\^\\circ\s*(?:\\text\s*\{\s*)?([CFK])?\s*\}?", re.DOTALL)
_OF_ANGLE: Final = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)\b[^+\-=,]*$")
_INSIDE_TEXT: Final = re.compile(r"\\text\s*\{\s*([-+]?[\d.,/]+)\s*([^{}]*)\}")
_TEXT_UNIT: Final = re.compile(
    r"(?P<number>.*?[\d})!a-zA-Z\s])\s*"
    r"(?P<unit>(?:\\text\s*\{[^{}]*\}\s*(?:\^\s*\{?\s*-?\d\s*\}?)?\s*(?:(?:/|\\cdot)\s*(?=\\text))?)+)",
    re.DOTALL,
)
_PLAIN_UNIT: Final = re.compile(
    r"(?P<number>(?:[-+\d./() ]|\\frac\{[\d ]+\}\{[\d ]+\}|\\cdot|\\times|\\pi|\\sqrt\{\d+\}|\^\{-?\d+\})+?)"
    r"(?<=[\d})i ])"
    r"(?P<unit>\s*[A-Za-z][A-Za-z .-]*(?:\s*\^\s*\{?-?\d\}?)?(?:\s*/\s*[A-Za-z]+(?:\^\{?\d\}?)?)?)"
)
_UNIT_WORDS: Final = re.compile(r"[A-Za-z]{3,}(?:[ -][A-Za-z.]+)*|[ap]\.?m\.?", re.IGNORECASE)
MEASURE: Final = (
    r"\s*(\d+(?:\.\d+)?)\s*(?:\\text\s*\{([^{}]*)\}|([A-Za-z]{1,10}))\s*(?:\\text\s*\{\s*and\s*\}|and|,)?\s*"
)
"""A number with a unit, perhaps followed by another, as in `3 hours and 20 minutes`."""


def split_unit(text: str) -> tuple[str, str]:
    """Split an expression from the unit before or behind it, which is empty if there is none.

    Raises:
        Unreadable: it has two units.
    """
    if (money := _MONEY.fullmatch(text)) is not None:
        latex, unit = split_unit(money[1] + money[3])
        sign = money[2].lstrip("\\")
        if unit not in ("", sign):
            raise Unreadable("it has two units")
        return latex, sign
    if (percent := _PERCENT.fullmatch(text)) is not None:
        return percent[1], percent[2]
    if (angle := _MINUTES.fullmatch(text)) is not None:
        return rf"{angle[1]}+\frac{{{angle[2]}}}{{60}}+\frac{{{angle[3] or 0}}}{{3600}}", "deg"
    if (degrees := _DEGREES.fullmatch(text)) is not None and _OF_ANGLE.search(degrees[1]) is None:
        return degrees[1], f"deg{degrees[2] or ''}"
    if (inside := _INSIDE_TEXT.fullmatch(text)) is not None:
        return normalize(inside[1]), unit_name(inside[2])
    for pattern in (_TEXT_UNIT, _PLAIN_UNIT):
        match = pattern.fullmatch(text)
        if match is None or not re.search(r"[\w})!]$", match["number"].strip()):
            continue
        if pattern is _TEXT_UNIT or _is_unit(match["unit"], text):
            return match["number"].strip(), unit_name(re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", match["unit"]))
    return text, ""


def _is_unit(letters: str, text: str) -> bool:
    """Return whether letters that end a text are a unit, and no variables: words, or a known unit after a space."""
    if _UNIT_WORDS.fullmatch(letters.strip()):
        return letters.split()[0] not in FUNCTIONS
    is_apart = letters[:1].isspace() or text.removesuffix(letters).endswith(" ")
    return is_apart and read_unit(re.sub(r"[\s{}]", "", letters)) is not None


def unit_name(text: str) -> str:
    """Return one name for all ways to write a unit; an unknown one keeps its words, after `~`, without a plural's s."""
    plain = re.sub(r"[{}\\]", "", text.replace(r"\cdot", "*"))
    plain = re.sub(r"\s+", " ", plain).strip(" .,;~")
    lowered = plain.casefold().replace(".", "")
    if lowered in _SAME_UNITS:
        return _SAME_UNITS[lowered]
    for word, power in _POWERS:
        if lowered.startswith(word):
            plain = lowered.removeprefix(word) + power
    plain = re.sub(r"\s*([/^])\s*", r"\1", plain).replace(" per ", "/")
    first_word = plain.split(" ")[0]  # "days until then"
    unit = read_unit(plain) or (read_unit(first_word) if len(first_word) > 2 else None)
    if unit is not None:
        return f"{unit.factor:g} {unit.dimension} {unit.offset:g}"
    return f"~{lowered.removesuffix('s')}"


# ── expressions ───────────────────────────────────────────────────────────────────────────────────────────────────────

_MIXED: Final = (
    re.compile(r"(?<![\w.])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}"),
    re.compile(r"(?<![\w.])(\d+) (\d+)/(\d+)(?!\d)"),
)
_NO_EXPRESSION: Final = re.compile(r"\d\s+\d|\\text|\\lbrace|\\sqrt\s*$|[=,;:?\"']")
_ARGUMENTS: Final = re.compile(r"_\{[^{}]*\}|\\(?:gcd|lcm|max|min)\s*\([^()]*\)")
_REPEATING: Final = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{(\d+)\}")
_DECIMAL: Final = re.compile(r"(?<![\w.])(\d*)\.(\d+)(?![\w.])|(?<![\w.])(\d+)\.(\d*)(?=[a-zA-Z\\])")
_FACTORS: Final = re.compile(
    r"\\(?:frac|binom)\{[^{}]*\}\{[^{}]*\}(?=\s*(?:\\(?:frac|binom|sqrt)|\d|\())"
    r"|(?<![\^_])[\d)!](?=\s*\()|\)(?=\s*\d)"
    r"|(?<![A-Za-z\\])[a-z]\^\{[^{}]*\}(?=\s*\()|\\(?:pi|alpha|theta)(?=\s*\()"
)
"""What is a factor of what follows it. latex2sympy adds neighboring numbers, and reads `x^{2}(3)` as a function."""
_REWRITTEN: Final = (
    (
        re.compile(r"(\d+(?:\.\d+)?|\\frac\{\d+\}\{\d+\}|\\alpha|\\theta|[a-z])\s*\^\\circ\s*"),
        r"(\1 \\cdot \\frac{\\pi}{180})",
    ),
    (re.compile(r"\\(sec|csc|cot)\s*\^\s*(?:\{(\d)\}|(\d))\s*(\\?[A-Za-z]+|\([^()]*\)|\d+)"), r"(\\\1 \4)^{\2\3}"),
    (
        re.compile(
            r"\\(?:mathbf|boldsymbol|overrightarrow|vec|overline|hat|bar)\s*\{\s*\\?([A-Za-z]) ?([A-Za-z]?)\s*\}"
        ),
        r"x_{v\1\2}",
    ),
    (
        re.compile(r"\\(aleph|gamma|beta|zeta|Gamma|Delta|Omega|Sigma|Phi)(?![a-zA-Z])(?!\s*\()(?:_\{(\w*)\})?"),
        r"x_{g\1\2}",
    ),
    (re.compile(r"\\gamma\s*(?=\()"), r"x_{ggamma} \\cdot "),
)  # fmt: skip
_UPPER: Final = re.compile(r"\\[A-Za-z]+|([A-Z])(_\{[^{}]*\}|_\w)?")


@lru_cache(maxsize=2_000)
def expression(latex: str) -> Any:
    """Return SymPy's form of an expression in the normal form of LaTeX.

    Raises:
        Unreadable: it cannot be parsed to its end.
    """
    text = latex
    for mixed in _MIXED:
        text = mixed.sub(r"(\1+\\frac{\2}{\3})", text)
    if _NO_EXPRESSION.search(_ARGUMENTS.sub("", text)) or text.count("{") != text.count("}"):
        raise Unreadable("it is no expression")
    if re.search(r"\\(?:gcd|lcm)\s*\([^()]*[a-z]", text):
        raise Unreadable("gcd and lcm are read for numbers only")
    text = _DECIMAL.sub(_exact_decimal, _REPEATING.sub(_exact_repeating, text))
    text = _FACTORS.sub(r"\g<0> \\cdot ", text)
    for written, rewritten in _REWRITTEN:
        text = written.sub(rewritten, text)
    text = re.sub(r"\\pi(?=[A-Za-z])", r"\\pi ", _UPPER.sub(_own_name, text))
    try:
        parsed = latex2sympy(text.strip(), is_real=True, convert_degrees=False, normalization_config=None)
    except MemoryError:
        raise
    except Exception:
        raise Unreadable("it is no expression, or is cut off") from None
    if not isinstance(parsed, sympy.Expr):
        raise Unreadable("it is no expression")
    names = {symbol: sympy.I for symbol in parsed.free_symbols if str(symbol) in ("i", "imath")}
    return parsed.subs(list(names.items())) if names else parsed


def _exact_repeating(match: re.Match[str]) -> str:
    integer, fixed, repeated = match.groups()
    above = int((integer or "0") + fixed + repeated) - int((integer or "0") + fixed)
    return rf"\frac{{{above}}}{{{(10 ** len(repeated) - 1) * 10 ** len(fixed)}}}"


def _exact_decimal(match: re.Match[str]) -> str:
    integer, part = (match[1], match[2]) if match[2] is not None else (match[3], match[4])
    return rf"\frac{{{int((integer or '0') + part)}}}{{{10 ** len(part)}}}"


def _own_name(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    index = (match[2] or "").lstrip("_").strip("{}")
    return f"x_{{u{match[1].lower()}{index}}}"


# ── equality ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_INFINITE: Final = (sympy.oo, -sympy.oo, sympy.zoo, sympy.nan)
_WHOLE_NUMBERS: Final = ("n", "k", "m", "x_{un}", "x_{uk}", "x_{um}")
"""Variables that stand for whole numbers, so that `\\cos(n\\pi)` is `(-1)^n`."""
_POINTS: Final = 12
_SAME: Final = 1e-20
"""The relative difference of values that are the same; they are computed with 30 digits."""
_NOTHING: Final = 1e-100


def equal_expressions(first: Any, second: Any) -> bool:
    """Return whether two expressions have the same value wherever both have one."""
    if first in _INFINITE or second in _INFINITE:
        return bool(first == second)
    if first == second or (first.has(sympy.Sum, sympy.Product, sympy.Integral) and first.dummy_eq(second)):
        return True
    if (first - second).has(AppliedUndef, sympy.Derivative):
        return bool(sympy.simplify(first - second) == 0)
    symbols = first.free_symbols | second.free_symbols
    counts = (first - second).has(sympy.factorial, sympy.binomial, sympy.Sum, sympy.Product)
    if not symbols:
        exact = (first - second).doit()
        return bool(exact == 0) if exact.is_Rational else _same_at(first, second, {}) is True
    agreements = [_same_at(first, second, point) for point in points_for(symbols, whole_may_be_negative=not counts)]
    if all(agreement is None for agreement in agreements):
        return bool(sympy.simplify(first - second) == 0)
    return False not in agreements


def _same_at(first: Any, second: Any, point: dict[Any, Any]) -> bool | None:
    """Return whether two expressions have the same value at a point; None if one has none there."""
    values = [value_at(expression, point) for expression in (first, second)]
    if values[0] is None or values[1] is None:
        return None
    size = max(abs(complex(value)) for value in values)
    return size < _NOTHING or bool(abs(complex(values[0] - values[1])) <= _SAME * size)


def points_for(symbols: Iterable[Any], *, whole_may_be_negative: bool = True) -> list[dict[Any, Any]]:
    """Return values of variables at which expressions are compared: fractions, every second time some negative.

    Args:
        symbols: the variables.
        whole_may_be_negative: whether n, k and m may be; binomials and sums that are the same may differ there.
    """
    rng = random.Random(11)
    ordered = sorted(symbols, key=str)

    def value(symbol: Any, may_be_negative: bool) -> Any:
        sign = rng.choice((1, 1, -1)) if may_be_negative else 1
        if symbol.name in _WHOLE_NUMBERS:
            return sympy.Integer((sign if whole_may_be_negative else 1) * rng.randint(2, 9))
        return sympy.Rational(sign * rng.randint(11, 97), rng.choice((7, 11, 23, 101)))

    return [{symbol: value(symbol, number % 2 == 1) for symbol in ordered} for number in range(_POINTS)]


def value_at(expression: Any, point: dict[Any, Any]) -> Any:
    """Return an expression's value at a point, computed with 30 digits; None if it has none there."""
    try:
        value = sympy.N(expression.subs(point), 30, maxn=400)
        return value if abs(complex(value)) < float("inf") else None
    except (ArithmeticError, ValueError, TypeError, AttributeError, RecursionError):
        return None
