"""Journals on disk: what they hold, when they answer, and files that are refused."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import Store

from ludus.protocol.content import Message, TextBlock
from ludus.protocol.episodes import (
    EpisodeLimits,
    Outcome,
    ScoreGroupResult,
    StartParams,
    StepError,
    StepParams,
    StepResult,
    TurnMark,
)
from ludus.protocol.errors import EnvironmentFailed, EpisodeEnded, LudusError, ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward, RewardEntry
from ludus.server import Environment, EpisodeHost, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.durability import garbage as journal_garbage
from ludus.server.durability import rows as journal_rows
from ludus.server.durability import sqlite_journal
from ludus.server.durability.codec import decode, decode_all, encode, encode_call
from ludus.server.durability.journal import (
    Asked,
    Ended,
    Entry,
    Evicted,
    JournalUnusable,
    Reported,
    Saved,
    Scored,
    Settled,
    Started,
    Sync,
    Tallied,
    committed,
)
from ludus.server.durability.sqlite_journal import SqliteJournal
from ludus.server.runtime.episode import StepRecord
from ludus.server.serving.metrics import Metrics

TEXT = st.text(max_size=20)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
REWARDS = st.builds(Reward.of, NUMBER, st.dictionaries(TEXT, NUMBER, max_size=2)) | st.builds(
    Reward.unscored, st.text(min_size=1, max_size=9)
)
RESULTS = st.builds(
    StepResult,
    step=st.integers(0, 100),
    content=st.lists(st.builds(TextBlock, text=TEXT), max_size=2).map(tuple),
    reward=st.none() | REWARDS,
    metadata=st.dictionaries(TEXT, VALUES, max_size=2),
)
ERRORS: st.SearchStrategy[LudusError] = st.builds(EpisodeEnded, TEXT) | st.builds(EnvironmentFailed, TEXT)
ASKED: st.SearchStrategy[Asked] = st.builds(
        Asked, TEXT, st.integers(0, 9), TEXT, st.none() | TEXT, st.dictionaries(TEXT, VALUES, max_size=3),
        st.none() | st.builds(TurnMark, number=st.integers(1, 9), text=TEXT), st.none() | st.binary(max_size=8),
        st.none() | st.builds(StepError, code=st.just("invalid_arguments"), message=TEXT),
    )  # fmt: skip
SETTLED: st.SearchStrategy[Settled] = st.builds(Settled, TEXT, TEXT, ERRORS) | st.builds(
        Settled, TEXT, TEXT, RESULTS,
        st.lists(
            st.builds(RewardEntry, step=st.integers(0, 9), source=st.just("step"), reward=REWARDS), max_size=2
        ).map(tuple),
        st.none() | RESULTS,
    )  # fmt: skip
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(
        Started, episode=TEXT, group=TEXT, size=st.integers(1, 9), environment=TEXT,
        version=TEXT, split=TEXT, task=TEXT, seed=st.integers(0, 2**53 - 1), owner=TEXT,
        limits=st.builds(EpisodeLimits, max_steps=st.none() | st.integers(1, 9)),
        tools=st.none() | st.lists(TEXT, max_size=2).map(tuple),
        prompt=st.builds(lambda text: (Message(content=(TextBlock(text=text),)),), TEXT), key=TEXT,
        digest=st.binary(max_size=16), fork=st.booleans(), origin=st.none() | TEXT, has_secrets=st.booleans(),
    ),
    ASKED,
    SETTLED,
    st.builds(Saved, TEXT, st.integers(0, 9), st.dictionaries(TEXT, TEXT, max_size=3)),
    st.builds(
        Scored, TEXT, TEXT, TEXT, st.binary(max_size=8),
        st.builds(ScoreGroupResult, rewards=st.dictionaries(TEXT, REWARDS, max_size=2)),
    ),
    st.builds(
        Reported, TEXT, TEXT, TEXT, TEXT, st.binary(max_size=8),
        st.lists(
            st.builds(Outcome, task=st.text(min_size=1, max_size=9), reward=NUMBER, passed=st.booleans()), max_size=2
        ).map(tuple),
    ),
    st.builds(
        Tallied, TEXT, TEXT, st.dictionaries(TEXT, st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2),
        st.integers(0, 99), st.lists(st.tuples(TEXT, TEXT, st.binary(max_size=8)), max_size=2).map(tuple),
    ),
    st.builds(Ended, TEXT, st.sampled_from(EndReason), st.none() | TEXT),
    st.builds(Evicted, TEXT),
)  # fmt: skip


def plain(entry: Entry) -> dict[str, Any]:
    """The entry's fields, with errors in a form that compares."""
    found = {one.name: getattr(entry, one.name) for one in dataclasses.fields(entry)}
    if isinstance(error := found.get("outcome"), LudusError):
        found["outcome"] = (type(error), error.message, error.data)
    return {"kind": type(entry), **found}


