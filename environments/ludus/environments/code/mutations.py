"""Put a fault into a right program: one small change of an operator, a constant, a condition or an argument.

A change replaces a piece of the text, so the rest of the program stays as it was written. A fault counts only if the
changed program still runs and fails hidden cases that no guess solves, as `checks.py` defines them. Loops of a changed
program may not end, so each loop counts its rounds while a fault is tried.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ludus.environments.code.checks import Case, outcomes_of
from ludus.environments.code.problem import Difficulty, Problem

MOST_TRIED: Final = 40
"""The most changes that are tried for one task."""
ROUNDS: Final = 20_000
"""The most rounds of all loops together of a changed program in one case."""

_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in",
}  # fmt: skip
_OPERATE: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|",
    ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_NAMES: Final = {"min": "max", "max": "min", "ljust": "rjust", "rjust": "ljust", "any": "all", "all": "any",
                 "upper": "lower", "lower": "upper", "sorted": "list", "sum": "len"}  # fmt: skip


class Change(NamedTuple):
    """A piece of the text, by its places, and what replaces it."""

    start: int
    end: int
    text: str


def broken_program(problem: Problem, hidden: Sequence[Case], difficulty: Difficulty, seed: int) -> str:
    """Return the reference with one fault, or two at the level `hard`.

    Args:
        problem: the problem.
        hidden: its hidden cases.
        difficulty: an easy fault fails at least half of the cases that no guess solves; a medium or hard one is the
            fault that fails the fewest of them, but at least two, of several that were tried.
        seed: the same seed gives the same fault.

    Raises:
        LookupError: no change makes the program fail.
    """
    rng = random.Random(seed)
    source = problem.reference
    found = _choose(problem, source, hidden, rng, wanted=1 if difficulty == "easy" else 4, easy=difficulty == "easy")
    if difficulty != "hard":
        return found
    try:
        second = _choose(problem, found, hidden, rng, wanted=2, easy=False, fewest=_failures(problem, found, hidden))
    except LookupError:
        return found
    return second


def _choose(
    problem: Problem, source: str, hidden: Sequence[Case], rng: random.Random,
    *, wanted: int, easy: bool, fewest: int = 1,
) -> str:  # fmt: skip
    changes = list(changes_of(source))
    rng.shuffle(changes)
    scored = sum(not case.guessed for case in hidden)
    tried: list[tuple[int, int, str]] = []
    for number, change in enumerate(changes[:MOST_TRIED]):
        text = source[: change.start] + change.text + source[change.end :]
        failed = _failures(problem, text, hidden)
        if failed > fewest:
            tried.append((abs(failed - scored * 3 // 4) if easy else failed, number, text))
            if len(tried) >= wanted and (not easy or 2 * failed >= scored):
                break
    if not tried:
        raise LookupError(f"no change makes {problem.entry} fail: {problem.key}")
    return min(tried)[2]


def _failures(problem: Problem, source: str, hidden: Sequence[Case]) -> int:
    """Return how many of the cases that no guess solves a program fails; 0 if it does not run or a loop is endless."""
    counter = _Rounds()
    namespace: dict[str, Any] = {"__name__": "changed", "_round": counter}
    try:
        tree = _CountRounds().visit(ast.parse(source))
        exec(compile(ast.fix_missing_locations(tree), "changed.py", "exec"), namespace)
        target, failed = namespace[problem.entry], 0
        for case in hidden:
            counter.left = ROUNDS
            outcomes = outcomes_of(target, problem, case.calls)
            if any(outcome[0] == "error" and outcome[1] in _CRASHES for outcome in outcomes):
                return 0
            failed += not case.guessed and outcomes != case.expected
    except (_Endless, SyntaxError, NameError, ValueError, TypeError, RecursionError):
        return 0
    return failed


_CRASHES: Final = ("NameError", "UnboundLocalError", "AttributeError", "RecursionError", "TypeError", "_Endless")


class _Endless(BaseException):
    """A changed program does not end."""


class _Rounds:
    def __init__(self) -> None:
        self.left = ROUNDS

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Endless


class _CountRounds(ast.NodeTransformer):
    """Puts a call of `_round` at the start of each loop and function."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.For | ast.While | ast.FunctionDef):
            call = ast.Expr(ast.Call(ast.Name("_round", ast.Load()), [], []))
            node.body.insert(0, call)
        return node


def changes_of(source: str) -> Iterator[Change]:
    """Yield all changes of a program, in the order of its text."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    def span(node: Any) -> tuple[int, int]:
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    tree = ast.parse(source)
    keys = sorted({key for one in _walk(tree) if (key := _key_of(one)) is not None})
    for node in _walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Name):
            yield Change(span(node.iter)[1], span(node.iter)[1], "[1:]")
        if isinstance(node, ast.Subscript) and (key := _key_of(node)) is not None and len(keys) > 1:
            other = keys[(keys.index(key) + 1) % len(keys)]
            yield Change(*span(node.slice), f'"{other}"')
        if isinstance(node, ast.Compare):
            left = node.left
            for operator, right in zip(node.ops, node.comparators, strict=True):
                if type(operator) in _COMPARE:
                    yield _between(source, span(left)[1], span(right)[0], _COMPARE[type(operator)])
                left = right
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATE:
            first, second = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            sign = _OPERATE[type(node.op)] + "=" * isinstance(node, ast.AugAssign)
            yield _between(source, span(first)[1], span(second)[0], sign)
        elif isinstance(node, ast.BoolOp):
            word = "or" if isinstance(node.op, ast.And) else "and"
            yield _between(source, span(node.values[0])[1], span(node.values[1])[0], word)
        elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1000:
            for change in (1, -1):
                if node.value + change >= 0:
                    yield Change(*span(node), str(node.value + change))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            yield Change(span(node)[0], span(node.operand)[0], "")
        elif isinstance(node, ast.Name) and node.id in _NAMES:
            yield Change(*span(node), _NAMES[node.id])
        elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
            end = span(node)[1]
            yield Change(end - len(node.attr), end, _NAMES[node.attr])
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield Change(*span(node), str(not node.value))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _reads(node):
            yield Change(*span(node), "pass")
        elif isinstance(node, ast.Continue | ast.Break):
            yield Change(*span(node), "break" if isinstance(node, ast.Continue) else "continue")


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes outside of formatted texts, whose places differ between versions of Python."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for inner in ast.iter_child_nodes(node):
            yield from _walk(inner)


def _key_of(node: ast.AST) -> str | None:
    """Return the text in the brackets of `row["text"]`; None for another node."""
    inner = node.slice if isinstance(node, ast.Subscript) else None
    return inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else None


def _reads(node: ast.Assign) -> bool:
    """Return whether an assignment changes a variable on the basis of its own value."""
    names = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id in names


def _between(source: str, start: int, end: int, text: str) -> Change:
    """Return the change of the operator between two places; parentheses and spaces around it stay."""
    inner = source[start:end]
    operator = inner.strip().strip("()").strip()
    at = start + inner.index(operator)
    return Change(at, at + len(operator), text)


def mark_passed(cases: Sequence[Case], passed: Sequence[bool]) -> tuple[Case, ...]:
    """Return the cases, where those that the given program passes count as guessed."""
    return tuple(replace(case, guessed=case.guessed or one, given=one) for case, one in zip(cases, passed, strict=True))
