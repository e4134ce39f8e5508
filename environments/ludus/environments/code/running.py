"""Run a policy's program in a sandbox, and read and compare what it returned. See `inside.py` for the other half.

Values are compared as encodings, which are lists and texts: no object of the policy ever exists in this process.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

from ludus.environments.code import inside
from ludus.sandbox import RunResult, Sandbox

CASE_SECONDS: Final = 2.0
"""Wall-clock seconds of one case."""
LATE_CASES: Final = 2
"""After this many cases that took too long, the remaining ones are not run."""
CASE_BYTES: Final = 16_000
"""The most bytes that one case may answer."""
CASE_MEMORY: Final = 256 * 2**20
"""The address space of one case, in bytes."""
SHOWN: Final = 400
"""The most characters of a value in an observation."""
TOLERANCE: Final = 1e-9
"""The relative tolerance of floats."""

_RENDER_DEPTH: Final = inside.MAX_DEPTH + 5


class CaseResult(NamedTuple):
    """What a program did with the inputs of one case.

    Attributes:
        outcomes: the outcomes of its calls as `inside.perform` encodes them, unverified; None if there are none.
        message: why there are none, or the traceback of an exception; from the policy's process, at most 1,000
            characters.
    """

    outcomes: list[Any] | None
    message: str = ""

    def matches(self, expected: Sequence[Any]) -> bool:
        """Return whether all outcomes are the expected ones."""
        return self.outcomes is not None and same(self.outcomes, list(expected))


def same(found: Any, expected: Any) -> bool:
    """Return whether two encodings are equal, type by type; floats within a tolerance, and NaN equals nothing.

    Args:
        found: what the policy's process answered: any JSON value.
        expected: an encoding that this process made.
    """
    if isinstance(expected, str):
        return type(found) is str and found == expected
    if type(found) is not list or len(found) != len(expected):
        return False
    if expected and expected[0] == "float" and isinstance(expected[1], str):
        return found[0] == "float" and _close(found[1], expected[1])
    return all(same(one, other) for one, other in zip(found, expected, strict=True))


def _close(found: Any, expected: str) -> bool:
    if type(found) is not str or len(found) > 40:
        return False
    try:
        return math.isclose(float(found), float(expected), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except ValueError:
        return False


async def run_cases(
    box: Sandbox, program: str, entry: str, kind: str, cases: Sequence[Sequence[Any]]
) -> list[CaseResult]:
    """Run a program on the inputs of several cases.

    Args:
        box: the sandbox.
        program: the policy's program.
        entry: the function or class that it defines.
        kind: what the entry is.
        cases: the calls of each case; see `inside.perform`.

    Raises:
        SandboxFailed: the machine lost the sandbox. Nothing that the program does raises an error here.
    """
    request = {
        "program": program, "entry": entry, "kind": kind,
        "cases": [[inside.encode(call) for call in case] for case in cases],
        "seconds": CASE_SECONDS, "late": LATE_CASES, "bytes": CASE_BYTES, "memory": CASE_MEMORY,
    }  # fmt: skip
    nonce = secrets.token_hex(16).encode()
    data = json.dumps(request).encode()
    command = ["python3", "-s", "-S", "-c", _program("serve")]
    result = await box.run(command, stdin=b"%010d" % len(data) + data + nonce)
    return read_results(result, nonce, len(cases))


def read_results(result: RunResult, nonce: bytes, count: int) -> list[CaseResult]:
    """Return the results of the cases from the output of `inside.serve`."""
    try:
        said = json.loads(result.stdout.removeprefix(nonce)) if result.stdout.startswith(nonce) else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, list) or len(said) != count:
        return [CaseResult(None, f"The program ended the whole test run ({result.ending}).")] * count
    return [_read_case(one) for one in said]


def _read_case(said: Any) -> CaseResult:
    if said is None:
        return CaseResult(None, f"It took longer than {CASE_SECONDS:g} s, or {LATE_CASES} earlier calls did.")
    if len(said) > CASE_BYTES:
        return CaseResult(None, f"It returned more than {CASE_BYTES} bytes.")
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        return CaseResult(None, "It ended its process instead of returning.")
    if type(answer) is not dict:
        return CaseResult(None, "It wrote something else than a result.")
    outcomes, message = answer.get("outcomes"), answer.get("failed") or answer.get("trace") or ""
    message = message[:1000] if type(message) is str else ""
    return CaseResult(outcomes if type(outcomes) is list else None, message)


async def run_script(box: Sandbox, program: str) -> RunResult:
    """Run a program as a script.

    Raises:
        SandboxFailed: the machine lost the sandbox.
    """
    return await box.run(["python3", "-s", "-S", "-c", _program("run_program")], stdin=program.encode())


@cache
def _program(function: str) -> str:
    """Return the text of `inside.py` that calls one of its functions.

    The work directory is taken from the path of modules before anything is imported, so no file there is found.
    """
    text = resources.files("ludus.environments.code").joinpath("inside.py").read_text()
    head, _, rest = text.partition("from __future__ import annotations\n")
    start = "import sys\nsys.path[:] = [one for one in sys.path if one]\n"
    return f"from __future__ import annotations\n{start}{rest}\n{function}()\n"


def render(outcome: Any) -> str:
    """Return an outcome as text for an observation, at most `SHOWN` characters."""
    if isinstance(outcome, list) and len(outcome) == 2 and outcome[0] == "error":
        return f"raises {str(outcome[1])[:60]}"
    if not (isinstance(outcome, list) and len(outcome) == 2 and outcome[0] == "value" and _depth_ok(outcome[1])):
        return "something that is no value"
    try:
        text = repr(inside.decode(outcome[1]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return "something that is no value"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def _depth_ok(tree: Any) -> bool:
    level = [tree]
    for _ in range(2 * _RENDER_DEPTH):
        level = [inner for one in level if isinstance(one, list) for inner in one]
        if not level:
            return True
    return False
