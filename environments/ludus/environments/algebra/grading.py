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
from ludus.environments.algebra.polynomials import ONE, Budget, Polynomial, Quotient, TooMuch, degree, equal

Form = Literal["expanded", "factored", "numbers", "assignment", "inequality", "fraction", "partial_fractions"]

MOST_PARTS: Final = 8
"""The most solutions, or parts of an inequality, that are read."""

_LATEX: Final = (
    (re.compile(r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox)\{([^{}\\]{0,40})\}"), r" \1 "),
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])"), ""),
    (re.compile(r"\\(?:qquad|quad)(?![a-zA-Z])|\\[()\[\],;:! ]|[$~]"), " "),
    (re.compile(r"\\(?:lor|vee)(?![a-zA-Z])|∨"), " or "),
    (re.compile(r"\\pm(?![a-zA-Z])"), "±"),
)
"""What LaTeX has around expressions, and what stands for it."""
_SEPARATOR: Final = re.compile(r",|;|\bor\b|\band\b", re.IGNORECASE)
_OR: Final = re.compile(r"\bor\b|∪|\\cup", re.IGNORECASE)
_EQUATION: Final = re.compile(r"\s*([xy])\s*=(.*)", re.DOTALL)
_SOLUTION: Final = re.compile(r"\s*x(?:_\d|_\{\d\}|[₁₂₃])?\s*=(.*)", re.DOTALL)
_SET: Final = re.compile(r"(?:x\s*(?:∈|\\in)\s*)?\{(.*)\}", re.DOTALL)
_PAIR: Final = re.compile(r"\s*\(\s*x\s*,\s*y\s*\)\s*=\s*\(([^,]*),([^,]*)\)\s*", re.DOTALL)
_NAMED: Final = re.compile(r"\s*(?:y|[a-zA-Z](?:'|_n|_\{n\})?(?:'?\([xn]\))?)\s*=(?!.*=)", re.DOTALL)
_COMPARISON: Final = re.compile(r"(<=|>=|<|>)")

Interval = tuple[Fraction | None, bool, Fraction | None, bool]
"""The ends of an interval, each with whether it belongs to it; None for one that is open to infinity."""


def is_answer(form: Form, said: str, solution: str) -> bool | None:
    """Return whether a text is the answer in its form; None if it cannot be read.

    Args:
        form: the form that the question asks for.
        said: the text.
        solution: the answer in that form.
    """
    budget = Budget()
    try:
        return FORMS[form](_plain(said), solution, budget)
    except (Unreadable, TooMuch):
        return None


def _plain(said: str) -> str:
    """Return a text without the marks and spaces that LaTeX has around expressions."""
    for mark, plain in _LATEX:
        said = mark.sub(plain, said)
    return said.strip()


def _read(text: str, budget: Budget) -> tuple[Node, Quotient]:
    node = parse(text)
    return node, evaluate(node, budget)


def _right_side(said: str) -> str:
    """Return what follows a name with `=`, as in `f(x) = …` or `a_n = …`; the text itself if there is none."""
    named = _NAMED.match(said)
    return said[named.end() :] if named else said


def _expanded(said: str, solution: str, budget: Budget) -> bool:
    node, value = _read(_right_side(said), budget)
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
        elif isinstance(one, Negative) and isinstance(one.part, Number) and not below:
            numbers["above"] += 1
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
    node, value = _read(_right_side(said), budget)
    wanted, right = _read(solution, budget)
    found = _factors(node, budget)
    return found is not None and found == _factors(wanted, budget) and equal(value, right, budget)


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


def _number(text: str, budget: Budget) -> Polynomial:
    """Return a number, perhaps with the imaginary unit, that is written as one."""
    node, (above, below) = _read(text, budget)
    if degree(above) or degree(below) or not is_expanded(node):
        raise Unreadable("a number is expected")
    return {key: value / below[ONE] for key, value in above.items()}


def _numbers(said: str, solution: str, budget: Budget) -> bool:
    found, wanted = _solutions(said, budget), _solutions(solution, budget)
    return len(found) == len(set(found)) and set(found) == set(wanted)


def _solutions(text: str, budget: Budget) -> list[frozenset[tuple[tuple[int, ...], Fraction]]]:
    text = text.strip().replace("\\{", "{").replace("\\}", "}")
    inner = _SET.fullmatch(text)
    parts = _SEPARATOR.split(inner[1] if inner else text)
    if len(parts) > MOST_PARTS:
        raise TooMuch("there are too many solutions")
    found = []
    for part in parts:
        equation = _SOLUTION.fullmatch(part)
        value = equation[1] if equation else part
        for one in (value.replace("±", "+"), value.replace("±", "-")) if value.count("±") == 1 else (value,):
            found.append(frozenset(_number(one, budget).items()))
    return found


def _assignment(said: str, solution: str, budget: Budget) -> bool:
    return _assigned(said, budget) == _assigned(solution, budget)


def _assigned(text: str, budget: Budget) -> dict[str, Polynomial]:
    pair = _PAIR.fullmatch(text)
    parts = [f"x = {pair[1]}", f"y = {pair[2]}"] if pair else _SEPARATOR.split(text)
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
    text = re.sub(r"≤|⩽|\\le(?:q|qslant)?(?![a-z])", "<=", re.sub(r"≥|⩾|\\ge(?:q|qslant)?(?![a-z])", ">=", text))
    parts = _OR.split(text)
    if len(parts) > MOST_PARTS:
        raise TooMuch("there are too many intervals")
    found = [_interval(part, budget) for part in parts]
    if len(set(found)) != len(found):
        raise Unreadable("an interval is there twice")
    return set(found)


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
    node, value = _read(_right_side(said), budget)
    right = _read(solution, budget)[1]
    return _single(node) and degree(value.below) <= degree(right.below) and equal(value, right, budget)


def _single(node: Node) -> bool:
    """Return whether a tree is one quotient, perhaps with a number or a sign before it."""
    while isinstance(node, Negative) or (isinstance(node, Product) and isinstance(node.left, Number)):
        node = node.part if isinstance(node, Negative) else node.right
    return isinstance(node, Division) and not (_divides(node.above) or _divides(node.below))


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
    node, value = _read(_right_side(said), budget)
    wanted, right = _read(solution, budget)
    assert isinstance(wanted, Sum)
    if not isinstance(node, Sum) or len(node.parts) != len(wanted.parts):
        return False
    for part in node.parts:
        above, below = evaluate(part, budget)
        if degree(above) or degree(below) != 1:
            return False
    return equal(value, right, budget)


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
