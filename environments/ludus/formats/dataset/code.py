"""Tests of programs, in the forms in which datasets have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.server import Attempt, FromTask
from ludus.server.rewards import Check, FunctionTest, FunctionTests, ProgramTest, ProgramTests, Verdict
from ludus.server.rewards.attempt import resolve

_FORMS = (
    "a list of {stdin, stdout} or of {arguments, returns}, or {inputs, outputs} with or without fn_name, all as JSON"
)


@dataclass(frozen=True)
class Tests:
    """The tests of one program."""

    programs: tuple[ProgramTest, ...] = ()
    functions: tuple[FunctionTest, ...] = ()
    function: str | None = None
    """The function that `functions` call."""


def read_tests(value: Any) -> Tests:
    """Return the tests of a row. All of them are hidden.

    Raises:
        ValueError: they have a form that is not known here.
    """
    if isinstance(value, Mapping) and {"inputs", "outputs"} <= set(value):
        return _paired(value["inputs"], value["outputs"], value.get("fn_name"))
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        if all("arguments" in one and "returns" in one for one in value):
            return _functions([(one["arguments"], one["returns"]) for one in value], None)
        pairs = [(one.get("stdin", one.get("input")), one.get("stdout", one.get("output"))) for one in value]
        return _programs(pairs)
    raise ValueError(f"its tests must be {_FORMS}")


def _paired(inputs: Any, outputs: Any, function: Any) -> Tests:
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise ValueError("its tests must have as many inputs as outputs, in two lists that are not empty")
    pairs = list(zip(inputs, outputs, strict=True))
    return _programs(pairs) if function is None else _functions(pairs, str(function))


def _programs(pairs: Sequence[tuple[Any, Any]]) -> Tests:
    for stdin, stdout in pairs:
        if not isinstance(stdin, str) or not isinstance(stdout, str):
            raise ValueError(f"its tests must be {_FORMS}; inputs and outputs of programs are texts")
    return Tests(programs=tuple(ProgramTest(stdin, stdout, hidden=True) for stdin, stdout in pairs))


def _functions(pairs: Sequence[tuple[Any, Any]], function: str | None) -> Tests:
    for arguments, _ in pairs:
        if not isinstance(arguments, list):
            raise ValueError("the arguments of its tests must be lists")
    return Tests(
        functions=tuple(FunctionTest(arguments, returns, hidden=True) for arguments, returns in pairs),
        function=function,
    )


@dataclass(frozen=True)
class CodeTests(Check):
    """The share of the tests that the message's program passes; see `ProgramTests` and `FunctionTests`."""

    all_or_nothing: bool = False

    async def check(self, attempt: Attempt) -> Verdict:
        """Run the tests in the episode's sandbox."""
        tests: Tests = resolve(FromTask("answer"), attempt)
        inner: Check
        function: str | None = resolve(FromTask("function"), attempt)
        if function is not None:
            inner = FunctionTests(function=function, tests=tests.functions, all_or_nothing=self.all_or_nothing)
        else:
            inner = ProgramTests(tests=tests.programs, all_or_nothing=self.all_or_nothing)
        found: Any = await inner.check(attempt)
        return found  # type: ignore[no-any-return]
