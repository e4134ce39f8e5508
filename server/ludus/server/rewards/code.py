"""Checks that run the policy's code in a sandbox against tests, some of which it never sees."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Of, resolve
from ludus.server.rewards.boxes import Box, verifier_of
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.structure import close, cut, fenced
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict
from ludus.server.sandbox.errors import SandboxFileError

CODE_CHARS: Final = 500_000
"""Longer programs are not run: they earn 0."""


def code_of(attempt: Attempt) -> str:
    """The program in the answer: its last fenced block, or all of it where there is none."""
    blocks = fenced(attempt.answer)
    return blocks[-1] if blocks else attempt.answer


@dataclass(frozen=True)
class ProgramTest:
    """What a program reads, and what it has to print."""

    stdin: str
    stdout: str
    hidden: bool = False
    """Whether evidence may tell what was read and printed."""
    weight: float = 1.0


@dataclass(frozen=True)
class FunctionTest:
    """The arguments of a call, and what it has to return, both JSON-ready."""

    arguments: Sequence[Any]
    returns: Any
    hidden: bool = False
    """Whether evidence may tell the arguments and the result."""
    weight: float = 1.0


@dataclass(frozen=True)
class _InBox(Check):
    """Runs something in a box.

    Where a file cannot be written, because of what the policy left there or how long its program is, that is worth 0.
    """

    box: Callable[[Attempt], Box | Awaitable[Box]] | None = None
    """Finds the box to use, such as `FromEnvironment("sandbox")`; it stays open. The policy's traces are in it."""
    fresh_box: Callable[[Attempt], AbstractAsyncContextManager[Box]] | None = None
    """Opens a box for this check alone. Without either, it is the environment's `verifier()`."""
    all_or_nothing: bool = False
    """Whether only passing all tests earns anything."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.box is not None and self.fresh_box is not None:
            raise AuthoringError(f"{self.label}: give box=… or fresh_box=…, and not both")

    async def check(self, attempt: Attempt) -> Verdict:
        """Run it."""
        if self.box is None:
            async with (self.fresh_box or verifier_of)(attempt) as box:
                return await self._judge(attempt, box)
        found: Any = self.box(attempt)
        return await self._judge(attempt, await found if hasattr(found, "__await__") else found)

    async def _judge(self, attempt: Attempt, box: Box) -> Verdict:
        try:
            return await self._run(attempt, box)
        except SandboxFileError as error:
            return Verdict(0.0, f"the program cannot be run: {cut(error.message)}")

    async def _run(self, attempt: Attempt, box: Box) -> Verdict:
        raise NotImplementedError

    def _tally(self, results: Sequence[tuple[ProgramTest | FunctionTest, str]]) -> Verdict:
        """The verdict on tests and why each failed, which is empty for those that passed."""
        weights = math.fsum(test.weight for test, _ in results)
        earned = math.fsum(test.weight for test, problem in results if not problem)
        passed = sum(not problem for _, problem in results)
        said = [f"{passed}/{len(results)} tests passed"]
        said += [problem for test, problem in results if problem and not test.hidden][:3]
        if hidden := sum(bool(problem) and test.hidden for test, problem in results):
            said.append(f"{hidden} hidden {'test' if hidden == 1 else 'tests'} failed")
        value = earned / weights if weights else 0.0
        if self.all_or_nothing:
            value = float(passed == len(results))
        return Verdict(value, "; ".join(said))


@dataclass(frozen=True)
class ProgramTests(_InBox):
    """The share of tests, by weight, whose output the policy's program prints. Each test is one run.

    Hidden tests come last, so that nothing of them can reach what the others print.
    """

    tests: Of[Sequence[ProgramTest]] = ()
    argv: Sequence[str] = ("python3", "solution.py")
    path: str = "solution.py"
    """Where the program is written; the argv runs it."""
    compare: Literal["lines", "tokens"] = "lines"
    """`lines`: equal but for white space at the ends of lines and of the whole; `tokens`: but for all white space."""
    source: Of[str] = code_of

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = self.path.split("/")
        if self.path.startswith("/") or ".." in parts or parts[-1] in ("", "."):
            raise AuthoringError(f"{self.label}: path={self.path!r} is no file below the work directory of the box")

    async def _run(self, attempt: Attempt, box: Box) -> Verdict:
        source = resolve(self.source, attempt)
        if len(source) > CODE_CHARS or not source.strip():
            return Verdict(0.0, f"the program has {len(source)} characters")
        tests: Sequence[ProgramTest] = resolve(self.tests, attempt)
        if not tests:
            return Verdict.unscored("there are no tests")
        await box.write(self.path, source.encode("utf-8", "replace"))
        results = [(test, await self._problem(test, box)) for test in sorted(tests, key=lambda one: one.hidden)]
        return self._tally(results)

    async def _problem(self, test: ProgramTest, box: Box) -> str:
        ran = await box.run(self.argv, stdin=test.stdin.encode())
        given = f"for {short(test.stdin)}"
        if ran.limit is not None:
            return f"{given} it reached its limit on {ran.limit}"
        if ran.exit_code != 0:
            return f"{given} it ended with {ran.exit_code}: {short(_last_line(ran.stderr))}"
        printed = ran.stdout.decode("utf-8", "replace")
        if self._plain(printed) != self._plain(test.stdout):
            return f"{given} it printed {short(printed)} instead of {short(test.stdout)}"
        return ""

    def _plain(self, text: str) -> list[str]:
        return text.split() if self.compare == "tokens" else [line.rstrip() for line in text.strip().splitlines()]


@dataclass(frozen=True)
class FunctionTests(_InBox):
    """The share of tests, by weight, for which the policy's Python function returns what it should.

    All calls happen in one run; those of hidden tests in a second one, so that nothing of them can reach the evidence.
    What is expected never enters the box: the results come out and are compared here, so code that patches the test
    runner, or prints a verdict of its own, gains nothing.
    """

    function: str = ""
    tests: Of[Sequence[FunctionTest]] = ()
    python: str = "python3"
    relative: float = 1e-9
    """Tolerance of floats."""
    source: Of[str] = code_of

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.function.isidentifier():
            raise AuthoringError(f"{self.label}: function={self.function!r} is no name of a Python function")

    async def _run(self, attempt: Attempt, box: Box) -> Verdict:
        source = resolve(self.source, attempt)
        if len(source) > CODE_CHARS or not source.strip():
            return Verdict(0.0, f"the program has {len(source)} characters")
        tests: Sequence[FunctionTest] = resolve(self.tests, attempt)
        if not tests:
            return Verdict.unscored("there are no tests")
        await box.write("solution.py", source.encode("utf-8", "replace"))
        await box.write("call_solution.py", _CALLER.encode())
        groups = [group for hidden in (False, True) if (group := [test for test in tests if test.hidden == hidden])]
        return self._tally([result for group in groups for result in await self._call(group, box)])

    async def _call(self, tests: Sequence[FunctionTest], box: Box) -> list[tuple[FunctionTest, str]]:
        """Each test with why it failed, from one run."""
        calls = {"function": self.function, "calls": [list(test.arguments) for test in tests]}
        ran = await box.run((self.python, "call_solution.py"), stdin=json.dumps(calls).encode())
        said = _results(ran.stdout)
        ending = f"the run reached its limit on {ran.limit}" if ran.limit else f"ended with {ran.exit_code}"
        missing = {"error": f"no result; {ending}: {_last_line(ran.stderr)}"}
        return [(test, self._problem(test, said.get(n, missing))) for n, test in enumerate(tests)]

    def _problem(self, test: FunctionTest, said: Mapping[str, Any]) -> str:
        call = f"{self.function}({', '.join(short(repr(one)) for one in test.arguments)})"
        if "error" in said:
            return f"{call}: {str(said['error'])[:300]}"
        if not same_json(said.get("value"), json.loads(json.dumps(test.returns)), self.relative):
            return f"{call} returned {short(repr(said.get('value')))} instead of {short(repr(test.returns))}"
        return ""


def same_json(found: Any, wanted: Any, relative: float) -> bool:
    """Whether two JSON values are equal, floats within a relative tolerance; true is not 1."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, int | float) and isinstance(wanted, int | float):
        return close(found, wanted, relative)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(same_json(a, b, relative) for a, b in zip(found, wanted, strict=True))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same_json(found[key], wanted[key], relative) for key in wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def _results(stdout: bytes) -> dict[int, Mapping[str, Any]]:
    results: dict[int, Mapping[str, Any]] = {}
    for line in stdout.split(b"\n"):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and isinstance(said.get("call"), int):
            results[said["call"]] = said
    return results


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


_CALLER: Final = """\
import json, os, sys
asked = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def say(**reply):
    try:
        line = json.dumps(reply)
    except Exception as error:
        line = json.dumps({"call": reply["call"], "error": "the result is no JSON: " + type(error).__name__})
    out.write(line + "\\n")
    out.flush()
try:
    import solution
    function = getattr(solution, asked["function"])
except BaseException as error:
    for number in range(len(asked["calls"])):
        say(call=number, error="importing it raised %s: %s" % (type(error).__name__, str(error)[:200]))
    sys.exit(0)
for number, arguments in enumerate(asked["calls"]):
    try:
        value = function(*arguments)
    except BaseException as error:
        say(call=number, error="it raised %s: %s" % (type(error).__name__, str(error)[:200]))
    else:
        say(call=number, value=value)
"""
"""Runs in the box. It knows the arguments and nothing of what is expected."""
