"""Decide whether a message's answer is equal to what is expected, form by form (math_forms.py).

A list must be complete, and in a tuple the order counts. A name before `=` may be there or not, as well as a unit; if
both have one, it must be the same. Equations are equal if one is the other times a number, and sets of numbers if they
have the same numbers, whether intervals or inequalities describe them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import sympy

from ludus.server.rewards.math_forms import (
    Based,
    Choice,
    Congruence,
    Equation,
    Form,
    Inequality,
    Ordered,
    Ratio,
    Reals,
    Several,
    Value,
    Words,
    as_reals,
    plain_words,
    quantity_of,
    read,
)
from ludus.server.rewards.math_text import answer_text
from ludus.server.rewards.math_values import Unreadable, equal_expressions, expression, points_for, value_at

_FLIPPED: Final = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
_ENDLESS: Final = re.compile(r"[+-]?\s*\\infty\s*")
_MARKS: Final = re.compile(r"[$*`]|\\(?:text|boxed)\s*\{|(?<!\\)\}")


def compare(gold: Form, message: str) -> tuple[bool, str]:
    """Return whether a message's answer is equal to what is expected, and the text that was read; empty if none was."""
    if isinstance(gold, Words) and gold.text == plain_words(_MARKS.sub(" ", message)):
        return True, message
    text = answer_text(message)
    if text is None:
        return False, ""
    try:
        return equal(gold, read(text)), text
    except Unreadable:
        return False, ""


def equal(gold: Form, answer: Form) -> bool:
    """Return whether an answer is equal to what is expected."""
    try:
        return _equal(gold, answer)
    except Unreadable:  # a side of an equation that is no expression, such as the name of an angle
        return False


def _equal(gold: Form, answer: Form) -> bool:
    if isinstance(answer, Ordered) and answer.brackets == "==" and not isinstance(gold, Ordered):
        return equal(gold, answer.parts[-1])
    forms = (gold, answer)
    for kind, compared in (
        (Choice, _equal_choices), (Equation, _equal_equations), (Reals, _equal_sets), (Several, _equal_lists),
        (Based, _equal_based),
    ):  # fmt: skip
        if any(isinstance(form, kind) for form in forms):
            return compared(gold, answer)
    if isinstance(gold, Value) and isinstance(answer, Value):
        return _equal_values(gold, answer)
    if isinstance(gold, Ordered) and isinstance(answer, Ordered):
        return _may_be_same_tuple(gold, answer) and _equal_parts(gold.parts, answer.parts)
    if isinstance(gold, Ratio) and isinstance(answer, Ratio):
        return (gold.unit == answer.unit or "" in (gold.unit, answer.unit)) and _equal_parts(gold.parts, answer.parts)
    if isinstance(gold, Inequality) and isinstance(answer, Inequality):
        flipped = Inequality(answer.sides[::-1], tuple(_FLIPPED[sign] for sign in answer.signs[::-1]))
        return any(
            gold.signs == variant.signs and _equal_parts(gold.sides, variant.sides) for variant in (answer, flipped)
        )
    if isinstance(gold, Congruence) and isinstance(answer, Congruence):
        return equal(gold.left, answer.left) and equal(gold.modulus, answer.modulus) and _is_multiple(gold, answer)
    return _text_of(gold) == _text_of(answer) != ""


def _text_of(form: Form) -> str:
    """Return words, or the name that a value without a unit is, as in `N` and `\\text{N}`; empty for other forms."""
    if isinstance(form, Words):
        return form.text
    return form.latex.strip("\\ ").casefold() if isinstance(form, Value) and not form.unit else ""


def _equal_parts(gold: Sequence[Form], answer: Sequence[Form]) -> bool:
    return len(gold) == len(answer) and all(map(equal, gold, answer))


def _may_be_same_tuple(gold: Ordered, answer: Ordered) -> bool:
    """Return whether brackets allow it: `(1, 2)` and `[1, 2]` may be intervals, and `(1, 2, 3)` and `[1, 2, 3]` not."""
    brackets = {gold.brackets, answer.brackets}
    return len(brackets) == 1 or (brackets == {"()", "[]"} and len(gold.parts) > 2)


