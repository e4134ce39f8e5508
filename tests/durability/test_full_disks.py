"""A journal that cannot be written refuses, and goes on by itself: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import kept_world
import pytest
import seated_world
from waiting import wait_until

from ludus.client import connect
from ludus.protocol import worlds as w
from ludus.protocol.content import text_of
from ludus.protocol.episodes import (
    Candidate,
    EpisodeLimits,
    ForkParams,
    GetEpisodeParams,
    GradeParams,
    Outcome,
    ReportOutcomesParams,
    RewardsParams,
    ScoreGroupParams,
    StartParams,
    StepParams,
    StepResult,
    WorldChoice,
)
from ludus.protocol.errors import EpisodeFailed, LudusError, ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.server import Environment, Result, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.durability import rows as journal_rows
from ludus.server.durability import sqlite_journal
from ludus.server.durability.journal import Ended, Settled, Started, committed
from ludus.server.durability.sqlite_journal import SqliteJournal
from ludus.server.hosting.host import EpisodeHost
from ludus.server.runtime.limits import ServerLimits
from ludus.server.serving.app import journal_trouble
from ludus.server.serving.metrics import Metrics
from ludus.server.serving.serve import serving
from ludus.server.serving.settings import ServerSettings

OWNER = Principal.open()
ERRORS = (
    "database or disk is full",
    "disk I/O error",
    "attempt to write a readonly database",
    "database is locked",
    "database disk image is malformed",
)


class Counting(Environment[Task]):
    """Counts its calls, all of which are noted outside."""

    splits: ClassVar = {"train": [Task(id="t")]}
    forkable = True
    blocking = False
    ran: ClassVar[Counter[str]] = Counter()
    gate: ClassVar[asyncio.Event]

    def setup(self) -> None:
        self.count = 0
        self.ran["setup"] += 1

    def prompt(self) -> str:
        return "Count."

    @tool
    def add(self, name: str) -> Result:
        """Count a call."""
        self.count += 1
        self.ran[name] += 1
        return Result(str(self.count), reward=float(self.count))

    @tool
    async def wait(self, name: str) -> str:
        """Wait until the test lets it go on."""
        self.ran[name] += 1
        await self.gate.wait()
        return "went on"

    @classmethod
    def score_group(cls, task: Task, candidates: Sequence[Candidate]) -> list[float]:
        cls.ran["score"] += 1
        return [float(cls.ran["score"]) for _ in candidates]

    def grade(self, answer: str) -> float:
        self.ran["grade"] += 1
        return float(answer == str(self.count))


class Sending(Counting):
    """Acts on the outside."""

    outside_effects = True
    durable = "snapshot"
    forkable = False

    def snapshot(self) -> bytes:
        return str(self.count).encode()

    def restore(self, state: bytes) -> None:
        self.count = int(state)


class Forgetful(Counting):
    """Is not durable."""

    durable = "none"


class Disk:
    """The disk of a journal, as far as writing rows to it fails."""

    def __init__(self, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: str | None = None
        self.attempts = 0
        """Rows that could not be written."""
        insert = SqliteJournal._insert

        def insert_or_fail(own: SqliteJournal, at: float, entries: bytes) -> None:
            if own is journal and self.error is not None:
                self.attempts += 1
                raise sqlite3.OperationalError(self.error)
            insert(own, at, entries)

        monkeypatch.setattr(SqliteJournal, "_insert", insert_or_fail)


Hosting = Callable[..., Any]


@pytest.fixture
def hosting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosting:
    """`async with hosting(Environment) as (host, disk)`: a host with the journal `tmp_path / "j.db"`."""
    monkeypatch.setattr(sqlite_journal, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sqlite_journal, "RETRY_SECONDS", 0.001)
    Counting.ran.clear()
    Counting.gate = asyncio.Event()

    @asynccontextmanager
    async def hosting(*classes: type[Environment[Any]], **limits: Any) -> AsyncIterator[tuple[EpisodeHost, Disk]]:
        journal = SqliteJournal(tmp_path / "j.db")
        disk = Disk(journal, monkeypatch)
        async with EpisodeHost(classes, journal=journal, limits=ServerLimits(grace_seconds=0.3, **limits)) as host:
            yield host, disk
            disk.error = None

    return hosting


async def start(host: EpisodeHost, key: str, environment: str = "counting", **params: Any) -> str:
    began = await host.start(StartParams(environment=environment, split="train", key=key, **params), OWNER)
    return began.episodes[0].episode


async def step(host: EpisodeHost, episode: str, number: int, key: str, tool: str = "add") -> StepResult:
    given = StepParams(episode=episode, step=number, tool=tool, arguments={"name": key}, key=key)
    return await host.step(given, OWNER)


async def refuse_all(host: EpisodeHost, disk: Disk, episode: str, number: int, error: str = ERRORS[0]) -> None:
    """Let the disk fail, and have a step refused whose key is `refused`."""
    disk.error = error
    with pytest.raises(ShuttingDown, match=error):
        await step(host, episode, number, "refused")


async def until_written(host: EpisodeHost, disk: Disk) -> None:
    disk.error = None
    await wait_until(lambda: journal_trouble(host.journal) is None)


def text(result: StepResult) -> str:
    return text_of(result.content)


async def logged(host: EpisodeHost, episode: str) -> list[float | None]:
    found = await host.rewards(RewardsParams(episode=episode), OWNER)
    return [entry.reward.value for entry in found.entries]


@pytest.mark.parametrize("error", ERRORS)
async def test_what_was_refused_is_written_once_there_is_room_and_answered_under_its_key(
    hosting: Hosting, error: str, tmp_path: Path
) -> None:
    async with hosting(Counting) as (host, disk):
        episode, other = await start(host, "a"), await start(host, "b")
        assert text(await step(host, episode, 1, "first")) == "1"
        idle = await start(host, "idle")
        await step(host, idle, 1, "kept")
        await refuse_all(host, disk, episode, 2, error)
        assert error in (journal_trouble(host.journal) or "")
        assert "ludus_journal_broken 1.0" in Metrics(host).render().decode()
        with pytest.raises(ShuttingDown, match=error):
            await step(host, episode, 2, "refused")
        with pytest.raises(ShuttingDown, match=error):
            await logged(host, episode)
        assert text(await step(host, idle, 1, "kept")) == "1", "what was acknowledged is still answered"
        await until_written(host, disk)
        assert "ludus_journal_broken 0.0" in Metrics(host).render().decode()
        assert text(await step(host, episode, 2, "refused")) == "2"
        assert text(await step(host, episode, 3, "third")) == "3"
        assert text(await step(host, other, 1, "other")) == "1"
        assert await start(host, "c")
        assert await logged(host, episode) == [1.0, 2.0, 3.0]
        ran = {name: Counting.ran[name] for name in ("first", "refused", "third", "other", "kept")}
        assert ran == {"first": 2, "refused": 2, "third": 1, "other": 1, "kept": 1}, "one instance was made again"
    again = SqliteJournal(tmp_path / "j.db")
    kept = [one.entry for one in again.stored()]
    again.close()
    assert [one.key for one in kept if isinstance(one, Settled) and one.episode == episode] == [
        "first", "refused", "third",
    ]  # fmt: skip
    assert sum(isinstance(one, Started) for one in kept) == 4


async def test_nothing_that_must_be_written_begins_while_the_journal_refuses(hosting: Hosting) -> None:
    async with hosting(Counting, kept_world.Shop) as (host, disk):
        episode = await start(host, "a")
        world_episode = await start(host, "shop", "shop", world=WorldChoice())
        world = (await host.get_episode(GetEpisodeParams(episode=world_episode), OWNER)).info.world
        assert world is not None
        await host.grade(GradeParams(episode=world_episode, answer="x", key="g"), OWNER)
        group = (await host.get_episode(GetEpisodeParams(episode=episode), OWNER)).info.group
        await refuse_all(host, disk, episode, 1)
        before = Counter(Counting.ran)
        candidates = {episode: Candidate(messages=())}
        score = ScoreGroupParams(group=group, candidates=candidates, key="s")
        branch = w.BranchWorldParams(world=world.id, key="w")
        requests: list[Callable[[], Awaitable[Any]]] = [
            lambda: step(host, episode, 2, "late"),
            lambda: start(host, "late"),
            lambda: host.fork(ForkParams(episode=episode, step=0, key="f"), OWNER),
            lambda: host.score_group(score, OWNER),
            lambda: host.grade(GradeParams(episode=episode, answer="1", key="g"), OWNER),
            lambda: host.world_requests.branch(branch, OWNER),
            lambda: host.world_requests.reset(w.ResetWorldParams(world=world.id, version=0, key="r"), OWNER),
            lambda: host.world_requests.delete(w.DeleteWorldParams(world=world.id), OWNER),
        ]
        for request in requests:
            for _ in range(2):
                with pytest.raises(ShuttingDown, match="cannot write its journal"):
                    await request()
        assert before == Counting.ran, "nothing of the authors ran"
        await until_written(host, disk)
        assert text(await step(host, episode, 1, "refused")) == "1"
        for request in requests:
            await request()
        assert (Counting.ran["late"], Counting.ran["score"], Counting.ran["grade"]) == (1, 1, 1)


async def test_a_report_of_outcomes_counts_once_however_often_it_was_refused(hosting: Hosting) -> None:
    async with hosting(Counting) as (host, disk):
        episode = await start(host, "a")
        outcome = Outcome(task="t", reward=1.0, passed=True)
        report = ReportOutcomesParams(environment="counting", split="train", outcomes=(outcome,), key="k")
        await refuse_all(host, disk, episode, 1)
        for _ in range(3):
            with pytest.raises(ShuttingDown):
                await host.report_outcomes(report, OWNER)
        await until_written(host, disk)
        recorded = [(await host.report_outcomes(report, OWNER)).recorded for _ in range(3)]
        assert recorded == [1, 1, 1]


async def test_starts_and_forks_that_were_refused_are_there_under_their_keys(hosting: Hosting) -> None:
    async with hosting(Counting) as (host, disk):
        episode = await start(host, "a")
        await step(host, episode, 1, "first")
        disk.error = ERRORS[0]
        fork = ForkParams(episode=episode, step=1, key="f")
        outcomes = await asyncio.gather(start(host, "b"), host.fork(fork, OWNER), return_exceptions=True)
        assert [type(one) for one in outcomes] == [ShuttingDown, ShuttingDown]
        await until_written(host, disk)
        running, made = host.stats().running, Counting.ran["setup"]
        new = await start(host, "b")
        forked = (await host.fork(fork, OWNER)).episode.episode
        assert (host.stats().running, Counting.ran["setup"]) == (running, made)
        assert text(await step(host, new, 1, "n")) == "1"
        assert text(await step(host, forked, 2, "f2")) == "2"


async def test_a_call_that_ends_its_episode_has_its_score_when_it_was_refused_meanwhile(hosting: Hosting) -> None:
    async with hosting(Counting) as (host, disk):
        episode = await start(host, "a")
        await step(host, episode, 1, "first")
        disk.error = ERRORS[0]
        grade = GradeParams(episode=episode, answer="1", key="g")
        with pytest.raises(ShuttingDown):
            await host.grade(grade, OWNER)
        with pytest.raises(ShuttingDown):
            await host.get_episode(GetEpisodeParams(episode=episode), OWNER)
        await until_written(host, disk)
        graded = await host.grade(grade, OWNER)
        assert (graded.info.end_reason, graded.reward.value if graded.reward else None) == (EndReason.SUBMITTED, 1.0)
        assert Counting.ran["grade"] == 1
        assert await logged(host, episode) == [1.0, 1.0]


async def test_a_match_with_a_refused_move_ends_unscored_for_all_seats(hosting: Hosting) -> None:
    async with hosting(seated_world.Piles) as (host, disk):
        began = await host.start(
            StartParams(environment="piles", split="train", index=9, seed=4, key="m", seats=("first", "second")), OWNER
        )
        first, second = (one.episode for one in began.episodes)

        async def take(episode: str, number: int, count: int) -> str:
            given = StepParams(episode=episode, step=number, tool="take", arguments={"count": count}, key=f"k{number}")
            return text(await host.step(given, OWNER))

        await take(first, 1, 1)
        disk.error = ERRORS[0]
        with pytest.raises(ShuttingDown):
            await take(second, 1, 2)
        await until_written(host, disk)
        for seat in (first, second):
            info = (await host.get_episode(GetEpisodeParams(episode=seat), OWNER)).info
            assert (info.end_reason, info.reward.value if info.reward else 0) == (EndReason.INFRASTRUCTURE_ERROR, None)
        assert host.stats().running == 0


async def test_a_call_on_the_outside_that_cannot_be_written_ahead_does_not_run_and_is_unscored(
    hosting: Hosting,
) -> None:
    async with hosting(Sending) as (host, disk):
        episode = await start(host, "a", "sending")
        await step(host, episode, 1, "sent")
        disk.error = ERRORS[0]
        with pytest.raises(ShuttingDown):
            await step(host, episode, 2, "unsent")
        await until_written(host, disk)
        with pytest.raises(EpisodeFailed, match="it did not run, because it must be written before"):
            await step(host, episode, 2, "unsent")
        info = (await host.get_episode(GetEpisodeParams(episode=episode), OWNER)).info
        assert (info.end_reason, info.reward.value if info.reward else 0) == (EndReason.INFRASTRUCTURE_ERROR, None)
        assert (Counting.ran["sent"], Counting.ran["unsent"]) == (1, 0)


async def test_episodes_that_are_not_durable_go_on_while_the_journal_refuses(hosting: Hosting) -> None:
    async with hosting(Counting, Forgetful) as (host, disk):
        durable, free = await start(host, "a"), await start(host, "b", "forgetful")
        await refuse_all(host, disk, durable, 1)
        assert [text(await step(host, free, number, f"k{number}")) for number in (1, 2, 3)] == ["1", "2", "3"]


async def test_calls_that_run_when_the_journal_begins_to_refuse_have_their_outcomes_later(hosting: Hosting) -> None:
    async with hosting(Counting) as (host, disk):
        episode, other = await start(host, "a"), await start(host, "b")
        running = asyncio.create_task(step(host, other, 1, "w", "wait"))
        await wait_until(lambda: Counting.ran["w"])
        await refuse_all(host, disk, episode, 1)
        repeated = asyncio.create_task(step(host, other, 1, "w", "wait"))
        await asyncio.sleep(0)
        Counting.gate.set()
        for task in (running, repeated):
            with pytest.raises(ShuttingDown):
                await task
        await until_written(host, disk)
        info = (await host.get_episode(GetEpisodeParams(episode=other), OWNER)).info
        assert info.steps == 0, "a call that settles during a refusal is undone, too"
        assert text(await step(host, other, 1, "another", "wait")) == "went on"
        assert (Counting.ran["w"], Counting.ran["another"]) == (1, 1)


async def test_the_time_of_a_refusal_is_not_time_of_an_episode(hosting: Hosting, monkeypatch: Any) -> None:
    async with hosting(Counting, episode_seconds=3600.0, idle_seconds=900.0) as (host, disk):
        episode = await start(host, "a")
        found = host.store.find(episode)
        await refuse_all(host, disk, episode, 1)
        began, now = found.began, host._loop.time
        offset = 0.0
        monkeypatch.setattr(host._loop, "time", lambda: now() + offset)
        offset = 7200.0
        await wait_until(lambda: found.began > began + 7000.0)
        await until_written(host, disk)
        assert text(await step(host, episode, 1, "refused")) == "1"
        assert found.end_reason is None


async def test_a_snapshot_without_room_is_left_out_and_leaves_no_file(
    hosting: Hosting, monkeypatch: Any, tmp_path: Path
) -> None:
    class Saved(Sending):
        outside_effects = False
        forkable = True

    write = Path.open
    full = False

    def open_or_fail(path: Path, *given: Any, **options: Any) -> Any:
        file = write(path, *given, **options)
        if full and path.suffix == ".tmp":
            file.close()
            raise OSError(28, "No space left on device")
        return file

    monkeypatch.setattr(Path, "open", open_or_fail)
    async with hosting(Saved) as (host, _):
        episode = await start(host, "a", "saved")
        await step(host, episode, 1, "first")
        full = True
        assert text(await step(host, episode, 2, "second")) == "2"
        with pytest.raises(ShuttingDown, match="No space left on device"):
            await start(host, "b", "saved")
        full = False
        assert text(await step(host, episode, 3, "third")) == "3"
        assert await start(host, "b", "saved")
        found = host.store.find(episode)
        assert sorted(found.saved or ()) == [0, 1, 3]
        assert not await asyncio.to_thread(lambda: list(tmp_path.rglob("*.tmp")))
        forked = await host.fork(ForkParams(episode=episode, step=2, key="f"), OWNER)
        assert text(await step(host, forked.episode.episode, 3, "f3")) == "3"


@pytest.mark.parametrize("seed", range(8))
async def test_every_acknowledged_step_is_there_once_in_order_whenever_the_disk_was_full(
    hosting: Hosting, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    acknowledged: dict[int, tuple[str, list[str]]] = {}
    refusals = Counter[str]()
    attempts = count()

    async def until_done(request: Callable[[], Awaitable[Any]], what: str) -> Any:
        while True:
            try:
                return await request()
            except ShuttingDown:
                refusals[what] += 1
                await asyncio.sleep(0)

    async def attempt(host: EpisodeHost, episode: str, number: int, new_key: bool) -> StepResult:
        return await step(host, episode, number, f"{number}/{next(attempts) if new_key else 0}")

    async def play(host: EpisodeHost, place: int, steps: int) -> None:
        episode = await until_done(lambda: start(host, f"start{place}"), "start")
        seen = list[str]()
        acknowledged[place] = episode, seen
        for number in range(1, steps + 1):
            result = await until_done(partial(attempt, host, episode, number, place % 2 == 0), "step")
            seen.append(text(result))
        if place % 3 == 0:
            grade = GradeParams(episode=episode, answer=str(steps), key="g")
            await until_done(lambda: host.grade(grade, OWNER), "grade")

    async def spoil(disk: Disk, ended: asyncio.Event) -> None:
        def has_failed(attempts: int) -> bool:
            return ended.is_set() or disk.attempts >= attempts

        while not ended.is_set():
            disk.error = rng.choice(ERRORS)
            await wait_until(partial(has_failed, disk.attempts + rng.randrange(3, 6)))
            disk.error = None
            for _ in range(rng.randrange(40)):
                await asyncio.sleep(0)

    async with hosting(Counting) as (host, disk):
        ended = asyncio.Event()
        spoiling = asyncio.create_task(spoil(disk, ended))
        lengths = [rng.randrange(1, 13) for _ in range(9)]
        await asyncio.gather(*(play(host, place, steps) for place, steps in enumerate(lengths)))
        ended.set()
        await spoiling
        await until_written(host, disk)
        assert refusals, "the disk was never full at a moment that mattered"
        for place, steps in enumerate(lengths):
            assert acknowledged[place][1] == [str(number) for number in range(1, steps + 1)]
        logs = {episode: await logged(host, episode) for episode, _ in acknowledged.values()}
    async with hosting(Counting) as (host, _):
        for place, (episode, seen) in acknowledged.items():
            assert await logged(host, episode) == logs[episode]
            assert logs[episode][: len(seen)] == [float(number) for number in range(1, len(seen) + 1)]
            if place % 3:
                assert text(await step(host, episode, len(seen) + 1, "next")) == str(len(seen) + 1)


async def test_a_server_that_stops_during_a_refusal_leaves_what_was_acknowledged(
    hosting: Hosting, tmp_path: Path
) -> None:
    async with hosting(Counting) as (host, disk):
        episode = await start(host, "a")
        await step(host, episode, 1, "first")
        await refuse_all(host, disk, episode, 2)
        host.release()
    again = SqliteJournal(tmp_path / "j.db")
    kept = [one.entry for one in again.stored()]
    again.close()
    assert [one.key for one in kept if isinstance(one, Settled)] == ["first"]
    assert not any(isinstance(one, Ended) for one in kept)


async def test_entries_that_could_not_be_dropped_on_a_full_disk_are_dropped_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_rows, "GARBAGE_BYTES", 1024)
    journal = SqliteJournal(tmp_path / "j.db")
    replace = sqlite_journal._Rows.replace
    failed: list[int] = []

    def replace_or_fail(rows: Any, changed: Any) -> None:
        if len(failed) < 2:
            failed.append(len(changed))
            raise sqlite3.OperationalError("database or disk is full")
        replace(rows, changed)

    monkeypatch.setattr(sqlite_journal._Rows, "replace", replace_or_fail)
    journal.append(
        Started(
            episode="gone", group="g", size=1, environment="e", version="1", split="s", task="t", seed=0, owner="o",
            limits=EpisodeLimits(), tools=None, prompt=(), key="k", digest=b"d",
        )
    )  # fmt: skip
    journal.evict("gone")
    for number in range(40):
        journal.append(Ended(f"e{number}", EndReason.COMPLETED, "x" * 1024))
        await committed(journal, None)
        await wait_until(lambda: not journal._busy)
    journal.close()
    again = SqliteJournal(tmp_path / "j.db")
    left = [one.entry.episode for one in again.stored()]
    again.close()
    assert len(failed) == 2
    assert left == [f"e{number}" for number in range(40)]


class Overlapping(Counting):
    """Has calls that may overlap, which are written before they run."""

    @tool(concurrent=True)
    async def hold(self, name: str) -> str:
        """Wait until the test lets it go on."""
        self.ran[name] += 1
        await self.gate.wait()
        return f"held {name}"


class Keeping(Sending):
    """Comes back from snapshots."""

    outside_effects = False
    forkable = True


class Changing(Counting):
    """Gives something else in each instance."""

    forkable = False
    made: ClassVar[Counter[str]] = Counter()

    def setup(self) -> None:
        super().setup()
        self.made["all"] += 1
        self.count = 100 * self.made["all"]


@pytest.mark.parametrize("environment", [Counting, Keeping, Overlapping])
async def test_a_refused_call_is_undone_so_that_another_one_may_take_its_place(
    hosting: Hosting, environment: type[Environment[Any]]
) -> None:
    name = environment.__name__.lower()
    async with hosting(environment) as (host, disk):
        episode = await start(host, "a", name, secrets={"word": "s"})
        sizes = [text(await step(host, episode, number, f"k{number}")) for number in (1, 2)]
        await refuse_all(host, disk, episode, 3)
        await until_written(host, disk)
        info = (await host.get_episode(GetEpisodeParams(episode=episode), OWNER)).info
        assert (info.steps, sizes) == (2, ["1", "2"])
        assert [text(await step(host, episode, number, f"k{number}")) for number in (1, 2)] == sizes
        assert text(await step(host, episode, 3, "instead")) == "3"
        assert await logged(host, episode) == [1.0, 2.0, 3.0]
        counts = host.recovery.counts
        assert (counts.running, counts.rebuilt, counts.departed) == (0, 1, 0)


async def test_a_call_that_was_written_ahead_and_undone_runs_once_after_a_restart(hosting: Hosting) -> None:
    async with hosting(Overlapping) as (host, disk):
        episode = await start(host, "a", "overlapping")
        held = asyncio.create_task(step(host, episode, 1, "held", "hold"))
        await wait_until(lambda: Counting.ran["held"])
        await wait_until(lambda: host.journal is not None and host.journal.stats().waiting == 0)
        disk.error = ERRORS[0]
        Counting.gate.set()
        with pytest.raises(ShuttingDown):
            await held
        await until_written(host, disk)
        for _ in range(2):
            assert text(await step(host, episode, 1, "held", "hold")) == "held held"
        assert text(await step(host, episode, 2, "k2")) == "1"
    async with hosting(Overlapping) as (host, disk):
        info = (await host.get_episode(GetEpisodeParams(episode=episode), OWNER)).info
        assert (info.steps, info.end_reason) == (2, None)
        assert text(await step(host, episode, 3, "k3")) == "2"


async def test_an_episode_that_cannot_be_executed_again_ends_unscored_and_says_why(
    hosting: Hosting, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(Changing) as (host, disk):
        episode = await start(host, "a", "changing")
        await step(host, episode, 1, "first")
        await refuse_all(host, disk, episode, 2)
        await until_written(host, disk)
        info = (await host.get_episode(GetEpisodeParams(episode=episode), OWNER)).info
        assert (info.end_reason, info.reward.value if info.reward else 0) == (EndReason.INFRASTRUCTURE_ERROR, None)
        assert info.reward is not None
        assert "the infrastructure failed" in (info.reward.reason or "")
        assert "repeating step 1 gave another content" in caplog.text
        assert host.stats().running == 0


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_a_client_that_calls_again_after_a_refusal_makes_one_call(
    wire: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_journal, "PATIENCE_SECONDS", 0.0)
    journal = SqliteJournal(tmp_path / "j.db")
    disk = Disk(journal, monkeypatch)
    async with serving([Counting], ServerSettings(port=0), journal=journal) as server, AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(server.url, wire=wire, reconnect_seconds=0.5))
        episode = await client.environment("counting").start(index=0)
        seen = [text_of((await episode.call("add", name=f"k{number}")).content) for number in range(2)]
        for _ in range(3):
            disk.error = ERRORS[0]
            with pytest.raises(LudusError):
                await episode.call("add", name="refused")
            disk.error = None
            await wait_until(lambda: journal_trouble(journal) is None)
            seen.append(text_of((await episode.call("add", name="again")).content))
        assert seen == ["1", "2", "3", "4", "5"]
        assert [entry.reward.value for entry in (await episode.rewards()).entries] == [1.0, 2.0, 3.0, 4.0, 5.0]


async def test_an_acknowledged_call_of_ors_is_answered_again_after_its_episode_was_executed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_journal, "PATIENCE_SECONDS", 0.0)
    journal = SqliteJournal(tmp_path / "j.db")
    disk = Disk(journal, monkeypatch)
    head = {"X-Session-ID": "mine"}
    async with (
        serving([Counting], ServerSettings(port=0), journal=journal) as server,
        aiohttp.ClientSession(server.url, headers=head) as http,
    ):

        async def post(path: str, body: Any, key: str) -> str:
            async with http.post(path, json=body, headers={"Idempotency-Key": key}) as answer:
                return await answer.text()

        async def add(key: str) -> str:
            return await post("/counting/call", {"name": "add", "input": {"name": "n"}}, key)

        await post("/create", {"env_name": "counting", "split": "train", "index": 0}, "k0")
        first = await add("k1")
        assert '"text":"1"' in first
        disk.error = ERRORS[0]
        assert "cannot write its journal" in await add("k2")
        assert "cannot write its journal" in await add("k1"), "its episode is executed again once there is room"
        disk.error = None
        await wait_until(lambda: journal_trouble(journal) is None)
        assert await add("k1") == first
        assert '"text":"2"' in await add("k2")
