"""Changes of a program's text: of an operator, constant, condition or argument, and cuts of a statement or branch.

A change replaces a piece of the text, so the rest of the program stays as it was written.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

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

    def applied_to(self, source: str) -> str:
        """Return the changed program."""
        return source[: self.start] + self.text + source[self.end :]


def _spans(source: str) -> Callable[[Any], tuple[int, int]]:
    """Return a function from a node of a program to its places in the text."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    return span


def cuts_of(source: str) -> Iterator[Change]:
    """Yield the changes that take something away: a branch, an update, a part of a condition, or a filter."""
    span = _spans(source)
    for node in _walk(ast.parse(source)):
        for block in (getattr(node, field, None) for field in ("body", "orelse")):
            if not isinstance(block, list):
                continue
            for statement in block:
                if _is_optional(statement) and not source.startswith("elif", span(statement)[0]):
                    yield _without_statement(source, *span(statement), alone=len(block) == 1)
        yield from _cuts_in(source, node, span)


def _cuts_in(source: str, node: ast.AST, span: Callable[[Any], tuple[int, int]]) -> Iterator[Change]:
    """Yield the cuts of a part of a node."""
    if isinstance(node, ast.If) and source.startswith("elif", span(node)[0]):
        start, end = span(node)[0], span(node.body[-1])[1]
        yield (
            Change(start, source.index("el", end), "")
            if node.orelse
            else Change(source.rindex("\n", 0, start), end, "")
        )
    elif isinstance(node, ast.BoolOp):
        for before, after in zip(node.values, node.values[1:], strict=False):
            yield Change(span(before)[1], span(after)[1], "")
    elif isinstance(node, ast.BinOp):
        yield Change(span(node.left)[1], span(node.right)[1], "")
    elif isinstance(node, ast.IfExp):
        for part in (node.body, node.orelse):
            yield Change(*span(node), source[slice(*span(part))])
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield Change(span(node.iter)[1], span(node.ifs[-1])[1], "")
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        yield Change(span(node.value)[1], span(node)[1], "")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        yield Change(span(node.func.value)[1], span(node)[1], "")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        yield Change(*span(node), source[slice(*span(node.args[0]))])


def _is_optional(node: ast.stmt) -> bool:
    """Return whether a program may run without a statement: a branch without `else`, or an update."""
    if isinstance(node, ast.Assign):
        return not isinstance(node.targets[0], ast.Name) or _reads(node)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.AugAssign) or isinstance(node, ast.If) and not node.orelse


def _without_statement(source: str, start: int, end: int, *, alone: bool) -> Change:
    if alone:
        return Change(start, end, "pass")
    return Change(source.rindex("\n", 0, start), end, "")


def changes_of(source: str) -> Iterator[Change]:
    """Yield the changes of single tokens, and of single assignments, of a program in the order of its text."""
    span = _spans(source)
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
