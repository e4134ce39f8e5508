"""A process that takes over rebuilds the episodes before, while the other one still serves."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from stores import Store
from waiting import wait_until

from ludus.client import text_of
from ludus.protocol import episodes as e
from ludus.protocol.errors import ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.server import Environment, EpisodeHost, Result, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.durability import rows as journal_rows
from ludus.server.durability.database_urls import is_database
from ludus.server.durability.journals import journal_of
from ludus.server.recovery import head_start
from ludus.server.runtime.limits import ServerLimits

OWNER = Principal.open()
TASKS = [Task(id="only")]


class Counting(Environment[Task]):
    """Counts, and notes what is done with its instances."""

    splits = {"train": TASKS}
    blocking = False
    notes: ClassVar[list[str]] = []
    moody: ClassVar[bool] = False
    """Whether its observations depend on the number of notes."""

    async def setup(self) -> None:
        self.count = 0
        self.notes.append("setup")

    async def prompt(self) -> str:
        return "Count."

    @tool
    async def step(self) -> Result:
        self.count += 1
        self.notes.append("step")
        mood = f" {len(self.notes)}" if self.moody else ""
        return Result(f"{self.count}{mood}", reward=1.0, finished=self.count == 9)

    @tool(concurrent=True)
    async def wait(self, name: str) -> str:
        gate = self.gates.setdefault(name, asyncio.Event())
        if self.closed:
            await gate.wait()
        self.count += 1
        return f"{name} {self.count}"

    async def teardown(self) -> None:
        self.notes.append("teardown")

    gates: ClassVar[dict[str, asyncio.Event]] = {}
    closed: ClassVar[bool] = False


class Acting(Counting):
    """Acts on the outside."""

    outside_effects = True
    durable = "snapshot"
    snapshot_every = 1

    async def snapshot(self) -> bytes:
        return b"%d" % self.count

    async def restore(self, state: bytes) -> None:
        self.count = int(state)


class Saved(Counting):
    """Saves its state."""

    durable = "snapshot"
    snapshot_every = 2

    async def snapshot(self) -> bytes:
        return b"%d" % self.count

    async def restore(self, state: bytes) -> None:
        self.count = int(state)


CLASSES = (Counting, Acting, Saved)


@pytest.fixture(autouse=True)
def notes() -> list[str]:
    """What was done, from the beginning of the test."""
    Counting.notes = []
    Counting.gates, Counting.closed, Counting.moody = {}, False, False
    return Counting.notes


def new_host(store: Store, **limits: Any) -> EpisodeHost:
    """A host with a journal that is not open yet."""
    if is_database(store.name):
        journal = journal_of(None, store.name, "normal", None)
    else:
        journal = journal_of(Path(store.name), None, "normal", None)
    return EpisodeHost(CLASSES, limits=ServerLimits(**limits), journal=journal)


@asynccontextmanager
async def moved(
    first: EpisodeHost, store: Store, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[EpisodeHost]:
    """Let another host take over from one; something happens after its head start."""

    async def take_over() -> None:
        Counting.notes.append("ready")
        if meanwhile is not None:
            await meanwhile()
        Counting.notes.append("over")
        first.release()

    second = new_host(store)
    second.takes_over = take_over
    async with second:
        await asyncio.gather(*(episode.recovered() for episode in second.store))
        yield second


async def start(host: EpisodeHost, environment: str = "counting") -> str:
    """Start an episode."""
    key = f"{environment}/{next(KEYS)}"
    params = e.StartParams(environment=environment, split="train", seed=1, key=key)
    return (await host.start(params, OWNER)).episodes[0].episode


KEYS = itertools.count()


async def call(host: EpisodeHost, episode: str, number: int, tool: str = "step", **arguments: Any) -> str:
    """Take a step."""
    key = f"{episode}/{number}"
    params = e.StepParams(episode=episode, step=number, key=key, tool=tool, arguments=arguments)
    return text_of((await host.step(params, OWNER)).content)


def since(notes: list[str], mark: str) -> list[str]:
    """What was done after a mark."""
    return notes[notes.index(mark) + 1 :]


async def test_only_the_calls_after_the_head_start_are_repeated_when_the_journal_is_free(
    store: Store, notes: list[str]
) -> None:
    async with new_host(store) as first:
        episodes = [await start(first) for _ in range(3)]
        for number in range(1, 6):
            for episode in episodes:
                await call(first, episode, number)
        notes.clear()

        async def step_once_more() -> None:
            for episode in episodes:
                await call(first, episode, 6)
            await start(first)

        async with moved(first, store, step_once_more) as second:
            assert sorted(notes[: notes.index("ready")]) == ["setup"] * 3 + ["step"] * 15
            after = [note for note in since(notes, "over") if note != "teardown"]
            assert sorted(after) == ["setup"] + ["step"] * 3, "one call of each, and the episode that is new"
            assert [await call(second, episode, 7) for episode in episodes] == ["7"] * 3
            log = await second.rewards(e.RewardsParams(episode=episodes[0]), OWNER)
            assert [entry.step for entry in log.entries] == [1, 2, 3, 4, 5, 6, 7]
            assert [await call(second, episodes[0], 3)] == ["3"], "a repeated key gets what it got"
            assert second.recovery.counts.rebuilt == 4
            assert second.stats().running == 4


async def test_an_episode_that_ends_after_the_head_start_has_ended_and_its_second_instance_is_torn_down(
    store: Store, notes: list[str]
) -> None:
    async with new_host(store) as first:
        episode = await start(first)
        for number in range(1, 9):
            await call(first, episode, number)
        notes.clear()

        async def end() -> None:
            assert await call(first, episode, 9) == "9"

        async with moved(first, store, end) as second:
            info = (await second.get_episode(e.GetEpisodeParams(episode=episode), OWNER)).info
            assert info.end_reason is EndReason.COMPLETED
            assert info.reward is not None
            assert info.reward.value == 9.0
            assert second.stats().running == 0
            assert notes.count("teardown") == 2, "the first instance by its end, the second one by the move"


async def test_an_episode_that_ended_before_keeps_its_end(store: Store) -> None:
    async with new_host(store) as first:
        ended = await start(first)
        for number in range(1, 10):
            await call(first, ended, number)
        async with moved(first, store) as second:
            info = (await second.get_episode(e.GetEpisodeParams(episode=ended), OWNER)).info
            assert (info.end_reason, info.steps) == (EndReason.COMPLETED, 9)


@pytest.mark.suite("histories", first=1)
async def test_entries_that_were_dropped_meanwhile_let_all_be_read_again(
    store: Store, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_rows, "GARBAGE_BYTES", 1)
    async with new_host(store, result_ttl_seconds=0.0) as first:
        forgotten, kept = await start(first), await start(first)
        await call(first, forgotten, 1)
        await call(first, kept, 1)
        number = 1

        async def drop() -> None:
            nonlocal number
            await first.discard(forgotten)
            await wait_until(lambda: forgotten not in first.store)
            journal: Any = first.journal
            while journal._pass is None and not journal._after_pass:
                number += 1
                await call(first, kept, number)
            while journal._pass is not None:
                number += 1
                await call(first, kept, number)

        async with moved(first, store, drop) as second:
            assert forgotten not in second.store
            assert len(since(notes, "over")) >= number, "all calls were repeated"
            assert await call(second, kept, number + 1) == str(number + 1)


@pytest.mark.parametrize("environment", ["acting", "saved"])
async def test_what_acts_on_the_outside_waits_and_what_saves_its_state_goes_on_from_it(
    store: Store, notes: list[str], environment: str
) -> None:
    async with new_host(store) as first:
        episode = await start(first, environment)
        for number in range(1, 4):
            await call(first, episode, number)
        notes.clear()
        async with moved(first, store) as second:
            before = notes[: notes.index("ready")]
            if environment == "acting":
                assert before == [], "no instance of it was made while the other one lived"
            else:
                assert before == ["setup", "step"], "the snapshot after step 2, and step 3"
            assert await call(second, episode, 4) == "4"


async def test_a_snapshot_after_the_head_start_is_used_by_a_later_fork_or_recovery(store: Store) -> None:
    async with new_host(store) as first:
        episode = await start(first, "saved")
        await call(first, episode, 1)

        async def go_on() -> None:
            for number in range(2, 6):
                await call(first, episode, number)

        async with moved(first, store, go_on) as second:
            assert await call(second, episode, 6) == "6"
            assert sorted((second.store.find(episode).saved or {}).keys()) == [0, 2, 4, 6]
    async with new_host(store) as third:
        await third.store.find(episode).recovered()
        assert await call(third, episode, 7) == "7"


async def test_what_departs_is_tried_again_and_ends_unscored_with_the_reason(
    store: Store, notes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with new_host(store) as first:
        Counting.moody = True
        episode = await start(first)
        await call(first, episode, 1)
        with caplog.at_level(logging.ERROR, "ludus.server.recovery"):
            async with moved(first, store) as second:
                info = (await second.get_episode(e.GetEpisodeParams(episode=episode), OWNER)).info
        assert info.end_reason is EndReason.INFRASTRUCTURE_ERROR
        assert "repeating step 1 gave another content" in caplog.text
        assert notes.count("setup") == 3, "the first instance, the head start, and the recovery"
        assert notes.count("teardown") == 3


async def test_calls_that_settled_in_another_order_are_repeated_in_it(store: Store) -> None:
    Counting.closed = True
    async with new_host(store) as first:
        episode = await start(first)
        calls = [asyncio.create_task(call(first, episode, n, "wait", name=str(n))) for n in (1, 2, 3)]
        await wait_until(lambda: len(Counting.gates) == 3)
        Counting.gates["3"].set()
        assert await calls[2] == "3 1"

        async def settle() -> None:
            for number in (2, 1):
                Counting.gates[str(number)].set()
                await calls[number - 1]
            Counting.closed = False

        Counting.gates.pop("3")
        Counting.closed = False
        async with moved(first, store, settle) as second:
            assert [await call(second, episode, n, "wait", name=str(n)) for n in (1, 2, 3)] == ["1 3", "2 2", "3 1"]
            assert await call(second, episode, 4) == "4"


async def test_what_takes_too_long_is_rebuilt_when_the_journal_is_free(
    store: Store, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_start, "HEAD_SECONDS", 0.1)
    async with new_host(store) as first:
        episodes = [await start(first) for _ in range(2)]
        assert await call(first, episodes[0], 1, "wait", name="a") == "a 1"
        assert await call(first, episodes[1], 1) == "1"
        Counting.closed = True
        Counting.gates.clear()
        notes.clear()

        async def open_the_gate() -> None:
            has_begun = "a" in Counting.gates  # on a busy machine, reading the journal may take all of the time
            assert not has_begun or "teardown" in notes, "the episode that waits was given up"
            Counting.closed = False

        async with moved(first, store, open_the_gate) as second:
            assert [await call(second, episode, 2) for episode in episodes] == ["2", "2"]


async def test_a_process_that_may_not_take_over_leaves_no_instance_behind(store: Store, notes: list[str]) -> None:
    async with new_host(store) as first:
        episode = await start(first)
        await call(first, episode, 1)
        notes.clear()

        async def refuse() -> None:
            raise ShuttingDown("not now")

        second = new_host(store)
        second.takes_over = refuse
        with pytest.raises(ShuttingDown):
            await second.__aenter__()
        assert notes == ["setup", "step", "teardown"]
        assert await call(first, episode, 2) == "2", "the first one goes on"


@pytest.mark.parametrize("rounds", [0, 1])
async def test_a_journal_that_cannot_be_read_to_its_end_is_read_again_when_it_is_free(
    store: Store, monkeypatch: pytest.MonkeyPatch, rounds: int, notes: list[str]
) -> None:
    monkeypatch.setattr(head_start, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(head_start, "SHORTER", 1e9)
    async with new_host(store) as first:
        episodes = [await start(first) for _ in range(3)]
        for episode in episodes:
            await call(first, episode, 1)
        second = new_host(store)
        journal: Any = second.journal
        read, number = journal._rows_of_other, itertools.count()

        def break_off(after: int) -> Iterator[Any]:
            if next(number) < rounds:
                yield from read(after)
                return
            yield from itertools.islice(read(0), 2)
            raise OSError("planted")

        async def take_over() -> None:
            assert notes.count("teardown") == 3 * rounds, "what was rebuilt is torn down"
            first.release()

        monkeypatch.setattr(journal, "_rows_of_other", break_off)
        second.takes_over = take_over
        async with second:
            assert [await call(second, episode, 2) for episode in episodes] == ["2", "2", "2"]


async def test_rounds_go_on_while_they_become_shorter(
    store: Store, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    """What was written during a round is repeated in the next one."""
    monkeypatch.setattr(head_start, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(head_start, "SHORTER", 1e9)
    monkeypatch.setattr(head_start, "ROUNDS", 3)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(new_host(store))
        episode = await start(first)
        await call(first, episode, 1)
        second = new_host(store)
        journal: Any = second.journal
        peek, rounds = journal.peek, itertools.count(2)
        loop = asyncio.get_running_loop()

        def step_then_peek() -> Any:
            asyncio.run_coroutine_threadsafe(call(first, episode, next(rounds)), loop).result(30)
            return peek()

        monkeypatch.setattr(journal, "peek", lambda: Lazy(step_then_peek))
        notes.clear()

        async def take_over() -> None:
            assert notes.count("setup") == 1
            assert notes.count("step") == 3 + 4, "three by the first host, and each once by the second"
            first.release()

        second.takes_over = take_over
        await stack.enter_async_context(second)
        assert await call(second, episode, 5) == "5"


class Lazy:
    """Calls a function when it is iterated over."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __iter__(self) -> Iterator[Any]:
        return iter(self._function())
