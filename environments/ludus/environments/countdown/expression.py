"""A parser for arithmetic written by a policy, which does not use `eval` and computes exactly."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ludus.server import ToolError

MAX_CHARS: Final = 200
MAX_DEPTH: Final = 20
MAX_DIGITS: Final = 6
_TYPOGRAPHIC: Final = str.maketrans("×·⋅∗∙•÷∕／−–﹣－＋（）", "******///----+()")
_LAYOUT: Final = (
    (re.compile(r"```[a-z]{0,10}|\\[()\[\]]"), " "),
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])"), ""),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (re.compile(r"\\boxed\{(.*)\}", re.DOTALL), r"\1"),
    (re.compile(r"\\[dt]?frac\{([^{}]{1,80})\}\{([^{}]{1,80})\}"), r"((\1)/(\2))"),
    (re.compile(r"(?<=[\d)\]}])\s*[xX]\s*(?=[\d(\[{])"), " * "),
    (re.compile(r"(?<=[\d)\]}])\s*:\s*(?=[\d(\[{])"), " / "),
    (re.compile(r"[\[{]"), "("),
    (re.compile(r"[\]}]"), ")"),
)
"""Other ways to write expressions, and what each becomes."""
_LEAD: Final = re.compile(r"\s*\**(?:the\s+|my\s+)?(?:final\s+)?(?:answer|solution)\**\s*(?::|is\b)\**", re.IGNORECASE)
_MARKS: Final = "`$*\"' \t\r\n"
_DIGITS: Final = frozenset("0123456789")


class ExpressionError(ToolError):
    """The text is not a valid expression; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    value: Fraction
    numbers: tuple[int, ...]
    """The numbers in the expression, in order."""


def read_expression(text: str) -> Expression:
    """Parse and compute whole numbers joined by + - * / and parentheses, with the usual precedence.

    The signs × · ÷ − – and others that look like them are read as * * / - -. A sign before a number or a parenthesis is
    refused.

    Raises:
        ExpressionError: the text contains anything else, divides by zero, or has more than 200 characters, 20 nested
            parentheses or 6 digits in a number.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"The expression has {len(text)} characters; at most {MAX_CHARS} are allowed.")
    reader = _Reader(_tokens(text.translate(_TYPOGRAPHIC)))
    value = reader.sum(0)
    reader.expect_end()
    return Expression(value, tuple(reader.numbers))


def without_layout(text: str, target: int) -> str:
    """Return an expression without marks of Markdown and LaTeX around it, a lead such as `Answer:`, and `= target`."""
    if len(text) > 2 * MAX_CHARS:
        return text
    plain = _LEAD.sub("", text, count=1)
    for written, replaced in _LAYOUT:
        plain = written.sub(replaced, plain)
    plain = plain.strip(_MARKS).removesuffix(".").strip(_MARKS)
    left, equals, right = plain.partition("=")
    sides = {left.strip(_MARKS): right, right.strip(_MARKS): left}
    return sides.get(str(target), plain).strip(_MARKS) if equals else plain


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    position: int
    """The position of its first character, from 1."""


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    while at < len(text):
        start = at
        at += 1
        if text[start] in _DIGITS:
            while at < len(text) and text[at] in _DIGITS:
                at += 1
            if at - start > MAX_DIGITS:
                raise ExpressionError(
                    f"The number at position {start + 1} has {at - start} digits; at most {MAX_DIGITS} are allowed."
                )
        elif text[start].isspace():
            continue
        elif text[start] not in "+-*/()":
            raise ExpressionError(
                f"Unexpected {text[start]!r} at position {start + 1}; use only whole numbers, + - * / and parentheses."
            )
        tokens.append(_Token(text[start:at], start + 1))
    if not tokens:
        raise ExpressionError("The expression is empty.")
    return tokens


class _Reader:
    """A recursive-descent parser; `MAX_DEPTH` limits the depth of the recursion."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self.numbers: list[int] = []

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while operator := self._take("+", "-"):
            right = self._product(depth)
            value = value + right if operator.text == "+" else value - right
        return value

    def expect_end(self) -> None:
        token = self._next
        if token is not None and token.text == ")":
            raise ExpressionError(f"The ')' at position {token.position} closes nothing.")
        if token is not None:
            raise ExpressionError(f"An operator is missing before {token.text!r} at position {token.position}.")

    def _product(self, depth: int) -> Fraction:
        value = self._atom(depth)
        while operator := self._take("*", "/"):
            right = self._atom(depth)
            if operator.text == "*":
                value *= right
            elif right == 0:
                raise ExpressionError(f"The '/' at position {operator.position} divides by zero.")
            else:
                value /= right
        return value

    def _atom(self, depth: int) -> Fraction:
        token = self._next
        if token is None:
            raise ExpressionError("The expression breaks off; a number or '(' must follow.")
        self._at += 1
        if token.text[0] in _DIGITS:
            number = int(token.text)
            self.numbers.append(number)
            return Fraction(number)
        if token.text != "(":
            raise ExpressionError(f"A number or '(' must stand at position {token.position}, not {token.text!r}.")
        if depth == MAX_DEPTH:
            raise ExpressionError(f"More than {MAX_DEPTH} nested parentheses, at position {token.position}.")
        value = self.sum(depth + 1)
        if self._take(")") is None:
            raise ExpressionError(f"The '(' at position {token.position} is not closed.")
        return value

    @property
    def _next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, *texts: str) -> _Token | None:
        token = self._next
        if token is None or token.text not in texts:
            return None
        self._at += 1
        return token


def swapped(text: str) -> str:
    """Return an expression whose sums and products have their operands in the other order."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
            node.left, node.right = node.right, node.left
    return ast.unparse(tree)
