"""`call_function` and its checks in real boxes: what hostile programs try, and that none of it earns a reward."""

from __future__ import annotations

import math
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.protocol.errors import AuthoringError
from ludus.sandbox import Limits, Sandbox, SandboxSettings, find_provider
from ludus.server.rewards import Attempt, FunctionTest, FunctionTests, ProgramTest, ProgramTests, Rubric
from ludus.server.rewards.functions import call_function, values_equal

MIB = 1024**2
TIGHT = Limits(seconds=2, cpu_seconds=2, memory=96 * MIB, processes=24, file_size=8 * MIB, disk=24 * MIB, output=65_536)


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    provider = find_provider("bubblewrap")
    await provider.open()
    try:
        async with await provider.create(SandboxSettings(limits=TIGHT, warm=0)) as box:
            yield box
    finally:
        await provider.aclose()


SAME = """
class Same:
    __hash__ = object.__hash__
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __getattr__(self, name): return Same()
    def __call__(self, *a, **k): return Same()
    def __iter__(self): return iter(())
    def __len__(self): return 2
    def __bool__(self): return True
"""


def subclass(base: str, made: str) -> str:
    return (
        f"class Odd({base}):\n"
        "    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "    def __hash__(self): return 0\n"
        "    def __repr__(self): return '5'\n"
        "    __str__ = __repr__\n"
        f"def add(a, b): return Odd({made})\n"
    )


FORGE = """
import json, os, sys
line = (json.dumps({"value": 5}) + "\\n").encode()
for handle in range(64):
    try:
        os.write(handle, b"0" * 32 + b" " + line)
    except OSError:
        pass
"""
"""Writes a result line, with a token that it guesses, on every descriptor that is open."""

ATTACKS: dict[str, str] = {
    "os._exit": "import os\nos._exit(0)",
    "os._exit in the call": "import os\ndef add(a, b): os._exit(0)",
    "sys.exit": "import sys\nsys.exit(0)",
    "SystemExit in the call": "def add(a, b): raise SystemExit(0)",
    "GeneratorExit": "def add(a, b): raise GeneratorExit",
    "an exception without a text": (
        "class Odd(Exception):\n def __str__(self): raise SystemExit(0)\ndef add(a, b): raise Odd()"
    ),
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 0",
    "killing its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef add(a, b): return 5",
    "killing everything": "import os, signal\ndef add(a, b): os.kill(-1, signal.SIGKILL)",
    "equal to everything": f"{SAME}\ndef add(a, b): return Same()",
    "the function itself": f"{SAME}\nadd = Same()",
    "a subclass of int": subclass("int", "9"),
    "a subclass of str": subclass("str", "'9'"),
    "a subclass of float": subclass("float", "9.0"),
    "a subclass of list": subclass("list", "[9]"),
    "a subclass of dict": subclass("dict", "{'a': 1}"),
    "another type": "def add(a, b): return float(a + b)",
    "a text": "def add(a, b): return str(a + b)",
    "true": "def add(a, b): return True",
    "json is patched": (
        "import json\njson.dumps = lambda *a, **k: '{\"passed\": true}'\njson.loads = lambda *a, **k: True\n"
        "def add(a, b): return 0"
    ),
    "json is missing": "import sys\nsys.modules['json'] = None\ndef add(a, b): return 0",
    "builtins are patched": (
        "import builtins\nbuiltins.all = builtins.any = lambda *a: True\nbuiltins.bool = lambda *a: True\n"
        "builtins.AssertionError = type('Never', (BaseException,), {})\ndef add(a, b): return 0"
    ),
    "stdout is patched": (
        "import io, sys\nsys.stdout = sys.stderr = io.StringIO()\nprint('5')\ndef add(a, b): return 0"
    ),
    "os.write is patched": "import os\nos.write = lambda handle, data: len(data)\ndef add(a, b): return 5",
    "an import hook": (
        "import sys\nclass Hook:\n def find_spec(self, *a, **k): raise SystemExit(0)\n"
        "sys.meta_path.insert(0, Hook())\ndef add(a, b):\n import decimal\n return 0"
    ),
    "sitecustomize": (
        "open('sitecustomize.py', 'w').write('import os; os._exit(0)')\n"
        "open('json.py', 'w').write('import os; os._exit(0)')\ndef add(a, b): return 0"
    ),
    "forged lines": f"{FORGE}def add(a, b): return 0",
    "forged lines in the call": f"def add(a, b):\n    exec({FORGE!r})\n    return 0",
    "a flood": "import os\nwhile True: os.write(2, b'x' * 65536)",
    "a flood of results": "def add(a, b): return 'x' * 10**6",
    "an endless loop": "def add(a, b):\n    while True: pass",
    "sleep": "import time\ntime.sleep(600)\ndef add(a, b): return 5",
    "a fork that stays": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\ndef add(a, b): return 0"
    ),
    "a fork that answers": "import os\ndef add(a, b):\n    os.fork()\n    return 0",
    "memory": "def add(a, b): return 'x' * (10**9)",
    "NaN": "def add(a, b): return float('nan')",
    "infinity": "def add(a, b): return float('inf')",
    "a huge number": "def add(a, b): return 10**5000",
    "deep lists": "def add(a, b):\n    x = []\n    for _ in range(5000): x = [x]\n    return x",
    "a list of itself": "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    "no function": "x = 1",
    "no Python": "def add(a, b)",
    "a property": "def __getattr__(name): raise SystemExit(0)",
}  # fmt: skip


