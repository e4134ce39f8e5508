"""Countdown's expression reader against exact arithmetic, and against everything that is no expression."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from fractions import Fraction
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.countdown.expression import MAX_DEPTH, ExpressionError, read_expression
from ludus.server import ToolError


@dataclass(frozen=True)
class Node:
    """An expression tree with its own exact value, None where it divides by zero."""

    text: str
    binding: int
    """3 for a number, 2 for a product, 1 for a sum."""
    value: Fraction | None
    numbers: tuple[int, ...]


def join(left: Node, right: Node, sign: str, space: str, needless: bool) -> Node:
    """The two joined, with parentheses where precedence asks for them."""
    binding = 2 if sign in "*/" else 1
    left_text = f"({left.text})" if needless or left.binding < binding else left.text
    right_text = f"({right.text})" if needless or right.binding <= binding else right.text
    return Node(
        f"{left_text}{space}{sign}{space}{right_text}",
        binding,
        exact(left.value, right.value, sign),
        left.numbers + right.numbers,
    )


def exact(a: Fraction | None, b: Fraction | None, sign: str) -> Fraction | None:
    if a is None or b is None or (sign == "/" and b == 0):
        return None
    return {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[sign](b) if sign in "+-*/" else None


numbers = st.integers(0, 999_999).map(lambda n: Node(str(n), 3, Fraction(n), (n,)))
trees = st.recursive(
    numbers,
    lambda inner: st.builds(
        join, inner, inner, st.sampled_from("+-*/"), st.sampled_from(["", " ", "  "]), st.booleans()
    ),
    max_leaves=7,
)


@given(trees)
def test_the_value_is_the_exact_one(tree: Node) -> None:
    if len(tree.text) > 200:
        return
    if tree.value is None:
        with pytest.raises(ExpressionError, match="divides by zero"):
            read_expression(tree.text)
    else:
        found = read_expression(tree.text)
        assert found.value == tree.value
        assert found.numbers == tree.numbers


@given(st.text(max_size=250) | st.text("0123456789+-*/() ", max_size=250) | st.text("()1+", max_size=400))
def test_any_text_is_either_an_expression_or_refused(text: str) -> None:
    message = "expression"
    try:
        read_expression(text)
    except ToolError as error:
        message = str(error)
    assert 0 < len(message) < 200


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", Fraction(14)),
        ("8 - 3 - 2", Fraction(3)),
        ("8 / 4 / 2", Fraction(1)),
        ("1 / 3 * 3", Fraction(1)),
        ("(1 / 3) + (1 / 6)", Fraction(1, 2)),
        ("3 − 5 × 2 ÷ 4", Fraction(1, 2)),
        ("((7))", Fraction(7)),
        ("007", Fraction(7)),
        (f"{'(' * MAX_DEPTH}1{')' * MAX_DEPTH}", Fraction(1)),
    ],
)
def test_precedence_and_order(text: str, value: Fraction) -> None:
    assert read_expression(text).value == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("1 +", "breaks off"),
        ("1 2", r"operator is missing before '2' at position 3"),
        ("2(3)", r"operator is missing before '\('"),
        ("(1", r"'\(' at position 1 is not closed"),
        ("1)", r"'\)' at position 2 closes nothing"),
        ("()", "position 2"),
        ("-1", "position 1, not '-'"),
        ("1 + -1", "position 5, not '-'"),
        ("2 ** 3", r"position 4, not '\*'"),
        ("7 // 2", "position 4, not '/'"),
        ("1 / (2 - 2)", "position 3 divides by zero"),
        ("1 = 1", "'=' at position 3"),
        ("1.5", r"'\.' at position 2"),
        ("1e9", "'e' at position 2"),
        ("__import__('os')", "'_' at position 1"),
        ("٣ + ٤", "position 1"),
        ("1234567", "7 digits"),
        ("1+" * 101, "202 characters"),
        (f"{'(' * (MAX_DEPTH + 1)}1{')' * (MAX_DEPTH + 1)}", "20 nested"),
    ],
)
def test_a_refusal_says_where_and_why(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        read_expression(text)


def test_the_worst_texts_take_little_work() -> None:
    worst = ["9" * 10_000_000, "(" * 10_000_000, "/".join(["999999"] * 28), "*".join(["999999"] * 28), "1/" * 99 + "1"]
    for text in worst:
        assert calls_made_by(text) < 10_000


def calls_made_by(text: str) -> int:
    """Count the calls, of Python and of C, that reading a text makes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        with contextlib.suppress(ExpressionError):
            read_expression(text)
    finally:
        sys.setprofile(None)
    return calls
