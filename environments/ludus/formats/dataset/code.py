"""Tests of programs, in the forms in which datasets have them.

How this works: `read_tests` knows six forms and refuses everything else, also a key that it does not know, since tests
that are half understood pay wrong programs or refuse right ones.

* `{inputs, outputs}` with or without `fn_name`: APPS, TACO and the sets made of them. Inputs of a function are lists of
  arguments, or texts with one JSON value in each line. The result is the output or, in about half of the rows, the only
  element of a list: the sets' own graders accept either. A row whose outputs are all lists of one element is read as
  such; the option `results` states otherwise.
* a list of `{input, output}`, with `testtype` (LiveCodeBench) or `type` and `fn_name` (PRIME, SYNTHETIC-1), also below
  `test_cases`.
* `{input: [...], output: [...]}`: CodeContests.
* a list of `{stdin, stdout}`, and of `{arguments, returns}`, whose results are taken as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ludus.server import Attempt, FromTask
from ludus.server.rewards import Check, FunctionTest, FunctionTests, ProgramTest, ProgramTests, Verdict
from ludus.server.rewards.attempt import resolve

_FORMS: Final = (
    "a list of {stdin, stdout} or of {arguments, returns}, or {inputs, outputs} with or without fn_name, all as JSON"
)
_KINDS: Final = {
    "stdin": "program", "stdin_stdout": "program", "functional": "function", "function_call": "function",
}  # fmt: skip
"""The values of `testtype` and `type`."""
_CASE_KEYS: Final = frozenset(("input", "output", "testtype", "type", "fn_name", "metadata"))
_RESULTS = Literal["plain", "wrapped"]

_OWNER: Final = "Solution"
"""The class whose method may be the function, as in LeetCode's starter code."""
_PRELUDE: Final = """\
import bisect, collections, datetime, fractions, functools, heapq, itertools, json, math, operator, random, re, string
import sys, time
from bisect import bisect_left, bisect_right
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from functools import cache, cmp_to_key, lru_cache, reduce
from heapq import heapify, heappop, heappush, nlargest, nsmallest
from itertools import accumulate, combinations, permutations, product
from math import ceil, comb, fabs, factorial, floor, gcd, inf, log, log2, sqrt
from typing import *
"""
"""The names that the sets' own graders give to programs."""


@dataclass(frozen=True)
class Tests:
    """The tests of one program."""

    programs: tuple[ProgramTest, ...] = ()
    functions: tuple[FunctionTest, ...] = ()
    function: str | None = None
    """The function that `functions` call."""


def read_tests(value: Any, results: _RESULTS | None = None) -> Tests:
    """Return the tests of a row. All of them are hidden.

    Args:
        value: the row's value.
        results: whether an output of a function is its result, or a list that holds it. By default, outputs are lists
            that hold it if all of the row's outputs have exactly one element.

    Raises:
        ValueError: they have a form that is not known here, or no test can tell a right program from one that prints or
            returns nothing.
    """
    if isinstance(value, Mapping) and "test_cases" in value:
        _check_keys(value, {"test_cases", "language"})
        if value.get("language", "python") not in ("python", "python3"):
            raise ValueError(f"its tests are for the language {value['language']!r}; only Python is run here")
        value = value["test_cases"]
    if isinstance(value, Mapping) and {"inputs", "outputs"} <= set(value):
        _check_keys(value, {"inputs", "outputs", "fn_name"})
        pairs, name = _zip(value["inputs"], value["outputs"]), value.get("fn_name")
        return _programs(pairs) if name is None else _functions(pairs, str(name), results)
    if isinstance(value, Mapping) and {"input", "output"} <= set(value):
        _check_keys(value, {"input", "output"})
        return _programs(_zip(value["input"], value["output"]))
    if isinstance(value, list) and value and all(isinstance(case, Mapping) for case in value):
        return _read_cases(value, results)
    raise ValueError(f"its tests must be {_FORMS}")


def _read_cases(cases: Sequence[Mapping[str, Any]], results: _RESULTS | None) -> Tests:
    if all({"arguments", "returns"} == set(case) for case in cases):
        return _functions([(case["arguments"], case["returns"]) for case in cases], None, "plain")
    if all({"stdin", "stdout"} == set(case) for case in cases):
        return _programs([(case["stdin"], case["stdout"]) for case in cases])
    for case in cases:
        if not {"input", "output"} <= set(case):
            raise ValueError(f"its tests must be {_FORMS}")
        _check_keys(case, _CASE_KEYS)
    pairs = [(case["input"], case["output"]) for case in cases]
    described = {_describe_case(case) for case in cases}
    if len(described) > 1:
        raise ValueError(f"its tests are of several kinds: {sorted(map(str, described))}")
    kind, name = described.pop()
    return _functions(pairs, name, results) if kind == "function" else _programs(pairs)