@given(st.lists(ENTRIES, max_size=4))
def test_entries_come_back_from_their_bytes(entries: list[Entry]) -> None:
    batch = b"".join(map(encode, entries))
    assert [plain(one) for one in decode_all(batch)] == [plain(one) for one in entries]


@given(
    st.builds(Asked, TEXT, st.just(1), TEXT, TEXT, st.dictionaries(TEXT, VALUES, max_size=3)), RESULTS, st.booleans()
)
def test_a_call_comes_back_with_its_outcome_and_what_it_logged(asked: Asked, result: StepResult, logs: bool) -> None:
    entries: tuple[RewardEntry, ...] = ()
    if result.reward is not None and logs:
        entries = (RewardEntry(step=result.step, source="step", reward=result.reward),)
    settled = Settled(asked.episode, asked.key, result, entries)
    record = StepRecord(asked.step, asked.key, asked.tool, asked.arguments)
    record.logged = entries
    pieces, sent = encode_call(asked.episode, record, result)
    assert sent == result.model_dump_json().encode()
    assert [plain(one) for one in decode_all(b"".join(pieces))] == [plain(asked), plain(settled)]


@given(
    ASKED, SETTLED,
    st.lists(st.builds(RewardEntry, step=st.integers(0, 9), source=st.just("turn"), reward=REWARDS), max_size=2),
)  # fmt: skip
def test_a_call_with_everything_comes_back_too(one: Asked, other: Settled, turns: list[RewardEntry]) -> None:
    record = StepRecord(one.step, one.key, one.tool, one.arguments, one.turn)
    record.digest, record.refused = one.digest, one.refused
    record.logged, record.original_result = (*other.entries, *turns), other.original
    pieces, _ = encode_call(one.episode, record, other.outcome)
    asked, settled = decode_all(b"".join(pieces))
    expected = Settled(one.episode, one.key, other.outcome, record.logged, other.original)
    assert [plain(asked), plain(settled)] == [plain(one), plain(expected)]


@given(st.lists(ENTRIES, min_size=1, max_size=2), st.data())
def test_bytes_that_are_cut_off_are_a_value_error(entries: list[Entry], data: st.DataObject) -> None:
    batch = b"".join(map(encode, entries))
    cut = batch[: data.draw(st.integers(0, len(batch) - 1))]
    try:
        found = list(decode_all(cut))
    except ValueError:
        return
    assert len(found) < len(entries), "it was cut between two entries"


@given(st.integers(-1, 11), st.binary(max_size=30) | st.sampled_from([b"{}", b"[]", b"null", b'{"key":1}']))
def test_bytes_that_are_no_entry_are_a_value_error(kind: int, body: bytes) -> None:
    try:
        decode(kind, "e", body, body)
    except ValueError:
        return
    assert kind == 4, "only this kind has no fields"


class Counter(Environment[Task]):
    """Counts."""

    splits = {"train": [Task(id="a")]}

    def prompt(self) -> str:
        """Ask."""
        return "Count."

    @tool
    async def count(self) -> str:
        """Count."""
        return "1"


async def test_entries_are_stored_in_order_and_come_back_in_the_next_process(store: Store) -> None:
    entries = [Ended(f"e{number}", EndReason.COMPLETED) for number in range(100)]
    journal = store.open()
    for entry in entries:
        journal.append(entry)
    key = journal.key
    journal.close()
    again = store.open()
    assert [one.entry for one in again.stored()] == entries
    assert again.key == key
    total = Tallied("env", "train", {"t": (2, 1)}, 2, ())
    for _ in range(2):  # the second time, the entry of no episode takes the place of the first
        again.compact(["e3", "e5"], [total])
        again.close()
        again = store.open()
        assert [one.entry for one in again.stored()] == [entries[3], entries[5], total]
    again.close()


async def test_a_callback_comes_when_the_entries_before_it_are_on_disk(store: Store) -> None:
    journal = store.open()
    seen: list[LudusError | None] = []
    journal.when_durable(seen.append)
    assert seen == [None], "nothing was appended"
    loop = asyncio.get_running_loop()
    committed: asyncio.Future[LudusError | None] = loop.create_future()
    journal.append(Evicted("e"))
    journal.when_durable(committed.set_result)
    assert not committed.done()
    assert await asyncio.wait_for(committed, 30) is None
    journal.close()
    assert store.rows() == [encode(Evicted("e"))]


