"""Checks in real sandboxes: the policy's code runs there, and what it left there is looked at."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ludus.sandbox import Limits, SandboxSettings
from ludus.server import Environment, Task, tool
from ludus.server.rewards import (
    DatabaseState,
    FileTree,
    FromEnvironment,
    FunctionTest,
    FunctionTests,
    ProgramTest,
    ProgramTests,
    Weighted,
)

Host = Callable[[type[Environment[Any]]], Awaitable[Any]]
SECRET = 987654321
SMALL = Limits(seconds=5, disk=16 * 1024**2, file_size=15 * 1024**2)


class Coding(Environment[Task]):
    """Write code in a box."""

    splits: ClassVar[Any] = {"train": [Task(id="1")]}

    def prompt(self) -> str:
        return "Write a program that doubles."

    @tool
    async def shell(self, command: str) -> str:
        """Run a command."""
        return (await self.sandbox.run(["sh", "-c", command])).text


@pytest.fixture(params=["unsafe-local", "bubblewrap"])
def settings(request: pytest.FixtureRequest) -> SandboxSettings:
    if request.param == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    return SandboxSettings(provider=request.param, limits=Limits(seconds=5), warm=0)


@pytest.mark.suite("breadth", first=1)
async def test_code_is_tested_in_the_environments_verifier(playing: Host, settings: SandboxSettings) -> None:
    class Tested(Coding):
        sandbox_settings = settings
        verifier_sandbox = "separate"
        rubric = Weighted(
            [
                ProgramTests(tests=[ProgramTest("2", "4"), ProgramTest("5", "10", hidden=True)], name="program"),
                FunctionTests(
                    function="double",
                    tests=[FunctionTest([4], 8), FunctionTest([[1]], [1, 1]), FunctionTest([SECRET], 2 * SECRET, True)],
                    name="function",
                ),
            ]
        )

    host = await playing(Tested)
    answer = "def double(x): return 2 * x\nif __name__ == '__main__': print(double(int(input())))"
    spying = "import glob\ndef double(x):\n    return [open(p).read() for p in glob.glob('*')]"
    for text, program, function in ((answer, 1.0, 1.0), (spying, 0.0, 0.0)):
        (episode,) = await host.start()
        reward = (await host.grade(episode, text)).reward
        assert {name: part.value for name, part in reward.components.items()} == {
            "program": program,
            "function": function,
        }
        assert str(2 * SECRET) not in reward.model_dump_json()


FULL = "head -c 30000000 /dev/zero > a; head -c 30000000 /dev/zero > b; seq 4000 | sed 's/^/n/' | xargs touch"


@pytest.mark.suite("breadth", first=3)
@pytest.mark.parametrize(
    "left", ["mkdir solution.py call_solution.py", 'rm -rf "$PWD"', FULL], ids=["dirs", "gone", "full"]
)
async def test_a_wrong_program_is_worth_0_whatever_the_policy_left_in_the_way_of_its_test(
    playing: Host, settings: SandboxSettings, left: str
) -> None:
    class Shared(Coding):
        sandbox_settings = settings.model_copy(update={"limits": SMALL})
        rubric = Weighted(
            [
                ProgramTests(tests=[ProgramTest("2", "3")], name="program"),
                FunctionTests(function="f", tests=[FunctionTest([2], 3)], name="function"),
            ]
        )

    host = await playing(Shared)
    (episode,) = await host.start()
    await host.step(episode, 1, "shell", command=left)
    reward = (await host.grade(episode, "def f(x): return x - 1\nprint(4)")).reward
    assert reward.value == 0.0


async def test_artifacts_that_do_not_fit_together_are_left_out(playing: Host, settings: SandboxSettings) -> None:
    class Separate(Coding):
        sandbox_settings = settings.model_copy(update={"limits": SMALL})
        verifier_sandbox = "separate"
        artifacts = ("a.bin", "b.bin", "c")
        rubric = FileTree(".", {"a.bin": lambda data: True, "b.bin": None, "c": "hi\n"}, in_box=True)

    host = await playing(Separate)
    (episode,) = await host.start()
    await host.step(episode, 1, "shell", command="truncate -s 14000000 a.bin b.bin; echo hi > c")
    reward = (await host.grade(episode, "")).reward
    assert reward.value == 1.0


TELLS = """
import __main__, json, os, sys
SEEN = "seen"
def double(*numbers):
    with open(SEEN, "a") as file:
        print(numbers, getattr(__main__, "asked", ""), file=file)
    told = open(SEEN).read()
    for handle in range(3, 20):
        try:
            os.write(handle, json.dumps({"call": 0, "error": told}).encode() + b"\\n")
        except OSError:
            pass
    raise ValueError(told)
