"""Decide whether a message gives the answer: it must be equal to it, and have the form that the question asks for.

The form matters because a question restates its answer: `(x+1)(x+2)` equals its expansion. See `FORMS` for what counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import Final, Literal

from ludus.environments.algebra.parser import (
    Division,
    Name,
    Negative,
    Node,
    Number,
    Power,
    Product,
    Sum,
    Unreadable,
    evaluate,
    parse,
)
from ludus.environments.algebra.polynomials import (
    ONE,
    Budget,
    Polynomial,
    Quotient,
    TooMuch,
    constant,
    degree,
    equal,
)
from ludus.server import final_answer
from ludus.server.rewards.readers import (
    MOST_READ,
    READ,
    boxes_of,
    read_number,
    split_name,
    without_commas,
    without_layout,
)

Form = Literal["expanded", "factored", "numbers", "assignment", "inequality", "fraction", "partial_fractions"]

MOST_PARTS: Final = 8
"""The most solutions, or parts of an inequality, that are read."""

_SIGNS: Final = (
    (re.compile(r"\\(?:lor|vee)(?![a-zA-Z])|∨"), " or "),
    (re.compile(r"\\(?:land|wedge)(?![a-zA-Z])|∧"), " and "),
    (re.compile(r"\\(?:begin|end)\{(?:cases|aligned|array)\}(?:\{[lcr]*\})?"), " "),
    (re.compile(r"\\\\"), ","),
    (re.compile(r"\\pm(?![a-zA-Z])|\+/-"), "±"),
    (re.compile(r"≤|⩽|\\le(?:q|qslant)?(?![a-z])"), "<="),
    (re.compile(r"≥|⩾|\\ge(?:q|qslant)?(?![a-z])"), ">="),
    (re.compile(r"\\lt(?![a-z])"), "<"),
    (re.compile(r"\\gt(?![a-z])"), ">"),
    (re.compile(r"\\infty(?![a-z])|\b(?:infinity|inf|oo)\b"), "∞"),
    (re.compile(r"\\cup(?![a-z])|(?<=[)\]])\s*U\s*(?=[(\[])"), "∪"),
    (re.compile(r"\\in(?![a-z])|(?<=x)\s+in\s+(?=[(\[{])"), "∈"),
    (re.compile(r"≡|\\equiv(?![a-z])"), "="),
    (re.compile(r"\\pmod\{\s*\d{1,5}\s*\}|\(\s*(?:mod|\\text\{\s*mod\s*\})\s*\d{1,5}\s*\)"), ""),
    (re.compile(r"\$|(?m:^[ \t]*[-*•]\s+(?=[xy]))|\*\*(?=[xy]\s*=)|(?<=\d)\*\*(?=[,\s]|\Z)"), " "),
    (re.compile(r"&\s*="), "="),
    (re.compile(r"\^\{?\s*\\prime\s*\}?|[′’]"), "'"),
    (re.compile(r"ₙ"), "_n"),
    (re.compile(r"\A\s*(?:the\s+)?(?:solutions?|roots?)\s*(?::|\bare\b|\bis\b)\s*", re.IGNORECASE), ""),
    (re.compile(r"\\\{"), "{"),
    (re.compile(r"\\\}"), "}"),
)
"""Signs in LaTeX and in characters, and the one way in which they are read."""
_AND: Final = re.compile(r"[,;&\n]\s*and\b|[,;&\n]|\band\b", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"[,;]\s*(?:or|and)\b|[,;\n]|\bor\b|\band\b", re.IGNORECASE)
_OR: Final = re.compile(r",?\s*\bor\b|∪", re.IGNORECASE)
_EQUATION: Final = re.compile(r"\s*([xy])\s*[=:](.*)", re.DOTALL)
_INDEX: Final = re.compile(r"(?<=[a-zA-Z])(?:_\d|_\{[\d,]{1,5}\}|[₁₂₃]|\d(?=\s*=))")
"""The number of a solution, as in `x_1 =`, `x1 =` and `x_{1,2} =`."""
_SET: Final = re.compile(r"(?:x\s*[∈=]\s*)?\{(.*)\}", re.DOTALL)
_BUILDER: Final = re.compile(r"\{\s*x\s*(?:∈\s*(?:\\mathbb\{R\}|ℝ|R)\s*)?(?:\\mid(?![a-z])|[|:])(.*)\}", re.DOTALL)
_PAIR: Final = re.compile(r"\{?\s*(?:\(\s*x\s*,\s*y\s*\)\s*=\s*)?\(([^,;]*)[,;]([^,;]*)\)\s*\}?", re.DOTALL)
_WRAPPED: Final = re.compile(r"\s*(?:\(([^()=:]*[=:][^()]*)\)|\{([^{}=:]*[=:][^{}]*)\})\s*", re.DOTALL)
"""Several assignments in one pair of brackets."""
_DERIVATIVE: Final = re.compile(
    r"\s*(?:(?:\\frac\{\s*d\s*[a-z]?\s*\}\{\s*d\s*x\s*\}|d[a-z]?\s*/\s*dx)[^=]*|y'|[a-zA-Z](?:'|_n|_\{n\}|n)(?:\([xn]\))?)\s*=(?!.*=)",
    re.DOTALL,
)
_COMPARISON: Final = re.compile(r"(<=|>=|<|>)")
_SPAN: Final = re.compile(r"\s*(?:x\s*∈\s*)?([(\[])([^,;]*)[,;]([^,;]*)([)\]])\s*", re.DOTALL)
_PRODUCT_SIGN: Final = re.compile(r"(?<=\d)\s*\\cdot\s*(?=\\frac)")

Interval = tuple[Fraction | None, bool, Fraction | None, bool]
"""The ends of an interval, each with whether it belongs to it; None for one that is open to infinity."""


def is_answer(form: Form, said: str, solution: str) -> bool | None:
    """Return whether a text is the answer in its form; None if it cannot be read.

    Args:
        form: the form that the question asks for.
        said: the text.
        solution: the answer in that form.
    """
    if len(said) > MOST_READ:
        return None
    budget = Budget()
    try:
        return FORMS[form](_plain(said), solution, budget)
    except (Unreadable, TooMuch):
        return None


def _plain(said: str) -> str:
    """Return a text without its layout, whose signs are each written in one way."""
    for sign, plain in _SIGNS:
        said = sign.sub(plain, said)
    return without_layout(said)


def _read(text: str, budget: Budget) -> tuple[Node, Quotient]:
    node = parse(text)
    return node, evaluate(node, budget)


def _right_side(said: str, solution: str, restates: Callable[[Node], bool], budget: Budget) -> str:
    """Return what follows `=` if a name is before it, or the expression of the question; the text itself otherwise.

    Args:
        said: the text.
        solution: the answer, to which what is before `=` must be equal.
        restates: whether a tree before `=` has the form that is asked for, and so is a second answer.
        budget: what the reading may take.
    """
    if (named := _DERIVATIVE.match(said)) is not None:
        return said[named.end() :]
    _, right = split_name(said)
    left, equals, rest = said.partition("=")
    if right != said or not equals or "=" in rest:
        return right
    node, value = _read(left, budget)
    return said if restates(node) or not equal(value, _read(solution, budget)[1], budget) else rest


def _expanded(said: str, solution: str, budget: Budget) -> bool:
    said = without_commas(said)
    node, value = _read(_right_side(said, solution, is_expanded, budget), budget)
    return is_expanded(node) and equal(value, _read(solution, budget)[1], budget)


def is_expanded(node: Node) -> bool:
    """Return whether a tree is a sum of terms with different powers of variables, one number in each at most."""
    parts = node.parts if isinstance(node, Sum) else (node,)
    monomials: list[tuple[tuple[str, int], ...]] = []
    for part in parts:
        term = _term(part)
        if term is None:
            return False
        monomials.append(term)
    return len(set(monomials)) == len(monomials)


def _term(node: Node) -> tuple[tuple[str, int], ...] | None:
    """Return the powers of the variables of a single term; None for anything else."""
    powers: Counter[str] = Counter()
    numbers = {"above": 0, "below": 0}
    stack: list[tuple[Node, bool]] = [(node.part if isinstance(node, Negative) else node, False)]
    while stack:
        one, below = stack.pop()
        if isinstance(one, Product):
            stack += [(one.left, below), (one.right, below)]
        elif isinstance(one, Division) and not below:
            stack += [(one.above, False), (one.below, True)]
        elif isinstance(one, Number):
            numbers["below" if below else "above"] += 1
        elif isinstance(one, Negative) and not isinstance(one.part, Negative) and not below:
            stack.append((one.part, False))
        elif isinstance(one, Name) and not below:
            if powers[one.name]:
                return None
            powers[one.name] = 1
        elif isinstance(one, Power) and isinstance(one.base, Name) and one.base.name != "i" and not below:
            if powers[one.base.name] or not one.exponent:
                return None
            powers[one.base.name] = one.exponent
        else:
            return None
    if max(numbers.values()) > 1:
        return None
    return tuple(sorted(powers.items()))


def _factored(said: str, solution: str, budget: Budget) -> bool:
    wanted, right = _read(solution, budget)
    factors = _factors(wanted, budget)

    def is_factored(node: Node) -> bool:
        return _factors(node, budget) == factors

    node, value = _read(_right_side(said, solution, is_factored, budget), budget)
    return is_factored(node) and equal(value, right, budget)


def _factors(node: Node, budget: Budget) -> Counter[frozenset[tuple[tuple[int, ...], Fraction]]] | None:
    """Return the factors with variables, each up to its sign; None if one has a common divisor, or is not whole."""
    found: Counter[frozenset[tuple[tuple[int, ...], Fraction]]] = Counter()
    stack: list[tuple[Node, int]] = [(node, 1)]
    while stack:
        one, times = stack.pop()
        if isinstance(one, Product):
            stack += [(one.left, times), (one.right, times)]
        elif isinstance(one, Negative):
            stack.append((one.part, times))
        elif isinstance(one, Power):
            stack.append((one.base, times * one.exponent))
        else:
            above, below = evaluate(one, budget)
            if degree(below):
                return None
            if degree(above):
                plain = _primitive({key: value / below[ONE] for key, value in above.items()})
                if plain is None:
                    return None
                found[plain] += times
    return found


def _primitive(polynomial: Polynomial) -> frozenset[tuple[tuple[int, ...], Fraction]] | None:
    values = list(polynomial.values())
    if lcm(*(one.denominator for one in values)) != 1 or gcd(*(one.numerator for one in values)) != 1:
        return None
    sign = 1 if polynomial[max(polynomial)] > 0 else -1
    return frozenset((key, sign * value) for key, value in polynomial.items())


def _number(text: str, budget: Budget, computed: bool = False) -> Polynomial:
    """Return a number, perhaps with the imaginary unit, that is written as one.

    Args:
        text: the text.
        budget: what the reading may take.
        computed: whether a sum of two numbers counts, since it comes from a sign `±`.
    """
    if (number := read_number(text)) is not None:
        return constant(number)
    node, (above, below) = _read(text, budget)
    if degree(above) or degree(below) or not _is_number(node, computed):
        raise Unreadable("a number is expected")
    return {key: value / below[ONE] for key, value in above.items()}


def _is_number(node: Node, computed: bool) -> bool:
    """Return whether a tree is a sum with one real and one imaginary part at most, perhaps over a whole number."""
    while isinstance(node, Negative):
        node = node.part
    if isinstance(node, Division) and isinstance(node.below, Number):
        node = node.above
    if computed and isinstance(node, Sum):
        return len(node.parts) == 2 and all(_term(part) is not None for part in node.parts)
    return is_expanded(node)


def _numbers(said: str, solution: str, budget: Budget) -> bool:
    wanted = _solutions(solution, budget)
    joined = without_commas(said)
    readings = (joined, said) if joined != said and len(wanted) > 1 else (joined,)
    return any(_are_solutions(text, wanted, budget) for text in readings)


def _are_solutions(text: str, wanted: Sequence[frozenset[tuple[tuple[int, ...], Fraction]]], budget: Budget) -> bool:
    found = _solutions(text, budget)
    return len(found) == len(set(found)) and set(found) == set(wanted)


def _solutions(text: str, budget: Budget) -> list[frozenset[tuple[tuple[int, ...], Fraction]]]:
    text = _INDEX.sub("", text.strip())
    inner = _SET.fullmatch(text)
    parts = _SEPARATOR.split(inner[1] if inner else text)
    if len(parts) > MOST_PARTS:
        raise TooMuch("there are too many solutions")
    found: list[frozenset[tuple[tuple[int, ...], Fraction]]] = []
    names: set[str] = set()
    for part in parts:
        name, value = split_name(part)
        names |= {name} - {""}
        if "=" in value:
            value = _computed(value, budget)
        if value.count("±") == 1:
            signed = [_number(value.replace("±", sign), budget, computed=True) for sign in "+-"]
        else:
            signed = [_number(value, budget)]
        found += [frozenset(one.items()) for one in signed]
    if len(names) > 1:
        raise Unreadable("the solutions have different names")
    return found


def _computed(text: str, budget: Budget) -> str:
    """Return the right side of an equation whose left side is the expression of the question.

    Raises:
        Unreadable: it is no such equation.
    """
    left, _, right = text.partition("=")
    node, value = _read(left, budget)
    if _is_number(node, False) or not equal(value, _read(right, budget)[1], budget):
        raise Unreadable("the left side is not the expression of the question")
    return right


def _assignment(said: str, solution: str, budget: Budget) -> bool:
    return _assigned(said, budget) == _assigned(solution, budget)


def _assigned(text: str, budget: Budget) -> dict[str, Polynomial]:
    if (inner := _WRAPPED.fullmatch(text)) is not None:
        text = inner[1] or inner[2]
    pair = _PAIR.fullmatch(text)
    parts = [f"x = {pair[1]}", f"y = {pair[2]}"] if pair else [part for part in _AND.split(text) if part.strip()]
    found: dict[str, Polynomial] = {}
    for part in parts[:MOST_PARTS]:
        equation = _EQUATION.fullmatch(part)
        if equation is None or equation[1] in found:
            raise Unreadable("each variable must have one value")
        found[equation[1]] = _number(equation[2], budget)
    if len(parts) != len(found):
        raise TooMuch("there are too many values")
    return found


def _inequality(said: str, solution: str, budget: Budget) -> bool:
    return _intervals(said, budget) == _intervals(solution, budget)


def _intervals(text: str, budget: Budget) -> set[Interval]:
    if (builder := _BUILDER.fullmatch(text)) is not None:
        text = builder[1]
    parts = _OR.split(text)
    if len(parts) > MOST_PARTS:
        raise TooMuch("there are too many intervals")
    found = [_span(part, budget) if _SPAN.fullmatch(part) else _both(part, budget) for part in parts]
    if len(set(found)) != len(found):
        raise Unreadable("an interval is there twice")
    return set(found)


def _span(text: str, budget: Budget) -> Interval:
    """Return the interval that brackets write, such as `(-∞, 3]`."""
    span = _SPAN.fullmatch(text)
    assert span is not None
    low = None if span[2].strip() == "-∞" else _real(span[2], budget)
    high = None if span[3].strip().removeprefix("+") == "∞" else _real(span[3], budget)
    low_closed, high_closed = span[1] == "[", span[4] == "]"
    if (low is None and low_closed) or (high is None and high_closed) or (low is None and high is None):
        raise Unreadable("an interval has no end at infinity")
    return low, low_closed, high, high_closed


def _both(text: str, budget: Budget) -> Interval:
    """Return the interval of a comparison, or of two that hold together: `x > 1 and x < 2`."""
    intervals = [_interval(part, budget) for part in _AND.split(text)]
    if len(intervals) == 1:
        return intervals[0]
    lower, upper = sorted(intervals, key=lambda one: one[0] is None)[:2]
    if len(intervals) != 2 or lower[2] is not None or upper[0] is not None:
        raise Unreadable("two comparisons must be a lower and an upper one")
    assert lower[0] is not None
    assert upper[2] is not None
    if lower[0] >= upper[2]:
        raise Unreadable("no number is above the lower and below the upper end")
    return lower[0], lower[1], upper[2], upper[3]


def _interval(text: str, budget: Budget) -> Interval:
    sides = _COMPARISON.split(text)
    ends = [None if side.strip() == "x" else _real(side, budget) for side in sides[::2]]
    signs = sides[1::2]
    if ends.count(None) != 1 or len(signs) not in (1, 2):
        raise Unreadable("an inequality needs one x")
    if len(signs) == 1:
        at_most = (signs[0][0] == "<") == (ends[0] is None)
        closed = len(signs[0]) == 2
        end = ends[1] if ends[0] is None else ends[0]
        return (None, False, end, closed) if at_most else (end, closed, None, False)
    if ends[1] is not None or signs[0][0] != signs[1][0]:
        raise Unreadable("x belongs between two numbers")
    first, second = (ends[0], len(signs[0]) == 2), (ends[2], len(signs[1]) == 2)
    low, high = (first, second) if signs[0][0] == "<" else (second, first)
    return (*low, *high)


def _real(text: str, budget: Budget) -> Fraction:
    number = _number(text, budget)
    if set(number) - {ONE}:
        raise Unreadable("a real number is expected")
    return number.get(ONE, Fraction(0))


def _fraction(said: str, solution: str, budget: Budget) -> bool:
    right = _read(solution, budget)[1]

    def is_lowest(node: Node) -> bool:
        return _is_lowest(node, budget)

    said = _PRODUCT_SIGN.sub("", without_commas(said))
    node, value = _read(_right_side(said, solution, is_lowest, budget), budget)
    return is_lowest(node) and degree(value.below) <= degree(right.below) and equal(value, right, budget)


def _is_lowest(node: Node, budget: Budget) -> bool:
    """Return whether a tree is one quotient, perhaps with a whole number or a sign before it, whose parts are computed
    and have no common whole factor; whether they have a common factor with variables shows in its degree."""
    before = 1
    while isinstance(node, Negative) or (isinstance(node, Product) and isinstance(node.left, Number)):
        if isinstance(node, Product) and isinstance(node.left, Number):
            if before != 1 or node.left.value.denominator != 1:
                return False
            before = node.left.value.numerator
        node = node.part if isinstance(node, Negative) else node.right
    if not isinstance(node, Division) or _divides(node.above) or _divides(node.below):
        return False
    above, below = _content(node.above, budget), _content(node.below, budget)
    return above is not None and below is not None and gcd(before * above, below) == 1


def _content(node: Node, budget: Budget) -> int | None:
    """Return the greatest whole number that divides a part of a fraction; None if the part is not computed.

    It must be a sum of terms with whole coefficients, or a product of such sums of which none has a common divisor,
    with one whole number at most.
    """
    factors: list[Node] = []
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, Product):
            stack += [one.left, one.right]
        elif isinstance(one, Negative):
            stack.append(one.part)
        elif isinstance(one, Power):
            stack += [one.base] * one.exponent
        else:
            factors.append(one)
    numbers = [one.value for one in factors if isinstance(one, Number)]
    contents = []
    for one in (factor for factor in factors if not isinstance(factor, Number)):
        coefficients = evaluate(one, budget)[0].values()
        if not is_expanded(one) or any(value.denominator != 1 for value in coefficients):
            return None
        contents.append(gcd(*(value.numerator for value in coefficients)))
    if len(numbers) > 1 or any(number.denominator != 1 for number in numbers):
        return None
    if len(contents) + len(numbers) == 1:
        return contents[0] if contents else abs(numbers[0].numerator)
    return abs(numbers[0].numerator if numbers else 1) if set(contents) <= {1} else None


def _divides(node: Node) -> bool:
    if isinstance(node, Division):
        return True
    parts: Sequence[Node]
    if isinstance(node, Sum):
        parts = node.parts
    elif isinstance(node, Product):
        parts = (node.left, node.right)
    elif isinstance(node, Power):
        parts = (node.base,)
    else:
        parts = (node.part,) if isinstance(node, Negative) else ()
    return any(map(_divides, parts))


def _partial_fractions(said: str, solution: str, budget: Budget) -> bool:
    wanted, right = _read(solution, budget)
    assert isinstance(wanted, Sum)

    def is_decomposed(node: Node) -> bool:
        if not isinstance(node, Sum) or len(node.parts) != len(wanted.parts):
            return False
        parts = [evaluate(part, budget) for part in node.parts]
        return not any(degree(above) or degree(below) != 1 for above, below in parts)

    node, value = _read(_right_side(said, solution, is_decomposed, budget), budget)
    return is_decomposed(node) and equal(value, right, budget)


FORMS: Final[Mapping[Form, Callable[[str, str, Budget], bool]]] = {
    "expanded": _expanded,
    "factored": _factored,
    "numbers": _numbers,
    "assignment": _assignment,
    "inequality": _inequality,
    "fraction": _fraction,
    "partial_fractions": _partial_fractions,
}
"""How each form is compared."""


_BETWEEN_BOXES: Final = re.compile(
    r"(?:\s|[$,;.&]|\\[()\[\],; ]|\\q?quad(?![a-z])|\\text\{\s*(?:and|or)\s*\}|\band\b|\bor\b){0,30}", re.IGNORECASE
)
_NEXT: Final = re.compile(r"[xy](?:_\{?\d\}?|\d)?\s*[=:](?!.*(?<!\\)\b[A-Za-z]{2})[^=]{1,80}")


def said(form: Form, message: str) -> str:
    """Return the answer that a message states in a form; of several values, those in all of its boxes or lines."""
    text = final_answer(message)
    if form not in ("numbers", "assignment"):
        return text
    end = message[-READ:]
    boxes = boxes_of(end)
    first = len(boxes) - 1
    while first > 0 and _BETWEEN_BOXES.fullmatch(end, boxes[first - 1].end, boxes[first].start):
        first -= 1
    if text and len(boxes) - first > 1 and boxes[-1].text.strip(" .") == text:
        return ", ".join(box.text for box in boxes[first:])
    return ", ".join([text, *_next_lines(message, text)])


def _next_lines(message: str, text: str) -> list[str]:
    """Return the lines below an answer that give further values."""
    at = message.rfind(text)
    lines = message[at + len(text) :].split("\n")[1:] if text and at >= 0 and "\n" not in text else []
    found = []
    for line in lines[:MOST_PARTS]:
        plain = line.strip(" \t\r-*•$\\()[]>`.,")
        if plain and not _NEXT.fullmatch(plain):
            break
        found += [plain] if plain and plain != text else []
    return found
