"""The methods of one episode run in one thread, as SQLite, Playwright and `threading.local` need it."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, cast

import pytest
from seated_world import Nim, Piles

from ludus.protocol import episodes as e
from ludus.protocol import text_of
from ludus.protocol.errors import EnvironmentFailed
from ludus.server import Environment, EpisodeHost, ServerLimits, Task, Toolset, tool
from ludus.server.auth.principal import Principal
from ludus.server.execution.threads import HOMES, Home, Workers
from ludus.server.rewards import reward
from ludus.testing import play

Start = Callable[..., Awaitable[EpisodeHost]]
OPEN = Principal.open()
HANGS = 60
"""Seconds after which a test is taken to hang."""
_keys = itertools.count()


def key() -> str:
    return f"k{next(_keys)}"


async def call(host: EpisodeHost, episode: str, tool_name: str, **arguments: Any) -> e.StepResult:
    return await host.play(episode, tool_name, arguments, key=key())


class Notes(Toolset):
    """Tools of another class."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        cast(Desk, environment).note("toolset")

    @tool
    def write(self) -> str:
        """Write."""
        cast(Desk, self.environment).note("toolset's tool")
        return "written"


class Desk(Environment[Task]):
    """A desk whose tickets are in SQLite, as anybody would write it."""

    splits = {"train": [Task(id=f"t{index}") for index in range(40)]}
    toolsets = (Notes,)
    reward_range = (0.0, 2.0)
    threads: ClassVar[dict[int, list[tuple[str, int]]]] = defaultdict(list)

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.note("constructor")

    def note(self, method: str) -> None:
        self.seen.append((method, threading.get_ident()))

    def setup(self) -> None:
        self.threads[id(self.seen)] = self.seen
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE ticket (title TEXT)")
        self.note("setup")

    def prompt(self) -> str:
        self.note("prompt")
        return "Write three tickets."

    @tool
    def add(self, title: str) -> str:
        """Add a ticket."""
        self.note("tool")
        self.database.execute("INSERT INTO ticket VALUES (?)", (title,))
        return str(self.count())

    def count(self) -> int:
        (count,) = self.database.execute("SELECT count(*) FROM ticket").fetchone()
        return int(count)

    @reward
    def three(self, answer: str) -> float:
        self.note("reward")
        return float(self.count() == 3)

    @reward
    def any_at_all(self, answer: str) -> float:
        self.note("reward")
        return float(self.count() > 0)

    def teardown(self) -> None:
        self.note("teardown")
        self.database.close()


METHODS = {"constructor", "toolset", "toolset's tool", "setup", "prompt", "tool", "reward", "teardown"}


async def start(host: EpisodeHost, environment: str, task: int = 0) -> str:
    params = e.StartParams(environment=environment, split="train", index=task, key=key())
    return (await host.start(params, OPEN)).episodes[0].episode


@pytest.mark.parametrize("places", [1, 4, 64])
async def test_all_methods_of_an_episode_run_in_one_thread_however_many_run(places: int, host: Start) -> None:
    running = await host(Desk, limits=ServerLimits(threads=places))
    Desk.threads.clear()

    async def whole(task: int) -> float | None:
        episode = await start(running, "desk", task)
        for title in "abc":
            await call(running, episode, "add", title=title)
        await call(running, episode, "write")
        result = await running.grade(e.GradeParams(episode=episode, answer="done", key=key()), OPEN)
        assert result.info.reward is not None
        return result.info.reward.value

    rewards = await asyncio.gather(*map(whole, range(40)))
    assert rewards == [2.0] * 40
    lanes = running._workers.share("desk").lanes
    async with asyncio.timeout(HANGS):
        while any(lane.homes for lane in lanes):  # noqa: ASYNC110 - the last teardowns
            await asyncio.sleep(0)
    for seen in Desk.threads.values():
        assert {method for method, _ in seen} == METHODS
        assert len({thread for _, thread in seen}) == 1, seen
    assert len(lanes) <= HOMES * places


def test_a_desk_with_sqlite_is_scored_over_a_real_server() -> None:
    with play(Desk) as environment:
        for index in range(20):
            episode = environment.start(index=index)
            assert [episode.add(title=title).text for title in "abc"] == ["1", "2", "3"]
            episode.answer("done")
            assert episode.reward == 2.0


class NimInOneThread(Nim):
    """Notes the threads of its methods."""

    def setup(self) -> None:
        self.threads = [threading.get_ident()]
        super().setup()

    def take(self, seat: str, count: int) -> None:
        self.threads.append(threading.get_ident())
        super().take(seat, count)