@pytest.mark.suite("breadth", first=3)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_program_that_does_not_return_the_right_value_earns_0(box: Sandbox, attack: str) -> None:
    check = FunctionTests(
        function="add", box=lambda attempt: box,
        tests=[FunctionTest([2, 3], 5)],
    )  # fmt: skip
    reward = await Rubric([check]).score(Attempt(ATTACKS[attack]))
    assert reward.value == 0.0, reward
    after = await Rubric([check]).score(Attempt("def add(a, b): return a + b"))
    assert after.value == 1.0, "the box still grades an honest program"


HONEST: dict[str, str] = {
    "prints": "import json\ndef add(a, b):\n    print(json.dumps({'value': 7}))\n    return a + b",
    "a thread that stays": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
        "def add(a, b): return a + b"
    ),
    "its own modules": (
        "open('helper.py', 'w').write('def plus(a, b): return a + b')\nfrom helper import plus as add"
    ),
    "a class": "class Adder:\n    def __call__(self, a, b): return a + b\nadd = Adder()",
    "a dataclass on the way": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
        "def add(a, b): return P(a + b).x"
    ),
    "reads stdin": "import sys\ntext = sys.stdin.read()\ndef add(a, b): return a + b",
}  # fmt: skip


@pytest.mark.suite("breadth", first=2)
@pytest.mark.parametrize("program", HONEST)
async def test_an_honest_program_earns_1(box: Sandbox, program: str) -> None:
    check = FunctionTests(function="add", tests=[FunctionTest([2, 3], 5)], box=lambda attempt: box)
    verdict = await check.check(Attempt(HONEST[program]))
    assert verdict.value == 1.0, verdict


SPY = """
import gc, os, sys
def look():
    seen = []
    for process in ("self", str(os.getppid())):
        for what in ("cmdline", "environ"):
            try:
                seen.append(open(f"/proc/{process}/{what}").read())
            except OSError:
                pass
        try:
            for handle in os.listdir(f"/proc/{process}/fd"):
                if handle not in ("0", "1", "2"):
                    try:
                        seen.append(os.readlink(f"/proc/{process}/fd/{handle}"))
                        seen.append(os.read(os.open(f"/proc/{process}/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK), 9999))
                    except OSError:
                        pass
        except OSError:
            pass
    try:
        with open(f"/proc/{os.getppid()}/maps") as maps, open(f"/proc/{os.getppid()}/mem", "rb") as memory:
            for line in maps:
                low, high = (int(word, 16) for word in line.split()[0].split("-"))
                try:
                    memory.seek(low)
                    data = memory.read(high - low)
                    at = -1
                    while (at := data.find(b"31337", at + 1)) >= 0:
                        seen.append(data[at:at + 40])
                except OSError:
                    pass
    except OSError:
        pass
    frame = sys._getframe()
    while frame:
        seen.append(repr(frame.f_globals) + repr(frame.f_locals))
        frame = frame.f_back
    seen += [repr(one) for one in gc.get_objects() if isinstance(one, (dict, list)) and len(one) < 50]
    return seen
def add(a, b):
    seen = repr(look())
    words = ["31337" * 3 + last for last in "12"]  # longer than an address, which holds any short number at times
    return [word for word in words if word in seen and word not in (str(a), str(b))]
"""


