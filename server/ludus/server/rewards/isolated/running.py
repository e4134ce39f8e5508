"""Send cases to `inside.serve` in a sandbox, and read and compare what the policy's code returned.

Values are compared as encodings, which are lists and texts: no object of the policy ever exists in this process.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

from ludus.sandbox import Limits, RunResult, Sandbox

CASE_SECONDS: Final = 2.0
"""Processor seconds of one case."""
CASE_WALL_SECONDS: Final = 10.0
"""Wall-clock seconds of one case, for programs that wait. They are more, so that a busy machine does not turn a right
program into a wrong one."""
LATE_CASES: Final = 2
"""After this many cases that took too long, the remaining ones are not run."""
CASE_BYTES: Final = 16_000
"""The most bytes that one case may answer."""
CASE_MEMORY: Final = 256 * 2**20
"""The address space of one case, in bytes."""
TOLERANCE: Final = 1e-9
"""The relative tolerance of floats."""


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


async def run_requests(
    box: Sandbox, program: str, request: Mapping[str, Any], cases: Sequence[Any], limits: Limits | None = None
) -> list[CaseResult]:
    """Run cases in a sandbox.

    Args:
        box: the sandbox.
        program: the text that reads the request and runs its cases; see `program_text`.
        request: what the environment's part of the program needs, besides the cases.
        cases: the cases.
        limits: limits of the whole run, tighter than those of the sandbox.

    Raises:
        SandboxFailed: the machine lost the sandbox. Nothing that the policy's code does raises an error here.
    """
    whole = {
        **request, "cases": cases, "seconds": CASE_SECONDS, "wall": CASE_WALL_SECONDS,
        "late": LATE_CASES, "bytes": CASE_BYTES, "memory": CASE_MEMORY,
    }  # fmt: skip
    nonce = secrets.token_hex(16).encode()
    data = json.dumps(whole).encode()
    result = await box.run(
        ["python3", "-s", "-S", "-c", program], stdin=b"%010d" % len(data) + data + nonce, limits=limits
    )
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


@cache
def program_text(package: str, function: str) -> str:
    """Return the text of `inside.py` and of the `inside.py` of an environment, with a call of one of its functions.

    The work directory is taken from the path of modules before anything is imported, so no file there is found.
    """
    parts = [_own_text("ludus.server.rewards.isolated"), _own_text(package)]
    start = "import sys\nsys.path[:] = [one for one in sys.path if one]\n"
    return f"from __future__ import annotations\n{start}{''.join(parts)}\n{function}()\n"


def _own_text(package: str) -> str:
    text = resources.files(package).joinpath("inside.py").read_text()
    lines = text.partition("from __future__ import annotations\n")[2].splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("from ludus."))
