"""The topics: each draws a problem together with its answer, which is chosen first or computed with whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import gcd
from typing import Final, NamedTuple

from ludus.environments.algebra.grading import Form
from ludus.environments.algebra.writing import complex_number, polynomial, terms, times
from ludus.server import Difficulty
from ludus.server.authoring.dice import Dice

_LEAST_REMAINDER: Final = 10
"""Smaller remainders would be guessed too often."""


class Drawn(NamedTuple):
    """A question, the form of its answer, and the answer."""

    question: str
    form: Form
    solution: str


Topic = Callable[[Dice], Drawn | None]
"""Draws a problem; None if what was drawn makes none."""


# ── easy ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def expand_pair(dice: Dice) -> Drawn:
    """A product of two linear factors."""
    one, other = [dice.between(1, 6), dice.nonzero(15)], [dice.between(1, 9), dice.nonzero(15)]
    return Drawn(f"Expand ({polynomial(one)})({polynomial(other)}).", "expanded", polynomial(times(one, other)))


def combine_terms(dice: Dice) -> Drawn | None:
    """A sum of multiples of linear expressions."""
    a, b, c = dice.between(2, 12), dice.nonzero(9), dice.nonzero(15)
    d, e, f = dice.between(2, 12), dice.nonzero(9), dice.nonzero(15)
    if not a * b - d * e:
        return None
    text = f"{a}({polynomial([b, c])}) - {d}({polynomial([e, f])})"
    return Drawn(f"Expand and simplify {text}.", "expanded", polynomial([a * b - d * e, a * c - d * f]))


def factor_monic(dice: Dice) -> Drawn | None:
    """A quadratic with two different whole roots."""
    a, b = dice.nonzero(75), dice.nonzero(75)
    if a == b or a == -b:
        return None
    return Drawn(f"Factor {polynomial([1, a + b, a * b])} completely.", "factored", f"(x {_signed(a)})(x {_signed(b)})")


def linear_equation(dice: Dice) -> Drawn | None:
    """The variable on both sides."""
    a, c, b, d = dice.nonzero(15), dice.nonzero(15), dice.nonzero(60), dice.nonzero(60)
    if a == c or b == d:
        return None
    return Drawn(
        f"Solve {polynomial([a, b])} = {polynomial([c, d])} for x.", "numbers", f"x = {Fraction(d - b, a - c)}"
    )


def linear_inequality(dice: Dice) -> Drawn | None:
    """A linear inequality, often with a negative coefficient."""
    a, b, c, sign = dice.nonzero(12), dice.nonzero(40), dice.nonzero(60), dice.pick(("<", ">", "<=", ">="))
    if b == c or abs(a) == 1:
        return None
    turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}[sign] if a < 0 else sign
    return Drawn(f"Solve {polynomial([a, b])} {sign} {c} for x.", "inequality", f"x {turned} {Fraction(c - b, a)}")


def derivative(dice: Dice) -> Drawn:
    """The derivative of a polynomial."""
    found = [dice.nonzero(9) for _ in range(dice.between(4, 5))]
    top = len(found) - 1
    slope = [value * (top - index) for index, value in enumerate(found[:-1])]
    return Drawn(f"Find the derivative of {polynomial(found)} with respect to x.", "expanded", polynomial(slope))


def arithmetic_sequence(dice: Dice) -> Drawn:
    """A formula for the terms of an arithmetic sequence."""
    first, step = dice.nonzero(150), dice.nonzero(60)
    shown = ", ".join(str(first + step * place) for place in range(4))
    question = f"The arithmetic sequence {shown}, … begins with n = 1. Find a formula in n for its n-th term."
    return Drawn(question, "expanded", polynomial([step, first - step], "n"))


def remainder(dice: Dice) -> Drawn | None:
    """A remainder of whole numbers."""
    a, b, c, m = dice.between(100, 999), dice.between(100, 999), dice.between(10, 99), dice.between(101, 499)
    found = (a * b + c) % m
    if found < _LEAST_REMAINDER:
        return None
    return Drawn(f"Find the remainder when {a} * {b} + {c} is divided by {m}.", "numbers", str(found))


# ── medium ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def expand_cubic(dice: Dice) -> Drawn:
    """A linear factor times a quadratic one."""
    one = [dice.between(1, 6), dice.nonzero(9)]
    other = [dice.between(1, 6), dice.nonzero(9), dice.nonzero(9)]
    return Drawn(f"Expand ({polynomial(one)})({polynomial(other)}).", "expanded", polynomial(times(one, other)))


def factor_general(dice: Dice) -> Drawn | None:
    """A quadratic whose leading coefficient is not 1, perhaps with a common divisor."""
    a, b, c, d, k = dice.between(1, 6), dice.nonzero(9), dice.between(2, 6), dice.nonzero(9), dice.between(1, 4)
    if gcd(a, b) > 1 or gcd(c, d) > 1 or a * d == b * c:
        return None
    shown = polynomial([k * one for one in times([a, b], [c, d])])
    number = str(k) if k > 1 else ""
    return Drawn(
        f"Factor {shown} completely over the integers.", "factored",
        f"{number}({polynomial([a, b])})({polynomial([c, d])})",
    )  # fmt: skip


def quadratic_equation(dice: Dice) -> Drawn | None:
    """A quadratic equation with two rational solutions."""
    a, b, c, d = dice.between(1, 5), dice.nonzero(12), dice.between(1, 5), dice.nonzero(12)
    if a * d == b * c:
        return None
    roots = f"x = {Fraction(-b, a)} or x = {Fraction(-d, c)}"
    return Drawn(f"Solve {polynomial(times([a, b], [c, d]))} = 0 for x.", "numbers", roots)


def system(dice: Dice) -> Drawn | None:
    """Two linear equations in two variables."""
    x, y = dice.nonzero(20), dice.nonzero(20)
    a, b, c, d = dice.nonzero(9), dice.nonzero(9), dice.nonzero(9), dice.nonzero(9)
    if a * d == b * c:
        return None
    first, second = terms(((a, "x"), (b, "y"))), terms(((c, "x"), (d, "y")))
    question = f"Solve the system {first} = {a * x + b * y} and {second} = {c * x + d * y} for x and y."
    return Drawn(question, "assignment", f"x = {x}, y = {y}")


def quadratic_inequality(dice: Dice) -> Drawn | None:
    """A quadratic inequality with two whole ends."""
    low, high, k = dice.between(-20, 19), dice.between(-19, 20), dice.pick((1, 1, 2, 3, -1, -2))
    sign = dice.pick(("<", ">", "<=", ">="))
    if low >= high or low == -high:
        return None
    shown = polynomial([k * one for one in times([1, -low], [1, -high])])
    equal = sign[1:]
    if (sign[0] == "<") == (k > 0):
        solution = f"{low} <{equal} x <{equal} {high}"
    else:
        solution = f"x <{equal} {low} or x >{equal} {high}"
    return Drawn(f"Solve {shown} {sign} 0 for x.", "inequality", solution)


def exact_division(dice: Dice) -> Drawn:
    """A polynomial divided by a factor of it."""
    one = [dice.between(1, 4), dice.nonzero(9)]
    other = [dice.between(1, 5), dice.nonzero(9), dice.nonzero(9), dice.nonzero(9)]
    shown = polynomial(times(one, other))
    return Drawn(f"Divide {shown} by {polynomial(one)}; there is no remainder.", "expanded", polynomial(other))


def integral(dice: Dice) -> Drawn:
    """An antiderivative of a polynomial."""
    found = [dice.nonzero(12) for _ in range(dice.between(3, 4))]
    top = len(found)
    raised: list[int | Fraction] = [Fraction(value, top - index) for index, value in enumerate(found)]
    question = (
        f"Find the antiderivative of {polynomial(found)} with respect to x that is 0 at x = 0 "
        "(so leave out the constant)."
    )
    return Drawn(question, "expanded", polynomial([*raised, 0]))


def complex_product(dice: Dice) -> Drawn | None:
    """A product of two complex numbers."""
    a, b, c, d = dice.nonzero(15), dice.nonzero(15), dice.nonzero(15), dice.nonzero(15)
    if a * c == b * d or a * d + b * c == 0:
        return None
    question = f"Compute ({complex_number(a, b)})({complex_number(c, d)}), where i^2 = -1, in the form a + bi."
    return Drawn(question, "numbers", complex_number(a * c - b * d, a * d + b * c))


def geometric_sum(dice: Dice) -> Drawn:
    """The sum of the first terms of a geometric sequence."""
    first, ratio, count = dice.nonzero(150), dice.pick((2, 3, 4, 5, -2, -3)), dice.between(4, 9)
    question = (
        f"A geometric sequence begins with {first}, and each term is {ratio} times the one before. Find the sum of its "
        f"first {count} terms."
    )
    return Drawn(question, "numbers", str(first * (ratio**count - 1) // (ratio - 1)))


def congruence(dice: Dice) -> Drawn | None:
    """A linear congruence with one solution."""
    m, a, b = dice.between(101, 499), dice.between(7, 95), dice.between(2, 99)
    # A multiple of a has a solution that needs no inverse, such as 1.
    if gcd(a, m) > 1 or b % a == 0 or b * pow(a, -1, m) % m < _LEAST_REMAINDER:
        return None
    question = f"Find the only x from 0 to {m - 1} for which {a}x leaves the remainder {b} when divided by {m}."
    return Drawn(question, "numbers", f"x = {b * pow(a, -1, m) % m}")


def simplify_fraction(dice: Dice) -> Drawn | None:
    """A quotient of two quadratics with a common factor."""
    a, b, c, k = dice.nonzero(12), dice.nonzero(12), dice.nonzero(12), dice.between(1, 5)
    if b == c or a in (b, c) or gcd(k, c) > 1:
        return None
    above, below = polynomial(times([1, a], [k, b])), polynomial(times([1, a], [1, c]))
    if b == k * c:
        return None
    question = f"Simplify ({above})/({below}) to a single fraction in lowest terms."
    return Drawn(question, "fraction", f"({polynomial([k, b])})/({polynomial([1, c])})")


# ── hard ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def expand_two_variables(dice: Dice) -> Drawn | None:
    """A cubic in two variables."""
    a, b, c, d = dice.between(1, 9), dice.nonzero(9), dice.between(1, 9), dice.nonzero(9)
    found = times([a, b], [a, b], [c, d])
    if 0 in found:
        return None
    one, other = terms(((a, "x"), (b, "y"))), terms(((c, "x"), (d, "y")))
    solution = terms(zip(found, ("x^3", "x^2y", "xy^2", "y^3"), strict=True))
    return Drawn(f"Expand ({one})^2({other}).", "expanded", solution)


def factor_cubic(dice: Dice) -> Drawn | None:
    """A cubic with three different rational roots."""
    a, b, c, d = dice.between(1, 4), dice.nonzero(9), dice.nonzero(15), dice.nonzero(15)
    if gcd(a, b) > 1 or c == d or b in (a * c, a * d):
        return None
    shown = polynomial(times([a, b], [1, c], [1, d]))
    solution = f"({polynomial([a, b])})(x {_signed(c)})(x {_signed(d)})"
    return Drawn(f"Factor {shown} completely over the integers.", "factored", solution)


def complex_roots(dice: Dice) -> Drawn:
    """A quadratic equation without real solutions."""
    real, imaginary = dice.nonzero(90), dice.between(1, 60)
    shown = polynomial([1, -2 * real, real * real + imaginary * imaginary])
    roots = f"x = {complex_number(real, imaginary)} or x = {complex_number(real, -imaginary)}"
    return Drawn(f"Solve {shown} = 0 for x over the complex numbers, where i^2 = -1.", "numbers", roots)


def complex_quotient(dice: Dice) -> Drawn | None:
    """A quotient of two complex numbers."""
    a, b, c, d = dice.nonzero(12), dice.nonzero(12), dice.nonzero(6), dice.nonzero(6)
    size = c * c + d * d
    real, imaginary = Fraction(a * c + b * d, size), Fraction(b * c - a * d, size)
    if not real or not imaginary:
        return None
    question = f"Compute ({complex_number(a, b)})/({complex_number(c, d)}), where i^2 = -1, in the form a + bi."
    return Drawn(question, "numbers", complex_number(real, imaginary))


def partial_fractions(dice: Dice) -> Drawn | None:
    """A fraction whose denominator has two different linear factors."""
    a, b, p, q = dice.nonzero(12), dice.nonzero(12), dice.nonzero(12), dice.nonzero(12)
    if p == q or a == -b:
        return None
    above, below = [a + b, a * q + b * p], times([1, p], [1, q])
    sign, size = ("-", -b) if b < 0 else ("+", b)
    return Drawn(
        f"Find the partial fraction decomposition of ({polynomial(above)})/({polynomial(below)}).", "partial_fractions",
        f"{a}/(x {_signed(p)}) {sign} {size}/(x {_signed(q)})",
    )  # fmt: skip


def rational_derivative(dice: Dice) -> Drawn | None:
    """The derivative of a quotient of linear expressions."""
    a, b, c, d = dice.nonzero(9), dice.nonzero(12), dice.between(1, 6), dice.nonzero(9)
    above = a * d - b * c
    if not above or gcd(c, d) > 1:
        return None
    question = (
        f"Find the derivative of ({polynomial([a, b])})/({polynomial([c, d])}) with respect to x, as a single "
        "fraction in "
        "lowest terms."
    )
    return Drawn(question, "fraction", f"{above}/({polynomial([c, d])})^2")


def polynomial_remainder(dice: Dice) -> Drawn | None:
    """The remainder of a quartic divided by a quadratic."""
    below, quotient = [1, dice.nonzero(6), dice.nonzero(9)], [dice.between(1, 4), dice.nonzero(5), dice.nonzero(7)]
    rest = [dice.nonzero(15), dice.nonzero(15)]
    above = times(below, quotient)
    above[-2] += rest[0]
    above[-1] += rest[1]
    question = f"Find the remainder when {polynomial(above)} is divided by {polynomial(below)}."
    return Drawn(question, "expanded", polynomial(rest))


def quadratic_sequence(dice: Dice) -> Drawn:
    """A formula for the terms of a sequence with constant second differences."""
    a, b, c = dice.nonzero(6), dice.nonzero(12), dice.nonzero(20)
    shown = ", ".join(str(a * n * n + b * n + c) for n in range(1, 6))
    question = (
        f"The sequence {shown}, … begins with n = 1, and its second differences are constant. Find a formula in n "
        "for its "
        "n-th term."
    )
    return Drawn(question, "expanded", polynomial([a, b, c], "n"))


def remainders(dice: Dice) -> Drawn | None:
    """A number by its remainders for two divisors."""
    m, n = dice.between(11, 60), dice.between(11, 60)
    if gcd(m, n) > 1:
        return None
    found = dice.between(max(m, n), m * n - 1)
    question = (
        f"Find the least x that is not negative and leaves the remainder {found % m} when divided by {m}, and the "
        f"remainder {found % n} when divided by {n}."
    )
    return Drawn(question, "numbers", f"x = {found}")


def power_remainder(dice: Dice) -> Drawn | None:
    """The remainder of a power."""
    base, exponent, m = dice.between(2, 60), dice.between(50, 400), dice.between(101, 499)
    found = pow(base, exponent, m)
    if found < _LEAST_REMAINDER:
        return None
    return Drawn(f"Find the remainder when {base}^{exponent} is divided by {m}.", "numbers", str(found))


def rational_inequality(dice: Dice) -> Drawn | None:
    """An inequality of a quotient of linear expressions."""
    a, b, sign = dice.nonzero(60), dice.nonzero(60), dice.pick(("<", ">", "<=", ">="))
    if a == b:
        return None
    root, pole, equal = -a, -b, sign[1:]
    if sign[0] == "<":
        solution = f"{root} <{equal} x < {pole}" if root < pole else f"{pole} < x <{equal} {root}"
    elif root < pole:
        solution = f"x <{equal} {root} or x > {pole}"
    else:
        solution = f"x < {pole} or x >{equal} {root}"
    return Drawn(f"Solve (x {_signed(a)})/(x {_signed(b)}) {sign} 0 for x.", "inequality", solution)


def _signed(value: int) -> str:
    return f"- {-value}" if value < 0 else f"+ {value}"


TOPICS: Final[Mapping[Difficulty, tuple[Topic, ...]]] = {
    "easy": (
        expand_pair, combine_terms, factor_monic, linear_equation, linear_inequality, derivative, arithmetic_sequence,
        remainder,
    ),
    "medium": (
        expand_cubic, factor_general, quadratic_equation, system, quadratic_inequality, exact_division, integral,
        complex_product, geometric_sum, congruence, simplify_fraction,
    ),
    "hard": (
        expand_two_variables, factor_cubic, complex_roots, complex_quotient, partial_fractions, rational_derivative,
        polynomial_remainder, quadratic_sequence, remainders, power_remainder, rational_inequality,
    ),
}  # fmt: skip
"""The topics of each difficulty."""
