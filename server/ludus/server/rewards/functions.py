"""`call_function`: call a policy's Python function in a sandbox, one run for each call, and return the results.

How this works: each call is one command in the box. The process of that command, the parent, never imports the
policy's code. Before it reads anything, it makes itself unreadable to its children (`PR_SET_DUMPABLE`) and forks a
child, which imports the code. The child gets the arguments of this one call over a pipe and returns its result over
another. The parent kills the child, checks that the result is one JSON value, and prints it after a random token that
only the parent has read.

The expected value never enters the box: `values_equal` compares plain JSON values outside it. An exit code, an object
that equals everything, a patched library or a forged line can at most change the returned value, which is compared.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.code_runner import Box, Ran
from ludus.server.rewards.structure import close, read_json_value
from ludus.server.rewards.text import short

CALLS_SECONDS: Final = 40.0
"""Wall-clock seconds that the calls of one grader may take together. A grade has 60 s by default; without this bound, a
slow program would run into that limit, and its episode would be unscored."""

_RESULT_BYTES: Final = 200_000
"""The limit for one result; a longer one is an error."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The outcome of one call: a plain JSON value, or an error."""

    value: Any = None
    """The result in JSON form: tuples are lists, and the keys of objects are strings."""
    error: str | None = None
    """Why there is no value, in the policy's words or in ours; None if there is one."""

    @property
    def ok(self) -> bool:
        """Whether the call returned a value."""
        return self.error is None

    def equals(self, expected: Any, *, relative: float = 1e-9, exact_types: bool = True) -> bool:
        """Return whether the call returned what was expected; see `values_equal`."""
        return self.ok and values_equal(self.value, expected, relative=relative, exact_types=exact_types)


async def call_function(
    box: Box,
    path: str,
    function: str,
    calls: Iterable[Sequence[Any]],
    *,
    python: str = "python3",
    seconds: float = CALLS_SECONDS,
    owner: str | None = None,
    prelude: str = "",
) -> list[CallResult]:
    """Call a function of a policy's Python file, each time in a fresh process of the box.

    Args:
        box: the box that holds the file, such as the environment's `verifier()`.
        path: the file, below the box's work directory.
        function: its name in the file.
        calls: the arguments of each call, JSON-ready. Expected values stay outside.
        python: the interpreter in the box.
        seconds: wall-clock time for all calls together. Calls that remain when it is used up become errors.
        owner: a class that may have the function as a method, if the file has no function of that name. It is made
            without arguments, once for each call.
        prelude: Python code whose names the file may use without importing them. A function that it defines is not the
            policy's, and is not called.

    Returns:
        One result for each call, in their order. Nothing that the policy's code does raises an error here.

    Raises:
        AuthoringError: `function` is not a name, or the arguments are not JSON-ready.
        SandboxFailed: the box is gone.
    """
    if not function.isidentifier():
        raise AuthoringError(f"function={function!r} is not the name of a Python function")
    if owner is not None and not owner.isidentifier():
        raise AuthoringError(f"owner={owner!r} is not the name of a Python class")
    results: list[CallResult] = []
    spent = 0.0
    for arguments in calls:
        if spent >= seconds:
            results.append(CallResult(error=f"not called: the calls before it took {spent:.0f} s of {seconds:g} s"))
            continue
        token = secrets.token_hex(16)
        request = {
            "token": token, "path": path, "function": function, "arguments": _json_ready(arguments), "owner": owner,
            "prelude": prelude,
        }  # fmt: skip
        ran = await box.run((python, "-I", "-c", _PARENT), stdin=json.dumps(request).encode())
        spent += ran.seconds
        results.append(_read_result(ran, token))
    return results


def values_equal(found: Any, expected: Any, *, relative: float = 1e-9, exact_types: bool = True) -> bool:
    """Return whether two values are equal as JSON, type by type: true is not 1, 1 is not 1.0, and "1" is neither.

    The values' own `__eq__` is never used: anything that is not plain JSON (an object, NaN) equals nothing.

    Args:
        found: what the policy's code returned.
        expected: what it should have returned; tuples are lists.
        relative: tolerance of floats.
        exact_types: False lets 1 equal 1.0.
    """
    types = (type(found), type(expected))
    if types == (float, float):
        return math.isfinite(found) and math.isfinite(expected) and close(found, expected, relative)
    if set(types) <= {list, tuple}:
        return len(found) == len(expected) and all(
            values_equal(actual, reference, relative=relative, exact_types=exact_types)
            for actual, reference in zip(found, expected, strict=True)
        )
    if types == (dict, dict):
        return (
            all(type(key) is str for key in (*found, *expected))
            and found.keys() == expected.keys()
            and all(
                values_equal(found[key], expected[key], relative=relative, exact_types=exact_types) for key in expected
            )
        )
    if not exact_types and set(types) == {int, float}:
        return close(found, expected, relative)
    return types[0] is types[1] and types[0] in (str, int, bool, type(None)) and bool(found == expected)


