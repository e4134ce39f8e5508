"""No test asserts what a clock or a memory gauge reads, or sleeps for a fixed time, except where a list says why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS} | {"getrusage", "elapsed", "total_seconds"}
GAUGES = {"cpu_seconds", "elapsed", "ru_maxrss", "ru_utime", "ru_stime"}
ARITHMETIC = {"abs", "float", "int", "max", "min", "round"}

SLEEPS = {
    "tests/durability/saved_world.py": (2, "a server in a process of its own waits for a file that the test writes"),
    "tests/formats_hosting/peers/faulty_gym.py": (1, "hangs on purpose"),
    "tests/formats_hosting/peers/nemo_gym_faults.py": (1, "hangs on purpose"),
    "tests/formats_hosting/peers/openenv_world.py": (1, "hangs on purpose"),
    "tests/formats_hosting/peers/ors_world.py": (1, "hangs on purpose"),
    "tests/integrations/peers/agent_lightning_rollouts.py": (1, "a bounded poll under a peer's interpreter"),
    "tests/ors/test_cut.py": (1, "the work of a tool whose connection is cut meanwhile"),
    "tests/support/conformance_world.py": (1, "blocks a thread for longer than its limit"),
    "tests/trainer/doctor/planted/sitecustomize.py": (1, "hangs on purpose"),
    "tests/trainer/engine/test_clock.py": (14, "its event loop skips the time"),
    "tests/validation/faults/overlooked.py": (2, "the delay is the planted fault"),
    "tests/validation/faults/repeated.py": (2, "the delay is the planted fault"),
    "tests/validation/faults/replayed.py": (2, "the delay is the planted fault"),
    "tests/workers/moving_world.py": (1, "a server in a process of its own waits for a file that the test writes"),
}
"""How many sleeps of a fixed time a file has, and why."""


def sleeps_in(source: str) -> list[int]:
    """Return the lines that sleep for a fixed time."""
    if "sleep(" not in source and "Event().wait(" not in source:
        return []  # parsing all files would take long
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    return sorted(call.lineno for call in calls if _sleeps(call.func) and _is_fixed(call.args[0]))


def asserts_in(source: str) -> list[int]:
    """Return the lines that compare in an `assert` what a clock or a gauge reads."""
    if not any(f".{word}" in source or f"{word}(" in source for word in CLOCKS | GAUGES):
        return []
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines: set[int] = set()
    for scope in [tree, *functions]:
        names: set[str] = set()
        nodes = list(_own(scope))
        while new := {name for node in nodes for name in _names_of_readings(node, names)} - names:
            names |= new
        for node in nodes:
            if isinstance(node, ast.Assert) and any(
                _is_reading(operand, names)
                for compare in ast.walk(node.test)
                if isinstance(compare, ast.Compare)
                for operand in (compare.left, *compare.comparators)
            ):
                lines.add(node.lineno)
    return sorted(lines)


def _sleeps(function: ast.expr) -> bool:
    name = _name(function)
    on_new_event = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call)
    return name == "sleep" or (name == "wait" and on_new_event and _name(function.value.func) == "Event")  # type: ignore[attr-defined]


def _is_fixed(seconds: ast.expr) -> bool:
    if isinstance(seconds, ast.IfExp):
        return _is_fixed(seconds.body) or _is_fixed(seconds.orelse)
    return isinstance(seconds, ast.Constant) and seconds.value != 0


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without those of functions in it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own(child)


def _names_of_readings(node: ast.AST, names: set[str]) -> Iterator[str]:
    """Yield the names that a statement gives to readings."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        pairs = [(node.target, node.value)]
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs += zip(target.elts, value.elts, strict=False)
        elif isinstance(target, ast.Name) and _is_reading(value, names):
            yield target.id


def _is_reading(value: ast.expr, names: set[str]) -> bool:
    match value:
        case ast.Name():
            return value.id in names
        case ast.Attribute():
            return value.attr in GAUGES
        case ast.BinOp():
            return _is_reading(value.left, names) or _is_reading(value.right, names)
        case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in CLOCKS:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in ARITHMETIC:
            return any(_is_reading(argument, names) for argument in value.args)
    return False


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    paths = [path for folder in ("tests", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_no_test_asserts_what_a_clock_or_a_gauge_reads(sources: dict[str, str]) -> None:
    assert [f"{path}:{line}" for path, source in sources.items() for line in asserts_in(source)] == []


def test_no_test_sleeps_for_a_fixed_time_without_a_reason(sources: dict[str, str]) -> None:
    lines = {path: sleeps_in(source) for path, source in sources.items()}
    assert {path: numbers for path, numbers in lines.items() if len(numbers) != SLEEPS.get(path, (0, ""))[0]} == {}
    assert set(SLEEPS) <= set(sources), "the list names files that exist"


@pytest.mark.parametrize(
    "source",
    [
        "assert time.monotonic() - began < 5",
        "began = time.process_time()\nwork()\nassert time.process_time() - began < 20",
        "async def test():\n    began, x = perf_counter(), 1\n    took = perf_counter() - began\n    assert took < 1",
        "def test():\n    assert 0.7 <= result.cpu_seconds < 1.6",
        "def test():\n    before = resource.getrusage(0).ru_maxrss\n    assert round(before / 1024) < 200",
        "assert answer.elapsed.total_seconds() < 2",
    ],
)
def test_an_assertion_on_a_clock_is_found(source: str) -> None:
    assert asserts_in(source) == [source.count("\n") + 1]


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(0.1)", "async def test():\n    await asyncio.sleep(5)", "sleep(0.5 if slow else 0)",
        "threading.Event().wait(0.02)",
    ],
)  # fmt: skip
def test_a_sleep_of_a_fixed_time_is_found(source: str) -> None:
    assert sleeps_in(source) == [source.count("\n") + 1]


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(0)", "await asyncio.sleep(seconds)", "event.wait(5)", "program = 'time.sleep(600)'",
        "now = time.time()\nassert read(token(now)) == 1", "assert limits.seconds < 5",
    ],
)  # fmt: skip
def test_what_is_neither_is_left_alone(source: str) -> None:
    assert (asserts_in(source), sleeps_in(source)) == ([], [])
