"""Run a policy's Python code on hidden inputs in a sandbox; the results are compared outside.

The author writes a module `inside.py` with the standard library only, whose text runs in the sandbox. It has a function
that calls `serve` with what executes the policy's code on one case. On the server, `program_text` joins that text with
the test runner, `run_requests` sends the cases, and `CaseResult.matches` compares the outcomes with expected ones,
which never enter the sandbox. `hide_package` keeps the package that makes the cases out of it.
"""

from __future__ import annotations

from ludus.server.rewards.isolated.hiding import VISIBLE, hide_package
from ludus.server.rewards.isolated.inside import MAX_DEPTH, decode, encode, serve
from ludus.server.rewards.isolated.running import (
    CASE_BYTES,
    CASE_SECONDS,
    CaseResult,
    program_text,
    read_results,
    run_requests,
    same,
)

__all__ = [
    "CASE_BYTES", "CASE_SECONDS", "MAX_DEPTH", "VISIBLE", "CaseResult", "decode", "encode", "hide_package",
    "program_text", "read_results", "run_requests", "same", "serve",
]  # fmt: skip
