"""`ludus replay`: a journal that a real server wrote, read and executed again by a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from durable_server import SAVED, WORLD, Process

from ludus.client import connect, text_of
from ludus.server.durability import sqlite_journal
from ludus.server.durability.journal import JournalUnusable, Reported
from ludus.server.durability.sqlite_journal import SqliteJournal
from ludus.server.recovery.recorded import read_stored

LEDGER = f"{WORLD[0]}:Ledger"
CHANGED = """
import durable_world
from ludus.server import Result, tool

class Ledger(durable_world.Ledger):
    version = "{version}"

    def prompt(self):
        return {prompt}

    @tool
    def add(self, number: int) -> Result:
        \"\"\"Add a number, and draw one.\"\"\"
        self.sum += number + {more}
        return Result(f"{{self.sum}} {{self.rng.randrange(10**9)}}", reward=float(number) + {reward})
"""


def run_replay(folder: Path, *arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    command = [sys.executable, "-m", "ludus.cli", "replay", *map(str, arguments)]
    variables = {**os.environ, "COLUMNS": "200", "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{WORLD[0].parent}"}
    return subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=110, check=False, cwd=folder, env=variables
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What it printed, on one line and without frames."""
    assert "Traceback" not in done.stderr, done.stderr
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


def changed(folder: Path, *, version: str = "1.0.0", prompt: str = "self.task.question", more: str = "0",
            reward: str = "0") -> str:  # fmt: skip
    """Write another `Ledger`, and return how to name it."""
    (folder / "other.py").write_text(CHANGED.format(version=version, prompt=prompt, more=more, reward=reward))
    return "other.py:Ledger"


async def play(served: Process, count: int = 1, *, answer: str | None = "6", **start: Any) -> list[str]:
    """Play episodes of the ledger with three steps, and return their ids."""
    names = []
    async with connect(served.url) as client:
        ledger = client.environment("ledger")
        for index in range(count):
            episode = await ledger.start(index=index % 5, seed=index, **start)
            for number in (1, 2, 3):
                await episode.call("add", number=number)
            if answer is not None:
                await episode.grade(answer)
            names.append(episode.id)
    return names


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The journal of a killed server with one graded episode, and the episode's id. No test changes it."""

    async def record() -> tuple[Path, str]:
        served = Process(tmp_path_factory.mktemp("recorded"))
        try:
            await served.start()
            (name,) = await play(served)
        finally:
            await served.end(signal.SIGKILL)
        return Path(served.journal), name

    return asyncio.run(record())


async def test_an_episode_that_is_the_same_ends_with_0(recorded: tuple[Path, str], tmp_path: Path) -> None:
    journal, name = recorded
    before = {path.name: path.read_bytes() for path in journal.parent.glob("journal.db*")}
    done = run_replay(tmp_path, journal, name, "--env", LEDGER)
    assert done.returncode == 0, said(done)
    assert "✓ the same as recorded, 4 calls" in said(done)
    assert 'step 2 add({"number": 2}) 3 ' in said(done)
    assert 'the final message {"answer": "6"}' in said(done)
    assert {path.name: path.read_bytes() for path in journal.parent.glob("journal.db*")} == before, "it was changed"


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"more": "(number == 2)"}, "step 2 add({\"number\": 2}) ✗ another observation - recorded 3 "),
        ({"reward": "(number == 3) / 2"}, "✗ another reward - recorded 3 + now 3.5"),
        ({"prompt": "'another question'"}, "✗ another prompt - recorded user: number 0 + now user: another question"),
        ({"more": "1 / (number - 3)"}, "✗ another outcome"),
    ],
    ids=["observation", "reward", "prompt", "failure"],
)  # fmt: skip
async def test_an_episode_that_departs_ends_with_1_and_shows_both_values(
    recorded: tuple[Path, str], tmp_path: Path, change: dict[str, str], told: str
) -> None:
    journal, name = recorded
    done = run_replay(tmp_path, journal, name, "--env", changed(tmp_path, **change))
    assert done.returncode == 1, done.stderr
    assert told in " ".join((done.stdout + done.stderr).split())
    assert "✗ departs at " in done.stdout


