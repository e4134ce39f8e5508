"""The program that runs a policy's code on given inputs, in a sandbox. The server loads it, too, for the reference.

How it works: the parent, `serve`, never executes the policy's code. For each case it forks a child, which knows the
inputs of all cases, but neither an expected value nor the nonce: expected values never enter the sandbox, and the
nonce stays in the parent's standard input until the last child has been killed. The child has no open file but a pipe
to the parent, its memory and processor time are limited, and it is killed after `seconds`. It executes the program,
makes the calls, and writes what they returned into the pipe. The parent does not read a meaning into these bytes. It
prints them after the nonce, and the server decodes and compares them.

So a program that exits, prints, patches libraries, or overrides `__eq__` only changes the values that it answers.
This file uses the standard library only: its text is what runs in the sandbox.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import select
import signal
import sys
import time
import types
from typing import Any

FILE = "solution.py"
"""The file name of the policy's program in tracebacks."""

MAX_TEXT, MAX_ITEMS, MAX_DEPTH, MAX_DIGITS = 10_000, 5_000, 20, 1_000
"""Bounds of a value: characters of a text, items in all collections together, nesting, and digits of a whole number."""

ERRORS = (KeyError, IndexError, ZeroDivisionError, ValueError, TypeError, StopIteration)
"""The errors that a specification may ask for; others are reported by the name of their own class."""


def encode(value: Any) -> list[Any]:
    """Return a value as nested lists of texts that keep its type: True is not 1, and 1 is not 1.0.

    Raises:
        TypeError: a value is of another type than None, bool, int, float, str, list, tuple, dict or set.
        ValueError: it exceeds a bound.
    """
    left = [MAX_ITEMS]

    def walk(one: Any, depth: int) -> list[Any]:
        kind = type(one)
        left[0] -= 1
        if depth > MAX_DEPTH or left[0] < 0:
            raise ValueError("the value is nested too deeply, or has too many items")
        if one is None:
            return ["none"]
        if kind is bool:
            return ["bool", "True" if one else "False"]
        if kind is int:
            if one.bit_length() > MAX_DIGITS * 3:
                raise ValueError(f"the number has more than about {MAX_DIGITS} digits")
            return ["int", str(one)]
        if kind is float:
            return ["float", repr(one)]
        if kind is str:
            if len(one) > MAX_TEXT:
                raise ValueError(f"the text has more than {MAX_TEXT} characters")
            return ["str", one]
        if kind is list or kind is tuple:
            return [kind.__name__, [walk(item, depth + 1) for item in one]]
        if kind is set or kind is frozenset:
            return ["set", sorted((walk(item, depth + 1) for item in one), key=json.dumps)]
        if kind is dict:
            pairs = [[walk(key, depth + 1), walk(item, depth + 1)] for key, item in one.items()]
            return ["dict", sorted(pairs, key=json.dumps)]
        raise TypeError(f"{kind.__name__!r} is not a type that the result may contain")

    return walk(value, 0)


def decode(tree: list[Any]) -> Any:
    """Return the value of an encoding that `encode` made.

    Raises:
        ValueError: it is none.
    """
    kind, *rest = tree
    if kind == "none":
        return None
    [inner] = rest
    if kind == "dict":
        return {decode(key): decode(item) for key, item in inner}
    if kind in ("list", "tuple", "set"):
        items = [decode(item) for item in inner]
        return items if kind == "list" else tuple(items) if kind == "tuple" else set(items)
    if kind == "bool":
        return inner == "True"
    return inner if kind == "str" else int(inner) if kind == "int" else float(inner)


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


def run_child(request: dict[str, Any], case: list[Any], answer: int) -> None:
    """Be the child of one case: keep only the pipe, set limits, answer, and end."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    for kind, most in ((resource.RLIMIT_AS, request["memory"]), (resource.RLIMIT_CPU, 1 + int(request["seconds"]))):
        resource.setrlimit(kind, (most, most))
    dumps, write = json.dumps, os.write
    try:
        data = dumps(answer_case(request, case)).encode() + b"\n"
    except BaseException as error:
        data = dumps({"failed": f"{type(error).__name__}: {str(error)[:200]}"}).encode() + b"\n"
    while data:
        data = data[write(answer, data) :]


def run_case(request: dict[str, Any], case: list[Any]) -> str | None:
    """Run one case in a child and return what it wrote; None if it took too long."""
    given, answer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(given)
            run_child(request, case, answer)
        finally:
            os._exit(0)
    os.close(answer)
    said, late = b"", False
    end = time.monotonic() + request["seconds"]
    while len(said) <= request["bytes"] and not said.endswith(b"\n"):
        late = not select.select([given], [], [], max(0.0, end - time.monotonic()))[0]
        more = b"" if late else os.read(given, 65536)
        if not more:
            break
        said += more
    os.close(given)
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except OSError:
            pass
    os.waitpid(child, 0)
    return None if late else said[: request["bytes"] + 1].decode("utf-8", "replace")


def read_exactly(count: int) -> bytes:
    """Read bytes of standard input without reading ahead."""
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def serve() -> None:
    """Be the parent: read a request, run its cases, read the nonce, and print what the children wrote."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: the children cannot read this process
    except Exception:
        pass
    request = json.loads(read_exactly(int(read_exactly(10))))
    said: list[str | None] = []
    late = 0
    for case in request["cases"]:
        said.append(run_case(request, case) if late < request["late"] else None)
        late += said[-1] is None
    nonce = read_exactly(32)
    data = nonce + json.dumps(said).encode()
    while data:
        data = data[os.write(1, data) :]


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
