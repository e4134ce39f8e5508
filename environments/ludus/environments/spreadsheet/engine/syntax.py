"""Formulas as tokens, and as trees.

Only what the functions of this package compute is read: no references to other files, no array constants, no unions
or intersections. Sizes are bounded, so that the recursion of evaluation is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from ludus.environments.spreadsheet.engine.addresses import Reference, parse_reference
from ludus.environments.spreadsheet.engine.values import ErrorValue

LONGEST: Final = 2_000
"""The most characters of a formula."""
DEEPEST: Final = 100
"""The most levels of a tree."""

_PLACE: Final = (
    r"(?:\$?[A-Za-z]{1,3}\$?[1-9]\d{0,6}(?::\$?[A-Za-z]{1,3}\$?[1-9]\d{0,6})?"
    r"|\$?[A-Za-z]{1,3}:\$?[A-Za-z]{1,3}|\$?[1-9]\d{0,6}:\$?[1-9]\d{0,6}|\#REF!)"
)
_TOKEN: Final = re.compile(
    rf"""(?P<space>[ \t\r\n]+)
    |(?P<reference>(?:(?:'(?:[^'\[\]]|'')+'|[A-Za-z_][A-Za-z0-9_.]*)!)?{_PLACE})(?![A-Za-z0-9_.(!])
    |(?P<number>(?:\d{{1,15}}(?:\.\d{{0,15}})?|\.\d{{1,15}})(?:[eE][+-]?\d{{1,3}})?)(?![A-Za-z0-9_.])
    |(?P<text>"(?:[^"]|"")*")
    |(?P<error>\#(?:NULL!|DIV/0!|VALUE!|NAME\?|NUM!|N/A))
    |(?P<function>[A-Za-z_][A-Za-z0-9_.]*)[ ]*\(
    |(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?![!(])
    |(?P<operator><=|>=|<>|[-+*/^&=<>%(),])""",
    re.VERBOSE | re.ASCII,
)


class SyntaxFault(Exception):
    """A text that is no formula; the message says why."""


class Token(NamedTuple):
    """A part of a formula; `kind` names it, such as `reference` or `operator`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None for an argument that is left out."""

    value: None | bool | float | str | ErrorValue


@dataclass(frozen=True, slots=True)
class Cells:
    """A reference."""

    reference: Reference


@dataclass(frozen=True, slots=True)
class Name:
    """A defined name."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with one or two operands; `-` with one is the sign, `%` always has one."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function with its arguments; the name is in capital letters."""

    name: str
    arguments: tuple[Node, ...]


Node = Literal | Cells | Name | Operation | FunctionCall


@lru_cache(maxsize=4096)
def tokens_of(formula: str) -> tuple[Token, ...]:
    """Return the tokens of a formula without its `=`, spaces included.

    Raises:
        SyntaxFault: it has a part that is none.
    """
    if len(formula) > LONGEST:
        raise SyntaxFault(f"it has {len(formula)} characters, and {LONGEST} are the most")
    found, at = [], 0
    while at < len(formula):
        match = _TOKEN.match(formula, at)
        if match is None or match.lastgroup is None:
            raise SyntaxFault(_unknown(formula[at:]))
        kind, text = match.lastgroup, match[0]
        found.append(Token(kind, text))
        at = match.end()
    return tuple(found)


def _unknown(rest: str) -> str:
    part = repr(rest[:12])
    if rest[0] in "[":
        return f"references to other files and tables are not available, near {part}"
    if rest[0] in "{}":
        return f"array constants are not available, near {part}"
    if rest[0] in ";":
        return f"arguments are separated by commas, near {part}"
    return f"it cannot be read near {part}"


@lru_cache(maxsize=4096)
def parse(formula: str) -> Node:
    """Return the tree of a formula without its `=`.

    Raises:
        SyntaxFault: it is no formula.
    """
    return _Parser([token for token in tokens_of(formula) if token.kind != "space"]).whole()


_LEVELS: Final = (("=", "<>", "<", "<=", ">", ">="), ("&",), ("+", "-"), ("*", "/"), ("^",))


class _Parser:
    """Reads tokens from left to right; `_at` is the place of the next one."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    def whole(self) -> Node:
        """Return the tree of all tokens."""
        found = self._level(0)
        if self._at < len(self._tokens):
            raise SyntaxFault(f"it cannot be read near {self._tokens[self._at].text[:12]!r}")
        if _depth(found) > DEEPEST:
            raise SyntaxFault(f"it is nested more than {DEEPEST} levels deep")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _level(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._signed()
        left = self._level(level + 1)
        while (token := self._peek()) in _LEVELS[level] and self._tokens[self._at].kind == "operator":
            self._at += 1
            left = Operation(token, (left, self._level(level + 1)))
        return left

    def _signed(self) -> Node:
        signs = []
        while self._peek() in ("-", "+"):
            signs.append(self._tokens[self._at].text)
            self._at += 1
        found = self._percent()
        if len(signs) > DEEPEST:
            raise SyntaxFault("it has too many signs in a row")
        for sign in reversed(signs):
            found = Operation(sign, (found,))
        return found

    def _percent(self) -> Node:
        found = self._atom()
        while self._peek() == "%":
            self._at += 1
            found = Operation("%", (found,))
        return found

    def _atom(self) -> Node:
        if self._at == len(self._tokens):
            raise SyntaxFault("it ends too early")
        token = self._tokens[self._at]
        self._at += 1
        if token.text == "(":
            found = self._nested()
            self._expect(")")
            return found
        if token.kind == "function":
            return self._call(token.text.rstrip("( ").upper())
        return _leaf(token)

    def _nested(self) -> Node:
        self._depth += 1
        if self._depth > DEEPEST // 4:
            raise SyntaxFault(f"it is nested more than {DEEPEST // 4} parentheses deep")
        found = self._level(0)
        self._depth -= 1
        return found

    def _call(self, name: str) -> Node:
        arguments: list[Node] = []
        if self._peek() == ")":
            self._at += 1
            return FunctionCall(name, ())
        while True:
            arguments.append(Literal(None) if self._peek() in (",", ")") else self._nested())
            if self._peek() == ",":
                self._at += 1
            else:
                self._expect(")")
                return FunctionCall(name, tuple(arguments))

    def _expect(self, text: str) -> None:
        if self._peek() != text:
            raise SyntaxFault(f"{text!r} is missing" + (f" before {self._peek()[:12]!r}" if self._peek() else ""))
        self._at += 1


def _leaf(token: Token) -> Node:
    if token.kind == "number":
        return Literal(float(token.text))
    if token.kind == "text":
        return Literal(token.text[1:-1].replace('""', '"'))
    if token.kind == "error":
        return Literal(ErrorValue(token.text.upper()))
    if token.kind == "reference":
        if token.text.endswith("#REF!"):
            return Literal(ErrorValue.REF)
        found = parse_reference(token.text)
        if found is None:
            raise SyntaxFault(f"there is no cell {token.text[:20]!r}")
        return Cells(found)
    if token.kind == "name":
        upper = token.text.upper()
        return Literal(upper == "TRUE") if upper in ("TRUE", "FALSE") else Name(token.text)
    raise SyntaxFault(f"it cannot be read near {token.text[:12]!r}")


def _depth(node: Node) -> int:
    deepest, waiting = 0, [(node, 1)]
    while waiting:
        one, depth = waiting.pop()
        deepest = max(deepest, depth)
        children = (
            one.operands if isinstance(one, Operation) else one.arguments if isinstance(one, FunctionCall) else ()
        )
        waiting += [(child, depth + 1) for child in children]
    return deepest


def nodes_of(node: Node) -> list[Node]:
    """Return a node and all nodes below it."""
    found, waiting = [], [node]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += (
            one.operands if isinstance(one, Operation) else one.arguments if isinstance(one, FunctionCall) else ()
        )
    return found