@pytest.mark.suite("histories")
async def test_all_later_steps_run_after_a_departure(recorded: tuple[Path, str], tmp_path: Path) -> None:
    journal, name = recorded
    done = run_replay(tmp_path, journal, name, "--env", changed(tmp_path, more="(number == 2)"), "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["same"], found["departed_at"]) == (False, "step 2")
    assert [[one["what"] for one in call["departures"]] for call in found["calls"]] == [
        [], ["observation"], ["observation"], ["reward"],
    ]  # fmt: skip
    assert found["calls"][3]["departures"][0]["now"]["value"] == 0.0


async def test_what_the_environment_prints_is_no_part_of_the_json(recorded: tuple[Path, str], tmp_path: Path) -> None:
    journal, name = recorded
    env = changed(tmp_path, prompt="print('noise') or self.task.question")
    done = run_replay(tmp_path, journal, name, "--env", env, "--json")
    assert json.loads(done.stdout)["same"]
    assert "noise" in done.stderr


async def test_another_version_of_the_environment_is_said_and_executed(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    journal, name = recorded
    done = run_replay(tmp_path, journal, name, "--env", changed(tmp_path, version="2.0.0"))
    assert done.returncode == 0
    assert "note: recorded with version 1.0.0, executed with version 2.0.0" in said(done)


@pytest.mark.suite("histories")
async def test_no_run_shows_what_was_recorded_without_the_environment(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    journal, name = recorded
    done = run_replay(tmp_path, journal, name, "--no-run", "--step", 2)
    assert done.returncode == 0
    assert 'step 2 add({"number": 2})' in said(done)
    assert "step 3" not in said(done)
    found = json.loads(run_replay(tmp_path, journal, name, "--no-run", "--json").stdout)
    assert [call["recorded"]["reward"]["value"] for call in found["calls"]] == [1.0, 2.0, 3.0, 1.0]


@pytest.mark.suite("histories")
async def test_step_stops_before_the_departure(recorded: tuple[Path, str], tmp_path: Path) -> None:
    journal, name = recorded
    env = changed(tmp_path, more="(number == 3)")
    assert run_replay(tmp_path, journal, name, "--env", env, "--step", 2).returncode == 0
    assert run_replay(tmp_path, journal, name, "--env", env, "--step", 3).returncode == 1


@pytest.mark.suite("histories")
async def test_a_journal_in_use_is_read_and_the_server_goes_on(served: Process, tmp_path: Path) -> None:
    names = await play(served, 8, answer=None)
    async with connect(served.url) as client:
        playing = await client.environment("ledger").start(index=1, seed=5)
        done = await asyncio.to_thread(run_replay, tmp_path, served.journal, "--json")
        found = json.loads(done.stdout)
        assert {one["episode"] for one in found} == {*names, playing.id}
        assert [one["end"] for one in found] == ["running", *["closed"] * 8]
        assert text_of((await playing.call("add", number=4)).content).startswith("4 ")
    again = await asyncio.to_thread(run_replay, tmp_path, served.journal, names[3], "--env", LEDGER)
    assert again.returncode == 0, said(again)


@pytest.mark.suite("histories")
async def test_journals_are_listed_and_filtered(served: Process, tmp_path: Path) -> None:
    def listed(*options: str) -> list[Any]:
        return list(json.loads(run_replay(tmp_path, served.journal, "--json", *options).stdout))

    def names_of(*options: str) -> list[str]:
        return [one["episode"] for one in listed(*options)]

    def check() -> None:
        found = listed()
        assert [one["environment"] for one in found] == ["drifting", *["ledger"] * 4], "the latest is the first"
        assert [(one["steps"], one["reward"]) for one in found[1:]] == [(0, 0.0), *[(3, 7.0)] * 3]
        assert all(one["bytes"] > 300 and one["started"] <= one["last"] for one in found)
        assert names_of("--environment", "led*", "--end", "submitted") == names[::-1]
        assert names_of("--end", "running", "--environment", "ledger") == [running]
        assert names_of("--task", "t2") == [names[2]]
        assert "2 of 5 episodes" in said(run_replay(tmp_path, served.journal, "--limit", "2"))
        assert "none of the 5 episodes of the journal" in said(run_replay(tmp_path, served.journal, "--task", "x"))

    names = await play(served, 3)
    async with connect(served.url) as client:
        running = (await client.environment("ledger").start(index=3)).id
        await (await client.environment("drifting").start(index=0)).call("who")
        await asyncio.to_thread(check)


async def test_a_copy_is_whole_while_a_server_writes_and_overwrites_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sqlite_journal.CHECKPOINT_BYTES, "normal", 2_000_000)
    path = tmp_path / "j.db"
    reading = asyncio.create_task(asyncio.to_thread(_read_often, path))
    journal = SqliteJournal(path)
    headers = set()
    number = 0
    while not reading.done():
        for _ in range(20):
            journal.append(Reported("e", "s", "o", str(number := number + 1), b"d" * 2000, ()))
        headers.add((tmp_path / "j.db-wal").read_bytes()[:32])
        await asyncio.sleep(0)
    journal.close()
    counts = await reading
    assert counts == sorted(counts), "nothing that was written is lost in a later copy"
    assert counts[-1] > counts[0]
    assert len(headers) > 1, "the log was never overwritten, so this proved nothing"


def _read_often(path: Path) -> list[int]:
    """Copy and read a journal until it has many entries; each copy must have the first ones without a gap."""
    counts: list[int] = []
    while not counts or counts[-1] < 2_000:
        try:
            keys = [int(one.key) for stored in read_stored(path) if isinstance(one := stored.entry, Reported)]
        except JournalUnusable as error:
            if "there is no journal" in error.message or "its version is 0" in error.message:
                continue
            raise
        assert keys == list(range(1, len(keys) + 1))
        counts.append(len(keys))
    return counts


@pytest.mark.suite("histories")
async def test_an_episode_is_found_by_how_its_id_begins(served: Process, tmp_path: Path) -> None:
    names = await play(served, 12)
    await served.end(signal.SIGKILL)
    unique = names[0][:12]
    assert run_replay(tmp_path, served.journal, unique, "--no-run").returncode == 0
    begins = unique.removeprefix("e_")  # with "-", as one id in 64
    assert run_replay(tmp_path, served.journal, "--no-run", "--", begins).returncode == 0
    done = run_replay(tmp_path, served.journal, "e_", "--no-run")
    assert done.returncode == 2
    assert "12 episodes begin with 'e_'" in said(done)


def of_another_version(path: Path) -> None:
    SqliteJournal(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA user_version=99")


def with_a_broken_row(path: Path) -> None:
    SqliteJournal(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("INSERT INTO batches VALUES (7, 0.0, x'00')")


def no_database(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def missing(path: Path) -> None:
    pass


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (of_another_version, "its version is 99, this one reads 1"),
        (with_a_broken_row, "row 7 of the journal"),
        (no_database, "file is not a database"),
        (empty, "is no journal of this version"),
        (missing, "there is no journal"),
    ],
)
def test_a_file_that_is_no_journal_is_bad_input(tmp_path: Path, make: Callable[[Path], None], told: str) -> None:
    make(tmp_path / "j.db")
    done = run_replay(tmp_path, "j.db")
    assert done.returncode == 2
    assert told in said(done)


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["e_unknown"], "the journal has no episode 'e_unknown'"),
        (["--", "-x"], "the journal has no episode '-x'"),
        (["{name}"], "no environment 'ledger' is installed"),
        (["{name}", "--env", "nothing.py:Ledger"], "there is no file nothing.py"),
        (["--interactive"], "need an EPISODE"),
        (["{name}", "--interactive", "--json"], "cannot be combined"),
    ],
    ids=["episode", "episode like an option", "environment", "file", "no episode", "json"],
)
async def test_bad_input_is_a_sentence_and_exit_code_2(
    recorded: tuple[Path, str], tmp_path: Path, arguments: list[str], told: str
) -> None:
    journal, name = recorded
    done = run_replay(tmp_path, journal, *(one.format(name=name) for one in arguments))
    assert done.returncode == 2, said(done)
    assert told in said(done)


