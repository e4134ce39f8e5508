"""Repair a Python program without reading its specification: change single tokens until its examples hold.

Runs as a program of its own (`python mutation_search.py`), since mutants may hang, exit or print. It reads a JSON
object from standard input, `{"program": …, "examples": [[source, expected], …], "seconds": …}`, and writes the changed
program as a JSON string, or null if no mutant was found in time. The changes are the usual operators of mutation
testing (DeMillo, Lipton and Sayward 1978): comparisons, arithmetic, constants, conditions, a lost `not`.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

EXAMPLE_SECONDS = 0.5

MEMORY_BYTES = 1 << 30

_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "append": "extend", "startswith": "endswith",
                "endswith": "startswith", "lower": "upper", "upper": "lower", "lstrip": "rstrip", "rstrip": "lstrip",
                "True": "False", "False": "True"}  # fmt: skip


def mutants(program: str) -> Iterator[str]:
    """Yield the programs that differ from a program in one token."""
    tree = ast.parse(program)
    for number, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            copied = copy.deepcopy(tree)
            change(next(node for index, node in enumerate(ast.walk(copied)) if index == number))
            with contextlib.suppress(Exception):  # some changes give no program
                yield ast.unparse(ast.fix_missing_locations(copied))


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    match node:
        case ast.Compare(ops=[operator]):
            for comparison in _COMPARISONS:
                if isinstance(operator, _COMPARISONS) and not isinstance(operator, comparison):
                    yield _set("ops", [comparison()])
            if isinstance(operator, (ast.In, ast.NotIn)):
                yield _set("ops", [ast.NotIn() if isinstance(operator, ast.In) else ast.In()])
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            for arithmetic in _ARITHMETIC:
                if not isinstance(operator, arithmetic):
                    yield _set("op", arithmetic())
        case ast.BoolOp(op=operator):
            yield _set("op", ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.Constant(value=bool() as value):
            yield _set("value", not value)
        case ast.Constant(value=int() as value):
            for replacement in (value + 1, value - 1, -value):
                yield _set("value", replacement)
        case ast.Constant(value=str() as value) if value in ("", " "):
            yield _set("value", " " if value == "" else "")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield _set("test", ast.UnaryOp(ast.Not(), test))
            if isinstance(test, ast.UnaryOp):
                yield _set("test", test.operand)
        case ast.Attribute(attr=name) if name in _OTHER_NAMES:
            yield _set("attr", _OTHER_NAMES[name])
        case ast.Name(id=name) if name in _OTHER_NAMES:
            yield _set("id", _OTHER_NAMES[name])
        case ast.Call(func=ast.Name(id="sorted"), keywords=keywords):
            if any(keyword.arg == "reverse" for keyword in keywords):
                yield _set("keywords", [keyword for keyword in keywords if keyword.arg != "reverse"])
            else:
                yield _set("keywords", [*keywords, ast.keyword("reverse", ast.Constant(True))])


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda node: setattr(node, name, copy.deepcopy(value))


def holds(program: str, examples: list[tuple[str, str]]) -> bool:
    """Return whether a program's examples print what they should."""
    scope: dict[str, Any] = {"__name__": "program"}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _limited(lambda: exec(program, scope))
            for source, expected in examples:
                if not expected:
                    _limited(partial(exec, source, scope))
                elif repr(_limited(partial(eval, source, scope))) != expected.strip():
                    return False
    except BaseException:  # a mutant may raise anything, also SystemExit
        return False
    return True


def _limited(work: Callable[[], Any]) -> Any:
    signal.setitimer(signal.ITIMER_REAL, EXAMPLE_SECONDS)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(number: int, frame: object) -> None:
    raise TimeoutError


def main() -> None:
    """Search, and print what was found."""
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    examples = [(source, expected) for source, expected in request["examples"]]
    signal.signal(signal.SIGALRM, _stop)
    deadline = time.monotonic() + request["seconds"]
    repaired = None
    if not holds(request["program"], examples):
        for program in mutants(request["program"]):
            if time.monotonic() > deadline:
                break
            if holds(program, examples):
                repaired = program
                break
    sys.stdout.write(json.dumps(repaired))


if __name__ == "__main__":
    main()
