"""Checks that run the policy's code in a sandbox against tests, some of which the policy never sees."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from ludus.protocol.errors import AuthoringError
from ludus.sandbox.core.errors import SandboxFileError
from ludus.server.rewards.attempt import Attempt, Selector, resolve
from ludus.server.rewards.code_runner import Box, Ran, verifier_of
from ludus.server.rewards.code_text import Comparison, find_program, outputs_equal
from ludus.server.rewards.functions import CALLS_SECONDS, CallResult, call_function, last_line
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.structure import cut
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict

CODE_CHARS: Final = 500_000
"""The limit for programs; longer ones are not run and earn 0."""


def code_of(attempt: Attempt) -> str:
    """Return the Python program in the answer; see `find_program`.

    As the source of `ProgramTests`, it finds the language of their `argv`; of `FunctionTests`, what defines their
    function.
    """
    return find_program(attempt.answer)


@dataclass(frozen=True)
class ProgramTest:
    """The input of a program, and the output that it has to print."""

    stdin: str
    stdout: str
    hidden: bool = False
    """Whether evidence must not show the input and the output."""
    weight: float = 1.0


@dataclass(frozen=True)
class FunctionTest:
    """The arguments of a call, and the value that it has to return, both JSON-ready."""

    arguments: Sequence[Any]
    returns: Any
    hidden: bool = False
    """Whether evidence must not show the arguments and the result."""
    weight: float = 1.0


@dataclass(frozen=True)
class _InBox(Check):
    """A check that runs something in a box.

    If a file cannot be written, because of what the policy left there or how long its program is, the check gives 0.
    """

    box: Callable[[Attempt], Box | Awaitable[Box]] | None = None
    """Finds the box to use, such as `FromEnvironment("sandbox")`; it stays open and holds what the policy left."""
    fresh_box: Callable[[Attempt], AbstractAsyncContextManager[Box]] | None = None
    """Opens a box for this check alone. By default, that is the environment's `verifier()`."""
    all_or_nothing: bool = False
    """Whether the value is 0 unless all tests pass."""
    seconds: float = CALLS_SECONDS
    """Wall-clock time for all runs together: tests that remain when it is used up fail. Keep it below the
    `tool_seconds` of the server, or a slow program could leave its episode unscored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.box is not None and self.fresh_box is not None:
            raise AuthoringError(f"{self.label}: give box=… or fresh_box=…, and not both")

    async def check(self, attempt: Attempt) -> Verdict:
        """Run the tests in the box."""
        if self.box is None:
            async with (self.fresh_box or verifier_of)(attempt) as box:
                return await self._judge(attempt, box)
        outcome: Any = self.box(attempt)
        return await self._judge(attempt, await outcome if hasattr(outcome, "__await__") else outcome)

    async def _judge(self, attempt: Attempt, box: Box) -> Verdict:
        try:
            return await self._run(attempt, box)
        except SandboxFileError as error:
            return Verdict(0.0, f"the program cannot be run: {cut(error.message)}")

    async def _run(self, attempt: Attempt, box: Box) -> Verdict:
        raise NotImplementedError

    def _tally(self, results: Sequence[tuple[ProgramTest | FunctionTest, str]]) -> Verdict:
        """Return the verdict on tests, each given with its problem, which is empty if the test passed."""
        weights = math.fsum(test.weight for test, _ in results)
        earned = math.fsum(test.weight for test, problem in results if not problem)
        passed = sum(not problem for _, problem in results)
        evidence = [f"{passed}/{len(results)} tests passed"]
        evidence += [problem for test, problem in results if problem and not test.hidden][:3]
        if hidden := sum(bool(problem) and test.hidden for test, problem in results):
            evidence.append(f"{hidden} hidden {'test' if hidden == 1 else 'tests'} failed")
        value = earned / weights if weights else 0.0
        if self.all_or_nothing:
            value = float(passed == len(results))
        return Verdict(value, "; ".join(evidence))


@dataclass(frozen=True)
class ProgramTests(_InBox):
    """The share of tests, by weight, whose expected output the policy's program prints. Each test is one run.

    Hidden tests run last, so that nothing of them can reach the output of the others, which evidence shows.
    """

    tests: Selector[Sequence[ProgramTest]] = ()
    argv: Sequence[str] = ("python3", "solution.py")
    path: str = "solution.py"
    """The file to which the program is written; `argv` runs it."""
    compare: Comparison = "lines"
    """`lines` ignores white space at the ends of lines and of the whole output; `tokens` ignores all white space;
    `numbers` is `lines` where 2 and 2.0 are equal. See `outputs_equal`."""
    source: Selector[str] = code_of
    relative: float = 1e-5
    """For `compare="numbers"`: the relative tolerance of expected numbers with a point."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_path(self.label, self.path)

    async def _run(self, attempt: Attempt, box: Box) -> Verdict:
        if self.source is code_of:
            source = find_program(attempt.answer, interpreter=self.argv[0])
        else:
            source = resolve(self.source, attempt)
        if len(source) > CODE_CHARS or not source.strip():
            return Verdict(0.0, f"the program has {len(source)} characters")
        tests: Sequence[ProgramTest] = resolve(self.tests, attempt)
        if not tests:
            return Verdict.unscored("there are no tests")
        await box.write(self.path, source.encode("utf-8", "replace"))
        results: list[tuple[ProgramTest | FunctionTest, str]] = []
        spent = 0.0
        for test in sorted(tests, key=lambda test: test.hidden):
            context = f"for {short(test.stdin)}"
            if spent >= self.seconds:
                results.append((test, f"{context} it was not run: the runs before took {spent:.0f} s"))
                continue
            ran = await box.run(self.argv, stdin=test.stdin.encode("utf-8", "replace"))
            spent += ran.seconds
            results.append((test, self._problem(test, ran, context)))
        return self._tally(results)

    def _problem(self, test: ProgramTest, ran: Ran, context: str) -> str:
        if ran.limit is not None:
            return f"{context} it reached its limit on {ran.limit}"
        if ran.exit_code != 0:
            return f"{context} it ended with {ran.exit_code}: {short(last_line(ran.stderr))}"
        printed = ran.stdout.decode("utf-8", "replace")
        if not outputs_equal(printed, test.stdout, self.compare, relative=self.relative):
            return f"{context} it printed {short(printed)} instead of {short(test.stdout)}"
        return ""


