"""Sessions: the shortest sequences of calls that show what a fault does, for reports and visible tests.

How this works: a hidden test runs on the right package while its calls of the package are recorded as lines of Python,
with their arguments written out. The lines run again on the right and on the faulty package. If one of them gives
something else, lines before it are left out for as long as the difference stays. What is left is what a user would
paste into a report: a few lines, what the last one gives, and what it should give.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import random
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple

from ludus.environments.swe.imports import IsolatedImports, compiled

MOST_LINES: Final = 12
"""The most lines of a session that is shown."""
_MOST_RECORDED: Final = 120
_LONGEST: Final = 160
"""The most characters of a line, and of a value."""
_BREAKDOWNS: Final = ("AttributeError", "NameError", "UnboundLocalError", "TypeError", "RecursionError", "ImportError")
"""Errors that say where the fault is; a session does not end with one of them."""
_PLAIN: Final = (type(None), bool, int, float, str)


class Outcome(NamedTuple):
    """What a line gives: a value, as Python writes it, or an error.

    Attributes:
        text: the value, or the name of the error's class.
        value: the value; None for an error.
        raised: whether it is an error.
    """

    text: str
    value: Any
    raised: bool


class Session(NamedTuple):
    """Lines that show a fault.

    Attributes:
        lines: the lines of Python, the last of which is an expression.
        shown: what the last one gives in the faulty package.
        expected: what it gives in the right one.
        calls: the names that the last line uses of the package, such as `Cache.keys`.
    """

    lines: Sequence[str]
    shown: Outcome
    expected: Outcome
    calls: str


class _Line(NamedTuple):
    target: str
    text: str
    calls: str

    @property
    def source(self) -> str:
        return f"{self.target} = {self.text}" if self.target else self.text


class _Recorder:
    """Runs a hidden test and writes down what it calls of a package."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._known: dict[int, tuple[str, Any]] = {}
        self._names: set[str] = {*dir(builtins), *keyword.kwlist}
        self.lines: list[_Line] = []

    def call(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """Call a function as the test does, and record it if it is of the package or takes an object of it."""
        if getattr(function, "__name__", "") == "attempt" and arguments:
            function, *rest = arguments
            try:
                self.call(function, *rest, **named)
            except Exception:
                return None
            return None
        line = self._line(function, arguments, named) if len(self.lines) < _MOST_RECORDED else None
        result = function(*arguments, **named)
        if line is not None:
            self._keep(line, result)
        return result

    def _keep(self, line: _Line, result: Any) -> None:
        if self._is_of_package(type(result)) and id(result) not in self._known:
            base = name = type(result).__name__.lower()
            number = 2
            while name in self._names:
                name, number = f"{base}{number}", number + 1
            self._names.add(name)
            self._known[id(result)] = (name, result)
            line = line._replace(target=name)
        self.lines.append(line)

    def _is_of_package(self, cls: Any) -> bool:
        module = getattr(cls, "__module__", None)
        return isinstance(module, str) and module.partition(".")[0] == self._package

    def _line(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> _Line | None:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")
        if self._is_of_package(type(owner)) and not name.startswith("_"):
            receiver = self._written(owner)
            head, calls = f"{receiver}.{name}" if receiver else "", f"{type(owner).__name__}.{name}"
        elif self._is_of_package(function) and name.isidentifier() and not name.startswith("_"):
            head = calls = name
        elif (
            function in (len, list, sorted, str, bool)
            and len(arguments) == 1
            and self._is_of_package(type(arguments[0]))
        ):
            head, calls = name, f"{name}({type(arguments[0]).__name__})"
        else:
            return None
        texts = [self._written(argument) for argument in arguments]
        texts += [
            text and f"{key}={text}" for key, text in ((key, self._written(value)) for key, value in named.items())
        ]
        if not head or None in texts:
            return None
        text = f"{head}({', '.join(map(str, texts))})"
        return _Line("", text, calls) if len(text) <= _LONGEST else None

    def _written(self, value: Any) -> str | None:
        """Return a value as Python writes it; None if it cannot be written."""
        if type(value) in _PLAIN:
            return repr(value)
        if type(value) in (list, tuple, dict):
            return repr(value) if self._is_plain(value) else None
        if id(value) in self._known:
            return self._known[id(value)][0]
        if self._is_of_package(value) and getattr(value, "__name__", "").isidentifier():
            return str(value.__name__)
        for name, owner in list(self._known.values()):
            for attribute, content in getattr(owner, "__dict__", {}).items():
                if content is value and not attribute.startswith("_"):
                    return f"{name}.{attribute}"
        return None

    def _is_plain(self, value: Any) -> bool:
        if type(value) in (list, tuple):
            return all(map(self._is_plain, value))
        if type(value) is dict:
            return all(map(self._is_plain, [*value, *value.values()]))
        return type(value) in _PLAIN


class _Calls(ast.NodeTransformer):
    """Replaces each call `f(x)` of a test by `record(f, x)`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("note", "range", "super"):
            return node
        return ast.Call(ast.Name("_record", ast.Load()), [node.func, *node.args], node.keywords)


def _recording(test: str) -> CodeType:
    return compile(ast.fix_missing_locations(_Calls().visit(ast.parse(test))), "hidden", "exec", dont_inherit=True)


def record(package: str, sources: Mapping[str, str], test: str, seed: int) -> list[_Line]:
    """Return the calls that a hidden test makes of a right package.

    Args:
        package: the name of the package.
        sources: its modules.
        test: the script.
        seed: what its inputs are drawn from.
    """
    recorder = _Recorder(package)
    scope = {
        "__name__": "hidden", "__builtins__": IsolatedImports(sources).builtins, "_record": recorder.call,
        "note": lambda value: None, "attempt": _attempt, "rng": random.Random(seed),
    }  # fmt: skip
    try:
        exec(_recording(test), scope)
    except Exception:
        return recorder.lines
    return recorder.lines


def _attempt(function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """Stand for the function of tests; the recorder knows it by its name."""


_attempt.__name__ = "attempt"


def run_lines(package: str, sources: Mapping[str, str], lines: Sequence[str]) -> list[Outcome]:
    """Run lines of Python that use a package, and return what each gives.

    Args:
        package: the name of the package.
        sources: its modules.
        lines: expressions, or assignments of one name.
    """
    scope: dict[str, Any] = {"__builtins__": IsolatedImports(sources).builtins}
    exec(f"from {package} import *", scope)
    outcomes = []
    for line in lines:
        target, equals, text = line.partition(" = ")
        is_assignment = bool(equals) and target.isidentifier()
        try:
            value = eval(compiled(text if is_assignment else line, "session", "eval"), scope)
        except Exception as error:
            outcomes.append(Outcome(type(error).__name__, None, True))
            continue
        if is_assignment:
            scope[target] = value
        outcomes.append(Outcome(_text(value), value, False))
    return outcomes


def _text(value: Any) -> str:
    """Return a value as Python writes it; nothing for one that has no such text."""
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) in (list, tuple, dict):
        parts = [*value, *value.values()] if isinstance(value, dict) else list(value)
        return repr(value) if all(_text(part) for part in parts) else ""
    return ""


def shortest_session(
    package: str, right: Sequence[Mapping[str, str]], wrong: Sequence[Mapping[str, str]], test: str, seed: int
) -> Session | None:
    """Return the lines of a hidden test that show a fault; None if a few lines do not.

    Args:
        package: the name of the package.
        right: versions of the package without the fault, which must all give the same.
        wrong: versions with it.
        test: the hidden test.
        seed: what its inputs are drawn from.
    """
    lines = record(package, right[0], test, seed)

    def differing(chosen: Sequence[_Line]) -> tuple[Outcome, Outcome] | None:
        """Return what the last line gives in the right and in the faulty package, if that differs."""
        sources = [line.source for line in chosen]
        runs = [run_lines(package, version, sources) for version in (*right, *wrong)]
        expected, shown = runs[0][-1], runs[-1][-1]
        alike = all(run[-1][0::2] == expected[0::2] for run in runs[: len(right)])
        alike = alike and all(run[-1][0::2] == shown[0::2] for run in runs[len(right) :])
        broken = any(outcome.raised for run in runs for outcome in run[:-1])
        if not alike or broken or shown[0::2] == expected[0::2] or not shown.text or not expected.text:
            return None
        if (shown.raised and expected.raised) or shown.text in _BREAKDOWNS or expected.text in _BREAKDOWNS:
            return None
        return shown, expected

    sources = [line.source for line in lines]
    runs = [run_lines(package, version, sources) for version in (right[0], wrong[-1])]
    usable = [index for index, outcome in enumerate(runs[0]) if not outcome.raised and not runs[1][index].raised]
    for last, line in enumerate(lines):
        first, second = runs[0][last], runs[1][last]
        if line.target or first[0::2] == second[0::2]:
            continue
        chosen = [*(lines[at] for at in usable if at < last), line]
        if differing(chosen) is None:
            continue
        chosen = _shortened(chosen, lambda some: differing(some) is not None)
        result = differing(chosen)
        if result is not None and len(chosen) <= MOST_LINES and max(len(one.text) for one in result) <= _LONGEST:
            return Session([one.source for one in chosen], *result, line.calls)
    return None


def _shortened(lines: list[_Line], still: Callable[[list[_Line]], bool]) -> list[_Line]:
    """Leave out lines before the last one for as long as a condition holds, large pieces first."""
    size = len(lines) // 2
    while size:
        at = 0
        while at + size < len(lines):
            shorter = [*lines[:at], *lines[at + size :]]
            if still(shorter):
                lines = shorter
            else:
                at += size
        size //= 2
    return lines


__all__ = ["Outcome", "Session", "record", "run_lines", "shortest_session"]