def _equal_choices(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Choice) and isinstance(answer, Choice):
        return gold.letter == answer.letter and equal(gold.form, answer.form)
    if isinstance(gold, Choice):
        return answer == Words(gold.letter) or equal(gold.form, answer)
    return isinstance(answer, Choice) and gold == Words(answer.letter)


# ── lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _equal_lists(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Ordered) or isinstance(answer, Ordered):
        return False
    expected, unmatched = (_distinct(form.parts if isinstance(form, Several) else (form,)) for form in (gold, answer))
    if len(expected) != len(unmatched):
        return False
    for part in expected:
        match = next((candidate for candidate in unmatched if _equal_items(part, candidate)), None)
        if match is None:
            return False
        unmatched.remove(match)
    return True


def _distinct(parts: Sequence[Form]) -> list[Form]:
    distinct: list[Form] = []
    for part in parts:
        if not any(type(part) is type(earlier) and equal(part, earlier) for earlier in distinct):
            distinct.append(part)
    return distinct


def _equal_items(gold: Form, answer: Form) -> bool:
    """Compare parts of lists; `x_1 = 2` may be called `x = 2`."""
    if equal(gold, answer):
        return True
    if not (isinstance(gold, Equation) and isinstance(answer, Equation)):
        return False
    names = [quantity_of(form.left) for form in (gold, answer)]
    plain = [re.sub(r"_(?:\{\d+\}|\d)", "", name) for name in names]
    one_has_an_index = (names[0] == plain[0]) != (names[1] == plain[1])
    return plain[0] == plain[1] != "" and one_has_an_index and equal(gold.right, answer.right)


# ── equations ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _equal_equations(gold: Form, answer: Form) -> bool:
    if isinstance(gold, Several) or isinstance(answer, Several):
        return _equal_lists(_as_list(gold), _as_list(answer))
    if isinstance(gold, Equation) and isinstance(answer, Equation):
        names = [quantity_of(form.left) for form in (gold, answer)]
        if isinstance(gold.left, Ordered) or isinstance(answer.left, Ordered):
            return gold.left == answer.left and equal(gold.right, answer.right)
        if names[0] == names[1] != "" and equal(gold.right, answer.right):
            return True
        return _same_solutions(gold, answer)
    if isinstance(gold, Equation):
        named = quantity_of(gold.left) != "" or (isinstance(gold.left, Ordered) and isinstance(answer, Ordered))
        return named and equal(gold.right, answer)
    return isinstance(answer, Equation) and not _is_to_solve(answer) and equal(gold, answer.right)


def _as_list(form: Form) -> Form:
    """Return `(p, q) = (3, 2)` and `x = 3, 2` as a list of two equations; any other form as it is."""
    match form:
        case Equation(left=Ordered(parts=names), right=Ordered(parts=values)) if len(names) == len(values):
            return Several(tuple(map(Equation, names, values)))
        case Equation(left=left, right=Several(parts=values)):
            return Several(tuple(Equation(left, value) for value in values))
    return form


def _is_to_solve(equation: Equation) -> bool:
    """Return whether an equation, such as `x^2 = 4`, still has to be solved, and does not say what a quantity is."""
    if quantity_of(equation.left):
        return False
    if not isinstance(equation.left, Value):
        return not isinstance(equation.left, Ordered)
    try:
        left = expression(equation.left.latex)
    except Unreadable:  # such as a limit
        return False
    if not left.free_symbols:
        return not equal(equation.left, equation.right)
    return len(left.free_symbols) == 1 and bool(left.is_polynomial(*left.free_symbols))


def _same_solutions(gold: Equation, answer: Equation) -> bool:
    """Return whether two equations are the same up to a factor other than 0 and the order of their sides."""
    differences = []
    for sides in ((gold.left, gold.right), (answer.left, answer.right)):
        differences.append(_difference(*sides))
    gold_difference, answer_difference = differences
    if (
        gold_difference is None
        or answer_difference is None
        or not gold_difference.free_symbols
        or gold_difference.free_symbols != answer_difference.free_symbols
    ):
        return False
    ratios = []
    for point in points_for(gold_difference.free_symbols):
        values = [value_at(difference, point) for difference in (gold_difference, answer_difference)]
        if all(value is not None and abs(complex(value)) > 1e-12 for value in values):
            ratios.append(complex(values[0] / values[1]))
    if ratios and all(abs(ratio - ratios[0]) <= 1e-12 * abs(ratios[0]) for ratio in ratios):
        return True
    return _is_same_graph(gold, answer_difference)