class PilesInOneThread(Piles):
    """Its match has one thread for all seats."""

    name = "piles"
    match_class = NimInOneThread
    blocking = True


async def test_all_seats_of_a_match_run_in_one_thread(host: Start) -> None:
    running = await host(PilesInOneThread)
    params = e.StartParams(environment="piles", split="train", index=7, seats="all", key=key())
    first, second = [one.episode for one in (await running.start(params, OPEN)).episodes]
    match: Any = running.store.find(first).match.match  # type: ignore[union-attr]
    for episode in (first, second, first, second):
        await call(running, episode, "take", count=1)
    assert len(match.threads) == 5
    assert len(set(match.threads)) == 1
    assert match.threads[0] != threading.get_ident()


class Hanging(Environment[Task]):
    """A tool that hangs in the first episode."""

    splits = {"train": [Task(id="only")]}
    free = threading.Event()
    hangs: ClassVar[list[Any]] = []

    def prompt(self) -> str:
        return "go"

    @tool
    def work(self) -> str:
        """Hang if this is the first episode."""
        if self.hangs and self.hangs[0] is self:
            self.free.wait(HANGS)
        return str(threading.get_ident())

    @tool
    def mark(self) -> str:
        """Make this the episode that hangs."""
        self.hangs.append(self)
        return str(threading.get_ident())


async def test_an_episode_whose_thread_another_one_has_left_a_call_in_goes_on_in_a_new_one(host: Start) -> None:
    running = await host(Hanging, limits=ServerLimits(threads=1, tool_seconds=0.3, grace_seconds=0.1))
    episodes = [await start(running, "hanging") for _ in range(2 * HOMES)]
    threads = [text_of((await call(running, episode, "work")).content) for episode in episodes]
    assert len(set(threads)) == HOMES
    await call(running, episodes[0], "mark")
    with pytest.raises(EnvironmentFailed, match=r"it took longer than 0\.3 s"):
        await call(running, episodes[0], "work")
    twin = next(index for index in range(1, len(threads)) if threads[index] == threads[0])
    after = text_of((await call(running, episodes[twin], "work")).content)
    assert after != threads[twin]
    assert text_of((await call(running, episodes[twin], "work")).content) == after
    Hanging.free.set()


class Overlapping(Environment[Task]):
    """Two calls that end only if they run at the same time."""

    splits = {"train": [Task(id="only")]}
    both = threading.Barrier(2, timeout=HANGS)

    def prompt(self) -> str:
        return "go"

    @tool(concurrent=True)
    def meet(self) -> str:
        """Wait for the other call."""
        self.both.wait()
        return "met"


async def test_concurrent_tools_of_one_episode_overlap(host: Start) -> None:
    running = await host(Overlapping)
    episode = await start(running, "overlapping")
    results = await asyncio.gather(*(call(running, episode, "meet") for _ in range(2)))
    assert [text_of(result.content) for result in results] == ["met", "met"]


async def test_a_call_that_is_canceled_while_it_waits_for_its_home_leaves_it_to_the_next() -> None:
    workers = Workers(4, ["a"])
    share = workers.share("a")
    home, free, begun = Home(users=1), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        free.wait(HANGS)

    first = asyncio.create_task(share.at(home).run(hold))
    while not begun.is_set():  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(0)
    second, third = (asyncio.create_task(share.at(home).run(threading.get_ident)) for _ in range(2))
    await asyncio.sleep(0)
    assert workers.running == 1
    second.cancel()
    await asyncio.sleep(0)
    free.set()
    assert await third != threading.get_ident()
    await first
    assert (workers.running, home.lane is not None and home.lane.busy) == (0, False)
    home.leave()
    assert home.lane is None
    workers.close()


class Mixed(Environment[Task]):
    """Opens its database in an async method."""

    splits = {"train": [Task(id="only")]}

    async def setup(self) -> None:
        self.database = sqlite3.connect(":memory:")

    def prompt(self) -> str:
        return "go"

    @tool
    def read(self) -> str:
        """Read."""
        return str(self.database.execute("SELECT 1").fetchone())

    async def teardown(self) -> None:
        self.database.close()


async def test_an_object_of_another_thread_is_named_as_the_cause_with_the_remedy(host: Start) -> None:
    running = await host(Mixed)
    episode = await start(running, "mixed")
    with pytest.raises(EnvironmentFailed, match="ProgrammingError, since it used an object of another thread"):
        await call(running, episode, "read")