def _describe_case(case: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return whether a test is one of a program or of a function, and the function's name if it has one."""
    metadata = case.get("metadata") or {}
    name = case.get("fn_name") or (metadata.get("func_name") if isinstance(metadata, Mapping) else None)
    word = case.get("testtype", case.get("type"))
    if word is None:
        return ("program" if name is None else "function"), name
    if word not in _KINDS:
        raise ValueError(f"its tests are of the type {word!r}; known are {', '.join(_KINDS)}")
    return _KINDS[word], name if _KINDS[word] == "function" else None


def _check_keys(value: Mapping[str, Any], known: set[str] | frozenset[str]) -> None:
    if unknown := sorted(map(str, set(value) - known)):
        raise ValueError(f"its tests have the key {unknown[0]!r}, which is not known here; known are {sorted(known)}")


def _zip(inputs: Any, outputs: Any) -> list[tuple[Any, Any]]:
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise ValueError("its tests must have as many inputs as outputs, in two lists that are not empty")
    return list(zip(inputs, outputs, strict=True))


def _programs(pairs: Sequence[tuple[Any, Any]]) -> Tests:
    texts = [(_text_of(stdin), _text_of(stdout)) for stdin, stdout in pairs]
    if not any(stdout.strip() for _, stdout in texts):
        raise ValueError("its tests expect no output, so a program that prints nothing would pass")
    return Tests(programs=tuple(ProgramTest(stdin, stdout, hidden=True) for stdin, stdout in texts))


def _text_of(value: Any) -> str:
    """Return the input or the output of a program: a text, or its lines in a list."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise ValueError(f"its tests must be {_FORMS}; inputs and outputs of programs are texts, or lists of lines")
    return value


def _functions(pairs: Sequence[tuple[Any, Any]], function: str | None, results: _RESULTS | None) -> Tests:
    if any(isinstance(arguments, str) for arguments, _ in pairs):
        pairs = [(_json_lines(arguments), _json_value(output)) for arguments, output in pairs]
        results = results or "plain"
    for arguments, _ in pairs:
        if not isinstance(arguments, list):
            raise ValueError("the arguments of its tests must be lists, or texts with one JSON value in each line")
    outputs = [output for _, output in pairs]
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    if results == "wrapped" and not wrapped:
        raise ValueError("an output of its tests is no list of one element, as results=wrapped requires")
    if wrapped and results != "plain":
        outputs = [output[0] for output in outputs]
    if all(output is None for output in outputs):
        raise ValueError("its tests expect null, so a function that returns nothing would pass")
    tests = zip((arguments for arguments, _ in pairs), outputs, strict=True)
    return Tests(
        functions=tuple(FunctionTest(arguments, output, hidden=True) for arguments, output in tests), function=function
    )


def _json_lines(text: Any) -> list[Any]:
    """Return the arguments that LiveCodeBench's graders read from a text: one JSON value in each line."""
    if not isinstance(text, str):
        raise ValueError("the inputs of its tests are partly texts; they must be all texts or all lists of arguments")
    return [_json_value(line) for line in text.split("\n") if line.strip()]


def _json_value(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError("the inputs of its tests are texts, so the outputs must be texts too, each one JSON value")
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{text[:80]!r} in its tests must be a JSON value: {error}") from None


@dataclass(frozen=True)
class CodeTests(Check):
    """The share of the tests that the message's program passes; see `ProgramTests` and `FunctionTests`."""

    all_or_nothing: bool = False
    relative: float | None = None
    """The relative tolerance of floats; by default 1e-5 for printed numbers and 1e-9 for returned ones."""
    exact_numbers: bool = False
    """Whether 2 and 2.0 are different."""

    async def check(self, attempt: Attempt) -> Verdict:
        """Run the tests in the episode's sandbox."""
        tests: Tests = resolve(FromTask("answer"), attempt)
        check: FunctionTests | ProgramTests
        function: str | None = resolve(FromTask("function"), attempt)
        if function is not None:
            check = FunctionTests(
                function=function, tests=tests.functions, all_or_nothing=self.all_or_nothing, owner=_OWNER,
                prelude=_PRELUDE, exact_types=self.exact_numbers,
                relative=1e-9 if self.relative is None else self.relative,
            )  # fmt: skip
        else:
            check = ProgramTests(
                tests=tests.programs, all_or_nothing=self.all_or_nothing,
                compare="lines" if self.exact_numbers else "numbers",
                relative=1e-5 if self.relative is None else self.relative,
            )  # fmt: skip
        return await check.check(attempt)