@pytest.mark.suite("histories")
async def test_an_episode_with_secrets_is_not_executed(served: Process, tmp_path: Path) -> None:
    (name,) = await play(served, secrets={"KEY": "hunter2-hunter2"})
    await served.end(signal.SIGKILL)
    done = run_replay(tmp_path, served.journal, name, "--env", LEDGER)
    assert done.returncode == 2
    assert "its start gave secrets, which no journal holds" in said(done)


@pytest.mark.suite("histories")
async def test_an_environment_that_acts_on_the_outside_is_not_executed(tmp_path: Path) -> None:
    served = Process(tmp_path, world=SAVED)
    try:
        await served.start()
        async with connect(served.url) as client:
            name = (await client.environment("mailer").start(index=0)).id
    finally:
        await served.end(signal.SIGKILL)
    done = run_replay(tmp_path, served.journal, name, "--env", f"{SAVED[0]}:Mailer")
    assert done.returncode == 2
    assert "its calls must not run again" in said(done)


async def test_time_travel_through_a_pipe(recorded: tuple[Path, str], tmp_path: Path) -> None:
    journal, name = recorded
    commands = [
        "n 2", "print", "back", "print sum", 'try add {"number": 40}', "print sum", 'try add {"number": 1}', "back",
        "print sum", "goto 3", "print sum", "goto end", "print", "list", "goto 0", "print sum",
    ]  # fmt: skip
    done = run_replay(tmp_path, journal, name, "--env", LEDGER, "--interactive", given="\n".join(commands) + "\n")
    assert done.returncode == 0, said(done)
    answers = [part.splitlines() for part in done.stdout.split("\n(")[1:]]
    shown = {line: answers[place][-1].strip() for place, line in enumerate(commands) if line.startswith("print sum")}
    assert shown, done.stdout
    sums = [answers[place][-1].strip() for place, line in enumerate(commands) if line == "print sum"]
    assert sums == ["1", "41", "1", "6", "0"]
    assert "sum = 3" in done.stdout
    assert "(1+2 of 4)" in done.stdout, "two calls on a branch"
    assert "the episode has ended (submitted)" in done.stdout
    recorded_again = json.loads(run_replay(tmp_path, journal, name, "--no-run", "--json").stdout)
    assert recorded_again["steps"] == 3, "no try reached the journal"