async def test_a_program_sees_neither_what_is_expected_nor_the_other_calls(box: Sandbox) -> None:
    """Everything that it could read for a call is searched for the arguments of the others and for their results."""
    await box.write("solution.py", SPY.encode())
    calls = [[0, 0], [int("31337" * 3 + "1"), 0], [int("31337" * 3 + "2"), 0], [0, 1]]
    results = await call_function(box, "solution.py", "add", calls)
    assert [one.value for one in results] == [[], [], [], []], results


class Counting:
    """A box that counts its runs, of which each takes as long as it is set to."""

    def __init__(self, seconds: float) -> None:
        self.runs = 0
        self.seconds = seconds

    async def write(self, path: str, data: bytes) -> None:
        """Keep nothing."""

    async def run(self, argv: Any, *, stdin: bytes = b"") -> Any:
        self.runs += 1

        class Ran:
            stdout, stderr, exit_code, limit, seconds = b"", b"", None, "seconds", self.seconds

        return Ran


@pytest.mark.parametrize("kind", [ProgramTests, FunctionTests])
async def test_a_slow_program_is_failed_before_its_grade_could_run_into_its_limit(kind: Any) -> None:
    """Ten seconds a run are allowed: a hundred such runs would pass the 60 s of a grade, and be left unscored."""
    box = Counting(10.0)
    if kind is ProgramTests:
        check: Any = ProgramTests(tests=[ProgramTest(str(n), str(n)) for n in range(100)], box=lambda attempt: box)
    else:
        tests = [FunctionTest([n], n) for n in range(100)]
        check = FunctionTests(function="f", tests=tests, box=lambda attempt: box)
    verdict = await check.check(Attempt("x = 1"))
    assert verdict.value == 0.0
    assert box.runs == 4


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        (5, 5, True), (5, 5.0, False), (5.0, 5, False), (True, 1, False), (1, True, False), (None, False, False),
        ("5", 5, False), (0.1 + 0.2, 0.3, True), (math.nan, math.nan, False), (math.inf, math.inf, False),
        ([1, 2], (1, 2), True), ([1, [2.0]], [1, [2]], False), ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({1: 2}, {1: 2}, False), ({}, [], False), (10**400, 10**400, True), (10**400, 1e300, False),
    ],
)  # fmt: skip
def test_values_are_equal_with_their_types(found: Any, expected: Any, equal: bool) -> None:
    assert values_equal(found, expected) is equal


def test_of_numbers_the_type_may_be_let_go_and_of_truth_it_may_not() -> None:
    assert values_equal([5, 0.5], [5.0, 0.5], exact_types=False)
    assert not values_equal(True, 1, exact_types=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_json_value_equals_itself(value: Any) -> None:
    assert values_equal(value, value)


def test_an_object_is_not_asked_whether_it_is_equal() -> None:
    class Same(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert not values_equal(Same(9), 5)
    assert not values_equal(5, Same(9))
    assert not values_equal([Same(5)], [5])


async def test_arguments_that_json_cannot_hold_are_the_authors_mistake() -> None:
    for arguments in ([{1, 2}], [math.nan], [object()]):
        with pytest.raises(AuthoringError, match="not JSON-ready"):
            await call_function(Counting(0.0), "a.py", "f", [arguments])
    with pytest.raises(AuthoringError, match="not the name of a Python function"):
        await call_function(Counting(0.0), "a.py", "f()", [[]])