@dataclass(frozen=True)
class FunctionTests(_InBox):
    """The share of tests, by weight, for which the policy's Python function returns the expected value.

    Each test is one run that knows only the arguments of its own call. Expected values never enter the box: results
    come out and are compared here, so a policy gains nothing by ending the process, returning an object that equals
    everything, or patching what could be a test. `call_function` does the same for custom graders.
    """

    function: str = ""
    tests: Selector[Sequence[FunctionTest]] = ()
    python: str = "python3"
    path: str = "solution.py"
    """The file of the program, below the work directory of the box."""
    source: Selector[str] | None = code_of
    """The program to write there; None if the policy left the file itself."""
    relative: float = 1e-9
    """The relative tolerance of floats."""
    exact_types: bool = True
    """Whether 1 and 1.0 are different values; true is never 1."""
    owner: str | None = None
    """A class that may have the function as a method, such as `Solution`."""
    prelude: str = ""
    """Python code whose names the program may use without importing them, such as `from typing import *`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.function.isidentifier():
            raise AuthoringError(f"{self.label}: function={self.function!r} is no name of a Python function")
        _check_path(self.label, self.path)

    async def _run(self, attempt: Attempt, box: Box) -> Verdict:
        tests: Sequence[FunctionTest] = resolve(self.tests, attempt)
        if not tests:
            return Verdict.unscored("there are no tests")
        if self.source is not None:
            if self.source is code_of:
                source = find_program(attempt.answer, interpreter=self.python, function=self.function)
            else:
                source = resolve(self.source, attempt)
            if len(source) > CODE_CHARS or not source.strip():
                return Verdict(0.0, f"the program has {len(source)} characters")
            await box.write(self.path, source.encode("utf-8", "replace"))
        ordered = sorted(tests, key=lambda test: test.hidden)
        results = await call_function(
            box, self.path, self.function, [test.arguments for test in ordered],
            python=self.python, seconds=self.seconds, owner=self.owner, prelude=self.prelude,
        )  # fmt: skip
        return self._tally([(test, self._problem(test, result)) for test, result in zip(ordered, results, strict=True)])

    def _problem(self, test: FunctionTest, result: CallResult) -> str:
        call = f"{self.function}({', '.join(short(repr(argument)) for argument in test.arguments)})"
        if result.error is not None:
            return f"{call}: {result.error}"
        if not result.equals(test.returns, relative=self.relative, exact_types=self.exact_types):
            return f"{call} returned {short(repr(result.value))} instead of {short(repr(test.returns))}"
        return ""


def _check_path(label: str, path: str) -> None:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or parts[-1] in ("", "."):
        raise AuthoringError(f"{label}: path={path!r} is no file below the work directory of the box")
