"""Databases and directories that an adversary left: what cannot be read is worth 0, and takes little to find out."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ludus.sandbox import Limits, SandboxSettings
from ludus.server import Environment, Task, tool
from ludus.server.rewards import Attempt, DatabaseState, FileTree, FromEnvironment, Rubric, Weighted

Host = Callable[[type[Environment[Any]]], Awaitable[Any]]


def made(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def scored(check: Any) -> float | None:
    return asyncio.run(Rubric([check]).score(Attempt())).value


# ── databases ──────────────────────────────────────────────────────────────────────────────────────────────────────

FORGE = "PRAGMA writable_schema = ON"
COUNTING = "WITH RECURSIVE r (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"


def bad_column(path: Path) -> None:
    made(path, "CREATE TABLE u (zzzz)")
    path.write_bytes(path.read_bytes().replace(b"(zzzz)", b"(\xff\xfezz)"))


def bad_name(path: Path) -> None:
    made(path, "CREATE TABLE u (a)", FORGE, "UPDATE sqlite_master SET name = x'ff00'")


def many_columns(path: Path) -> None:
    made(
        path,
        f"CREATE TABLE u ({', '.join(f'c{n}' for n in range(1500))})",
        f"INSERT INTO u (c0) {COUNTING} LIMIT 5000",
    )


@pytest.mark.parametrize("leave", [bad_column, bad_name, many_columns])
def test_a_database_that_was_forged_is_worth_0_and_takes_little_memory(
    tmp_path: Path, leave: Callable[[Path], None]
) -> None:
    goal = made(tmp_path / "goal.db", "CREATE TABLE t (a)")
    leave(tmp_path / "left.db")
    tracemalloc.start()
    assert scored(DatabaseState(tmp_path / "left.db", goal, max_bytes=20_000_000)) == 0.0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60_000_000
    subprocess.run([sys.executable, "-c", IN_A_SMALL_HEAP, tmp_path / "left.db", goal], check=True, timeout=60)


IN_A_SMALL_HEAP = """
import asyncio, sqlite3, sys
from ludus.server.rewards import Attempt, DatabaseState, Rubric
sqlite3.connect(":memory:").execute("PRAGMA hard_heap_limit = 16000000")  # for all of SQLite in this process, for good
check = DatabaseState(sys.argv[1], sys.argv[2], max_bytes=20_000_000)
assert asyncio.run(Rubric([check]).score(Attempt())).value == 0.0
"""
"""If SQLite wanted more, the check would raise a MemoryError, which leaves the reward without a value."""


def test_generated_columns_are_not_computed(tmp_path: Path) -> None:
    goal = made(tmp_path / "goal.db", "CREATE TABLE u (a)", "INSERT INTO u VALUES (1)")
    computed = "ALTER TABLE u ADD COLUMN z GENERATED ALWAYS AS (abs(-9223372036854775807 - a)) VIRTUAL"
    left = made(tmp_path / "left.db", "CREATE TABLE u (a)", "INSERT INTO u VALUES (1)", computed)
    with closing(sqlite3.connect(left)) as connection, pytest.raises(sqlite3.Error, match="integer overflow"):
        connection.execute("SELECT * FROM u").fetchall()
    assert scored(DatabaseState(left, goal)) == 1.0
    assert scored(DatabaseState(goal, left)) == 1.0


@pytest.mark.parametrize(
    ("wanted", "left", "same"),
    [
        ("'x'", "x'78'", False),
        ("1", "'1'", False),
        ("NULL", "'NULL'", False),
        ("NULL", "0", False),
        ("1", "1.0", True),
        ("1.5", "1.5", True),
        ("9007199254740993", "9007199254740992.0", False),
        ("x'00ff'", "x'00ff'", True),
        ("CAST(x'ff' AS TEXT)", "CAST(x'fe' AS TEXT)", False),
    ],
)
def test_values_are_compared_as_sql_compares_them(tmp_path: Path, wanted: str, left: str, same: bool) -> None:
    for name, value in (("goal", wanted), ("left", left)):
        made(tmp_path / name, "CREATE TABLE t (a)", f"INSERT INTO t VALUES ({value})")
    assert scored(DatabaseState(tmp_path / "left", tmp_path / "goal")) == float(same)


def test_evidence_of_any_row_is_short_text(tmp_path: Path) -> None:
    start = made(tmp_path / "start", "CREATE TABLE t (a, b, c)")
    row = "INSERT INTO t VALUES (zeroblob(90000), CAST(x'ff0a' AS TEXT), hex(zeroblob(90000)))"
    left = made(tmp_path / "left", "CREATE TABLE t (a, b, c)", row)
    verdict: Any = DatabaseState(left, start, start).check(Attempt())
    assert "insert in t: a=x'0000" in verdict.evidence
    assert "b='\\udcff\\n', c='000" in verdict.evidence
    assert verdict.evidence.isascii() or "…" in verdict.evidence
    assert len(verdict.evidence.encode()) < 600


# ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def below(root: Path, *names: str) -> Iterator[None]:
    """Make directories, each in the one before, and work in the last: their path may be longer than paths may be."""
    home = os.getcwd()
    os.chdir(root)
    for name in names:
        os.mkdir(name)
        os.chdir(name)
    yield
    os.chdir(home)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.txt").write_text("wrong")
    yield root
    subprocess.run(["rm", "-rf", str(root)], check=True)  # shutil's own goes no deeper than its stack


@pytest.mark.parametrize("names", [["d"] * 1100, ["x" * 250] * 16], ids=["deep", "long"])
def test_a_tree_too_deep_to_read_is_worth_0(tree: Path, names: list[str]) -> None:
    with below(tree, *names):
        Path("y" * 200).touch()
    assert scored(FileTree(tree, {"a.txt": "right"})) == 0.0


def test_directories_may_be_nested(tree: Path) -> None:
    with below(tree, *["d"] * 99):
        Path("f").write_text("hi")
    assert scored(FileTree(tree, {"d/" * 99 + "f": "hi", "a.txt": "wrong"}, exact=True)) == 1.0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_cannot_be_hidden_in_a_directory_that_cannot_be_read(tree: Path) -> None:
    (tree / "d").mkdir()
    (tree / "d" / "extra").touch()
    (tree / "d").chmod(0)
    try:
        assert scored(FileTree(tree, {"a.txt": "wrong"}, exact=True)) == 0.0
    finally:
        (tree / "d").chmod(0o700)


def test_a_server_out_of_descriptors_is_not_the_policys_failure(tree: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    check = FileTree(tree, {"a.txt": "right"})
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            check.check(Attempt())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ── in a box ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Left(Environment[Task]):
    """Leave something in a box."""

    splits: ClassVar[Any] = {"train": [Task(id="1")]}

    def prompt(self) -> str:
        return "Leave something."

    @tool
    async def python(self, code: str) -> str:
        """Run Python."""
        return (await self.sandbox.run(["python3", "-c", code])).text


@pytest.fixture(params=["unsafe-local", "bubblewrap"])
def settings(request: pytest.FixtureRequest) -> SandboxSettings:
    if request.param == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    return SandboxSettings(provider=request.param, limits=Limits(seconds=10, disk=32 * 1024**2), warm=0)


DEEP = "import os\nfor name in {names!r}:\n os.mkdir(name); os.chdir(name)\nopen('y' * 200, 'w')"


@pytest.mark.suite("breadth", first=3)
@pytest.mark.parametrize(
    "code",
    [
        DEEP.format(names=["d"] * 1100),
        DEEP.format(names=["x" * 250] * 16),
        "for n in range(20): open(f'f{n}', 'w').truncate(30_000_000)",
        "import os; os.mkdir('d'); open('d/f', 'w').close(); os.chmod('d', 0)",
        "import os; open('gone', 'w').close(); os.chmod('.', 0)",
    ],
    ids=["deep", "long", "sparse", "closed", "all_closed"],
)
async def test_a_tree_that_cannot_be_fetched_from_its_box_is_worth_0(
    playing: Host, settings: SandboxSettings, code: str
) -> None:
    if "chmod" in code and settings.provider == "unsafe-local" and os.geteuid() == 0:
        pytest.skip("root may read everything")

    class Files(Left):
        sandbox_settings = settings
        rubric = FileTree(".", {"gone": None}, in_box=True)

    host = await playing(Files)
    (episode,) = await host.start()
    await host.step(episode, 1, "python", code=code)
    reward = (await host.grade(episode, "")).reward
    assert reward.value == 0.0


async def test_a_directory_that_is_not_there_has_no_files(playing: Host, settings: SandboxSettings) -> None:
    class Files(Left):
        sandbox_settings = settings
        rubric = Weighted(
            [
                FileTree("a/b", {"gone": None}, in_box=True, name="below"),
                FileTree("file", {"gone": None}, in_box=True, name="file"),
            ]
        )

    host = await playing(Files)
    (episode,) = await host.start()
    await host.step(episode, 1, "python", code="import os; os.mkdir('a'); open('file', 'w')")
    reward = (await host.grade(episode, "")).reward
    assert reward.value == 1.0


KILLED = """
import os, signal, sqlite3
connection = sqlite3.connect("shop.db", isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("UPDATE t SET n = n || 'x'")
os.kill(os.getpid(), signal.SIGKILL)
"""


async def shop(playing: Host, settings: SandboxSettings, tmp_path: Path, *codes: str) -> Any:
    rows = f"INSERT INTO t SELECT hex(zeroblob(n)) FROM ({COUNTING} LIMIT 500)"
    made(tmp_path / "start", "CREATE TABLE t (n)", rows)

    class Shop(Left):
        sandbox_settings = settings
        start = tmp_path / "start"
        rubric = Weighted([DatabaseState("shop.db", FromEnvironment("start"), in_box=True)])

        async def setup(self) -> None:
            await self.sandbox.write("shop.db", self.start.read_bytes())

    host = await playing(Shop)
    (episode,) = await host.start()
    said = [await host.step(episode, number, "python", code=code) for number, code in enumerate(codes, 1)]
    assert said[-1].content[0].text == "done\n"
    return (await host.grade(episode, "")).reward


async def test_what_a_killed_program_did_not_commit_is_no_state(
    playing: Host, settings: SandboxSettings, tmp_path: Path
) -> None:
    look = """
import sqlite3
unsafe = sqlite3.connect("file:shop.db?immutable=1", uri=True)  # reads the file without its journal
assert any("x" in n for (n,) in unsafe.execute("SELECT n FROM t"))
print("done")
"""
    reward = await shop(playing, settings, tmp_path, KILLED, look)
    assert reward.value == 1.0


async def test_a_journal_that_names_another_file_is_not_followed(
    playing: Host, settings: SandboxSettings, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    name = str(victim).encode()
    forge = f"""
import struct
name = {name!r}
with open("shop.db-journal", "ab") as journal:
    end = struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    journal.write(struct.pack(">I", 0xffffffff) + name + end)
print("done")
"""
    reward = await shop(playing, settings, tmp_path, KILLED, forge)
    assert reward.value == 0.0
    assert victim.exists()
