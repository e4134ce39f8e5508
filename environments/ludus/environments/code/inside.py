"""The part of `code` that runs in a sandbox: execute a program, and make the calls of one case.

Its text follows that of `ludus.server.rewards.isolated.inside`, which has the runner. The server loads it, too, for
the reference.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import types
from typing import Any

from ludus.server.rewards.isolated import MAX_DEPTH, decode, encode, serve

FILE = "solution.py"
"""The file name of the policy's program in tracebacks."""

ERRORS = (KeyError, IndexError, ZeroDivisionError, ValueError, TypeError, StopIteration)
"""The errors that a specification may ask for; others are reported by the name of their own class."""


def outcome_of(function: Any, arguments: Any, count: int = -1) -> list[Any]:
    """Call a function and return ["value", encoding], or ["error", name of the exception's class].

    Args:
        function: what to call.
        arguments: its arguments.
        count: for a generator, how many items to take; -1 for the returned value itself.
    """
    try:
        value = function(*arguments)
        if count >= 0:
            value = list(itertools.islice(value, count))
    except Exception as error:
        return ["error", next((one.__name__ for one in ERRORS if isinstance(error, one)), type(error).__name__)]
    return ["value", encode(value)]


def perform(target: Any, kind: str, calls: list[Any]) -> list[Any]:
    """Make the calls of one case, and return their outcomes in order.

    Args:
        target: the function, generator function or class.
        kind: "function" (each call is its arguments), "iterator" (each is the arguments and a count of items), or
            "class" (the first call is the arguments of the constructor, each other one a method with its arguments).
        calls: the calls. Equal arguments are the same objects, so a function that changes them harms itself.
    """
    if kind == "iterator":
        return [outcome_of(target, arguments, count) for arguments, count in calls]
    if kind == "function":
        return [outcome_of(target, arguments) for arguments in calls]
    made: list[Any] = []
    outcome = outcome_of(lambda *arguments: made.append(target(*arguments)), calls[0])
    if not made:
        return [outcome]
    return [outcome_of(getattr(made[0], method, None), arguments) for method, *arguments in calls[1:]]


def load(program: str, name: str = "solution") -> dict[str, Any]:
    """Execute a program as a module, and return its namespace."""
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(program, FILE, "exec"), module.__dict__)
    return module.__dict__


def describe(error: BaseException, program: str) -> str:
    """Return an exception with the lines of the policy's program on its way, at most 1,000 characters."""
    lines = program.splitlines()
    shown = [f"{type(error).__name__}: {str(error)[:300]}"]
    if isinstance(error, SyntaxError) and error.filename == FILE:
        shown = [f"{type(error).__name__}: {error.msg} (line {error.lineno})"]
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == FILE:
            places.append((trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    for number, name in places[-4:]:
        text = lines[number - 1].strip()[:100] if 0 < number <= len(lines) else ""
        shown.append(f"  line {number}, in {name}: {text}")
    return "\n".join(shown)[:1000]


def answer_case(request: dict[str, Any], case: list[Any]) -> dict[str, Any]:
    """Execute the program and make the calls of one case; runs in the child."""
    program, traces = request["program"], []
    known: dict[str, Any] = {}

    def argument(tree: Any) -> Any:
        return known.setdefault(json.dumps(tree), decode(tree))

    calls = [argument(call) for call in case]
    try:
        target = load(program).get(request["entry"])
    except BaseException as error:
        return {"failed": describe(error, program)}
    if not callable(target):
        return {"failed": f"the program defines no {request['entry']}"}

    def traced(*arguments: Any) -> Any:
        try:
            return target(*arguments)
        except Exception as error:
            traces.append(describe(error, program))
            raise

    try:
        outcomes = perform(traced if request["kind"] == "function" else target, request["kind"], calls)
    except BaseException as error:
        return {"failed": describe(error, program)}
    return {"outcomes": outcomes, "trace": traces[-1] if traces else ""}


def serve_cases() -> None:
    """Run the cases of a request; see `serve`."""
    serve(answer_case)


def run_program() -> None:
    """Execute the program from standard input as a script; a traceback shows its own lines only."""
    program = sys.stdin.buffer.read().decode("utf-8", "replace")
    sys.stdin = open(os.devnull)
    try:
        load(program, "__main__")
    except SystemExit:
        raise
    except BaseException as error:
        sys.stdout.flush()
        sys.stderr.write(describe(error, program) + "\n")
        sys.exit(1)


__all__ = ["MAX_DEPTH", "decode", "encode", "outcome_of", "perform", "run_program", "serve_cases"]