def _difference(left: Form, right: Form) -> Any:
    """Return the difference of two expressions; None if one is none, or has a unit."""
    if not (isinstance(left, Value) and isinstance(right, Value)) or left.unit or right.unit:
        return None
    return expression(left.latex) - expression(right.latex)


def _is_same_graph(gold: Equation, other: Any) -> bool:
    """Return whether `y = …` solves another equation, which is linear in `y` and so has no other solution."""
    assert isinstance(gold.left, Value)
    assert isinstance(gold.right, Value)
    name = expression(gold.left.latex)
    if not name.is_Symbol:
        return False
    slope = sympy.diff(other, name)
    solved = other.subs(name, expression(gold.right.latex))
    return (
        not slope.has(name)
        and not equal_expressions(slope, sympy.Integer(0))
        and equal_expressions(solved, sympy.Integer(0))
    )


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _equal_values(gold: Value, answer: Value) -> bool:
    gold_expression, answer_expression = expression(gold.latex), expression(answer.latex)
    units = {gold.unit, answer.unit}
    if len(units) == 1 or "" not in units:
        return len(units) == 1 and _same(gold, answer, gold_expression, answer_expression)
    if "%" in units:  # 25% is 0.25, and the answer 25 to a question for a percentage
        parts = [
            value / (100 if form.unit == "%" else 1)
            for form, value in ((gold, gold_expression), (answer, answer_expression))
        ]
        return equal_expressions(*parts) or equal_expressions(gold_expression, answer_expression)
    return _same(gold, answer, gold_expression, answer_expression)


def _same(gold: Value, answer: Value, first: Any, second: Any) -> bool:
    return gold.latex.replace(" ", "") == answer.latex.replace(" ", "") or equal_expressions(first, second)


def _equal_based(gold: Form, answer: Form) -> bool:
    based, other = (gold, answer) if isinstance(gold, Based) else (answer, gold)
    if isinstance(based, Based) and isinstance(other, Value):
        return other.latex.casefold() == based.digits
    return gold == answer


def _is_multiple(gold: Congruence, answer: Congruence) -> bool:
    """Return whether the right sides of two congruences differ by a multiple of the modulus."""
    difference = _difference(gold.right, answer.right)
    if difference is None or not isinstance(gold.modulus, Value):
        return False
    return bool(sympy.simplify(difference / expression(gold.modulus.latex)).is_integer)


def _equal_sets(gold: Form, answer: Form) -> bool:
    gold_reals, answer_reals = as_reals(gold), as_reals(answer)
    if gold_reals is None or answer_reals is None or len({gold_reals.variable, answer_reals.variable} - {""}) > 1:
        return False
    intervals = [[_interval(interval) for interval in form.intervals] for form in (gold_reals, answer_reals)]
    if None not in intervals[0] + intervals[1]:
        return bool(sympy.Union(*intervals[0]) == sympy.Union(*intervals[1]))
    # Ends with variables, as in `[k\pi, k\pi + 1]`, have no order.
    brackets = [[interval.brackets for interval in form.intervals] for form in (gold_reals, answer_reals)]
    return brackets[0] == brackets[1] and all(
        _equal_parts(gold_interval.parts, interval.parts)
        for gold_interval, interval in zip(gold_reals.intervals, answer_reals.intervals, strict=True)
    )


def _interval(interval: Ordered) -> Any:
    low, high = (_end(part) for part in interval.parts)
    if low is None or high is None:
        return None
    return sympy.Interval(low, high, interval.brackets[0] == "(", interval.brackets[1] == ")")


def _end(form: Form) -> Any:
    if not isinstance(form, Value) or form.unit not in ("", "deg", "%"):
        return None
    if _ENDLESS.fullmatch(form.latex):
        return -sympy.oo if "-" in form.latex else sympy.oo
    end = expression(form.latex).doit()
    return end if not end.free_symbols and end.is_extended_real else None
