"""Run a policy's program in a sandbox, with `ludus.server.rewards.isolated`; see `inside.py` for the other half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ludus.environments.code import inside
from ludus.sandbox import RunResult, Sandbox
from ludus.server.rewards.isolated import (
    CASE_BYTES,
    CASE_SECONDS,
    CaseResult,
    program_text,
    read_results,
    run_requests,
    same,
)

SHOWN: Final = 400
"""The most characters of a value in an observation."""

_PACKAGE: Final = "ludus.environments.code"
_RENDER_DEPTH: Final = inside.MAX_DEPTH + 5


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
    request = {"program": program, "entry": entry, "kind": kind}
    encoded = [[inside.encode(call) for call in case] for case in cases]
    return await run_requests(box, program_text(_PACKAGE, "serve_cases"), request, encoded)


async def run_script(box: Sandbox, program: str) -> RunResult:
    """Run a program as a script.

    Raises:
        SandboxFailed: the machine lost the sandbox.
    """
    return await box.run(["python3", "-s", "-S", "-c", program_text(_PACKAGE, "run_program")], stdin=program.encode())


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


__all__ = ["CASE_BYTES", "CASE_SECONDS", "CaseResult", "read_results", "render", "run_cases", "run_script", "same"]
