"""Repairs by search: exchange single tokens, lines and statements of a package until its visible tests pass.

No policy sees this. It measures which faults need no reading, so that no easy task, whose visible tests fail, has one.
"""

from __future__ import annotations

import ast
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ludus.environments.swe.imports import IsolatedImports, compiled

_COMPARISONS: Final[tuple[type[ast.cmpop], ...]] = (
    ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.In, ast.NotIn,
)  # fmt: skip
Passes = Callable[[Mapping[str, str], Mapping[str, str]], bool]
_OPERATORS: Final[tuple[type[ast.operator], ...]] = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod)


def visible_tests_pass(modules: Mapping[str, str], tests: Mapping[str, str]) -> bool:
    """Return whether the visible tests pass, run in this process.

    Args:
        modules: the modules of the package, which belong to this library or are made from its own.
        tests: the modules of tests.
    """
    suite = unittest.TestSuite()
    for path, text in tests.items():
        scope: dict[str, Any] = {"__name__": path, "__builtins__": IsolatedImports(modules).builtins}
        try:
            exec(compiled(text, path), scope)
        except Exception:
            return False
        for content in list(scope.values()):
            if isinstance(content, type) and issubclass(content, unittest.TestCase):
                suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(content))
    result = unittest.TestResult()
    result.failfast = True
    suite.run(result)
    return result.wasSuccessful() and result.testsRun > 0


def token_edits(source: str) -> Iterator[str]:
    """Yield versions of a module with another operator, constant, name, condition or order, or a statement less."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for owner, field, other in _exchanges(node):
            before = getattr(owner, field)
            setattr(owner, field, other)
            try:
                yield ast.unparse(tree)
            except Exception:
                pass
            finally:
                setattr(owner, field, before)


def _exchanges(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield fields of a node with other contents."""
    if isinstance(node, ast.Compare):
        for at in range(len(node.ops)):
            for kind in _COMPARISONS:
                if not isinstance(node.ops[at], kind):
                    yield node, "ops", [*node.ops[:at], kind(), *node.ops[at + 1 :]]
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        yield from ((node, "op", kind()) for kind in _OPERATORS if not isinstance(node.op, kind))
        if isinstance(node, ast.BinOp):
            for change in (ast.Add(), ast.Sub()):
                yield node, "right", ast.BinOp(node.right, change, ast.Constant(1))
    elif isinstance(node, ast.BoolOp):
        yield node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield node, "value", not node.value
        elif isinstance(node.value, int):
            yield from ((node, "value", value) for value in (node.value + 1, node.value - 1, 0, 1, -1))
        elif node.value is None:
            yield from ((node, "value", value) for value in (True, False, 0, ""))
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield node, "test", ast.UnaryOp(ast.Not(), node.test)
        if isinstance(node, ast.IfExp):
            yield node, "body", node.orelse
            yield node, "orelse", node.body
    elif isinstance(node, ast.FunctionDef):
        yield from _exchanged_names(node)
    for name in ("body", "orelse"):
        body = getattr(node, name, None)
        if isinstance(body, list) and not isinstance(node, ast.Module):
            yield from _exchanged_statements(node, name, body)


def _exchanged_names(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, Any]]:
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    names = {argument.arg for argument in function.args.args} - {"self"}
    names |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for use in uses:
        yield from ((use, "id", name) for name in sorted(names - {use.id}))


def _exchanged_statements(node: ast.AST, name: str, body: list[ast.stmt]) -> Iterator[tuple[ast.AST, str, Any]]:
    for at in range(len(body)):
        yield node, name, [*body[:at], *body[at + 1 :]] or [ast.Pass()]
        if at:
            yield node, name, [*body[: at - 1], body[at], body[at - 1], *body[at + 1 :]]


def search_repair(
    modules: Mapping[str, str], tests: Mapping[str, str], paths: Iterable[str], passes: Passes = visible_tests_pass
) -> dict[str, str] | None:
    """Return the first version of a package with one exchange that passes the visible tests; None if none does.

    Args:
        modules: the modules of the package.
        tests: the modules of tests.
        paths: the modules in which to search.
        passes: returns whether modules pass tests; a caller may bound the time of each run.
    """
    for path in paths:
        for version in token_edits(modules[path]):
            candidate = {**modules, path: version}
            if passes(candidate, tests):
                return candidate
    return None


__all__ = ["search_repair", "token_edits", "visible_tests_pass"]
