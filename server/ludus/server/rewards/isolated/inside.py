"""The program that runs a policy's code on given inputs, in a sandbox. The server loads it, too, for the reference.

How it works: the parent, `serve`, never executes the policy's code. For each case it forks a child, which knows the
inputs of all cases, but neither an expected value nor the nonce: expected values never enter the sandbox, and the
nonce stays in the parent's standard input until the last child has been killed. The child has no open file but a pipe
to the parent, its memory and processor time are limited, and it is killed after `wall` seconds. It executes the
policy's code, and writes what came out into the pipe. The parent does not read a meaning into these bytes. It prints
them after the nonce, and the server decodes and compares them.

So code that exits, prints, patches libraries, or overrides `__eq__` only changes the values that it answers.
This file uses the standard library only: its text is what runs in the sandbox, followed by that of the environment's
own part, which has the function for one case.
"""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any], Any], dict[str, Any]]
"""Executes the policy's code on one case of a request."""

MAX_TEXT, MAX_ITEMS, MAX_DEPTH, MAX_DIGITS = 10_000, 5_000, 20, 1_000
"""Bounds of a value: characters of a text, items in all collections together, nesting, and digits of a whole number."""


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


SIGNALS = {
    "x86_64": (0xC000003E, (62, 129, 200, 234, 297, 424)),
    "aarch64": (0xC00000B7, (129, 130, 131, 138, 240, 424)),
}
"""By machine: its number in filters, and those of the system calls that send signals (kill, tkill, tgkill, …)."""


def forbid_signals() -> None:
    """Let this process send no more signals, so that it cannot stop its parent until the whole run is out of time.

    Where the machine or its kernel has no filters, nothing happens: the time of the run ends it then.
    """
    if platform.machine() not in SIGNALS:
        return
    machine, calls = SIGNALS[platform.machine()]
    count = len(calls)
    # Steps of a filter: code, jumps if true and if false, and a value. It goes on only if the machine is this one.
    steps = [(0x20, 0, 0, 4), (0x15, 0, count + 1, machine), (0x20, 0, 0, 0)]
    steps += [(0x15, count - place, 0, call) for place, call in enumerate(calls)]
    steps += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]  # allow; EPERM
    try:
        import ctypes

        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
        libc = ctypes.CDLL(None)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which a filter needs
        libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
    except Exception:
        pass


def run_child(request: dict[str, Any], case: Any, pipe: int, answer: Answer) -> None:
    """Be the child of one case: keep only the pipe, set limits, answer, and end."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    for kind, most in ((resource.RLIMIT_AS, request["memory"]), (resource.RLIMIT_CPU, math.ceil(request["seconds"]))):
        resource.setrlimit(kind, (most, most))
    forbid_signals()
    dumps, write = json.dumps, os.write
    try:
        data = dumps(answer(request, case)).encode() + b"\n"
    except BaseException as error:
        data = dumps({"failed": f"{type(error).__name__}: {str(error)[:200]}"}).encode() + b"\n"
    while data:
        data = data[write(pipe, data) :]


def run_case(request: dict[str, Any], case: Any, answer: Answer) -> str | None:
    """Run one case in a child and return what it wrote; None if it took too long."""
    given, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(given)
            run_child(request, case, pipe, answer)
        finally:
            os._exit(0)
    os.close(pipe)
    said, late = b"", False
    end = time.monotonic() + request["wall"]
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
    _, status, used = os.wait4(child, 0)
    if not said.endswith(b"\n") and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        # RLIMIT_CPU counts ticks of the timer: on a busy machine it ends a process that has used less than its limit.
        # A child with little use had closed its pipe, and was killed above.
        late = late or used.ru_utime + used.ru_stime > 0.5 * request["seconds"]
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


def serve(answer: Answer) -> None:
    """Be the parent: read a request, run its cases, read the nonce, and print what the children wrote.

    Args:
        answer: executes the policy's code on one case, in the child, and returns what to write.
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: the children cannot read this process
    except Exception:
        pass
    request = json.loads(read_exactly(int(read_exactly(10))))
    said: list[str | None] = []
    late = 0
    for case in request["cases"]:
        said.append(run_case(request, case, answer) if late < request["late"] else None)
        late += said[-1] is None
    nonce = read_exactly(32)
    data = nonce + json.dumps(said).encode()
    while data:
        data = data[os.write(1, data) :]
