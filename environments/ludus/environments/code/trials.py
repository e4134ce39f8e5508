"""Run changed programs in this process, although they may crash or never end: each loop counts its rounds."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Final

from ludus.environments.code.checks import outcomes_of
from ludus.environments.code.problem import Problem

ROUNDS: Final = 20_000
"""The most rounds of all loops together of a changed program in one case."""
_CRASHES: Final = ("NameError", "UnboundLocalError", "AttributeError", "RecursionError", "TypeError")

Outcomes = tuple[Any, ...]


def outcomes_in(problem: Problem, source: str, cases: Sequence[Sequence[Any]]) -> tuple[Outcomes, ...] | None:
    """Return the outcomes of the calls of some cases; None if the program does not run or a loop is endless."""
    try:
        program = Trial(problem, source)
        return tuple([program.outcomes(calls) for calls in cases])
    except Crashed:
        return None


class Crashed(Exception):
    """A program does not run, crashes, or does not end."""


class Trial:
    """A changed program of a problem that runs in this process."""

    def __init__(self, problem: Problem, source: str) -> None:
        """Execute the program.

        Raises:
            Crashed: it cannot be executed.
        """
        self._problem = problem
        self._counter = _Rounds()
        namespace: dict[str, Any] = {"__name__": "changed", "_round": self._counter}
        try:
            tree = _CountRounds().visit(ast.parse(source))
            exec(compile(ast.fix_missing_locations(tree), "changed.py", "exec"), namespace)
            self._target = namespace[problem.entry]
        except (SyntaxError, NameError, ValueError, TypeError, LookupError) as error:
            raise Crashed(str(error)) from error

    def outcomes(self, calls: Sequence[Any]) -> Outcomes:
        """Return the outcomes of the calls of one case.

        Raises:
            Crashed: a call ends with an error that only a broken program raises, or does not end.
        """
        self._counter.left = ROUNDS
        try:
            outcomes = outcomes_of(self._target, self._problem, calls)
        except (_Endless, NameError, ValueError, TypeError, RecursionError) as error:
            raise Crashed(str(error)) from error
        if any(outcome[0] == "error" and outcome[1] in _CRASHES for outcome in outcomes):
            raise Crashed("it raises an error of its own")
        return outcomes


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
