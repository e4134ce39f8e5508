"""The journal in PostgreSQL: one writer at a time, a database that is away, commits that are uncertain, bad input."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from durable_server import SAVED, Process
from lossy_socket import lossy_socket
from postgres_server import PostgresServer, name_of
from stores import PostgresStore
from waiting import block_until, wait_until
from worker_servers import WorkersServer

from ludus.client import Client, GroupMember, connect, text_of
from ludus.protocol.episodes import StartParams, StepParams
from ludus.protocol.errors import LudusError, ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.methods import START, STEP
from ludus.protocol.workers import worker_of
from ludus.server import Environment, EpisodeHost, Result, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.durability import postgres as postgres_database
from ludus.server.durability import postgres_lease
from ludus.server.durability.database_urls import without_password
from ludus.server.durability.journal import Ended, JournalUnusable, committed
from ludus.server.durability.journals import open_journal
from ludus.server.durability.postgres_journal import PostgresJournal
from ludus.server.durability.postgres_lease import LeaseLost
from ludus.server.recovery.recorded import read_recorded
from ludus.server.serving.app import journal_trouble
from ludus.server.workers.note_stores import open_notes
from ludus.server.workers.notes import Note

PATIENCE = 60.0
OWNER = Principal.open()


def ended(name: str) -> Ended:
    """An entry."""
    return Ended(name, EndReason.COMPLETED)


def names_in(store: PostgresStore) -> list[str]:
    """The episodes of all entries, in the order of the rows."""
    journal = store.open()
    try:
        return [one.entry.episode for one in journal.stored()]
    finally:
        journal.close()


def take_over(store: PostgresStore) -> None:
    """Let another process take the lease, as one does when it has expired."""
    store.sql("UPDATE ludus.leases SET epoch = epoch + 1, holder = 'process 7 on elsewhere'")


@pytest.fixture
def journal(database: PostgresStore) -> Iterator[PostgresJournal]:
    """An open journal."""
    opened = database.open()
    assert isinstance(opened, PostgresJournal)
    yield opened
    opened.close()


class Counter(Environment[Task]):
    """Counts its steps."""

    splits = {"train": [Task(id="a")]}

    def setup(self) -> None:
        """Begin."""
        self.count = 0

    def prompt(self) -> str:
        """Ask."""
        return "Count."

    @tool
    async def count_up(self) -> Result:
        """Count."""
        self.count += 1
        return Result(str(self.count), reward=1.0)


# ── server processes ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("histories")
async def test_episodes_and_snapshots_go_on_after_kill_9(tmp_path: Path, database: PostgresStore) -> None:
    file, _ = SAVED
    served = Process(tmp_path, world=(file, ("Vault", "Sparse")), journal=database.name)
    try:
        await served.start()
        async with connect(served.url) as client:
            vault = await client.environment("vault").start(index=0, seed=3)
            sparse = await client.environment("sparse").start(index=0, seed=1)
            drawn = [text_of((await vault.call("draw")).content) for _ in range(3)]
            last = [text_of((await sparse.call("draw")).content) for _ in range(5)][-1]
            play_url = vault.play_url
            await served.restart()
            assert text_of((await vault.call("draw")).content).startswith(drawn[-1] + " ")
            assert text_of((await sparse.call("draw")).content).startswith(last + " ")
            branch = await vault.fork(2)
            assert text_of((await branch.call("draw")).content).startswith(drawn[1] + " ")
            assert (await vault.info()).steps == 4
            assert play_url is not None
            await vault.close()
            await served.restart(signal.SIGTERM)
            assert text_of((await branch.call("draw")).content).startswith(drawn[1] + " ")
            assert vault.id not in database.parts()
    finally:
        await served.end()


@pytest.mark.suite("histories")
async def test_a_process_that_was_paused_writes_nothing_after_another_took_over_and_ends(
    tmp_path: Path, database: PostgresStore
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = (Process(tmp_path / name, "--worker", "a", journal=database.name) for name in ("old", "new"))

    async def add(client: Client, episode: str, step: int, number: int) -> str:
        params = StepParams(episode=episode, step=step, key=f"{step}", tool="add", arguments={"number": number})
        return text_of((await client.environment("ledger")._wire.request(STEP, params)).content)

    try:
        await old.start()
        async with connect(old.url, reconnect_seconds=1) as stale:
            start = StartParams(environment="ledger", split="train", index=0, seed=1, key="k")
            started = await stale.environment("ledger")._wire.request(START, start)
            episode = started.episodes[0].episode
            assert (await add(stale, episode, 1, 1)).startswith("1 ")
            assert old.process is not None
            old.process.send_signal(signal.SIGSTOP)
            late = asyncio.ensure_future(add(stale, episode, 2, 100))
            await new.start()
            async with connect(new.url) as client:
                assert (await add(client, episode, 2, 2)).startswith("3 ")
                rows = database.rows()
                old.process.send_signal(signal.SIGCONT)
                assert await asyncio.wait_for(old.process.wait(), PATIENCE) == 1, "it ended by itself"
                with pytest.raises(LudusError):
                    await asyncio.wait_for(late, PATIENCE)
                assert database.rows() == rows
                assert (await add(client, episode, 3, 3)).startswith("6 ")
        assert "has taken over worker a's journal" in old.log.read_text("utf-8")
    finally:
        await old.end()
        await new.end()


@pytest.mark.timeout(180)
@pytest.mark.suite("histories")
@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_workers_share_a_database_and_a_start_is_repeated_at_its_worker(
    tmp_path: Path, database: PostgresStore, wire: Any
) -> None:
    server = WorkersServer(tmp_path, journal=database.name)
    try:
        await server.start()
        async with connect(server.url, wire=wire, reconnect_seconds=60) as client:
            ledger = client.environment("ledger")
            keys = [GroupMember(f"key {number}", 1, 0) for number in range(6)]
            episodes = [await ledger.start(index=0, seed=1, join=one) for one in keys]
            assert {worker_of(one.id) for one in episodes} == {"w0", "w1"}
            for number in (1, 2):
                await asyncio.gather(*(one.call("add", number=number) for one in episodes))
            pid = await server.kill("w0")
            sums = await asyncio.gather(*(one.call("add", number=10) for one in episodes))
            assert [text_of(one.content).split()[0] for one in sums] == ["13"] * 6
            await server.replaced("w0", pid)
            database.server.kill()
            await asyncio.to_thread(database.server.start)
            again = [await ledger.start(index=0, seed=1, join=one) for one in keys]
            assert [one.id for one in again] == [one.id for one in episodes]
            await server.end(signal.SIGKILL)
            await server.start()
            again = [await ledger.start(index=0, seed=1, join=one) for one in keys]
            assert [one.id for one in again] == [one.id for one in episodes], "the notes are in the database"
            sums = await asyncio.gather(*(one.call("add", number=1) for one in episodes))
            assert [text_of(one.content).split()[0] for one in sums] == ["14"] * 6
        await server.end(signal.SIGTERM)
        alone = Process(tmp_path, journal=database.name)
        with pytest.raises(AssertionError, match="serve with --workers 2, or name another database"):
            await alone.start()
    finally:
        await server.end()


# ── one writer at a time ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_second_process_is_refused_and_the_first_goes_on(
    database: PostgresStore, journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_lease, "WAIT_SECONDS", 0.3)
    with pytest.raises(JournalUnusable, match=r"is used by process \d+ on .*: stop that server, or name another"):
        database.open()
    other = database.open(worker="w1")
    assert other.key == journal.key, "another worker has a journal of its own, and the same key"
    other.append(ended("theirs"))
    await committed(other, None)
    other.close()
    journal.append(ended("mine"))
    await committed(journal, None)
    journal.close()
    assert names_in(database) == ["mine"]


async def test_a_clean_end_and_a_lost_connection_free_the_lease_at_once_and_silence_does_after_a_while(
    database: PostgresStore, journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_lease, "WAIT_SECONDS", 0.0)
    journal.close()
    second = database.open()
    second.close()
    monkeypatch.setattr(postgres_lease, "WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(postgres_lease, "LEASE_SECONDS", 1.0)
    silent = database.open()
    assert isinstance(silent, PostgresJournal)
    silent._lease._ending.set()  # it does not renew its lease, and its connections stay open
    third = database.open()
    assert isinstance(third, PostgresJournal)
    assert third._lease.epoch == silent._lease.epoch + 1
    silent.append(ended("late"))
    with pytest.raises(ShuttingDown, match=r"process \d+ on .* has taken over the journal"):
        await committed(silent, None)
    third._lease._link.close()
    silent.close()
    fourth = database.open()
    fourth.close()
    third.close()
    assert names_in(database) == []


async def test_an_entry_after_a_take_over_breaks_the_journal_and_ends_the_server(
    database: PostgresStore, journal: PostgresJournal
) -> None:
    broken: list[ShuttingDown] = []
    journal.begin("http://127.0.0.1:1", broken.append)
    journal.append(ended("before"))
    await committed(journal, None)
    take_over(database)
    parts = journal.snapshot_store
    journal.append(ended("after"))
    with pytest.raises(ShuttingDown, match="process 7 on elsewhere has taken over the journal"):
        await committed(journal, None)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await asyncio.to_thread(parts.put, "e_one", b"data")
        with pytest.raises(ShuttingDown):
            await committed(journal, None)
    assert len(broken) == 1
    journal.close()
    assert len(database.rows()) == 1
    assert not database.parts()


async def test_the_renewal_finds_a_take_over_by_itself(
    database: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_lease, "LEASE_SECONDS", 0.3)
    journal = database.open()
    loop = asyncio.get_running_loop()
    broken: asyncio.Future[ShuttingDown] = loop.create_future()
    journal.begin("http://127.0.0.1:1", broken.set_result)
    url = await asyncio.wait_for(asyncio.to_thread(until_url, database), PATIENCE)
    assert url == "http://127.0.0.1:1"
    take_over(database)
    assert isinstance(await asyncio.wait_for(broken, PATIENCE), LeaseLost)
    journal.close()


def until_url(database: PostgresStore) -> str:
    """Wait until the lease names a URL."""
    query = "SELECT url FROM ludus.leases"
    block_until(lambda: database.sql(query))
    return database.sql(query)


async def test_an_answer_that_needs_no_writing_checks_a_lease_that_may_have_expired(
    database: PostgresStore, journal: PostgresJournal
) -> None:
    journal.append(ended("before"))
    await committed(journal, None)
    rows = database.rows()
    journal._lease._renewed = -1e9  # as after a pause
    await committed(journal, None)
    assert database.rows() == rows, "the check is no row"
    journal._lease._renewed = -1e9
    take_over(database)
    with pytest.raises(ShuttingDown, match="has taken over"):
        await committed(journal, None)


# ── a database that is away ────────────────────────────────────────────────────────────────────────────────────────


async def test_no_acknowledged_step_is_lost_when_the_database_is_killed_again_and_again(
    postgres: PostgresServer, database: PostgresStore
) -> None:
    answered: dict[str, int] = {}
    over = asyncio.Event()

    async def play(host: EpisodeHost, episode: str) -> None:
        while not over.is_set():
            step = answered.get(episode, 0) + 1
            params = StepParams(episode=episode, step=step, tool="count_up", key=f"{episode}/{step}")
            result = await host.step(params, OWNER)
            assert text_of(result.content) == str(step)
            answered[episode] = step

    async with EpisodeHost([Counter], journal=database.open()) as host:
        start = StartParams(environment="counter", split="train", key="k", count=20)
        group = [one.episode for one in (await host.start(start, OWNER)).episodes]
        playing = asyncio.gather(*(play(host, one) for one in group))
        for _ in range(3):
            reached = sum(answered.values()) + 200
            while sum(answered.values()) < reached:
                await asyncio.wait([playing], timeout=0.01)
                assert not playing.done()
            postgres.kill()
            await asyncio.to_thread(postgres.start)
        over.set()
        await asyncio.wait_for(playing, PATIENCE)
    async with EpisodeHost([Counter], journal=database.open()) as host:
        for name in group:
            episode = host.store.find(name)
            await episode.recovered()
            assert episode.end_reason is None
            assert [record.number for record in episode.records or ()] == list(range(1, answered[name] + 1))


async def test_rows_and_parts_wait_for_a_database_that_is_down(
    postgres: PostgresServer, database: PostgresStore, journal: PostgresJournal
) -> None:
    postgres.stop()
    try:
        journal.append(ended("waits"))
        waiting = asyncio.ensure_future(committed(journal, None))
        putting = asyncio.ensure_future(asyncio.to_thread(journal.snapshot_store.put, "e_one", b"data"))
        await asyncio.wait([waiting, putting], timeout=0.5)
        assert [waiting.done(), putting.done()] == [False, False]
        await wait_until(lambda: journal_trouble(journal))
        assert journal.refusal is None, "requests wait, and `/ready` says why"
    finally:
        await asyncio.to_thread(postgres.start)
    await asyncio.wait_for(asyncio.gather(waiting, putting), PATIENCE)
    await wait_until(lambda: journal_trouble(journal) is None)
    journal.close()
    assert names_in(database) == ["waits"]
    assert database.parts() == {"e_one": 1}


async def test_a_database_that_stops_answering_is_left_and_the_row_is_written_once(
    postgres: PostgresServer, database: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "STATEMENT_SECONDS", 0.3)
    monkeypatch.setattr(postgres_database, "_LOOK_SECONDS", 0.1)
    journal = database.open()
    assert isinstance(journal, PostgresJournal)
    journal.append(ended("first"))
    await committed(journal, None)
    before = journal._link._connection
    postgres.pause()
    try:
        journal.append(ended("second"))
        waiting = asyncio.ensure_future(committed(journal, None))
        async with asyncio.timeout(PATIENCE):
            while journal._link._connection is before:
                await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
    finally:
        postgres.resume()
    await asyncio.wait_for(waiting, PATIENCE)
    journal.close()
    assert names_in(database) == ["first", "second"]


@pytest.mark.suite("histories")
async def test_a_database_that_is_away_for_too_long_ends_the_server_and_the_message_says_why(
    postgres: PostgresServer, database: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "PATIENCE_SECONDS", 0.3)
    journal = database.open()
    broken: list[ShuttingDown] = []
    journal.begin("http://127.0.0.1:1", broken.append)
    postgres.stop()
    try:
        journal.append(ended("one"))
        with pytest.raises(ShuttingDown, match="the server cannot write its journal .*; try again when it is back"):
            await asyncio.wait_for(committed(journal, None), PATIENCE)
        assert len(broken) == 1
        journal.close()
    finally:
        await asyncio.to_thread(postgres.start)
    assert names_in(database) == []


async def test_a_commit_whose_answer_is_lost_is_written_once(postgres: PostgresServer, database: PostgresStore) -> None:
    with lossy_socket(postgres.folder) as lossy:
        url = database.name.replace(quote(str(postgres.folder), safe=""), quote(str(lossy.folder), safe=""))
        journal = open_journal(None, url, "normal", None)
        assert journal is not None
        for number in range(5):
            lossy.lost.clear()
            lossy.lose_after = b"episode-%d" % number
            journal.append(ended(f"episode-{number}"))
            await asyncio.wait_for(committed(journal, None), PATIENCE)
            assert lossy.lost.is_set()
        journal.close()
    assert names_in(database) == [f"episode-{number}" for number in range(5)]


# ── bad input ──────────────────────────────────────────────────────────────────────────────────────────────────────


def no_database(store: PostgresStore) -> str:
    return store.name.replace(name_of(store.name), "nowhere")


def no_user(store: PostgresStore) -> str:
    return store.name.replace("postgres@", "stranger@")


def wrong_password(store: PostgresStore) -> str:
    store.server.sql("DROP ROLE IF EXISTS guarded")
    store.server.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    return store.name.replace("postgres@", "guarded:hunter2@")


def no_right(store: PostgresStore) -> str:
    role = f"limited_{name_of(store.name)}"
    store.server.sql(f"CREATE ROLE {role} LOGIN")
    return store.name.replace("postgres@", f"{role}@")


def no_server(store: PostgresStore) -> str:
    return "postgresql://postgres:hunter2@/db?host=%2Fnowhere"


def not_a_url(store: PostgresStore) -> str:
    return "postgresql://postgres:hunter2@host:port:5/db?nothing=1"


def another_version(store: PostgresStore) -> str:
    store.open().close()
    store.sql("UPDATE ludus.meta SET value = '99' WHERE name = 'version'")
    return store.name


def another_program(store: PostgresStore) -> str:
    store.sql("CREATE SCHEMA ludus")
    store.sql("CREATE TABLE ludus.users (name text)")
    return store.name


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (no_database, 'cannot be used: .*database "nowhere" does not exist; make it with createdb'),
        (no_user, 'cannot be used: .*role "stranger" does not exist; make it with createdb or createuser'),
        (wrong_password, "password authentication failed for user .*; check the user, and the password"),
        (no_right, "permission denied for database .*; give the user the right to make a schema"),
        (no_server, "No such file or directory.*; check that the database runs"),
        (not_a_url, "postgresql://postgres@host:port:5/db.* is no URL of PostgreSQL; write postgresql://USER@HOST"),
        (another_version, "its version is 99, this server writes 1"),
        (another_program, "the schema ludus of .* holds the tables of another program"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_and_the_message_has_no_password(
    database: PostgresStore, prepare: Callable[[PostgresStore], str], why: str
) -> None:
    url = prepare(database)
    with pytest.raises(JournalUnusable, match=why) as refused:
        open_journal(None, url, "normal", None)
    assert "hunter2" not in refused.value.message
    assert threading.active_count() < 40


def test_a_schema_that_the_user_owns_needs_no_other_right(database: PostgresStore) -> None:
    url = no_right(database)
    database.sql("CREATE SCHEMA ludus AUTHORIZATION limited_" + name_of(database.name))
    journal = open_journal(None, url, "normal", None)
    assert journal is not None
    journal.close()


def test_full_is_refused_where_the_database_does_not_flush(database: PostgresStore) -> None:
    with pytest.raises(JournalUnusable, match="runs with fsync = off"):
        open_journal(None, database.name, "full", None)
    database.open("normal").close()
    database.open("full").close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:hunter2@db:5432/runs", "postgresql://ann@db:5432/runs"),
        ("postgres://ann:hunter2@x@db/runs", "postgres://ann@db/runs"),
        ("postgresql://ann:hunter2/x?y@db/runs", "postgresql://ann@db/runs"),
        ("postgresql:///runs?host=/s&password=hunter2", "postgresql:///runs?host=/s"),
        ("postgresql://ann@db/runs?password=hunter2&sslmode=require", "postgresql://ann@db/runs?sslmode=require"),
        ("postgresql://db/runs", "postgresql://db/runs"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "ludus.server.durability.postgres")
    with pytest.raises(JournalUnusable, match=r"pip install 'ludus-rl\[postgres\]'"):
        open_journal(None, "postgresql://db/runs", "normal", None)


def test_a_server_with_another_journal_does_not_load_the_package(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, ludus.server.serving.serve, ludus.server.workers.supervisor\n"
        "from ludus.server.durability.journals import open_journal\n"
        f"open_journal(pathlib.Path({str(tmp_path / 'j.db')!r}), None, 'normal', None).close()\n"
        "print('psycopg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("False\n", "")


# ── reading it ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_recorded_episodes_are_read_while_a_server_writes_them(database: PostgresStore) -> None:
    with pytest.raises(JournalUnusable, match="has no journal; `ludus serve --journal URL` writes one"):
        read_recorded(database.name)
    async with EpisodeHost([Counter], journal=database.open(worker="w0")) as host:
        started = await host.start(StartParams(environment="counter", split="train", key="k"), OWNER)
        episode = started.episodes[0].episode
        for step in (1, 2):
            await host.step(StepParams(episode=episode, step=step, tool="count_up", key=f"{step}"), OWNER)
        (found,) = read_recorded(database.name)
        assert (found.id, found.end, found.steps, found.reward.value) == (episode, "running", 2, 2.0)
        assert found.size > 0
        command = [sys.executable, "-m", "ludus.cli", "replay", database.name, "--json"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE)
        assert [one["episode"] for one in json.loads(done.stdout)] == [episode], done.stderr
    database.sql("INSERT INTO ludus.batches VALUES ('w0', 99, 0, '\\x00')")
    with pytest.raises(JournalUnusable, match="row 99 of worker w0 of the journal .* cannot be read"):
        read_recorded(database.name)


# ── snapshots ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_contents_of_snapshots_are_there_as_long_as_any_episode_has_them(
    database: PostgresStore, journal: PostgresJournal
) -> None:
    parts = journal.snapshot_store
    shared, own = parts.put("e_one", b"shared"), parts.put("e_one", b"own")
    assert parts.share("e_one", "e_two", [shared])
    parts.forget("e_one")
    assert parts.get("e_two", shared) == b"shared"
    assert database.sql("SELECT count(*) FROM ludus.blobs") == "1", "the other one went with its last part"
    database.sql(f"INSERT INTO ludus.blobs VALUES ('', '{own}', 'left behind'), ('w9', '{own}', 'of another worker')")
    parts.keep_only(["e_two"])
    assert database.sql("SELECT count(*) FROM ludus.blobs WHERE worker = ''") == "1"
    assert database.sql("SELECT count(*) FROM ludus.blobs WHERE worker = 'w9'") == "1"

    def put_and_forget(number: int) -> None:
        for _ in range(20):
            digest = parts.put(f"e_{number}", b"the same")
            assert parts.get(f"e_{number}", digest) == b"the same"
            parts.forget(f"e_{number}")

    await asyncio.gather(*(asyncio.to_thread(put_and_forget, number) for number in range(4)))
    assert database.parts() == {"e_two": 1}
    assert database.sql("SELECT count(*) FROM ludus.blobs WHERE worker = ''") == "1"


# ── notes of starts ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_notes_of_starts_are_in_the_next_gateway(postgres: PostgresServer, database: PostgresStore) -> None:
    notes = open_notes(None, database.name)
    assert notes is not None
    assert not list(notes.read())
    some = [Note(2e9 + number, b"%016d" % number, f"w{number % 3}") for number in range(100)]
    writing = [notes.write(one) for one in [Note(1.0, b"o" * 16, "w9"), *some, some[0]]]
    assert None not in writing
    await asyncio.wait_for(asyncio.gather(*(one for one in writing if one is not None)), PATIENCE)
    postgres.stop()
    try:
        later = notes.write(Note(3e9, b"l" * 16, "w1"))
        assert later is not None
        await asyncio.wait([later], timeout=0.3)
        assert not later.done()
    finally:
        await asyncio.to_thread(postgres.start)
    await asyncio.wait_for(later, PATIENCE)
    notes.close()
    again = open_notes(None, database.name)
    assert again is not None
    assert [(one.digest, one.worker) for one in again.read()] == [
        *((one.digest, one.worker) for one in some), (b"l" * 16, "w1"),
    ]  # fmt: skip
    again.close()
