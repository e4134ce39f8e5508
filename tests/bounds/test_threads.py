"""Threads are shared fairly between environments, and the wait for a thread does not count as time of the code."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ludus.protocol import episodes as e
from ludus.protocol import text_of
from ludus.server import Environment, EpisodeHost, ServerLimits, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.execution.threads import Workers, _Job, _Pool
from ludus.server.rewards import reward

Start = Callable[..., Awaitable[EpisodeHost]]
OPEN = Principal.open()
HANGS = 60
"""Seconds after which a test is taken to hang."""
_keys = itertools.count()


class Held:
    """Where environment code hangs: the first call that comes to `stage`, until it is let go."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.hung = threading.Event()
        self.free = threading.Event()
        self.torn_down = 0
        self._first = threading.Lock()

    def at(self, stage: str) -> None:
        if stage == self.stage and self._first.acquire(blocking=False):
            self.hung.set()
            self.free.wait(HANGS)


class Crowd(Environment[Task]):
    """Block at the chosen place."""

    splits = {"train": [Task(id="only")]}
    held: Held

    def setup(self) -> None:
        self.held.at("setup")

    def prompt(self) -> str:
        self.held.at("prompt")
        return "go"

    @tool
    def call(self) -> str:
        """Return at once, or hang."""
        self.held.at("tool")
        return "called"

    def grade(self, answer: str) -> Any:
        self.held.at("grade")
        return 1.0

    def teardown(self) -> None:
        self.held.at("teardown")
        self.held.torn_down += 1


class Checked(Crowd):
    """Is graded by a rubric with checks that block."""

    @reward
    def look(self, answer: str) -> float:
        self.held.at("check")
        return 1.0

    @reward
    def look_again(self, answer: str) -> float:
        return 1.0

    grade = Environment.grade


class Quiet(Environment[Task]):
    """Another environment with a blocking setup."""

    splits = {"train": [Task(id="only")]}

    def setup(self) -> None:
        pass

    def prompt(self) -> str:
        return "go"

    @tool
    def call(self) -> str:
        """Return at once."""
        return "called"


def key() -> str:
    return f"k{next(_keys)}"


async def start(host: EpisodeHost, environment: str) -> str:
    params = e.StartParams(environment=environment, split="train", key=key())
    return (await host.start(params, OPEN)).episodes[0].episode


async def call(host: EpisodeHost, episode: str, tool_name: str = "call", **arguments: Any) -> e.StepResult:
    return await host.play(episode, tool_name, arguments, key=key())


class Blocking(Environment[Task]):
    """Its tool blocks until it is let go."""

    splits = {"train": [Task(id="only")]}
    free = threading.Event()

    def prompt(self) -> str:
        return "go"

    @tool
    def wait(self) -> str:
        """Block."""
        self.free.wait(HANGS)
        return "waited"


async def test_many_blocking_calls_of_one_environment_do_not_delay_another(host: Start) -> None:
    class Mine(Blocking):
        name = "mine"
        free = threading.Event()

    running = await host(Mine, Quiet, limits=ServerLimits(threads=4, grace_seconds=0.3))
    episodes = [await start(running, "mine") for _ in range(32)]
    calls = [asyncio.create_task(call(running, one, "wait")) for one in episodes]
    workers = running._workers
    async with asyncio.timeout(HANGS):
        while workers.running < 4:  # noqa: ASYNC110 - the pool has no event to give
            await asyncio.sleep(0)
        quiet = await start(running, "quiet")
    assert (await running.get_episode(e.GetEpisodeParams(episode=quiet), OPEN)).info.status == "running"
    assert (workers.share("mine").running, len(workers.share("mine").queue)) == (4, 28)
    Mine.free.set()
    outcomes = await asyncio.gather(*calls)
    assert [text_of(one.content) for one in outcomes] == ["waited"] * 32
    assert workers.running == 0


async def test_a_free_thread_goes_to_the_environment_with_the_fewest_calls() -> None:
    workers = Workers(2, ["a", "b"])
    a, b = workers.share("a"), workers.share("b")
    held = [await a.enter(), await a.enter()]
    order: list[str] = []

    async def enter(share: Any, name: str) -> None:
        place = await share.enter()
        order.append(name)
        await done.wait()
        place.leave()

    done = asyncio.Event()
    waiting = [asyncio.create_task(enter(a, "a")) for _ in range(3)]
    waiting += [asyncio.create_task(enter(b, "b")) for _ in range(3)]
    await asyncio.sleep(0)
    for place in held:
        place.leave()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == ["b", "a"]  # the first of b has a place of its own
    done.set()
    await asyncio.gather(*waiting)
    assert sorted(order) == ["a"] * 3 + ["b"] * 3
    assert workers.running == 0