def _json_ready(arguments: Sequence[Any]) -> list[Any]:
    try:
        parsed: list[Any] = json.loads(json.dumps(list(arguments), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise AuthoringError(f"the arguments {short(repr(arguments))} are not JSON-ready: {error}") from None
    return parsed


def _read_result(ran: Ran, token: str) -> CallResult:
    """Return the result from the parent's output; everything else in that output is ignored."""
    prefix = f"{token} ".encode()
    line = next((line for line in ran.stdout.split(b"\n") if line.startswith(prefix)), None)
    if line is None:
        ending = f"the call reached its limit on {ran.limit}" if ran.limit else f"it ended with {ran.exit_code}"
        return CallResult(error=f"no result; {ending}: {last_line(ran.stderr)}")
    try:
        value = read_json_value(line.removeprefix(prefix).decode())
    except ValueError as error:
        return CallResult(error=f"the result is not JSON: {error}")
    if type(value) is dict and set(value) == {"value"}:
        return CallResult(value=value["value"])
    reason = value.get("error") if type(value) is dict else None
    return CallResult(error=str(reason)[:300] if reason else "no result")


def last_line(stderr: bytes) -> str:
    """Return the last line of a command's standard error, at most 200 characters."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


_PARENT: Final = f"""\
import json, os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
except Exception:
    pass
given, give = os.pipe()
taken, take = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    for handle in (0, 1, give, taken):
        os.close(handle)
    os.open(os.devnull, os.O_RDONLY)
    os.dup2(2, 1)
    with os.fdopen(given, encoding="utf-8") as file:
        asked = json.load(file)
    def say(**reply):
        data = (json.dumps(reply, allow_nan=False) + "\\n").encode()
        while data:
            data = data[os.write(take, data):]
    what = "importing it"
    try:
        import importlib.util
        sys.path.insert(0, os.path.abspath(os.path.dirname(asked["path"])))
        spec = importlib.util.spec_from_file_location("solution", asked["path"])
        module = sys.modules["solution"] = importlib.util.module_from_spec(spec)
        name, owner = asked["function"], asked["owner"]
        exec(asked["prelude"], module.__dict__)
        for given_name in (name, owner):
            module.__dict__.pop(given_name, None)
        spec.loader.exec_module(module)
        what = "it"
        if owner is not None and not hasattr(module, name) and hasattr(module, owner):
            value = getattr(getattr(module, owner)(), name)(*asked["arguments"])
        else:
            value = getattr(module, name)(*asked["arguments"])
        what = "making JSON of its result"
        text = json.dumps(value, allow_nan=False)
        say(value=json.loads(text))
    except BaseException as error:
        try:
            say(error="%s raised %s: %s" % (what, type(error).__name__, str(error)[:200]))
        except BaseException:
            pass
    os._exit(0)
os.close(given)
os.close(take)
request = json.load(sys.stdin)
token = request.pop("token")
try:
    with os.fdopen(give, "w", encoding="utf-8") as file:
        json.dump(request, file)
except BrokenPipeError:
    pass
said = b""
while b"\\n" not in said and len(said) <= {_RESULT_BYTES} and (more := os.read(taken, 65536)):
    said += more
said = said.partition(b"\\n")[0]
os.kill(child, signal.SIGKILL)
try:
    if len(said) > {_RESULT_BYTES}:
        raise ValueError("it is longer than {_RESULT_BYTES} bytes")
    reply = json.loads(said) if said else {{"error": "it ended its process instead of returning"}}
except (ValueError, RecursionError) as error:
    reply = {{"error": "the result is not JSON: " + str(error)[:100]}}
print(token, json.dumps(reply), sep=" ", flush=True)
os._exit(0)
"""
"""The program of the parent and its child. It knows the arguments of one call, but no expected value or other call."""
