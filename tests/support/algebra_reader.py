"""Checks answers of algebra from the text of the question alone, with SymPy, by substitution or by trying all numbers.

SymPy reads only what this package wrote; no policy's text comes here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from typing import Any

sp: Any = import_module("sympy")
_parser: Any = import_module("sympy.parsing.sympy_parser")

X, Y, N = sp.symbols("x y n")
_READ = (*_parser.standard_transformations, _parser.implicit_multiplication)


def read(text: str) -> Any:
    """An expression of the package as one of SymPy."""
    spaced = re.sub(r"(?<=[xy])(?=[xy])", "*", text.replace("^", "**"))
    return _parser.parse_expr(spaced, {"x": X, "y": Y, "n": N, "i": sp.I}, _READ)


def between(question: str, start: str, end: str) -> str:
    """The part of a question between two texts."""
    found = re.search(rf"{start}(.*?){end}", question)
    assert found is not None, question
    return found[1]


def whole(question: str) -> list[int]:
    """The whole numbers of a question."""
    return [int(one) for one in re.findall(r"-?\d+", question)]


def roots(solution: str) -> set[Any]:
    """The solutions of an equation as a set."""
    return {read(part.partition("=")[2]) for part in solution.split(" or ")}


def expands(question: str, solution: str) -> bool:
    expression = between(question, r"Expand (?:and simplify )?", r"\.$")
    return bool(sp.expand(read(expression)) == sp.Add(*map(read, _terms(solution)), evaluate=True))


def _terms(text: str) -> list[str]:
    return [one.replace(" ", "") for one in re.split(r" (?=[+-] )", text)]


def factors(question: str, solution: str) -> bool:
    found, answer = read(between(question, "Factor ", " completely")), read(solution)
    _, wanted = sp.factor_list(found)
    _, given = sp.factor_list(answer)
    written = re.findall(r"\(", solution)
    return bool(sp.expand(answer - found) == 0) and wanted == given and len(written) == sum(n for _, n in wanted)


def solves(question: str, solution: str) -> bool:
    left, right = between(question, "Solve ", " for x").split(" = ")
    return set(sp.solve(read(left) - read(right), X)) == roots(solution)


def compares(question: str, solution: str) -> bool:
    """Try both at many points, the ends of the answer among them."""
    told = between(question, "Solve ", " for x")
    ends = [Fraction(one) for one in re.findall(r"-?\d+(?:/\d+)?", solution)]
    points = [Fraction(half, 2) for half in range(-140, 141)] + ends + [one + Fraction(1, 1000) for one in ends]
    return all(_holds(told, one) == _holds(solution, one) for one in points)


def _holds(text: str, point: Fraction) -> bool:
    program = re.sub(r"(?<=[\d)])(?=[x(])|(?<=x)(?=\()", "*", text.replace("^", "**"))
    exact = re.sub(r"(?<!\*\*)\b\d+\b", lambda found: f"Fraction({found[0]})", program)
    try:
        return bool(eval(exact, {"x": point, "Fraction": Fraction, "__builtins__": {}}))
    except ZeroDivisionError:
        return False


def differentiates(question: str, solution: str) -> bool:
    slope = sp.diff(read(between(question, "derivative of ", " with respect")), X)
    return bool(sp.simplify(slope - read(solution)) == 0)


def integrates(question: str, solution: str) -> bool:
    answer = read(solution)
    found = read(between(question, "antiderivative of ", " with respect"))
    return bool(sp.expand(sp.diff(answer, X) - found) == 0 and answer.subs(X, 0) == 0)


def continues(question: str, solution: str) -> bool:
    shown = [int(one) for one in between(question, "sequence ", ", …").split(", ")]
    formula = read(solution)
    most = 1 if "arithmetic" in question else 2
    return [formula.subs(N, place) for place in range(1, len(shown) + 1)] == shown and sp.degree(formula, N) == most


def fulfills(question: str, solution: str) -> bool:
    told = between(question, "system ", " for x and y").split(" and ")
    equations = [sp.Eq(*map(read, one.split(" = "))) for one in told]
    x, y = (int(one) for one in re.findall(r"-?\d+", solution))
    return bool(sp.solve(equations, [X, Y]) == {X: x, Y: y})


def divides(question: str, solution: str) -> bool:
    above, below = between(question, "Divide ", ";").split(" by ")
    quotient, rest = sp.div(read(above), read(below), X)
    return bool(rest == 0 and quotient == read(solution))


def leaves(question: str, solution: str) -> bool:
    above, below = between(question, "when ", r"\.").split(" is divided by ")
    return bool(sp.rem(read(above), read(below), X) == read(solution))


def computes(question: str, solution: str) -> bool:
    value = read(between(question, "Compute ", ", where"))
    return bool(sp.simplify(value - read(solution)) == 0)


def adds_up(question: str, solution: str) -> bool:
    first, ratio, count = whole(question)
    total, term = 0, first
    for _ in range(count):
        total, term = total + term, term * ratio
    return total == int(solution)


def only_one(question: str, solution: str) -> bool:
    _, last, a, b, m = whole(question)
    assert last == m - 1
    return [x for x in range(m) if a * x % m == b % m] == [int(solution.removeprefix("x = "))] and b < m


def least(question: str, solution: str) -> bool:
    a, m, b, n = whole(question)
    return next(x for x in range(m * n) if x % m == a and x % n == b) == int(solution.removeprefix("x = "))


def cancels(question: str, solution: str) -> bool:
    lowest = sp.cancel(read(between(question, "Simplify ", " to a")))
    same = sp.simplify(lowest - read(solution)) == 0
    return bool(same and sp.degree(sp.fraction(lowest)[1], X) == sp.degree(sp.fraction(read(solution))[1], X) == 1)


def decomposes(question: str, solution: str) -> bool:
    parts = sp.apart(read(between(question, "decomposition of ", r"\.$")), X)
    return set(parts.args) == set(read(solution).args)


def remains(question: str, solution: str) -> bool:
    told, m = between(question, "when ", r"\.").split(" is divided by ")
    return bool(read(told) % int(m) == int(solution))


CHECKS: dict[str, Callable[[str, str], bool]] = {
    "expand_pair": expands, "combine_terms": expands, "expand_cubic": expands, "expand_two_variables": expands,
    "factor_monic": factors, "factor_general": factors, "factor_cubic": factors, "linear_equation": solves,
    "quadratic_equation": solves, "complex_roots": solves, "linear_inequality": compares,
    "quadratic_inequality": compares, "rational_inequality": compares, "derivative": differentiates,
    "rational_derivative": differentiates, "integral": integrates, "arithmetic_sequence": continues,
    "quadratic_sequence": continues, "remainder": remains, "power_remainder": remains, "system": fulfills,
    "exact_division": divides, "polynomial_remainder": leaves,
    "complex_product": computes, "complex_quotient": computes,
    "geometric_sum": adds_up, "congruence": only_one, "remainders": least, "simplify_fraction": cancels,
    "partial_fractions": decomposes,
}  # fmt: skip
"""How an answer of each topic is checked."""