async def test_a_clock_that_is_set_while_a_server_runs_does_not_age_its_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = 2e9
    monkeypatch.setattr(time, "time", lambda: began)
    journal = SqliteJournal(tmp_path / "j.db")
    for jump in (0.0, 86_400.0, -86_400.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: began + jump)
        journal.append(Evicted("e"))
        await committed(journal, None)
    journal.close()
    again = SqliteJournal(tmp_path / "j.db")
    times = [one.at for one in again.stored()]
    again.close()
    assert times == sorted(times)
    assert began <= times[0] <= times[-1] < began + 3600


async def test_a_second_server_on_one_journal_is_refused(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    with pytest.raises(JournalUnusable, match=r"j\.db cannot be used: another server uses it; name another file"):
        SqliteJournal(tmp_path / "j.db")
    journal.close()


def of_another_version(path: Path) -> None:
    SqliteJournal(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA user_version=99")


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE users (name TEXT)")


def no_database(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (of_another_version, "its version is 99, this server writes 1"),
        (of_another_program, "is no journal of this version"),
        (no_database, "file is not a database"),
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(
    tmp_path: Path, break_it: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "j.db"
    break_it(path)
    before = path.read_bytes()
    with pytest.raises(JournalUnusable, match=why):
        SqliteJournal(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(JournalUnusable, match="unable to open database file; name another file"):
        SqliteJournal(tmp_path / "missing" / "j.db")


def test_an_entry_that_cannot_be_read_is_named(store: Store) -> None:
    journal = store.open()
    journal.close()
    store.add_row(7, b"\0")
    again = store.open()
    with pytest.raises(JournalUnusable, match=r"row 7 of the journal .* cannot be read"):
        list(again.stored())
    again.close()


async def test_a_full_disk_answers_nothing_and_refuses_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_journal, "PATIENCE_SECONDS", 0.0)
    journal = SqliteJournal(tmp_path / "j.db")
    owner = Principal.open()
    async with EpisodeHost([Counter], journal=journal) as host:
        start = StartParams(environment="counter", split="train", key="k")
        episode = (await host.start(start, owner)).episodes[0].episode
        (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
        journal._database.execute(f"PRAGMA max_page_count={pages}")

        async def steps() -> None:
            for number in range(1, 500):
                step = StepParams(episode=episode, step=number, tool="count", key=str(number))
                await host.step(step, owner)

        with pytest.raises(ShuttingDown, match=r"cannot write its journal \(database or disk is full\)"):
            await steps()
        with pytest.raises(ShuttingDown):
            await host.start(start.model_copy(update={"key": "other"}), owner)
        shown = Metrics(host).render().decode().splitlines()
        assert {"ludus_journal_broken 1.0", f"ludus_journal_waiting {journal.stats().waiting:.1f}"} <= set(shown)
        assert journal.stats().waiting, "what is not written waits"


async def test_metrics_count_the_rows_of_a_journal(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    async with EpisodeHost([Counter], journal=journal) as host:
        before = journal.stats()
        assert before.counts.bytes == sum(before.counts.buckets) == 0
        journal.append(Ended("e", EndReason.COMPLETED, "x" * 100))
        assert journal.stats().waiting == 1
        await committed(journal, None)
        after = journal.stats()
        assert (after.waiting, after.broken, sum(after.counts.buckets)) == (0, False, 1)
        shown = Metrics(host).render().decode().splitlines()
        assert f"ludus_journal_bytes_total {float(after.counts.bytes)}" in shown
        assert 'ludus_journal_commit_seconds_bucket{le="+Inf"} 1.0' in shown
        assert after.counts.bytes > 100


async def test_a_disk_that_has_room_again_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = SqliteJournal(path)
    seen: list[LudusError | None] = []
    (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
    journal._database.execute(f"PRAGMA max_page_count={pages}")
    entries = [Ended(f"e{number}", EndReason.COMPLETED, "x" * 4096) for number in range(50)]
    done = asyncio.Event()
    for entry in entries:
        journal.append(entry)
    journal.when_durable(seen.append)
    journal.when_durable(lambda error: done.set())
    for _ in range(2):  # the loop's own attempt
        await asyncio.sleep(0)
    assert journal._thread is not None
    assert not seen
    journal._database.execute(f"PRAGMA max_page_count={pages + 10_000}")
    await asyncio.wait_for(done.wait(), 60)
    assert seen == [None]
    journal.close()
    again = SqliteJournal(path)
    assert [one.entry for one in again.stored()] == entries
    again.close()


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize("sync", ["normal", "full"])
@pytest.mark.parametrize("slow", [-1.0, 3600.0])
async def test_rows_of_the_loop_and_of_the_thread_keep_their_order_and_the_log_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Sync, slow: float
) -> None:
    monkeypatch.setattr(sqlite_journal, "SLOW_SECONDS", slow)
    for sync in ("normal", "full"):
        monkeypatch.setitem(sqlite_journal.CHECKPOINT_BYTES, sync, 64 * 1024)
    journal = SqliteJournal(tmp_path / "j.db", sync)
    entries = [Ended(f"e{number}", EndReason.COMPLETED, "x" * 1000) for number in range(2000)]
    for entry in entries:
        journal.append(entry)
        await committed(journal, None)
    wal = (tmp_path / "j.db-wal").stat().st_size
    assert wal < 2_000_000, "the log is copied into the file long before it holds 2000 rows of two pages"
    journal.close()
    again = SqliteJournal(tmp_path / "j.db")
    assert [one.entry for one in again.stored()] == entries
    again.close()


@pytest.mark.parametrize("sync", ["normal", "full"])
async def test_entries_of_forgotten_groups_are_dropped_while_the_server_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch, sync: Sync
) -> None:
    monkeypatch.setattr(journal_rows, "GARBAGE_BYTES", 64 * 1024)
    monkeypatch.setattr(journal_garbage, "PART_BYTES", 16 * 1024)
    journal = store.open(sync)

    def started(name: str, group: str) -> Started:
        return Started(
            episode=name, group=group, size=2, environment="e", version="1", split="s", task="t", seed=0, owner="o",
            limits=EpisodeLimits(), tools=None, prompt=(), key=group, digest=b"d",
        )  # fmt: skip

    stays: list[Entry] = []
    for number in range(300):
        group = [started(f"e{number}{which}", f"g{number}") for which in "ab"]
        half = number % 50 == 0  # one of its episodes is not forgotten
        for one in group:
            rest = [Ended(one.episode, EndReason.COMPLETED, "x" * 1000)]
            entries: list[Entry] = [one, *rest]
            if not half or one.episode.endswith("a"):
                entries.append(Evicted(one.episode))
            for entry in entries:
                journal.append(entry)
            if half:
                stays += entries
        await committed(journal, None)
    journal.close()
    again = store.open()
    left = [one.entry for one in again.stored()]
    assert [entry for entry in left if entry in stays] == stays
    assert len(left) < 900, "of 1794 entries"
    again.close()


class Saying(Environment[Task]):
    """Repeats what it is given."""

    splits = {"train": [Task(id="a")]}
    version = "1 \ud800"

    def prompt(self) -> str:
        """Ask."""
        return "Say."

    @tool
    async def say(self, text: str) -> str:
        """Say it."""
        return text


async def test_a_call_with_half_a_surrogate_pair_is_refused_again_after_a_restart(store: Store) -> None:
    owner = Principal.open()
    params = StepParams(episode="", step=1, tool="say", key="1", arguments={"text": "\ud800"})
    async with EpisodeHost([Saying], journal=store.open()) as host:
        start = StartParams(environment="saying", split="train", key="k")
        episode = (await host.start(start, owner)).episodes[0].episode
        params = params.model_copy(update={"episode": episode})
        before = await host.step(params, owner)
        assert before.error is not None
    async with EpisodeHost([Saying], journal=store.open()) as host:
        found = host.store.find(episode)
        await found.recovered()
        assert (found.end_reason, found.last_step) == (None, 1)
        assert found.records is not None
        assert found.records[0].outcome == before


async def test_the_time_that_the_server_was_away_does_not_count(store: Store) -> None:
    owner = Principal.open()
    limits = EpisodeLimits(seconds=100.0)
    async with EpisodeHost([Counter], journal=store.open()) as host:
        start = StartParams(environment="counter", split="train", key="k", limits=limits)
        episode = (await host.start(start, owner)).episodes[0].episode
        await host.step(StepParams(episode=episode, step=1, tool="count", key="1"), owner)
    store.age(5000)
    async with EpisodeHost([Counter], journal=store.open()) as host:
        found = host.store.find(episode)
        await found.recovered()
        now = asyncio.get_running_loop().time()
        assert found.overdue(now + 50) is None, "the time without a server is no time of the episode"
        assert found.overdue(now + 100) is EndReason.TIME_LIMIT
