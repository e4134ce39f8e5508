"""Faults that are made from the sources of a blueprint: something that a reviewer would miss is left out.

Each kind leaves out code that its repair has to write again: a statement, a branch, a part of a condition, a filter, an
argument, or a call that copies or sorts. No kind exchanges single tokens, such as `<` for `<=`, since a program that
exchanges tokens until a test passes would undo those without reading anything.

Which of these faults tasks may have is in `faults.json`, which `selection.py` writes: those that hidden tests notice
and visible tests do not, and of which a short session shows the symptom.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from ludus.environments.swe.blueprint import Blueprint, Edit, Fault, blueprint
from ludus.server.authoring.partition import digest

_OPEN_NAME: Final = re.compile(r"\$\$|\$\{(\w+)\}|\$(\w+)")
_STAND_IN: Final = re.compile(r"XqD|Xq([BN])_(\w+?)_qX")
_DROPPED_CALLS: Final = frozenset(
    ("sorted", "list", "dict", "tuple", "set", "frozenset", "deepcopy", "copy", "abs", "round")
)
_DROPPED_METHODS: Final = frozenset(("strip", "lower", "upper", "copy", "rstrip", "lstrip", "casefold", "title"))
_LEFT_OUT_NOWHERE: Final = ("errors.py", "__init__.py")


class Change(NamedTuple):
    """A stretch of a source and what replaces it.

    Attributes:
        kind: what is left out.
        start: the place of the first character.
        end: the place after the last one.
        text: what replaces it.
        where: the function that is changed, such as `Cache.put`.
    """

    kind: str
    start: int
    end: int
    text: str
    where: str


@cache
def derived_faults(template: str) -> dict[str, Fault]:
    """Return all faults that can be made from a blueprint, by name; most of them suit no task."""
    made = blueprint(template)
    faults: dict[str, Fault] = {}
    for path, text in made.files.items():
        if path not in _LEFT_OUT_NOWHERE:
            for change in _changes(_parseable(text)):
                edit = _edit(made, path, change)
                if edit is not None:
                    name = f"{change.kind}-{digest(f'{path}:{edit.right}:{edit.wrong}'):016x}"[: len(change.kind) + 9]
                    hint = f"See `{change.where}` in `{path}`."
                    faults.setdefault(name, Fault(name, "bug", "", hint=hint, edits=[edit], derived=True))
    return faults


def _parseable(text: str) -> str:
    """Return a source whose open names are identifiers that Python reads."""

    def stand_in(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "XqD"
        return f"XqB_{match[1]}_qX" if match[1] else f"XqN_{match[2]}_qX"

    return _OPEN_NAME.sub(stand_in, text)


def _opened(text: str) -> str:
    """Undo `_parseable`."""
    return _STAND_IN.sub(
        lambda match: "$$" if match[0] == "XqD" else f"${{{match[2]}}}" if match[1] == "B" else f"${match[2]}", text
    )


def _edit(made: Blueprint, path: str, change: Change) -> Edit | None:
    """Return a change as whole lines that are in both versions of the module once; None if they cannot be."""
    right = _parseable(made.files[path])
    wrong = right[: change.start] + change.text + right[change.end :]
    first = right.rfind("\n", 0, change.start) + 1
    last = right.find("\n", change.end - 1) + 1
    for _ in range(6):
        pieces = right[first:last], wrong[first : last + len(wrong) - len(right)]
        if pieces[0] == pieces[1] or not pieces[1].strip():
            pass
        elif right.count(pieces[0]) == 1 == wrong.count(pieces[1]):
            return Edit(path, _opened(pieces[0]), _opened(pieces[1]))
        first = right.rfind("\n", 0, max(0, first - 1)) + 1
        last = right.find("\n", last) + 1 or len(right)
    return None


def _changes(source: str) -> Iterator[Change]:
    tree = ast.parse(source)
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    reader = _Reader(source, lines)
    for scope in tree.body:
        if isinstance(scope, ast.ClassDef):
            for inner in scope.body:
                if isinstance(inner, ast.FunctionDef):
                    where = scope.name if inner.name == "__init__" else f"{scope.name}.{inner.name}"
                    yield from reader.function(inner, _opened(where))
        elif isinstance(scope, ast.FunctionDef):
            yield from reader.function(scope, _opened(scope.name))


class _Reader:
    """Finds what can be left out of functions.

    Args:
        source: the text of the module.
        lines: the places at which its lines begin.
    """

    def __init__(self, source: str, lines: list[int]) -> None:
        self._source = source
        self._lines = lines

    def function(self, function: ast.FunctionDef, where: str) -> Iterator[Change]:
        """Yield the changes of a function."""
        in_loops = {id(part) for loop in ast.walk(function) if isinstance(loop, ast.While) for part in ast.walk(loop)}
        for node in ast.walk(function):
            for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(body, list):
                    yield from self._statements(body, where, in_loops)
            if id(node) not in in_loops:
                yield from self._expressions(node, where)

    def _statements(self, body: list[ast.stmt], where: str, in_loops: set[int]) -> Iterator[Change]:
        for statement in body:
            docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if docstring or id(statement) in in_loops:
                continue
            start, end = self._lines[statement.lineno - 1], self._lines[statement.end_lineno or statement.lineno]
            margin = " " * statement.col_offset
            if isinstance(statement, (ast.Expr, ast.AugAssign, ast.Delete, ast.Assign)):
                yield Change("cut", start, end, f"{margin}pass\n" if len(body) == 1 else "", where)
            elif isinstance(statement, ast.If) and self._source[start:].lstrip().startswith("if "):
                if not statement.orelse:
                    yield Change("branch", start, end, f"{margin}pass\n" if len(body) == 1 else "", where)
                else:
                    kept = self._dedented(statement.orelse, statement.col_offset)
                    if kept is not None:
                        yield Change("branch", start, end, kept, where)

    def _dedented(self, body: list[ast.stmt], margin: int) -> str | None:
        """Return statements at the margin of the `if` around them; None if they are another `elif`."""
        start = self._lines[body[0].lineno - 1]
        text = self._source[start : self._lines[body[-1].end_lineno or body[-1].lineno]]
        if text.lstrip().startswith("elif "):
            return text.replace("elif ", "if ", 1)
        lines = text.splitlines(keepends=True)
        extra = body[0].col_offset - margin
        return "".join(line[extra:] for line in lines) if all(line[:extra].isspace() for line in lines) else None

    def _expressions(self, node: ast.AST, where: str) -> Iterator[Change]:
        if isinstance(node, ast.BoolOp) and len(node.values) >= 2:
            for left_out in node.values:
                kept = [value for value in node.values if value is not left_out]
                joint = " and " if isinstance(node.op, ast.And) else " or "
                yield self._replaced("part", node, joint.join(map(self._text, kept)), where)
        elif isinstance(node, ast.IfExp):
            for kept_value in (node.body, node.orelse):
                yield self._replaced("case", node, self._text(kept_value), where)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            for generator in node.generators:
                for condition in generator.ifs:
                    start, end = self._span(condition)
                    start = self._source.rindex("if", 0, start)
                    while self._source[start - 1] == " ":
                        start -= 1
                    yield Change("filter", start, end, "", where)
        elif isinstance(node, ast.Call):
            yield from self._call(node, where)

    def _call(self, node: ast.Call, where: str) -> Iterator[Change]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        if node.keywords and len(parts) > 1:
            for keyword in node.keywords:
                texts = [self._text(argument) for argument in node.args]
                texts += [f"{other.arg}={self._text(other.value)}" for other in node.keywords if other is not keyword]
                if keyword.arg is not None and all(other.arg for other in node.keywords):
                    yield self._replaced("argument", node, f"{self._text(node.func)}({', '.join(texts)})", where)
        if name in _DROPPED_CALLS and len(parts) == 1 and not isinstance(node.args[0], ast.GeneratorExp):
            kept = self._text(node.args[0])
            yield self._replaced("call", node, f"list({kept})" if name == "sorted" else kept, where)
        if isinstance(node.func, ast.Attribute) and name in _DROPPED_METHODS and not node.args:
            yield self._replaced("call", node, self._text(node.func.value), where)
        if name in ("max", "min") and len(node.args) == 2 and not node.keywords:
            for argument in node.args:
                yield self._replaced("bound", node, self._text(argument), where)

    def _replaced(self, kind: str, node: ast.expr, text: str, where: str) -> Change:
        start, end = self._span(node)
        return Change(kind, start, end, text, where)

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        text = self._source[start:end]
        loose = isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.GeneratorExp)) and not text.startswith("(")
        return f"({text})" if loose else text

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """Return where an expression begins and ends; `ast` counts bytes, and the modules are ASCII."""
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


__all__ = ["derived_faults"]
