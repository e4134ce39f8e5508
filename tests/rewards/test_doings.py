"""Checks of what the policy did: its calls, its code, the database and the files it left."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards import (
    Attempt,
    CallOrder,
    DatabaseState,
    Efficiency,
    FileTree,
    FunctionTest,
    FunctionTests,
    NoErrors,
    ProgramTest,
    ProgramTests,
    Rubric,
    TakenStep,
    ToolCalled,
    ToolNotCalled,
)

# ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────────────

WAY = (
    TakenStep(1, "search", {"query": "ada", "limit": 5}),
    TakenStep(2, "delete", {"id": 3}, error="refused"),
    TakenStep(3, "read", {"id": 3}),
    TakenStep(4, "search", {"query": "byron"}),
)


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (ToolCalled("search"), 1),
        (ToolCalled("search", at_least=3), 0),
        (ToolCalled("search", at_most=1), 0),
        (ToolCalled("search", {"query": "ada"}, at_most=1), 1),
        (ToolCalled("search", {"limit": lambda n: n <= 5}), 1),
        (ToolCalled("search", {"limit": 5.0}), 1),
        (ToolCalled("search", {"limit": True}), 0),
        (ToolCalled("search", {"sort": "up"}), 0),
        (ToolCalled("delete"), 0),
        (ToolNotCalled("delete"), 0),
        (ToolNotCalled("write"), 1),
        (CallOrder(["search", "read"]), 1),
        (CallOrder(["read", "read"]), 0.5),
        (CallOrder(["read", ("search", {"query": "byron"})]), 1),
        (CallOrder([("search", {"query": "byron"}), "read"]), 0.5),
        (NoErrors(), 0.75),
        (Efficiency(best=4, worst=8), 1),
        (Efficiency(best=2, worst=6), 0.5),
        (Efficiency(best=1, worst=4), 0),
    ],
)
def test_the_way_is_judged_by_its_calls(check: Any, expected: float) -> None:
    assert check.check(Attempt(steps=WAY)).value == expected


# ── code ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Done:
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    limit: str | None = None
    seconds: float = 0.0


class Folder:
    """A box that is a folder and a process: for code that these tests wrote."""

    def __init__(self, path: Path, seconds: float = 20.0) -> None:
        self.path = path
        self.seconds = seconds
        self.runs = 0

    async def write(self, path: str, data: bytes) -> None:
        (self.path / path).write_bytes(data)

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"") -> Done:
        self.runs += 1
        pipe = asyncio.subprocess.PIPE
        program = sys.executable if argv[0] == "python3" else argv[0]
        process = await asyncio.create_subprocess_exec(
            program, *argv[1:], cwd=self.path, stdin=pipe, stdout=pipe, stderr=pipe
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), self.seconds)
        except TimeoutError:
            process.kill()
            await process.communicate()
            return Done(None, b"", b"", "seconds")
        return Done(process.returncode, out, err)


DOUBLES = [ProgramTest("2\n", "4\n"), ProgramTest("5\n", "10\n", hidden=True, weight=3.0)]


async def run_program(answer: str, tmp_path: Path, **options: Any) -> Any:
    check = ProgramTests(tests=DOUBLES, box=lambda attempt: Folder(tmp_path), **options)
    return await check.check(Attempt(answer=answer))


async def test_a_program_earns_the_weight_of_the_tests_it_passes(tmp_path: Path) -> None:
    assert (await run_program("print(int(input()) * 2)", tmp_path)).value == 1
    fenced = "Here:\n```python\nprint(int(input()) * 2)\n```\n"
    assert (await run_program(fenced, tmp_path)).value == 1
    assert (await run_program("print(4)", tmp_path)).value == 0.25
    assert (await run_program("print(4)", tmp_path, all_or_nothing=True)).value == 0
    assert (await run_program("", tmp_path)).value == 0


async def test_hidden_tests_stay_hidden_in_the_evidence(tmp_path: Path) -> None:
    verdict = await run_program("print(4)", tmp_path)
    assert verdict.evidence == "1/2 tests passed; 1 hidden test failed"
    verdict = await run_program("1/0", tmp_path)
    assert "for '2\\n' it ended with 1: 'ZeroDivisionError: division by zero'" in verdict.evidence
    assert "5" not in verdict.evidence


async def test_a_program_that_reaches_a_limit_fails_its_test_and_a_broken_box_is_unscored(tmp_path: Path) -> None:
    slow = ProgramTests(tests=DOUBLES[:1], box=lambda attempt: Folder(tmp_path, seconds=0.2))
    verdict = await slow.check(Attempt(answer="while True: pass"))
    assert verdict.value == 0
    assert "limit on seconds" in verdict.evidence

    class Broken(Folder):
        async def run(self, argv: Sequence[str], *, stdin: bytes = b"") -> Done:
            raise OSError("the box is gone")

    reward = await Rubric([ProgramTests(tests=DOUBLES, box=lambda attempt: Broken(tmp_path))]).score(Attempt("x"))
    assert reward.value is None


async def test_a_fresh_box_is_opened_for_the_check_and_closed(tmp_path: Path) -> None:
    closed: list[Folder] = []

    @asynccontextmanager
    async def fresh(attempt: Attempt) -> AsyncIterator[Folder]:
        box = Folder(tmp_path)
        yield box
        closed.append(box)

    check = ProgramTests(tests=DOUBLES, fresh_box=fresh)
    assert (await check.check(Attempt(answer="print(int(input()) * 2)"))).value == 1
    assert [box.runs for box in closed] == [2]
    with pytest.raises(AuthoringError, match="and not both"):
        ProgramTests(tests=DOUBLES, fresh_box=fresh, box=lambda attempt: Folder(tmp_path))


@pytest.mark.parametrize("path", ["/tmp/solution.py", "../solution.py", "folder/", ""])
def test_a_program_is_written_below_the_work_directory_of_its_box(path: str) -> None:
    with pytest.raises(AuthoringError, match="no file below the work directory"):
        ProgramTests(tests=DOUBLES, path=path)


ADDS = [FunctionTest([1, 2], 3), FunctionTest([0.1, 0.2], 0.3), FunctionTest([[1], [2]], [1, 2], hidden=True)]


async def call_function(code: str, tmp_path: Path) -> Any:
    check = FunctionTests(function="add", tests=ADDS, box=lambda attempt: Folder(tmp_path))
    return await check.check(Attempt(answer=code))


async def test_a_function_earns_the_share_of_its_right_results(tmp_path: Path) -> None:
    assert (await call_function("def add(a, b): return a + b", tmp_path)).value == 1
    partly = await call_function("def add(a, b): return int(a) + int(b)", tmp_path)
    assert partly.value == pytest.approx(1 / 3)
    assert "add('0.1', '0.2') returned '0' instead of '0.3'" in partly.evidence


@pytest.mark.suite("breadth", first=2)
@pytest.mark.parametrize(
    "code",
    [
        "x = 1",
        "import os; os._exit(0)",
        "raise SystemExit(0)",
        'print(\'{"call": 0, "value": 3}\')',
        "class Same(int):\n def __eq__(self, other): return True\ndef add(a, b): return Same(9)",
        "class Same:\n def __eq__(self, other): return True\ndef add(a, b): return Same()",
        "import json\njson.dumps = lambda *a, **k: '{\"passed\": true}'\ndef add(a, b): return 0",
        "import sys\nsys.modules['json'] = None\ndef add(a, b): return True",
        "def add(a, b): return float('nan')",
        "def add(a, b): return 10**400",
        "import builtins\nbuiltins.all = lambda x: True\ndef add(a, b): return 0",
        "def add(a, b)",
    ],
)
async def test_code_that_tampers_with_its_test_gains_nothing(code: str, tmp_path: Path) -> None:
    assert (await call_function(code, tmp_path)).value == 0


# ── databases ──────────────────────────────────────────────────────────────────────────────────────────────────────


def database(path: Path, *statements: str) -> Path:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (id INTEGER, item TEXT, at TEXT)")
    connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(1, "tea", "mon"), (2, "milk", "tue")])
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


CANCEL = "DELETE FROM orders WHERE id = 1"
ADD = "INSERT INTO orders VALUES (3, 'jam', 'now')"


def compare(tmp_path: Path, *done: str, **options: Any) -> Any:
    start = database(tmp_path / "start.db")
    goal = database(tmp_path / "goal.db", CANCEL, ADD)
    left = database(tmp_path / "left.db", *done)
    given: dict[str, Any] = {"initial": start, **options}
    check = DatabaseState(left, goal, **given)
    return check.check(Attempt())


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ([CANCEL, ADD], 1.0),
        ([ADD, CANCEL], 1.0),
        ([CANCEL], 0.5),
        ([], 0.0),
        ([CANCEL, ADD, "INSERT INTO orders VALUES (9, 'gin', 'now')"], pytest.approx(2 / 3)),
        ([CANCEL, ADD, "CREATE TABLE junk (x)"], pytest.approx(2 / 3)),
        (["DROP TABLE orders"], pytest.approx(1 / 4)),
    ],
)
def test_a_database_earns_the_share_of_the_right_changes_among_all(
    tmp_path: Path, done: list[str], expected: float
) -> None:
    assert compare(tmp_path, *done).value == expected


def test_without_an_initial_state_a_database_is_right_or_wrong(tmp_path: Path) -> None:
    assert compare(tmp_path, CANCEL, ADD, initial=None).value == 1
    wrong = compare(tmp_path, CANCEL, initial=None)
    assert wrong.value == 0
    assert wrong.evidence == "differs by delete in orders"


def test_evidence_shows_what_was_done_and_not_what_is_expected(tmp_path: Path) -> None:
    told = compare(tmp_path, "INSERT INTO orders VALUES (9, 'gin', 'now')").evidence
    assert "not asked for: insert in orders: id=9, item='gin', at='now'" in told
    assert "0 of 2 required changes, 1 others" in told
    assert "jam" not in told


def test_columns_and_tables_may_be_left_out(tmp_path: Path) -> None:
    done = (CANCEL, "INSERT INTO orders VALUES (3, 'jam', 'later')", "CREATE TABLE log (x)")
    assert compare(tmp_path, *done, ignore=["orders.at"], tables=["orders"]).value == 1


def test_a_database_that_cannot_be_read_is_worth_0_and_a_missing_expectation_unscored(tmp_path: Path) -> None:
    goal = database(tmp_path / "goal.db")
    noise, link = tmp_path / "noise.db", tmp_path / "link.db"
    noise.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    link.symlink_to(goal)
    for left in (noise, link, tmp_path / "none.db", tmp_path):
        assert DatabaseState(left, goal).check(Attempt()).value == 0
    many = database(tmp_path / "many.db", *["INSERT INTO orders VALUES (1, 'x', 'y')"] * 20)
    assert DatabaseState(many, goal, max_rows=10).check(Attempt()).value == 0
    reward = asyncio.run(Rubric([DatabaseState(goal, tmp_path / "none.db")]).score(Attempt()))
    assert reward.value is None


# ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "README").write_text("hello\n")
    (root / "src" / "main.py").write_text("print(1)\n")
    (root / "src" / "main.pyc").write_text("noise")
    return root


def test_files_earn_the_share_that_is_right(tree: Path) -> None:
    wanted: dict[str, Any] = {"README": "hello\n", "src/main.py": lambda data: b"print" in data, "old.txt": None}
    assert FileTree(tree, wanted).check(Attempt()).value == 1
    assert FileTree(tree, wanted, exact=True).check(Attempt()).value == 1
    (tree / "old.txt").write_text("")
    (tree / "README").write_text("changed")
    verdict = FileTree(tree, wanted, exact=True).check(Attempt())
    assert verdict.value == pytest.approx(1 / 3)
    assert "'README' is not" in verdict.evidence
    (tree / "more").write_text("")
    assert FileTree(tree, wanted, exact=True).check(Attempt()).value == pytest.approx(1 / 4)


def test_a_directory_may_be_what_is_expected(tree: Path, tmp_path: Path) -> None:
    assert FileTree(tree, tree).check(Attempt()).value == 1
    assert FileTree(tmp_path / "nothing", tree).check(Attempt()).value == 0


def test_links_pipes_and_large_files_are_never_right(tree: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hello\n")
    (tree / "README").unlink()
    (tree / "README").symlink_to(secret)
    os.mkfifo(tree / "pipe")
    (tree / "linked").symlink_to(tmp_path)
    wanted: dict[str, Any] = {"README": "hello\n", "pipe": "", "linked/secret": "hello\n"}
    assert FileTree(tree, wanted).check(Attempt()).value == 0
    assert FileTree(tree, {"src/main.py": "print(1)\n"}, max_bytes=3).check(Attempt()).value == 0
    assert FileTree(tree, {"src/main.py": "print(1)\n"}, max_files=0).check(Attempt()).value == 0