@pytest.mark.suite("histories")
async def test_time_travel_says_where_it_departs_and_ends_with_1(recorded: tuple[Path, str], tmp_path: Path) -> None:
    journal, name = recorded
    env = changed(tmp_path, more="(number == 2)")
    done = run_replay(tmp_path, journal, name, "--env", env, "-i", "--step", 1, given="next\nnext\nq\n")
    assert done.returncode == 1
    assert done.stdout.count("✗ another observation") == 2
    assert run_replay(tmp_path, journal, name, "--env", env, "-i", given="next\nq\n").returncode == 0


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("jump 3", "there is no command 'jump'"),
        ("goto 9", "there is no call 9; the episode was recorded with 4"),
        ("goto x", "'x' is not a number of calls"),
        ("back", "this is the start"),
        ("try", "name a tool and its arguments: try add {}"),
        ("try add {", "the arguments are no JSON"),
        ("try add 5", "the arguments must be a JSON object, not 5"),
        ("try fly {}", "There is no tool 'fly'. Tools: add."),
        ("print nothing", "the instance has no attribute 'nothing'; it has: sum"),
        ("help", "goto N"),
    ],
)
async def test_mistakes_at_the_prompt_are_sentences(
    recorded: tuple[Path, str], tmp_path: Path, line: str, told: str
) -> None:
    journal, name = recorded
    done = run_replay(tmp_path, journal, name, "--env", LEDGER, "-i", given=line + "\nprint sum\n")
    assert done.returncode == 0, said(done)
    assert told in said(done)
    assert done.stdout.rstrip().splitlines()[-2].endswith("0"), "the next command works"