async def test_a_call_that_is_cancelled_while_it_waits_gives_its_turn_back() -> None:
    workers = Workers(1, ["a"])
    share = workers.share("a")
    place = await share.enter()
    first, second = asyncio.create_task(share.enter()), asyncio.create_task(share.enter())
    await asyncio.sleep(0)
    first.cancel()
    place.leave()  # the turn is given in the same moment
    async with asyncio.timeout(HANGS):
        (await second).leave()
    assert (workers.running, len(share.queue)) == (0, 0)


@pytest.mark.suite("breadth", first=2)
@pytest.mark.requirement("LIM-15")
@pytest.mark.parametrize("stage", ["tool", "grade", "check", "setup", "prompt"])
async def test_waiting_for_a_thread_is_no_time_of_the_code_that_waits(host: Start, stage: str) -> None:
    """The one thread is taken by a call that hangs for its whole time, and the call behind it needs the same time."""

    class One(Checked if stage == "check" else Crowd):  # type: ignore[misc]
        name = "one"
        held = Held(stage)

    limits = ServerLimits(threads=1, tool_seconds=0.5, setup_seconds=0.5, grace_seconds=0.1)
    running = await host(One, limits=limits)

    async def go() -> str:
        episode = await start(running, "one")
        if stage in ("grade", "check"):
            params = e.GradeParams(episode=episode, answer="", key=key())
            return str((await running.grade(params, OPEN)).info.end_reason)
        return text_of((await call(running, episode)).content)

    first = asyncio.create_task(go())
    async with asyncio.timeout(HANGS):
        while not One.held.hung.is_set():  # noqa: ASYNC110 - set in a thread
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(first, go(), go(), return_exceptions=True)
    One.held.free.set()
    assert isinstance(outcomes[0], Exception), outcomes
    assert list(outcomes[1:]) == ["submitted" if stage in ("grade", "check") else "called"] * 2


async def test_waiting_for_a_thread_is_no_time_of_the_episode(host: Start) -> None:
    class One(Crowd):
        name = "one"
        held = Held("tool")

    running = await host(One, limits=ServerLimits(threads=1, tool_seconds=0.5, grace_seconds=0.1))
    limits = e.EpisodeLimits(seconds=0.5)
    slow = await start(running, "one")
    params = e.StartParams(environment="one", split="train", key=key(), limits=limits)
    first = asyncio.create_task(call(running, slow))
    async with asyncio.timeout(HANGS):
        while not One.held.hung.is_set():  # noqa: ASYNC110 - set in a thread
            await asyncio.sleep(0)
    place = asyncio.create_task(running.start(params, OPEN))
    with pytest.raises(Exception, match="took longer"):
        await first
    episode = (await place).episodes[0].episode
    One.held.free.set()
    assert text_of((await call(running, episode)).content) == "called"


async def test_waiting_for_a_thread_is_no_time_of_a_teardown(host: Start) -> None:
    class One(Crowd):
        name = "one"
        held = Held("teardown")

    running = await host(One, limits=ServerLimits(threads=1, setup_seconds=0.5, grace_seconds=0.1))
    episodes = [await start(running, "one") for _ in range(3)]
    async with asyncio.timeout(HANGS):
        await asyncio.gather(*(running.close(e.CloseParams(episode=one), OPEN) for one in episodes))
    One.held.free.set()
    assert One.held.torn_down >= 2


async def test_a_waiting_thread_keeps_nothing_of_an_abandoned_call_alive() -> None:
    class Instance:
        def call(self) -> None: ...

    pool, loop, gone = _Pool(), asyncio.get_running_loop(), threading.Event()
    first = pool.begin(threading.get_ident, (), {})
    await first.future
    instance = Instance()
    weakref.finalize(instance, gone.set)
    job = _Job(instance.call, (), {}, loop, loop.create_future())
    pool.abandon(job)
    pool._jobs.put(job)
    del job, instance
    assert await asyncio.to_thread(gone.wait, HANGS / 6)
    pool.close()