if __name__ == "__main__":
    double(input())
"""


async def test_a_program_cannot_tell_of_hidden_tests_through_those_that_are_not(
    playing: Host, settings: SandboxSettings
) -> None:
    class Tested(Coding):
        sandbox_settings = settings
        verifier_sandbox = "separate"
        rubric = Weighted(
            [
                ProgramTests(tests=[ProgramTest(str(SECRET), "1", hidden=True), ProgramTest("2", "4")], name="program"),
                FunctionTests(function="double", tests=[FunctionTest([SECRET], 1, hidden=True), FunctionTest([2], 4)]),
            ]
        )  # fmt: skip

    host = await playing(Tested)
    (episode,) = await host.start()
    reward = (await host.grade(episode, TELLS)).reward
    assert reward.value == 0.0
    told = reward.model_dump_json()
    assert "ValueError" in told
    assert "1 hidden test failed" in told
    assert str(SECRET) not in told


async def test_what_is_left_in_the_box_is_compared(playing: Host, settings: SandboxSettings, tmp_path: Path) -> None:
    for name, rows in (("start", 1), ("goal", 2)):
        connection = sqlite3.connect(tmp_path / name)
        with connection:
            connection.execute("CREATE TABLE t (n)")
            connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(rows)])
        connection.close()

    class Left(Coding):
        sandbox_settings = settings
        start, goal = tmp_path / "start", tmp_path / "goal"
        rubric = Weighted(
            [
                DatabaseState("shop.db", FromEnvironment("goal"), FromEnvironment("start"), in_box=True, name="db"),
                FileTree(".", {"notes/a": "hi\n", "gone": None, "linked": "root"}, in_box=True, name="files"),
            ]
        )

        async def setup(self) -> None:
            await self.sandbox.write("shop.db", self.start.read_bytes())
            await self.sandbox.write("gone", b"x")

    async def play(command: str) -> tuple[float, float]:
        (episode,) = await host.start()
        await host.step(episode, 1, "shell", command=command)
        components = (await host.grade(episode, "")).reward.components
        return components["db"].value, components["files"].value

    host = await playing(Left)
    insert = "import sqlite3; c = sqlite3.connect('shop.db'); c.execute('INSERT INTO t VALUES (1)'); c.commit()"
    database, files = await play(f'python3 -c "{insert}"; mkdir notes; echo hi > notes/a; rm gone')
    assert (database, files) == (1.0, 2 / 3)
    assert await play("rm gone; ln -s nowhere gone; ln -s /etc/hostname linked") == (0.0, 0.0)
    assert await play("rm shop.db; ln -s /etc/passwd shop.db") == (0.0, 0.0)


async def test_an_environment_without_a_box_leaves_its_code_unscored(playing: Host) -> None:
    class Boxless(Coding):
        rubric = ProgramTests(tests=[ProgramTest("2", "4")])

    host = await playing(Boxless)
    (episode,) = await host.start()
    reward = (await host.grade(episode, "print(4)")).reward
    assert reward.value is None
    assert "the check raised RuntimeError" in reward.reason
